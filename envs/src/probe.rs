//! Fixed states at which learned laws are compared with the truth.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use crate::policy::uniform_action;
use crate::{Env, EnvError, ObservationBuffer, ObservationMut, Outcome, StreamRng};

/// Uniform-random episodes that the states are taken from.
const EPISODES: u64 = 64;

/// Number of states besides the start.
pub const PROBE_STATES: usize = 16;

/// Longest episode, for environments without a time limit.
const MAX_STEPS: usize = 10_000;

/// A state of the probe set.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeState {
    /// The state as written by [`Env::save`].
    pub state: Vec<u8>,
    /// Its observation, one row.
    pub observation: ObservationBuffer,
    /// Its index for policies that are tables, where there is one.
    pub table_state: Option<usize>,
}

/// The start state, then up to 16 more that differ in their observations, met in 64 uniform-random episodes.
///
/// All distinct states are listed as they are first met, and the 16 are spread evenly over that list, so that late states are among them.
/// States after the end of an episode or with no reward to come are left out. The set is a function of the environment and the seed
/// alone; the environment is left in the last of the states.
///
/// # Errors
/// [`EnvError::State`] if the environment does not load what it saved.
pub fn probe_set(env: &mut dyn Env, seed: u64) -> Result<Vec<ProbeState>, EnvError> {
    let spec = env.spec().clone();
    let mut observation = ObservationBuffer::zeros(spec.observation.kind, spec.observation.len());
    let mut reward = vec![0.0; spec.reward_dim];
    let mut seen = HashSet::new();
    let mut met: Vec<Vec<u8>> = Vec::new();
    for episode in 0..EPISODES {
        let mut rng = StreamRng::new(seed, "probe", episode);
        env.reset(&mut rng, row(&mut observation));
        for time in 0..MAX_STEPS {
            // Only digests are kept on the way: a list of images would not fit in memory.
            if (episode == 0 || time > 0) && !env.absorbed() && seen.insert(digest(&observation)) {
                let mut state = Vec::new();
                env.save(&mut state);
                met.push(state);
            }
            let action = uniform_action(spec.actions(), &mut rng);
            if env.step(action, &mut rng, &mut reward, row(&mut observation)) != Outcome::Continue {
                break;
            }
        }
    }
    let others = met.len().saturating_sub(1);
    let chosen = others.min(PROBE_STATES);
    // The middles of `chosen` equal parts of 1..=others.
    let picks = (0..chosen).map(|i| 1 + (2 * i + 1) * others / (2 * chosen));
    let indices: Vec<usize> = (0..met.len().min(1)).chain(picks).collect();
    indices
        .into_iter()
        .map(|index| {
            env.load(&met[index])?;
            env.observe(row(&mut observation));
            Ok(ProbeState {
                state: met[index].clone(),
                observation: observation.clone(),
                table_state: env.table_state().map(|(state, _)| state),
            })
        })
        .collect()
}

fn row(observation: &mut ObservationBuffer) -> ObservationMut<'_> {
    match observation {
        ObservationBuffer::F32(values) => ObservationMut::F32(values),
        ObservationBuffer::U8(values) => ObservationMut::U8(values),
    }
}

fn digest(observation: &ObservationBuffer) -> [u8; 32] {
    let mut hash = Sha256::new();
    match observation {
        ObservationBuffer::F32(values) => values
            .iter()
            .for_each(|value| hash.update(value.to_le_bytes())),
        ObservationBuffer::U8(values) => hash.update(values),
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EnvConfig;
    use crate::walk::Walk;

    #[test]
    fn a_short_line_gives_every_state_once_and_the_start_first() {
        let mut env = Walk::new(3, 0.0);
        let set = probe_set(&mut env, 5).unwrap();
        let states: Vec<usize> = set.iter().map(|probe| probe.table_state.unwrap()).collect();
        assert_eq!(states.len(), 3);
        assert_eq!(states[0], 0);
        assert_eq!(states.iter().collect::<HashSet<_>>().len(), 3);
        assert_eq!(
            set[0].observation,
            ObservationBuffer::F32(vec![1.0, 0.0, 0.0])
        );
        assert_eq!(set, probe_set(&mut env, 5).unwrap());
    }

    #[test]
    fn a_maze_gives_seventeen_states_that_load() {
        for observation in ["features", "image"] {
            let settings = toml::from_str(&format!("observation = \"{observation}\"")).unwrap();
            let mut env = EnvConfig::new("maze/exclusive", settings)
                .unwrap()
                .build()
                .unwrap();
            let set = probe_set(env.as_mut(), 5).unwrap();
            assert_eq!(set.len(), 17);
            for (i, probe) in set.iter().enumerate() {
                env.load(&probe.state).unwrap();
                assert!(!env.absorbed());
                assert!(
                    set[..i]
                        .iter()
                        .all(|other| other.observation != probe.observation)
                );
            }
        }
    }
}
