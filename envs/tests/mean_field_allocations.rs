//! Steps of the mean-field simulators take no memory, on one thread and on two.
// A global allocator is an unsafe trait; this one counts and hands everything on to the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use pushforward_envs::mean_field::{GameConfig, NoisePaths, PushForward, Sampled, registry};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged, and counting itself does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

const STEPS: u64 = 40;

// One test, so that no other test's thread is counted.
#[test]
fn steps_do_not_allocate() {
    // The thread pool takes a little memory of its own when a worker first finds work, so on two threads only steps that allocate each time show.
    for (threads, allowed) in [(1, 0), (2, STEPS / 4)] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap()
            .install(|| registry::names().for_each(|name| exact_and_sampled(name, allowed)));
    }
}

fn exact_and_sampled(name: &str, allowed: u64) {
    let horizon = format!("horizon = {}", STEPS + 1);
    let config = GameConfig::new(name, horizon.parse().unwrap()).unwrap();
    let game = config.build::<f32>().unwrap();
    let (states, actions) = (game.spec().states, game.spec().actions());
    let uniform = vec![1.0 / actions as f32; states * actions];
    // Enough paths for the work to be shared.
    let paths = if name == "macro" { 6 } else { 96 };
    let noise = NoisePaths::sample(&*game, paths, 0).unwrap();

    let mut simulator = PushForward::new(&*game).unwrap();
    let mut rollout = simulator.start(noise.clone()).unwrap();
    simulator.step(&mut rollout, &uniform).unwrap();
    let before = allocations();
    for _ in 0..STEPS {
        simulator.step(&mut rollout, &uniform).unwrap();
    }
    let taken = allocations() - before;
    assert!(taken <= allowed, "{name}: {taken}");

    let mut simulator = Sampled::new(&*game, 10, 0).unwrap();
    let mut crowd = simulator.start(noise).unwrap();
    simulator.step(&mut crowd, &uniform).unwrap();
    let before = allocations();
    for _ in 0..STEPS {
        simulator.step(&mut crowd, &uniform).unwrap();
    }
    let taken = allocations() - before;
    assert!(taken <= allowed, "{name}, sampled: {taken}");
}
