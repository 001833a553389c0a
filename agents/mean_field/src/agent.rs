//! The agent: a policy with or without memory, its passes over episodes, and its structural gradient.

use pushforward_core::{
    CoreError,
    dense::ParameterValues,
    parameters::{ParameterBuilder, Parameters},
};
use pushforward_envs::StreamRng;
use pushforward_envs::mean_field::{
    Baseline, GameSpec, MeanFieldGame, NoisePaths, Policies, PushForward, Rollout,
    structural_gradient,
};
use rayon::prelude::*;
use tch::Device;

use crate::{
    config::{Kind, StructuralConfig},
    encoder::{Encoder, EncoderPass},
    policy::{PolicyNetwork, PolicyPass},
};

/// The networks of [`Kind::Spg`] and [`Kind::Rspg`].
#[derive(Clone, Debug)]
pub struct StructuralAgent {
    encoder: Option<Encoder>,
    policy: PolicyNetwork,
    baseline: Baseline,
}

/// The record of one episode of the agent on some paths; its memory is reused.
#[derive(Debug, Default)]
pub struct Episode {
    encoder: EncoderPass,
    policy: PolicyPass,
    /// π_t(a|s), `[T, E, S, A]`.
    probabilities: Vec<f32>,
    /// What is multiplied with the gradient of the probabilities, `[T, E, S, A]`.
    slopes: Vec<f32>,
    rollout: Option<Rollout>,
}

impl StructuralAgent {
    /// A fresh agent for a game; `seed` is the run's root seed.
    ///
    /// # Errors
    /// [`CoreError::Setting`] for a size of 0.
    pub fn new(
        config: &StructuralConfig,
        spec: &GameSpec,
        seed: u64,
    ) -> Result<(Self, Parameters), CoreError> {
        for (name, size) in [("embedding", config.embedding), ("hidden", config.hidden)] {
            if size == 0 {
                return Err(CoreError::Setting(format!(
                    "agent.{name}: got 0, expected at least 1"
                )));
            }
        }
        let mut builder = ParameterBuilder::new(StreamRng::new(seed, "parameters", 0));
        let public = spec.observation_dim();
        let encoder = match config.kind {
            Kind::Spg => None,
            Kind::Rspg => Some(Encoder::new(&mut builder, public, config.hidden)),
        };
        let inputs = encoder.as_ref().map_or(public, Encoder::outputs);
        let policy =
            PolicyNetwork::new(&mut builder, spec, inputs, config.embedding, config.hidden);
        let baseline = if config.baseline {
            Baseline::Value
        } else {
            Baseline::None
        };
        let agent = Self {
            encoder,
            policy,
            baseline,
        };
        Ok((agent, builder.build(Device::Cpu)?))
    }

    /// Plays one episode on all `noise` paths and keeps its record.
    ///
    /// # Errors
    /// If the game's laws lose mass, or a probability is not finite.
    pub fn play(
        &self,
        own: ParameterValues<'_>,
        simulator: &mut PushForward<'_, dyn MeanFieldGame>,
        noise: NoisePaths,
        episode: &mut Episode,
    ) -> Result<(), CoreError> {
        let mut rollout = simulator.start(noise)?;
        let (paths, horizon) = (rollout.paths(), rollout.horizon());
        let step = paths * rollout.states() * rollout.actions();
        episode.probabilities.resize(horizon * step, 0.0);
        self.policy.start(own, &mut episode.policy, paths, horizon);
        let mut encoded = Vec::new();
        if let Some(encoder) = &self.encoder {
            episode.encoder.start(paths, horizon, encoder);
            encoded.resize(paths * encoder.outputs(), 0.0);
        }
        for (time, table) in episode.probabilities.chunks_exact_mut(step).enumerate() {
            let public = rollout.inputs(time);
            let public = match &self.encoder {
                None => public,
                Some(encoder) => {
                    encoder.step(own, &mut episode.encoder, public, &mut encoded);
                    &encoded[..]
                }
            };
            self.policy.step(own, &mut episode.policy, public, table);
            simulator.step(&mut rollout, table)?;
        }
        episode.rollout = Some(rollout);
        Ok(())
    }

    /// The value J of the last episode, Σ_e w_e Σ_s μ_0(s) V_0(s), and the gradient of -J into the flat buffer `gradient` (overwritten);
    /// with an entropy bonus of weight `entropy`, that of -J less the bonus.
    ///
    /// # Errors
    /// If there was no episode, or it was another game's.
    pub fn loss_gradient(
        &self,
        own: ParameterValues<'_>,
        game: &dyn MeanFieldGame,
        episode: &mut Episode,
        entropy: f64,
        gradient: &mut [f32],
    ) -> Result<f64, CoreError> {
        let Episode {
            encoder: encoder_pass,
            policy: policy_pass,
            probabilities,
            slopes,
            rollout: Some(rollout),
        } = episode
        else {
            return Err(CoreError::Setting("no episode has been played".into()));
        };
        let policies = Policies::from_array(game.spec(), rollout.paths(), probabilities)?;
        slopes.resize(probabilities.len(), 0.0);
        let values = structural_gradient(game, rollout, &policies, self.baseline, slopes)?;
        let (value, _) = rollout.noise().mean(&values);
        if entropy > 0.0 {
            add_entropy(
                rollout,
                game.spec().discount,
                entropy,
                probabilities,
                slopes,
            );
        }
        gradient.fill(0.0);
        let of_public = self
            .policy
            .add_gradient(own, policy_pass, probabilities, slopes, gradient);
        if let Some(encoder) = &self.encoder {
            encoder.add_gradient(own, encoder_pass, &of_public, gradient);
        }
        // The optimiser descends.
        gradient.iter_mut().for_each(|g| *g = -*g);
        Ok(value)
    }
}

/// Adds ∂/∂π_t(a|s) of w_e γ^t μ_t(s) τ H(π_t(·|s)), which is -w_e γ^t μ_t(s) τ (log π_t(a|s) + 1).
fn add_entropy(
    rollout: &Rollout,
    discount: f64,
    entropy: f64,
    probabilities: &[f32],
    slopes: &mut [f32],
) {
    let pairs = rollout.states() * rollout.actions();
    slopes
        .par_chunks_mut(pairs)
        .zip(probabilities.par_chunks(pairs))
        .enumerate()
        .for_each(|(row, (slopes, probabilities))| {
            let (time, path) = (row / rollout.paths(), row % rollout.paths());
            let weight = rollout.noise().weights()[path] * discount.powi(time as i32) * entropy;
            let rows = slopes
                .chunks_exact_mut(rollout.actions())
                .zip(probabilities.chunks_exact(rollout.actions()));
            for ((slopes, probabilities), mass) in rows.zip(rollout.moment(time, path).mu) {
                let scale = weight as f32 * mass;
                for (slope, p) in slopes.iter_mut().zip(probabilities) {
                    // A probability that underflows has no gradient through the softmax anyway.
                    *slope -= scale * (p.max(f32::MIN_POSITIVE).ln() + 1.0);
                }
            }
        });
}

impl Episode {
    /// The episode's populations, and π_t(a|s) `[T, E, S, A]`.
    pub fn record(&self) -> Option<(&Rollout, &[f32])> {
        Some((self.rollout.as_ref()?, &self.probabilities))
    }
}
