//! One shard's work in an update: target points, the divergence to them, and the gradient of the parameters.

use std::ops::Range;

use pushforward_core::{
    Batch, CoreError, ObservationBuffer,
    dense::ParameterValues,
    parameters::{ParameterLayout, Parameters},
    tensor,
};
use pushforward_divergences::{
    Cloud, Clouds, Directions, Divergence, DivergenceError, Path, Shape,
};
use pushforward_envs::EnvSpec;
use tch::{Device, Tensor};

use crate::{
    config::Backup,
    dense::{DenseLaw, Inputs, Pass},
    learner::{Layout, Rule},
    network::LawNetwork,
};

/// Handles of one worker on the shared parameters, and its buffers.
pub(crate) struct Shard {
    pub online: Vec<Tensor>,
    pub target: Vec<Tensor>,
    pub rule: Rule,
    /// Noise of the whole batch, [B · N, k]: every law has draws of its own.
    pub noise: Option<Tensor>,
    pub target_noise: Option<Tensor>,
    pub online_pass: Pass,
    pub target_pass: Pass,
    /// On the CPU: the gradient of this shard, laid out as the parameters.
    pub gradient: Vec<f32>,
}

/// What a shard found: unweighted losses, and the directions of a max lift with the clouds that they were found for.
pub(crate) struct Share {
    pub losses: Vec<f32>,
    pub found: Vec<f32>,
    pub predicted: Vec<f32>,
    pub target: Vec<f32>,
    /// Gradients in the order of the parameters, on other devices than the CPU.
    pub leaves: Vec<Tensor>,
}

impl Share {
    fn new(target: Vec<f32>, rows: usize) -> Self {
        Self {
            losses: vec![0.0; rows],
            found: Vec::new(),
            predicted: Vec::new(),
            target,
            leaves: Vec::new(),
        }
    }
}

/// What all shards share during one update.
pub(crate) struct Context<'a> {
    pub network: &'a LawNetwork,
    pub dense: Option<Dense<'a>>,
    pub layout: &'a Layout,
    pub parameters: &'a [ParameterLayout],
    pub divergence: &'a dyn Divergence,
    pub directions: &'a Directions,
    pub warm_start: Option<&'a [f32]>,
    /// Whether the divergence searches for directions (max lift).
    pub searches: bool,
    pub batch: &'a Batch,
    /// π(·|S_n), [B, A]; empty for control.
    pub next_probabilities: &'a [f32],
    pub next_actions: &'a [i64],
    pub device: Device,
    pub updates: u64,
}

/// The network without an autograd graph, where there is such a form of it.
#[derive(Clone, Copy)]
pub(crate) struct Dense<'a> {
    pub law: DenseLaw<'a>,
    pub online: ParameterValues<'a>,
    pub target: ParameterValues<'a>,
}

/// Which of the two networks.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    Online,
    Target,
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

