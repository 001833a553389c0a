//! Adapters to and from the `gymnasium-rs` interface, and its CartPole as one of the registry's environments.
//!
//! That crate has one scalar reward, seeds of 31 useful bits and a `render` that may panic; none of it reaches past this module.

use std::cell::RefCell;

use gymnasium_ndarray::{Array1, Array3};
use gymnasium_rs::core::{Env as GymnasiumEnv, Info, Options, Space};
use gymnasium_rs::envs::cartpole::CartPole;
use rand::RngCore;
use serde::{Deserialize, Serialize};

use crate::registry::EnvSettings;
use crate::{
    Env, EnvError, EnvSpec, ObservationKind, ObservationMut, ObservationSpec, Outcome, Picture,
    StreamRng,
};

/// One of our environments as a `gymnasium_rs::core::Env`: floats in, an action index out.
///
/// The reward is the weighted sum of the reward vector's coordinates, and the vector itself is in `info["reward_vector"]`. Byte
/// observations are handed over as floats. `reset` with a seed starts the stream (`gymnasium`, 0) under it; without, the stream goes on.
pub struct AsGymnasium<E> {
    /// `render` has no mutable access and a picture needs it.
    env: RefCell<E>,
    rng: StreamRng,
    weights: Vec<f32>,
    reward: Vec<f32>,
    floats: Vec<f32>,
    bytes: Vec<u8>,
}

impl<E: Env> AsGymnasium<E> {
    /// Wraps an environment with one weight per reward coordinate.
    ///
    /// # Errors
    /// [`EnvError::Setting`] if the number of weights is not the length of the reward vector.
    pub fn new(env: E, weights: Vec<f32>) -> Result<Self, EnvError> {
        let spec = env.spec();
        if weights.len() != spec.reward_dim {
            return Err(EnvError::Setting {
                name: spec.name.clone(),
                message: format!(
                    "{} reward weights, expected d = {}",
                    weights.len(),
                    spec.reward_dim
                ),
            });
        }
        let length = spec.observation.len();
        let bytes = match spec.observation.kind {
            ObservationKind::F32 => Vec::new(),
            ObservationKind::U8 => vec![0; length],
        };
        Ok(Self {
            reward: vec![0.0; spec.reward_dim],
            floats: vec![0.0; length],
            bytes,
            rng: StreamRng::new(0, "gymnasium", 0),
            weights,
            env: RefCell::new(env),
        })
    }

    /// Lets the environment write an observation and turns it into an array.
    fn observed<R>(
        &mut self,
        write: impl FnOnce(&mut E, &mut StreamRng, &mut [f32], ObservationMut<'_>) -> R,
    ) -> (Array1<f32>, R) {
        let env = self.env.get_mut();
        let result = if self.bytes.is_empty() {
            let observation = ObservationMut::F32(&mut self.floats);
            write(env, &mut self.rng, &mut self.reward, observation)
        } else {
            let observation = ObservationMut::U8(&mut self.bytes);
            let result = write(env, &mut self.rng, &mut self.reward, observation);
            for (float, byte) in self.floats.iter_mut().zip(&self.bytes) {
                *float = f32::from(*byte);
            }
            result
        };
        (Array1::from_vec(self.floats.clone()), result)
    }
}

impl<E: Env> GymnasiumEnv<Array1<f32>, i32> for AsGymnasium<E> {
    fn observation_space(&self) -> Space {
        let env = self.env.borrow();
        let observation = &env.spec().observation;
        Space::Box {
            low: Array1::from_elem(observation.len(), observation.low),
            high: Array1::from_elem(observation.len(), observation.high),
        }
    }

    fn action_space(&self) -> Space {
        Space::Discrete(self.env.borrow().spec().actions() as i32)
    }

    fn reset(&mut self, seed: Option<i32>, _options: Options) -> (Array1<f32>, Info) {
        if let Some(seed) = seed {
            self.rng = StreamRng::new(u64::from(seed.cast_unsigned()), "gymnasium", 0);
        }
        let (observation, ()) =
            self.observed(|env, rng, _, observation| env.reset(rng, observation));
        (observation, Info::new())
    }

