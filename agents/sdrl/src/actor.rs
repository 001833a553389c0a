//! The acting half of the agent: greedy for a utility of the learned law.

use pushforward_core::{Actor, CoreError, ObservationBuffer, tensor};
use pushforward_envs::StreamRng;
use tch::{Device, Tensor};

use crate::{
    learner::{Learner, Rule},
    network::LawNetwork,
    shard::{extra_rows, observation_rows},
    utility::Utility,
};

/// Predicts laws, and acts greedily where the agent controls; it sees the learner's parameters as they are at each call.
pub struct SdrlActor {
    network: LawNetwork,
    leaves: Vec<Tensor>,
    utility: Option<Utility>,
    observation: Vec<i64>,
    extra: usize,
    actions: usize,
    particles: usize,
    device: Device,
}

impl SdrlActor {
    /// An actor over the learner's online network.
    pub fn new(learner: &Learner) -> Self {
        let layout = learner.layout();
        Self {
            network: learner.network().clone(),
            leaves: learner.parameters().handles(),
            utility: match learner.rule() {
                Rule::Greedy { utility, .. } => Some(utility.clone()),
                Rule::Policy { .. } => None,
            },
            observation: layout.observation.clone(),
            extra: layout.extra,
            actions: layout.actions,
            particles: layout.particles,
            device: learner.device(),
        }
    }

    /// Points of the learned laws, [rows, A, N, d] with N = `particles`, which a particle representation fixes.
    ///
    /// # Errors
    /// If a size does not fit, or a point is not finite.
    pub fn laws(
        &self,
        observations: &ObservationBuffer,
        extra: &[f32],
        rows: usize,
        particles: usize,
        rng: &mut StreamRng,
    ) -> Result<Vec<f32>, CoreError> {
        let observations = observation_rows(observations, 0..rows, &self.observation, self.device)?;
        let extra = extra_rows(extra, 0..rows, self.extra, self.device)?;
        let noise = self.network.spread_noise(particles, rng, self.device)?;
        let points = tch::no_grad(|| {
            self.network
                .forward(&self.leaves, &observations, extra.as_ref(), noise.as_ref())
        })?;
        let points = tensor::to_f32(&points)?;
        if points.iter().all(|value| value.is_finite()) {
            return Ok(points);
        }
        Err(CoreError::Tensor("a predicted return is not finite".into()))
    }

    /// Points per law of an update.
    pub fn particles(&self) -> usize {
        self.particles
    }
}

impl Clone for SdrlActor {
    fn clone(&self) -> Self {
        Self {
            network: self.network.clone(),
            leaves: self.leaves.iter().map(Tensor::shallow_clone).collect(),
            utility: self.utility.clone(),
            observation: self.observation.clone(),
            ..*self
        }
    }
}

impl Actor for SdrlActor {
    fn act(
        &mut self,
        observations: &ObservationBuffer,
        extra: &[f32],
        rows: usize,
        rng: &mut StreamRng,
        actions: &mut [usize],
    ) -> Result<(), CoreError> {
        let points = self.laws(observations, extra, rows, self.particles, rng)?;
        let block = points.len() / rows.max(1);
        let Some(utility) = &mut self.utility else {
            return Err(CoreError::Setting(
                "an agent that evaluates a policy does not act; its policy does".into(),
            ));
        };
        for (row, action) in actions.iter_mut().enumerate().take(rows) {
            let extra = &extra[row * self.extra..(row + 1) * self.extra];
            let laws = &points[row * block..(row + 1) * block];
            *action = utility.greedy(laws, self.actions, self.particles, extra);
        }
        Ok(())
    }
}
