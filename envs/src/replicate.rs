//! One scalar reward in many coordinates, for several discounts of the same reward.

use crate::{Env, EnvError, EnvSpec, MAX_REWARD_DIM, ObservationMut, Outcome, Picture, StreamRng};

/// An environment whose scalar reward is repeated in every coordinate.
///
/// With a diagonal Γ each coordinate of the return is then the same episode under another discount, as multi-horizon agents need it.
pub struct ReplicatedReward {
    inner: Box<dyn Env>,
    spec: EnvSpec,
}

impl ReplicatedReward {
    /// Repeats the reward of `inner` `copies` times.
    ///
    /// # Errors
    /// [`EnvError::Setting`] if the reward of `inner` is no scalar, or `copies` is not within 1 to 32.
    pub fn new(inner: Box<dyn Env>, copies: usize) -> Result<Self, EnvError> {
        let spec = inner.spec();
        let wrong = |message: String| {
            let name = spec.name.clone();
            Err(EnvError::Setting { name, message })
        };
        if spec.reward_dim != 1 {
            return wrong(format!(
                "its reward has d = {}, expected 1: only a scalar reward can be replicated",
                spec.reward_dim
            ));
        }
        if !(1..=MAX_REWARD_DIM).contains(&copies) {
            return wrong(format!(
                "replicated {copies} times, expected 1 to {MAX_REWARD_DIM}"
            ));
        }
        let spec = EnvSpec {
            reward_dim: copies,
            ..spec.clone()
        };
        Ok(Self { inner, spec })
    }
}

impl Env for ReplicatedReward {
    fn spec(&self) -> &EnvSpec {
        &self.spec
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
        let outcome = self.inner.step(action, rng, &mut reward[..1], observation);
        reward.fill(reward[0]);
        outcome
    }

    fn observe(&mut self, observation: ObservationMut<'_>) {
        self.inner.observe(observation);
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        self.inner.save(bytes);
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        self.inner.load(bytes)
    }

    fn absorbed(&self) -> bool {
        self.inner.absorbed()
    }

    fn table_state(&self) -> Option<(usize, usize)> {
        self.inner.table_state()
    }

    fn picture(&mut self) -> Option<Picture> {
        self.inner.picture()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EnvConfig;
    use crate::ground_truth::{ReturnLaw, ground_truth};
    use crate::{Discount, DiscountConfig, Policy, PolicyConfig};

    fn chain(text: &str) -> Box<dyn Env> {
        let settings = toml::from_str(text).unwrap();
        EnvConfig::new("chain", settings).unwrap().build().unwrap()
    }

    #[test]
    fn each_coordinate_is_the_same_return_under_its_own_discount() {
        // Three steps of reward 2: 2(1 + γ + γ²) is 2, 3.5 and 2(1 + .9 + .81) = 5.42 at γ = 0, ½ and .9.
        let text =
            "length = 3\nslip = 0.0\ndim = 1\nreward = { kind = \"deterministic\", value = [2.0] }";
        let make = || -> Result<Box<dyn Env>, EnvError> {
            Ok(Box::new(ReplicatedReward::new(chain(text), 3)?))
        };
        let mut env = make().unwrap();
        let mut state = Vec::new();
        env.reset(&mut StreamRng::new(1, "test", 0), ObservationMut::Skip);
        env.save(&mut state);
        let policy = Policy::new(&PolicyConfig::Uniform, env.as_ref()).unwrap();
        let discount = Discount::new(&DiscountConfig::Diagonal(vec![0.0, 0.5, 0.9]), 3).unwrap();
        let law = ReturnLaw {
            state: &state,
            policy: &policy,
            first_action: 0,
            discount: &discount,
        };
        let got = ground_truth(&make, &law, 1, 1).unwrap();
        assert_eq!(got[..2], [2.0, 3.5]);
        assert!((got[2] - 5.42).abs() < 1e-6);
    }

    #[test]
    fn only_scalar_rewards_are_replicated() {
        let message = |env, copies| {
            ReplicatedReward::new(env, copies)
                .err()
                .unwrap()
                .to_string()
        };
        assert!(message(chain(""), 3).contains("d = 2, expected 1"));
        assert!(message(chain("dim = 1"), 33).contains("33 times, expected 1 to 32"));
    }
}