    /// # Panics
    /// If the action is not in the action space: the interface has no way to report it.
    fn step(&mut self, action: i32) -> (Array1<f32>, f32, bool, bool, Info) {
        let index = usize::try_from(action).unwrap_or(usize::MAX);
        let (observation, outcome) = self
            .observed(|env, rng, reward, observation| env.step(index, rng, reward, observation));
        let reward = self
            .reward
            .iter()
            .zip(&self.weights)
            .map(|(reward, weight)| reward * weight)
            .sum();
        let info = Info::from([("reward_vector".to_owned(), self.reward.clone().into())]);
        (
            observation,
            reward,
            outcome == Outcome::Terminated,
            outcome == Outcome::Truncated,
            info,
        )
    }

    fn render(&self) -> Option<Array3<u8>> {
        let picture = self.env.borrow_mut().picture()?;
        Array3::from_shape_vec((picture.height, picture.width, 3), picture.rgb).ok()
    }

    fn close(&mut self) {}
}

/// A `gymnasium_rs` environment with discrete actions as one of ours, with a reward vector of length 1.
///
/// It is always reset with a seed, drawn from the stream. Its own state is out of reach, so a saved state is the seed of the last
/// reset and the actions since, and loading replays them: the wrapped environment must be a function of both. Stepping allocates
/// where the wrapped environment does.
pub struct FromGymnasium<G> {
    inner: G,
    spec: EnvSpec,
    /// Draws a picture of an observation; the wrapped `render` may panic and is not called.
    draw: Option<fn(&[f32]) -> Picture>,
    observation: Array1<f32>,
    seed: i32,
    actions: Vec<u8>,
}

impl<G: GymnasiumEnv<Array1<f32>, i32> + Send> FromGymnasium<G> {
    /// Wraps `inner` under a name with names for its actions and a time limit in steps, and resets it with seed 0.
    ///
    /// # Errors
    /// [`EnvError::Setting`] if the time limit is 0, the actions are not discrete or not as many as the names (at most 256), or the
    /// observations are not a box.
    pub fn new(
        name: &str,
        mut inner: G,
        action_names: &[&str],
        max_steps: usize,
        draw: Option<fn(&[f32]) -> Picture>,
    ) -> Result<Self, EnvError> {
        let wrong = |message: String| EnvError::Setting {
            name: name.to_owned(),
            message,
        };
        if max_steps == 0 {
            return Err(wrong("max_steps = 0, expected at least 1".to_owned()));
        }
        let actions = match inner.action_space() {
            Space::Discrete(actions) => actions,
            space => {
                return Err(wrong(format!(
                    "action space {space:?}, expected a discrete one"
                )));
            }
        };
        if actions as usize != action_names.len() || !(1..=256).contains(&actions) {
            return Err(wrong(format!(
                "{actions} actions and {} names, expected as many, 1 to 256",
                action_names.len()
            )));
        }
        let Space::Box { low, high } = inner.observation_space() else {
            return Err(wrong("discrete observations, expected a box".to_owned()));
        };
        let observation = GymnasiumEnv::reset_seed(&mut inner, 0).0;
        Ok(Self {
            spec: EnvSpec {
                name: name.to_owned(),
                observation: ObservationSpec {
                    shape: vec![observation.len()],
                    kind: ObservationKind::F32,
                    low: low.iter().copied().fold(f32::MAX, f32::min),
                    high: high.iter().copied().fold(f32::MIN, f32::max),
                },
                action_names: action_names.iter().map(|name| (*name).to_owned()).collect(),
                reward_dim: 1,
                max_steps: Some(max_steps),
                constraints: Vec::new(),
            },
            inner,
            draw,
            observation,
            seed: 0,
            actions: Vec::with_capacity(max_steps.min(1 << 16)),
        })
    }

    fn start(&mut self, seed: i32) {
        self.observation = self.inner.reset_seed(seed).0;
        self.seed = seed;
        self.actions.clear();
    }

    /// Takes one step of the wrapped environment: its reward and its two flags.
    fn advance(&mut self, action: u8) -> (f32, bool, bool) {
        let (observation, reward, terminated, truncated, _) = self.inner.step(i32::from(action));
        self.observation = observation;
        self.actions.push(action);
        (reward, terminated, truncated)
    }
}

impl<G: GymnasiumEnv<Array1<f32>, i32> + Send> Env for FromGymnasium<G> {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, rng: &mut StreamRng, observation: ObservationMut<'_>) {
        self.start((rng.next_u32() >> 1).cast_signed());
        self.observe(observation);
    }

