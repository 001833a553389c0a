//! The learner: pushes the law of the successor through the Bellman operator and fits the prediction to it.

use pushforward_core::{
    Batch, CoreError, NamedArray,
    optimiser::{Adam, Gradients},
    parameters::{ParameterBuilder, Parameters},
    trainer::UpdateReport,
};
use pushforward_divergences::{Clouds, Divergence, LiftConfig, Shape};
use pushforward_envs::{Discount, Env, StreamRng};
use rand::Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor};

use crate::{
    config::{Backup, ObjectiveConfig, SdrlConfig, TargetConfig},
    dense::Pass,
    network::LawNetwork,
    policy::{EvaluatedPolicy, SavedAgent},
    shard::{Context, Dense, Shard, Share, observation_shape},
    utility::Utility,
};

/// What the target action is, and who acts.
#[derive(Clone)]
pub(crate) enum Rule {
    /// A given policy.
    Policy {
        policy: EvaluatedPolicy,
        backup: Backup,
    },
    /// Greedy for a utility of the law.
    Greedy { utility: Utility, double: bool },
}

/// The updating half of the agent.
pub struct Learner {
    config: SdrlConfig,
    network: LawNetwork,
    online: Parameters,
    target: Parameters,
    optimiser: Adam,
    divergence: Box<dyn Divergence>,
    warm_start: Option<Vec<f32>>,
    /// Whether the divergence searches for directions (max lift).
    searches: bool,
    rule: Rule,
    shards: Vec<Shard>,
    rng: StreamRng,
    updates: u64,
    layout: Layout,
    device: Device,
}

/// Sizes that every shard needs.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub observation: Vec<i64>,
    pub extra: usize,
    pub actions: usize,
    pub particles: usize,
    pub dim: usize,
}

impl Learner {
    /// A fresh learner for environments like `env`; `saved` is the agent whose policy is evaluated, where the objective names one, and `seed`
    /// the run's root seed.
    ///
    /// # Errors
    /// If a setting is out of range or does not fit the environment.
    pub fn new(
        config: &SdrlConfig,
        env: &dyn Env,
        discount: &Discount,
        saved: Option<&SavedAgent>,
        seed: u64,
        device: Device,
    ) -> Result<Self, CoreError> {
        config.validate()?;
        let spec = env.spec();
        let rule = match &config.objective {
            ObjectiveConfig::Evaluation { policy, backup } => Rule::Policy {
                policy: policy.build(env, saved)?,
                backup: *backup,
            },
            ObjectiveConfig::Control {
                utility, double, ..
            } => Rule::Greedy {
                utility: Utility::new(utility, spec.reward_dim, discount, spec)
                    .map_err(|error| CoreError::Setting(format!("agent.objective.{error}")))?,
                double: *double,
            },
        };
        let extra = rule.extra_length();
        let mut builder = ParameterBuilder::new(StreamRng::new(seed, "parameters", 0));
        let network = LawNetwork::new(
            &mut builder,
            spec,
            extra,
            &config.torso,
            &config.representation,
        )?;
        let online = builder.build(device)?;
        let target = online.duplicate()?;
        let optimiser = Adam::new(config.optimiser.clone(), &online)?;
        let divergence = config
            .resolved_divergence()?
            .build(spec.reward_dim)
            .map_err(|error| CoreError::Setting(format!("agent.divergence: {error}")))?;
        let particles = config.representation.particles();
        let targets = match rule {
            Rule::Policy {
                backup: Backup::Mixture,
                ..
            } => particles * spec.actions(),
            _ => particles,
        };
        divergence
            .check_sizes(particles, targets)
            .map_err(|error| CoreError::Setting(format!("agent.divergence: {error}")))?;
        // Without an autograd graph the products of the whole batch run side by side instead; another device is parallel itself.
        let count = if device == Device::Cpu && network.dense().is_none() {
            config.shards
        } else {
            1
        };
        let width = if device == Device::Cpu {
            online.flat().numel()
        } else {
            0
        };
        let shards = (0..count)
            .map(|_| Shard {
                online: online.handles(),
                target: target.handles(),
                rule: rule.clone(),
                noise: None,
                target_noise: None,
                online_pass: Pass::default(),
                target_pass: Pass::default(),
                gradient: vec![0.0; width],
            })
            .collect();
        Ok(Self {
            config: config.clone(),
            network,
            optimiser,
            divergence,
            warm_start: None,
            searches: matches!(config.divergence.lift(), LiftConfig::Max { .. }),
            rule,
            shards,
            rng: StreamRng::new(seed, "learner", 0),
            updates: 0,
            layout: Layout {
                observation: observation_shape(spec),
                extra,
                actions: spec.actions(),
                particles,
                dim: spec.reward_dim,
            },
            online,
            target,
            device,
        })
    }

