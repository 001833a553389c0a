//! A tiny environment for this crate's tests: a line whose law is known by hand.

use rand::Rng;

use crate::{
    Env, EnvError, EnvSpec, ObservationKind, ObservationMut, ObservationSpec, Outcome, StreamRng,
};

/// States 0..n-1; `forward` moves right with probability 1 - slip, `stay` never; leaving the last state terminates. Every step pays
/// (1, position). From `limit` steps on every step is truncated.
#[derive(Clone)]
pub(crate) struct Walk {
    spec: EnvSpec,
    slip: f64,
    pub(crate) position: usize,
    pub(crate) time: usize,
}

impl Walk {
    pub(crate) fn new(states: usize, slip: f64) -> Self {
        let observation = ObservationSpec {
            shape: vec![states],
            kind: ObservationKind::F32,
            low: 0.0,
            high: 1.0,
        };
        let spec = EnvSpec {
            name: "walk".into(),
            observation,
            action_names: vec!["forward".into(), "stay".into()],
            reward_dim: 2,
            max_steps: Some(4),
            constraints: Vec::new(),
        };
        Self {
            spec,
            slip,
            position: 0,
            time: 0,
        }
    }
}

impl Env for Walk {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, _: &mut StreamRng, observation: ObservationMut<'_>) {
        (self.position, self.time) = (0, 0);
        self.observe(observation);
    }

    fn step(
        &mut self,
        action: usize,
        rng: &mut StreamRng,
        reward: &mut [f32],
        observation: ObservationMut<'_>,
    ) -> Outcome {
        reward[0] = 1.0;
        reward[1] = self.position as f32;
        self.time += 1;
        if action == 0 && rng.random::<f64>() >= self.slip {
            self.position += 1;
        }
        self.observe(observation);
        if self.position == self.spec.observation.shape[0] {
            Outcome::Terminated
        } else if self.time >= 4 {
            Outcome::Truncated
        } else {
            Outcome::Continue
        }
    }

    fn observe(&mut self, observation: ObservationMut<'_>) {
        if let ObservationMut::F32(values) = observation {
            values.fill(0.0);
            if self.position < values.len() {
                values[self.position] = 1.0;
            }
        }
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend([self.position as u8, self.time as u8]);
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let [position, time] = bytes else {
            return Err(EnvError::State(format!(
                "{} bytes, expected 2",
                bytes.len()
            )));
        };
        (self.position, self.time) = (usize::from(*position), usize::from(*time));
        Ok(())
    }

    fn table_state(&self) -> Option<(usize, usize)> {
        Some((self.position, self.spec.observation.shape[0]))
    }
}