    fn step(
        &mut self,
        action: usize,
        _rng: &mut StreamRng,
        reward: &mut [f32],
        observation: ObservationMut<'_>,
    ) -> Outcome {
        assert!(action < self.spec.actions(), "no action {action}");
        let (value, terminated, truncated) = self.advance(action as u8);
        reward[0] = value;
        self.observe(observation);
        let limit = self.spec.max_steps.unwrap_or(usize::MAX);
        if terminated {
            Outcome::Terminated
        } else if truncated || self.actions.len() >= limit {
            Outcome::Truncated
        } else {
            Outcome::Continue
        }
    }

    fn observe(&mut self, observation: ObservationMut<'_>) {
        match observation {
            ObservationMut::Skip => {}
            ObservationMut::F32(values) => {
                for (value, source) in values.iter_mut().zip(&self.observation) {
                    *value = *source;
                }
            }
            ObservationMut::U8(_) => panic!("{} observes floats, not bytes", self.spec.name),
        }
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        bytes.extend_from_slice(&self.actions);
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let Some((seed, actions)) = bytes.split_first_chunk() else {
            return Err(EnvError::State(format!(
                "{} bytes for {}, expected at least 4",
                bytes.len(),
                self.spec.name
            )));
        };
        if let Some(action) = actions
            .iter()
            .find(|action| usize::from(**action) >= self.spec.actions())
        {
            return Err(EnvError::State(format!(
                "action {action} for {}, expected 0 to {}",
                self.spec.name,
                self.spec.actions() - 1
            )));
        }
        self.start(i32::from_le_bytes(*seed));
        for action in actions {
            self.advance(*action);
        }
        Ok(())
    }

    fn picture(&mut self) -> Option<Picture> {
        let draw = self.draw?;
        Some(draw(self.observation.as_slice()?))
    }
}

/// Settings of the environment `gymnasium/cartpole`: a pole on a cart, reward 1 a step until it falls or the cart leaves the track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CartPoleConfig {
    /// Steps (of 0.02 s) after which an episode is truncated.
    pub max_steps: usize,
}

impl Default for CartPoleConfig {
    fn default() -> Self {
        Self { max_steps: 500 }
    }
}

impl EnvSettings for CartPoleConfig {
    fn build(&self, name: &str) -> Result<Box<dyn Env>, EnvError> {
        Ok(Box::new(FromGymnasium::new(
            name,
            CartPole::new(),
            &["left", "right"],
            self.max_steps,
            Some(draw_cartpole),
        )?))
    }
}

/// A side view of the track, 2.4 units to either side, with the cart and its pole of one unit.
fn draw_cartpole(observation: &[f32]) -> Picture {
    const WIDTH: usize = 240;
    const HEIGHT: usize = 100;
    /// Pixels per unit of length.
    const SCALE: f32 = 45.0;
    const GROUND: f32 = 80.0;
    let mut rgb = vec![255; WIDTH * HEIGHT * 3];
    let mut disc = |x: f32, y: f32, radius: f32, colour: [u8; 3]| {
        for row in (y - radius).max(0.0) as usize..((y + radius).max(0.0) as usize + 1).min(HEIGHT)
        {
            for column in
                (x - radius).max(0.0) as usize..((x + radius).max(0.0) as usize + 1).min(WIDTH)
            {
                if (column as f32 - x).hypot(row as f32 - y) <= radius {
                    rgb[(row * WIDTH + column) * 3..][..3].copy_from_slice(&colour);
                }
            }
        }
    };
    let cart = WIDTH as f32 / 2.0 + observation[0] * SCALE;
    let (sine, cosine) = observation[2].sin_cos();
    (0..WIDTH).for_each(|x| disc(x as f32, GROUND + 8.0, 0.5, [0, 0, 0]));
    (-16..=16).for_each(|x| disc(cart + x as f32, GROUND, 6.0, [60, 60, 60]));
    for step in 0..=SCALE as usize {
        let along = step as f32;
        disc(
            cart + along * sine,
            GROUND - along * cosine,
            2.5,
            [200, 120, 40],
        );
    }
    Picture {
        width: WIDTH,
        height: HEIGHT,
        rgb,
    }
}

#[cfg(test)]
#[path = "gymnasium_tests.rs"]
mod tests;