    /// Numbers appended to each observation: C_t and Γ^t where the rule needs them, else 0.
    pub fn extra_length(&self) -> usize {
        self.layout.extra
    }

    /// Number of trainable values.
    pub fn parameter_count(&self) -> usize {
        self.online.count()
    }

    /// The online network's parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.online
    }

    /// Updates done.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Where the network lives.
    pub fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    pub(crate) fn network(&self) -> &LawNetwork {
        &self.network
    }

    /// One update from a batch; `progress` (0 to 1) places schedules.
    ///
    /// # Errors
    /// [`CoreError::NonFinite`] naming the tensor if a prediction, loss or gradient is not finite; the parameters are then unchanged.
    pub fn update(&mut self, batch: &Batch, progress: f64) -> Result<UpdateReport, CoreError> {
        let size = batch.size;
        let next_probabilities = match &self.rule {
            Rule::Policy { policy, .. } => policy.next_probabilities(batch)?,
            Rule::Greedy { .. } => Vec::new(),
        };
        let next_actions = self.draw_next_actions(&next_probabilities);
        let directions = self.divergence.draw(size, &mut self.rng);
        let draws = size * self.layout.particles;
        let noise = self.network.draw_noise(draws, &mut self.rng, self.device)?;
        let target_noise = self.network.draw_noise(draws, &mut self.rng, self.device)?;
        for shard in &mut self.shards {
            shard.noise = noise.as_ref().map(Tensor::shallow_clone);
            shard.target_noise = target_noise.as_ref().map(Tensor::shallow_clone);
        }
        let count = self.shards.len();
        let dense = match self.network.dense() {
            Some(law) if self.device == Device::Cpu => Some(Dense {
                law,
                online: self.online.values()?,
                target: self.target.values()?,
            }),
            _ => None,
        };
        let context = Context {
            network: &self.network,
            dense,
            layout: &self.layout,
            parameters: self.online.layouts(),
            divergence: self.divergence.as_ref(),
            directions: &directions,
            warm_start: self.warm_start.as_deref(),
            searches: self.searches,
            batch,
            next_probabilities: &next_probabilities,
            next_actions: &next_actions,
            device: self.device,
            updates: self.updates,
        };
        let mut shares = self
            .shards
            .par_iter_mut()
            .enumerate()
            .map(|(index, shard)| {
                context.share(shard, index * size / count..(index + 1) * size / count)
            })
            .collect::<Result<Vec<Share>, CoreError>>()?;
        let losses: Vec<f32> = shares
            .iter()
            .flat_map(|share| share.losses.iter().copied())
            .collect();
        let loss = losses
            .iter()
            .zip(&batch.weights)
            .map(|(loss, weight)| f64::from(loss * weight))
            .sum::<f64>()
            / size as f64;
        if !loss.is_finite() {
            return Err(CoreError::NonFinite {
                what: "loss".into(),
                step: self.updates,
            });
        }
        let gradient_norm = if self.device == Device::Cpu {
            let shards: Vec<&[f32]> = self.shards.iter().map(|own| &own.gradient[..]).collect();
            self.optimiser
                .step(&mut self.online, Gradients::Shards(&shards), progress)?
        } else {
            let leaves = std::mem::take(&mut shares[0].leaves);
            self.optimiser
                .step(&mut self.online, Gradients::Leaves(&leaves), progress)?
        };
        self.updates += 1;
        match self.config.target {
            TargetConfig::Polyak { rate } => self.target.follow(&self.online, rate)?,
            TargetConfig::Hard { interval } if self.updates.is_multiple_of(interval) => {
                self.target.follow(&self.online, 1.0)?;
            }
            TargetConfig::Hard { .. } => {}
        }
        self.keep_start(&shares, size);
        // The root of the p-th power, so that priorities scale with the returns; a U-statistic can be negative.
        let exponent = 1.0 / self.divergence.exponent();
        let priorities = losses
            .iter()
            .map(|loss| f64::from(loss.max(0.0)).powf(exponent) as f32)
            .collect();
        Ok(UpdateReport {
            loss,
            gradient_norm,
            priorities,
        })
    }

    /// Keeps the best direction for the mean over the batch as a start of the next search (max lift only).
    fn keep_start(&mut self, shares: &[Share], size: usize) {
        let found: Vec<f32> = shares
            .iter()
            .flat_map(|share| share.found.iter().copied())
            .collect();
        if found.is_empty() {
            return;
        }
        let predicted: Vec<f32> = shares
            .iter()
            .flat_map(|s| s.predicted.iter().copied())
            .collect();
        let target: Vec<f32> = shares
            .iter()
            .flat_map(|s| s.target.iter().copied())
            .collect();
        let clouds = Clouds {
            predicted: &predicted,
            target: &target,
            predicted_weights: None,
            target_weights: None,
            shape: Shape {
                batch: size,
                predicted: self.layout.particles,
                target: target.len() / (size * self.layout.dim),
                dimension: self.layout.dim,
            },
        };
        self.warm_start = self.divergence.shared_start(&clouds, &found);
    }

    /// The actions of sampled policy-evaluation targets; empty for every other rule.
    fn draw_next_actions(&mut self, probabilities: &[f32]) -> Vec<i64> {
        let Rule::Policy {
            backup: Backup::Sampled,
            ..
        } = &self.rule
        else {
            return Vec::new();
        };
        let draw = |probabilities: &[f32]| {
            let mut left: f32 = self.rng.random();
            for (action, probability) in probabilities.iter().enumerate() {
                left -= probability;
                if left < 0.0 {
                    return action as i64;
                }
            }
            // Rounding left a sliver: the last action with any probability.
            probabilities
                .iter()
                .rposition(|probability| *probability > 0.0)
                .unwrap_or(0) as i64
        };
        probabilities
            .chunks_exact(self.layout.actions)
            .map(draw)
            .collect()
    }

    /// Names and shapes of the arrays of a checkpoint.
    pub fn array_names(&self) -> Vec<(String, Vec<usize>)> {
        ARRAYS
            .iter()
            .flat_map(|prefix| self.online.names(prefix))
            .collect()
    }

    /// Online and target parameters and the optimiser's moments.
    ///
    /// # Errors
    /// If libtorch cannot copy a tensor to the CPU.
    pub fn arrays(&self) -> Result<Vec<NamedArray>, CoreError> {
        let [first, second] = self.optimiser.moments();
        let mut arrays = Vec::new();
        for (prefix, flat) in
            ARRAYS
                .iter()
                .zip([self.online.flat(), self.target.flat(), first, second])
        {
            arrays.extend(self.online.arrays(prefix, flat)?);
        }
        Ok(arrays)
    }

    /// Counters and the random stream.
    pub fn state(&self) -> LearnerState {
        LearnerState {
            optimiser_steps: self.optimiser.steps(),
            updates: self.updates,
            warm_start: self.warm_start.clone(),
            rng: self.rng.clone(),
        }
    }

    /// Restores what [`Learner::arrays`] and [`Learner::state`] gave, the arrays in the order of [`Learner::array_names`].
    ///
    /// # Errors
    /// If an array does not fit.
    pub fn load(&mut self, arrays: &[&NamedArray], state: &LearnerState) -> Result<(), CoreError> {
        let count = self.online.layouts().len();
        let flat = |part: usize| {
            self.online
                .gather(&arrays[part * count..(part + 1) * count])
        };
        let (online, target, moments) = (flat(0)?, flat(1)?, [flat(2)?, flat(3)?]);
        self.online.assign(&online)?;
        self.target.assign(&target)?;
        self.optimiser.restore(state.optimiser_steps, moments);
        self.updates = state.updates;
        self.warm_start.clone_from(&state.warm_start);
        self.rng = state.rng.clone();
        Ok(())
    }
}

/// Prefixes of the arrays of a checkpoint.
const ARRAYS: [&str; 4] = ["online", "target", "adam.first", "adam.second"];

/// The state of a [`Learner`] beside its arrays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnerState {
    /// Steps of the optimiser.
    pub optimiser_steps: u64,
    /// Updates done.
    pub updates: u64,
    /// Start of the next search of a max lift.
    pub warm_start: Option<Vec<f32>>,
    /// The learner's random stream.
    pub rng: StreamRng,
}

impl Rule {
    /// Numbers appended to an observation: C_t and Γ^t where the rule needs them.
    fn extra_length(&self) -> usize {
        match self {
            Self::Greedy { utility, .. } => utility.extra_length(),
            Self::Policy { .. } => 0,
        }
    }
}