impl Context<'_> {
    /// Targets, losses and gradients of some rows of the batch; on the CPU the gradient goes into the shard's buffer.
    pub fn share(&self, shard: &mut Shard, rows: Range<usize>) -> Result<Share, CoreError> {
        let taken = &self.batch.actions[rows.clone()];
        if let (Some(dense), ObservationBuffer::F32(observations)) =
            (self.dense, &self.batch.observations)
        {
            let inputs = self.inputs(observations, &self.batch.extra, rows.clone());
            let mut pass = std::mem::take(&mut shard.online_pass);
            let (targets, predicted) = rayon::join(
                || self.targets(shard, rows.clone()),
                || dense.law.taken(dense.online, inputs, taken, &mut pass),
            );
            let (target, weights) = targets?;
            let mut share = Share::new(target, rows.len());
            let slopes = self.slopes(&predicted, weights.as_deref(), rows, &mut share)?;
            dense
                .law
                .gradient(dense.online, &mut pass, &slopes, &mut shard.gradient);
            shard.online_pass = pass;
            return Ok(share);
        }
        let (target, target_weights) = self.targets(shard, rows.clone())?;
        let weights = target_weights.as_deref();
        let mut share = Share::new(target, rows.len());
        let observations = observation_rows(
            &self.batch.observations,
            rows.clone(),
            &self.layout.observation,
            self.device,
        )?;
        let extra = extra_rows(
            &self.batch.extra,
            rows.clone(),
            self.layout.extra,
            self.device,
        )?;
        let predicted = self.network.forward_taken(
            &shard.online,
            &observations,
            extra.as_ref(),
            self.noise(shard.noise.as_ref(), rows.clone())?.as_ref(),
            taken,
        )?;
        if self.device == Device::Cpu {
            let values = predicted.f_detach()?.f_contiguous()?;
            let slopes = self.slopes(tensor::f32_slice(&values)?, weights, rows, &mut share)?;
            let slopes = tensor::from_f32(&slopes, &predicted.size(), self.device)?;
            let objective = predicted.f_mul(&slopes)?.f_sum(tch::Kind::Float)?;
            let leaves = Tensor::f_run_backward(&[objective], &shard.online, false, false)?;
            Parameters::flatten(self.parameters, &leaves, &mut shard.gradient)?;
        } else {
            share.leaves = self.device_gradients(shard, predicted, weights, rows, &mut share)?;
        }
        Ok(share)
    }

    /// Rows of a batch for the dense network.
    fn inputs<'b>(
        &self,
        observations: &'b [f32],
        extra: &'b [f32],
        rows: Range<usize>,
    ) -> Inputs<'b> {
        let length = self.layout.observation.iter().product::<i64>() as usize;
        let k = self.layout.extra;
        Inputs {
            observations: &observations[rows.start * length..rows.end * length],
            extra: &extra[rows.start * k..rows.end * k],
            rows: rows.len(),
        }
    }

    /// The rows' part of the batch's noise, [b, N, k].
    fn noise(&self, all: Option<&Tensor>, rows: Range<usize>) -> Result<Option<Tensor>, CoreError> {
        let Some(all) = all else { return Ok(None) };
        let each = self.layout.particles as i64;
        let (start, count) = (rows.start as i64, rows.len() as i64);
        let own = all.f_narrow(0, start * each, count * each)?;
        Ok(Some(own.f_view([count, each, -1])?))
    }

    /// What the loss of each row is multiplied with: its importance weight over the batch size.
    fn scales(&self, rows: Range<usize>) -> impl Iterator<Item = f32> {
        let size = self.batch.size as f32;
        self.batch.weights[rows]
            .iter()
            .map(move |weight| weight / size)
    }

    fn shape(&self, rows: usize, target: usize) -> Shape {
        Shape {
            batch: rows,
            predicted: self.layout.particles,
            target: target / (rows * self.layout.dim),
            dimension: self.layout.dim,
        }
    }

    /// Losses into the share, and the gradient of their weighted mean with respect to the predicted points.
    fn slopes(
        &self,
        predicted: &[f32],
        target_weights: Option<&[f32]>,
        rows: Range<usize>,
        share: &mut Share,
    ) -> Result<Vec<f32>, CoreError> {
        let layout = self.layout;
        let mut slopes = vec![0.0; predicted.len()];
        let clouds = Clouds {
            predicted,
            target: &share.target,
            predicted_weights: None,
            target_weights,
            shape: self.shape(rows.len(), share.target.len()),
        };
        let found_length = if self.searches {
            rows.len() * layout.dim
        } else {
            0
        };
        let mut found = vec![0.0; found_length];
        self.divergence
            .value_and_gradient(
                &clouds,
                &self.directions.slice(rows.clone()),
                self.warm_start,
                &mut share.losses,
                &mut slopes,
                self.searches.then_some(&mut found[..]),
            )
            .map_err(|error| self.blame(&error))?;
        if self.searches {
            share.found = found;
            share.predicted = predicted.to_vec();
        }
        for (row, scale) in slopes
            .chunks_mut(layout.particles * layout.dim)
            .zip(self.scales(rows))
        {
            row.iter_mut().for_each(|slope| *slope *= scale);
        }
        Ok(slopes)
    }

    /// Losses and gradients by tensor operations.
    fn device_gradients(
        &self,
        shard: &Shard,
        predicted: Tensor,
        target_weights: Option<&[f32]>,
        rows: Range<usize>,
        share: &mut Share,
    ) -> Result<Vec<Tensor>, CoreError> {
        let size = rows.len() as i64;
        let shape = self.shape(rows.len(), share.target.len());
        let points = shape.target as i64;
        let on_device =
            |values: &[f32], shape: &[i64]| tensor::from_f32(values, shape, self.device);
        let target = Cloud {
            points: on_device(&share.target, &[size, points, self.layout.dim as i64])?,
            weights: target_weights
                .map(|weights| on_device(weights, &[size, points]))
                .transpose()?,
        };
        let predicted = Cloud {
            points: predicted,
            weights: None,
        };
        let mut start = self.warm_start.map(<[f32]>::to_vec);
        let directions = self.directions.slice(rows.clone());
        let losses = self
            .divergence
            .loss_from(&predicted, &target, &directions, &mut start, Path::Fastest)
            .map_err(|error| self.blame(&error))?;
        share.losses = tensor::to_f32(&losses.detach())?;
        let scales: Vec<f32> = self.scales(rows).collect();
        let objective = losses.f_dot(&on_device(&scales, &[size])?)?;
        Ok(Tensor::f_run_backward(
            &[objective],
            &shard.online,
            false,
            false,
        )?)
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

    /// Laws at the successors, without a gradient: `[b, N, d]` of the actions `taken`, or `[b, A, N, d]` of all.
    fn successor_laws(
        &self,
        shard: &mut Shard,
        which: Which,
        rows: Range<usize>,
        taken: Option<&[i64]>,
    ) -> Result<Vec<f32>, CoreError> {
        let batch = self.batch;
        if let (Some(dense), ObservationBuffer::F32(observations)) =
            (self.dense, &batch.next_observations)
        {
            let inputs = self.inputs(observations, &batch.next_extra, rows);
            let own = match which {
                Which::Online => dense.online,
                Which::Target => dense.target,
            };
            let pass = &mut shard.target_pass;
            return Ok(match taken {
                Some(taken) => dense.law.taken(own, inputs, taken, pass),
                None => dense.law.all(own, inputs, pass),
            });
        }
        let observations = observation_rows(
            &batch.next_observations,
            rows.clone(),
            &self.layout.observation,
            self.device,
        )?;
        let noise = self.noise(shard.target_noise.as_ref(), rows.clone())?;
        let extra = extra_rows(&batch.next_extra, rows, self.layout.extra, self.device)?;
        let (extra, noise) = (extra.as_ref(), noise.as_ref());
        let leaves = match which {
            Which::Online => &shard.online,
            Which::Target => &shard.target,
        };
        let forward = || match taken {
            Some(taken) => self
                .network
                .forward_taken(leaves, &observations, extra, noise, taken),
            None => self.network.forward(leaves, &observations, extra, noise),
        };
        tensor::to_f32(&tch::no_grad(forward)?)
    }

    /// Target points R_n + Γ^n Z(S_n, A') of the rows, [b, M, d], and their weights where they are not equal.
    fn targets(
        &self,
        shard: &mut Shard,
        rows: Range<usize>,
    ) -> Result<(Vec<f32>, Option<Vec<f32>>), CoreError> {
        let layout = self.layout;
        let batch = self.batch;
        let (actions, block) = (layout.actions, layout.particles * layout.dim);
        let mut weights = None;
        let mut points = match &shard.rule {
            Rule::Policy {
                backup: Backup::Sampled,
                ..
            } => {
                let taken = &self.next_actions[rows.clone()];
                self.successor_laws(shard, Which::Target, rows.clone(), Some(taken))?
            }
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
                self.successor_laws(shard, Which::Target, rows.clone(), None)?
            }
            Rule::Greedy { double, .. } => {
                let judge = if *double {
                    Which::Online
                } else {
                    Which::Target
                };
                let judged = self.successor_laws(shard, judge, rows.clone(), None)?;
                let Rule::Greedy { utility, .. } = &mut shard.rule else {
                    unreachable!("the rule was just matched");
                };
                let laws = judged.chunks_exact(actions * block);
                let taken: Vec<usize> = laws
                    .zip(rows.clone())
                    .map(|(laws, row)| {
                        let extra = &batch.next_extra[row * layout.extra..(row + 1) * layout.extra];
                        utility.greedy(laws, actions, layout.particles, extra)
                    })
                    .collect();
                if judge == Which::Target {
                    // The law of the action taken was computed already.
                    let laws = judged.chunks_exact(actions * block).zip(&taken);
                    laws.flat_map(|(laws, &action)| &laws[action * block..(action + 1) * block])
                        .copied()
                        .collect()
                } else {
                    let taken: Vec<i64> = taken.iter().map(|&action| action as i64).collect();
                    self.successor_laws(shard, Which::Target, rows.clone(), Some(&taken))?
                }
            }
        };
        let each = points.len() / rows.len();
        for (row, laws) in rows.zip(points.chunks_exact_mut(each)) {
            self.push_forward(row, laws);
        }
        Ok((points, weights))
    }

    /// z <- R_n + B z for every point z, B being the bootstrap matrix of the row.
    fn push_forward(&self, row: usize, points: &mut [f32]) {
        let dim = self.layout.dim;
        let reward = &self.batch.rewards[row * dim..(row + 1) * dim];
        let matrix = &self.batch.bootstrap[row * dim * dim..(row + 1) * dim * dim];
        let mut pushed = vec![0.0; dim];
        for point in points.chunks_exact_mut(dim) {
            for ((out, reward), entries) in
                pushed.iter_mut().zip(reward).zip(matrix.chunks_exact(dim))
            {
                *out = *reward;
                for (entry, z) in entries.iter().zip(&*point) {
                    *out += entry * z;
                }
            }
            point.copy_from_slice(&pushed);
        }
    }
}
