//! Every registered environment goes through the checker, with a counting allocator; broken ones are caught.
// A global allocator is an unsafe trait; this one counts and hands everything on to the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pushforward_envs::checker::{CheckOptions, check};
use pushforward_envs::{
    Env, EnvConfig, EnvError, EnvSpec, ObservationMut, Outcome, StreamRng, registry,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that is ending has no counter any more.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged, and counting itself does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn config(name: &str, settings: &str) -> EnvConfig {
    EnvConfig::new(name, settings.parse().unwrap()).unwrap()
}

fn checked(config: &EnvConfig, allocations: Option<fn() -> u64>) {
    let options = CheckOptions {
        steps: 1200,
        seed: 4,
        allocations,
    };
    if let Err(error) = check(&|| config.build(), options) {
        panic!("{:?}: {error}", config.settings());
    }
}

#[test]
fn every_registered_environment_passes() {
    let mut checks = 0;
    for name in registry::names() {
        let variants: &[&str] = match name {
            "chain" => &[
                "",
                "back = true\ndim = 32\nreward = { kind = \"independent\" }\nmax_steps = 7",
                "dim = 3\nreward = { kind = \"gaussian\" }\nterminal_bonus = [1, 2, 3]\nlength = 1",
                "reward = { kind = \"deterministic\", value = [0, 1] }\nslip = 0",
            ],
            // Its map comes from the user; the next test has one.
            "maze" => &[],
            name if name.starts_with("maze/") => &[
                "",
                "observation = \"grid\"\nmax_steps = 11",
                "observation = \"image\"\nsize = 32\nmax_steps = 12",
            ],
            _ => &["", "max_steps = 13"],
        };
        for settings in variants {
            // The wrapped crate allocates its observations itself.
            let counter = (!name.starts_with("gymnasium/")).then_some(allocations as fn() -> u64);
            checked(&config(name, settings), counter);
            checks += 1;
        }
    }
    assert_eq!(checks, 4 + 7 * 3 + 2);
}

#[test]
fn a_user_map_passes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("corridor.json");
    let map = r#"{"name": "corridor", "height": 1, "width": 4, "start": [0, 1], "reward_dim": 1,
        "reward_uniform": [{"low": -1, "high": 1}], "item_rgb": [[0, 0, 255]],
        "items": [{"dim": 0, "cell": [0, 0]}, {"dim": 0, "cell": [0, 0]}, {"dim": 0, "cell": [0, 2]}],
        "horizontal_edges": [[0, 0, 0, 0], [0, 0, 0, 0]], "vertical_edges": [[0, 1, 3, 1, 1]],
        "forced_action_probs": [{"cell": [0, 2], "probs": [0.25, 0, 0, 0.75]}]}"#;
    std::fs::write(&path, map).unwrap();
    let path = path.display();
    for observation in ["features", "grid", "image"] {
        let settings = format!("map = \"{path}\"\nobservation = \"{observation}\"");
        checked(&config("maze", &settings), Some(allocations));
    }
}

#[test]
fn stepping_a_vector_does_not_allocate() {
    for (name, settings) in [("chain", ""), ("maze/exclusive", "observation = \"image\"")] {
        let mut envs =
            pushforward_envs::VectorEnv::new(&config(name, settings), 5, 0, "checker test")
                .unwrap();
        let before = allocations();
        for _ in 0..300 {
            envs.step_all(&[0; 5]);
        }
        assert_eq!(allocations(), before, "{name}");
    }
}

/// Faults that the checker has to find.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    ResetsItself,
    TerminatesAtTheLimit,
    LoadsElsewhere,
    Allocates,
    OwnRandomness,
    LeavesRewardUnwritten,
    OutOfBounds,
}

/// A chain with one fault.
struct Broken {
    inner: Box<dyn Env>,
    fault: Fault,
    own: StreamRng,
    sink: Vec<u8>,
}

impl Broken {
    fn build(fault: Fault) -> Result<Box<dyn Env>, EnvError> {
        static BUILT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let index = BUILT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Box::new(Self {
            inner: config("chain", "max_steps = 9\ndim = 32").build()?,
            fault,
            own: StreamRng::new(0, "own", index),
            sink: Vec::new(),
        }))
    }
}

impl Env for Broken {
    fn spec(&self) -> &EnvSpec {
        self.inner.spec()
    }

    fn reset(&mut self, rng: &mut StreamRng, observation: ObservationMut<'_>) {
        self.inner.reset(rng, observation);
    }

    fn step(
        &mut self,
        action: usize,
        rng: &mut StreamRng,
        reward: &mut [f32],
        observation: ObservationMut<'_>,
    ) -> Outcome {
        let ObservationMut::F32(seen) = observation else {
            return self.inner.step(action, rng, reward, observation);
        };
        let written = reward[0];
        let rng = if self.fault == Fault::OwnRandomness {
            &mut self.own
        } else {
            rng
        };
        let outcome = self
            .inner
            .step(action, rng, reward, ObservationMut::F32(seen));
        match (self.fault, outcome) {
            (Fault::ResetsItself, Outcome::Terminated) => {
                seen.copy_from_slice(&[1.0, 0.0, 0.0, 0.0, 0.0])
            }
            (Fault::TerminatesAtTheLimit, Outcome::Truncated) => return Outcome::Continue,
            (Fault::Allocates, _) => self.sink = vec![1; 40],
            (Fault::LeavesRewardUnwritten, _) => reward[0] = written,
            (Fault::OutOfBounds, _) => seen[4] = 1.5,
            _ => {}
        }
        outcome
    }

    fn observe(&mut self, observation: ObservationMut<'_>) {
        self.inner.observe(observation);
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        self.inner.save(bytes);
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        self.inner.load(bytes)?;
        if self.fault == Fault::LoadsElsewhere {
            let mut changed = bytes.to_vec();
            changed[0] ^= 1;
            self.inner.load(&changed)?;
        }
        Ok(())
    }
}

#[test]
fn broken_environments_are_caught() {
    for (fault, expected) in [
        (Fault::ResetsItself, "not that of the true successor"),
        (Fault::TerminatesAtTheLimit, "Continue after 9 steps"),
        (Fault::LoadsElsewhere, "a loaded state is not the saved one"),
        (Fault::Allocates, "the step allocates memory"),
        (Fault::OwnRandomness, "two runs of one seed differ"),
        (Fault::LeavesRewardUnwritten, "reward NaN"),
        (Fault::OutOfBounds, "observation holds 1.5, expected 0 to 1"),
    ] {
        let options = CheckOptions {
            allocations: Some(allocations),
            ..CheckOptions::default()
        };
        let message = check(&|| Broken::build(fault), options)
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{message}");
    }
}
