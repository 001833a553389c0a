//! The learner: pushes the law of the successor through the Bellman operator and fits the prediction to it.

use std::ops::Range;

use pushforward_core::{
    Batch, CoreError, NamedArray, ObservationBuffer,
    optimiser::Adam,
    parameters::{ParameterBuilder, Parameters},
    tensor,
    trainer::UpdateReport,
};
use pushforward_divergences::{
    Cloud, Clouds, Directions, Divergence, DivergenceError, LiftConfig, Path, Shape,
};
use pushforward_envs::{Discount, Env, EnvSpec, StreamRng};
use rand::Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::{
    config::{Backup, ObjectiveConfig, SdrlConfig, TargetConfig},
    network::LawNetwork,
    policy::{EvaluatedPolicy, SavedAgent},
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

/// Handles of one worker on the shared parameters, and its buffers.
struct Shard {
    online: Vec<Tensor>,
    target: Vec<Tensor>,
    rule: Rule,
    noise: Option<Tensor>,
    target_noise: Option<Tensor>,
}

/// What a shard found: gradients in the order of the parameters, unweighted losses, and the directions of a max lift.
struct Share {
    gradients: Vec<Tensor>,
    losses: Vec<f32>,
    found: Vec<f32>,
    predicted: Vec<f32>,
    target: Vec<f32>,
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
        // Elsewhere one stream of work is best: the device is parallel itself.
        let count = if device == Device::Cpu {
            config.shards
        } else {
            1
        };
        let shards = (0..count)
            .map(|_| Shard {
                online: online.handles(),
                target: target.handles(),
                rule: rule.clone(),
                noise: None,
                target_noise: None,
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
        let noise = self
            .network
            .draw_noise(self.layout.particles, &mut self.rng, self.device)?;
        let target_noise =
            self.network
                .draw_noise(self.layout.particles, &mut self.rng, self.device)?;
        for shard in &mut self.shards {
            shard.noise = noise.as_ref().map(Tensor::shallow_clone);
            shard.target_noise = target_noise.as_ref().map(Tensor::shallow_clone);
        }
        let count = self.shards.len();
        let context = Context {
            network: &self.network,
            layout: &self.layout,
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
        let shares = self
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
        let gradients: Vec<Vec<Tensor>> = shares
            .iter()
            .map(|share| share.gradients.iter().map(Tensor::shallow_clone).collect())
            .collect();
        let gradient_norm = self
            .optimiser
            .step(&mut self.online, &gradients, progress)?;
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

/// Shape of a batch of observations after its first axis: flat floats, or bytes as they are.
pub(crate) fn observation_shape(spec: &EnvSpec) -> Vec<i64> {
    vec![spec.observation.len() as i64]
}

/// Rows of a buffer as a tensor [rows, ..].
pub(crate) fn observation_rows(
    buffer: &ObservationBuffer,
    rows: Range<usize>,
    shape: &[i64],
    device: Device,
) -> Result<Tensor, CoreError> {
    let length = shape.iter().product::<i64>() as usize;
    let mut full = vec![rows.len() as i64];
    full.extend(shape);
    let range = rows.start * length..rows.end * length;
    match buffer {
        ObservationBuffer::F32(values) => tensor::from_f32(&values[range], &full, device),
        ObservationBuffer::U8(values) => tensor::from_u8(&values[range], &full, device),
    }
}

/// Rows of `extra` as a tensor [rows, k], or `None` where there is none.
pub(crate) fn extra_rows(
    extra: &[f32],
    rows: Range<usize>,
    length: usize,
    device: Device,
) -> Result<Option<Tensor>, CoreError> {
    if length == 0 {
        return Ok(None);
    }
    let shape = [rows.len() as i64, length as i64];
    tensor::from_f32(
        &extra[rows.start * length..rows.end * length],
        &shape,
        device,
    )
    .map(Some)
}

/// What all shards share during one update.
struct Context<'a> {
    network: &'a LawNetwork,
    layout: &'a Layout,
    divergence: &'a dyn Divergence,
    directions: &'a Directions,
    warm_start: Option<&'a [f32]>,
    searches: bool,
    batch: &'a Batch,
    next_probabilities: &'a [f32],
    next_actions: &'a [i64],
    device: Device,
    updates: u64,
}

impl Context<'_> {
    fn share(&self, shard: &mut Shard, rows: Range<usize>) -> Result<Share, CoreError> {
        let layout = self.layout;
        let (batch, size) = (self.batch, rows.len());
        let (target, target_weights) = self.targets(shard, rows.clone())?;
        let observations = observation_rows(
            &batch.observations,
            rows.clone(),
            &layout.observation,
            self.device,
        )?;
        let extra = extra_rows(&batch.extra, rows.clone(), layout.extra, self.device)?;
        let predicted = self.network.forward_taken(
            &shard.online,
            &observations,
            extra.as_ref(),
            shard.noise.as_ref(),
            &batch.actions[rows.clone()],
        )?;
        let dim = layout.dim as i64;
        let scale: Vec<f32> = batch.weights[rows.clone()]
            .iter()
            .map(|w| w / batch.size as f32)
            .collect();
        let shape = Shape {
            batch: size,
            predicted: layout.particles,
            target: target.len() / (size * layout.dim),
            dimension: layout.dim,
        };
        let directions = self.directions.slice(rows);
        let mut share = Share {
            gradients: Vec::new(),
            losses: vec![0.0; size],
            found: Vec::new(),
            predicted: Vec::new(),
            target,
        };
        let objective = if self.device == Device::Cpu {
            let dense = predicted.f_detach()?.f_contiguous()?;
            let values = tensor::f32_slice(&dense)?;
            let mut gradient = vec![0.0; values.len()];
            let clouds = Clouds {
                predicted: values,
                target: &share.target,
                predicted_weights: None,
                target_weights: target_weights.as_deref(),
                shape,
            };
            let searches = self.searches;
            let mut found = vec![0.0; if searches { size * layout.dim } else { 0 }];
            self.divergence
                .value_and_gradient_serial(
                    &clouds,
                    &directions,
                    self.warm_start,
                    &mut share.losses,
                    &mut gradient,
                    searches.then_some(&mut found[..]),
                )
                .map_err(|error| self.blame(&error))?;
            if searches {
                share.found = found;
                share.predicted = values.to_vec();
            }
            for (row, scale) in gradient
                .chunks_mut(layout.particles * layout.dim)
                .zip(&scale)
            {
                row.iter_mut().for_each(|g| *g *= scale);
            }
            let gradient = tensor::from_f32(&gradient, &predicted.size(), self.device)?;
            predicted.f_mul(&gradient)?.f_sum(Kind::Float)?
        } else {
            let cloud = |values: &[f32], points: usize| {
                tensor::from_f32(values, &[size as i64, points as i64, dim], self.device)
            };
            let weights = match &target_weights {
                Some(weights) => Some(tensor::from_f32(
                    weights,
                    &[size as i64, shape.target as i64],
                    self.device,
                )?),
                None => None,
            };
            let target = Cloud {
                points: cloud(&share.target, shape.target)?,
                weights,
            };
            let predicted = Cloud {
                points: predicted,
                weights: None,
            };
            let mut start = self.warm_start.map(<[f32]>::to_vec);
            let losses = self
                .divergence
                .loss_from(&predicted, &target, &directions, &mut start, Path::Fastest)
                .map_err(|error| self.blame(&error))?;
            share.losses = tensor::to_f32(&losses.detach())?;
            losses.f_dot(&tensor::from_f32(&scale, &[size as i64], self.device)?)?
        };
        share.gradients = Tensor::f_run_backward(&[objective], &shard.online, false, false)?;
        Ok(share)
    }

    fn blame(&self, error: &DivergenceError) -> CoreError {
        match error {
            DivergenceError::NotFinite { what, .. } => CoreError::NonFinite {
                what: (*what).into(),
                step: self.updates,
            },
            other => CoreError::Tensor(other.to_string()),
        }
    }

    /// Target points R_n + Γ^n Z(S_n, A') of the rows, [b, M, d], and their weights where they are not equal.
    fn targets(
        &self,
        shard: &mut Shard,
        rows: Range<usize>,
    ) -> Result<(Vec<f32>, Option<Vec<f32>>), CoreError> {
        let layout = self.layout;
        let batch = self.batch;
        let observations = observation_rows(
            &batch.next_observations,
            rows.clone(),
            &layout.observation,
            self.device,
        )?;
        let extra = extra_rows(&batch.next_extra, rows.clone(), layout.extra, self.device)?;
        let noise = shard.target_noise.as_ref();
        let all = |leaves: &[Tensor]| {
            let forward = || {
                self.network
                    .forward(leaves, &observations, extra.as_ref(), noise)
            };
            tensor::to_f32(&tch::no_grad(forward)?)
        };
        let of = |leaves: &[Tensor], taken: &[i64]| {
            let forward = || {
                self.network
                    .forward_taken(leaves, &observations, extra.as_ref(), noise, taken)
            };
            tensor::to_f32(&tch::no_grad(forward)?)
        };
        let (actions, block) = (layout.actions, layout.particles * layout.dim);
        let mut weights = None;
        let own = match &mut shard.rule {
            Rule::Policy {
                backup: Backup::Sampled,
                ..
            } => of(&shard.target, &self.next_actions[rows.clone()])?,
            Rule::Policy {
                backup: Backup::Mixture,
                ..
            } => {
                let own = rows.start * actions..rows.end * actions;
                let mixture = &self.next_probabilities[own];
                let each = mixture.iter().flat_map(|probability| {
                    let weight = probability / layout.particles as f32;
                    std::iter::repeat_n(weight, layout.particles)
                });
                weights = Some(each.collect());
                all(&shard.target)?
            }
            Rule::Greedy { utility, double } => {
                let judged = all(if *double {
                    &shard.online
                } else {
                    &shard.target
                })?;
                let laws = judged.chunks_exact(actions * block);
                let taken: Vec<i64> = laws
                    .zip(rows.clone())
                    .map(|(laws, row)| {
                        let extra = &batch.next_extra[row * layout.extra..(row + 1) * layout.extra];
                        utility.greedy(laws, actions, layout.particles, extra) as i64
                    })
                    .collect();
                of(&shard.target, &taken)?
            }
        };
        let mut points = Vec::with_capacity(own.len());
        let each = own.len() / rows.len();
        for (row, laws) in rows.zip(own.chunks_exact(each)) {
            self.push_forward(row, laws, &mut points);
        }
        Ok((points, weights))
    }

    /// Appends R_n + B z for every point z, B being the bootstrap matrix of the row.
    fn push_forward(&self, row: usize, points: &[f32], out: &mut Vec<f32>) {
        let dim = self.layout.dim;
        let reward = &self.batch.rewards[row * dim..(row + 1) * dim];
        let matrix = &self.batch.bootstrap[row * dim * dim..(row + 1) * dim * dim];
        for point in points.chunks_exact(dim) {
            out.extend(
                reward
                    .iter()
                    .zip(matrix.chunks_exact(dim))
                    .map(|(reward, matrix)| {
                        reward
                            + matrix
                                .iter()
                                .zip(point)
                                .map(|(entry, z)| entry * z)
                                .sum::<f32>()
                    }),
            );
        }
    }
}
