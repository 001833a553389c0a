//! Networks from observations to the joint law of the vector return of every action.

use pushforward_core::{
    CoreError,
    network::{Linear, Mlp, Torso, TorsoConfig},
    parameters::ParameterBuilder,
};
use pushforward_envs::{EnvSpec, StreamRng};
use rand::{Rng, seq::SliceRandom};
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor};

use crate::dense::DenseLaw;

/// How the law of Z(s, a) in R^d is represented.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RepresentationConfig {
    /// The network emits N points per action, each of weight 1/N.
    Particles {
        /// N >= 1; default 64.
        #[serde(default = "default_particles")]
        particles: usize,
        /// Standard deviation of the points before training, in units of return; default 0.5.
        #[serde(default = "default_spread")]
        spread: f64,
    },
    /// The network maps (s, a, u), u uniform on [0, 1]^k, to one point; N fresh draws per update.
    Implicit {
        /// N >= 2; default 64.
        #[serde(default = "default_particles")]
        particles: usize,
        /// k >= 1; default 2.
        #[serde(default = "default_noise")]
        noise: usize,
        /// J >= 0: each u also enters as cos(π j u), j = 1..J, so that a law may have sharp edges; default 8.
        #[serde(default = "default_frequencies")]
        frequencies: usize,
        /// Width of the two layers that join features and noise; default 64.
        #[serde(default = "default_width")]
        width: usize,
    },
}

fn default_particles() -> usize {
    64
}
fn default_spread() -> f64 {
    0.5
}
fn default_noise() -> usize {
    2
}
fn default_frequencies() -> usize {
    8
}
fn default_width() -> usize {
    64
}

impl Default for RepresentationConfig {
    fn default() -> Self {
        Self::Particles {
            particles: default_particles(),
            spread: default_spread(),
        }
    }
}

impl RepresentationConfig {
    /// N, the number of points per law in an update.
    pub fn particles(&self) -> usize {
        match self {
            Self::Particles { particles, .. } | Self::Implicit { particles, .. } => *particles,
        }
    }
}

#[derive(Clone, Debug)]
enum Head {
    /// One map for each action, so that an update computes only the actions that were taken.
    Particles { points: Vec<Linear> },
    Implicit {
        features: Linear,
        noise: Linear,
        joint: Mlp,
        points: Linear,
        noise_dim: usize,
        frequencies: usize,
    },
}

/// A torso and a head: observations [B, ..] to points [B, A, N, d].
#[derive(Clone, Debug)]
pub struct LawNetwork {
    torso: Torso,
    head: Head,
    actions: i64,
    particles: i64,
    dim: i64,
}

impl LawNetwork {
    /// Describes the network for an environment, with `extra` numbers appended to the observation.
    ///
    /// # Errors
    /// [`CoreError::Setting`] for a size of 0.
    pub fn new(
        builder: &mut ParameterBuilder,
        spec: &EnvSpec,
        extra: usize,
        torso: &TorsoConfig,
        representation: &RepresentationConfig,
    ) -> Result<Self, CoreError> {
        let refuse = |message: String| Err(CoreError::Setting(message));
        let particles = representation.particles();
        let least = match representation {
            RepresentationConfig::Particles { .. } => 1,
            RepresentationConfig::Implicit { .. } => 2,
        };
        if particles < least {
            return refuse(format!(
                "agent.representation.particles: got {particles}, expected at least {least}"
            ));
        }
        let torso = Torso::new(builder, &spec.observation, extra, torso)?;
        let (actions, dim) = (spec.actions() as i64, spec.reward_dim as i64);
        let head = match *representation {
            RepresentationConfig::Particles { spread, .. } => {
                if !(spread.is_finite() && spread >= 0.0) {
                    return refuse(format!(
                        "agent.representation.spread: got {spread}, expected a finite number >= 0"
                    ));
                }
                let points = spec
                    .action_names
                    .iter()
                    .map(|action| {
                        Linear::with_spread_bias(
                            builder,
                            &format!("head.{action}"),
                            torso.outputs,
                            particles as i64 * dim,
                            1.0 / 3.0,
                            spread,
                        )
                    })
                    .collect();
                Head::Particles { points }
            }
            RepresentationConfig::Implicit {
                noise,
                width,
                frequencies,
                ..
            } => {
                if noise == 0 || width == 0 {
                    return refuse(format!(
                        "agent.representation: got noise {noise} and width {width}, expected at least 1"
                    ));
                }
                let wide = width as i64;
                Head::Implicit {
                    features: Linear::new(builder, "head.features", torso.outputs, wide, 1.0),
                    noise: Linear::new(
                        builder,
                        "head.noise",
                        (noise * (1 + frequencies)) as i64,
                        wide,
                        1.0,
                    ),
                    joint: Mlp::new(builder, "head.joint", wide, &[width]),
                    points: Linear::new(builder, "head.points", wide, actions * dim, 1.0 / 3.0),
                    noise_dim: noise,
                    frequencies,
                }
            }
        };
        Ok(Self {
            torso,
            head,
            actions,
            particles: particles as i64,
            dim,
        })
    }

    /// This network without an autograd graph, for particles of a torso without convolutions.
    pub(crate) fn dense(&self) -> Option<DenseLaw<'_>> {
        match &self.head {
            Head::Particles { points } => {
                let torso = self.torso.dense()?;
                Some(DenseLaw { torso, points })
            }
            Head::Implicit { .. } => None,
        }
    }

    /// Independent noise for `points` points, [points, k (1 + J)]: u and cos(π j u), scaled to mean 0 and variance 1; `None` for particles.
    ///
    /// # Errors
    /// If libtorch cannot allocate it.
    pub fn draw_noise(
        &self,
        points: usize,
        rng: &mut StreamRng,
        device: Device,
    ) -> Result<Option<Tensor>, CoreError> {
        let Head::Implicit { noise_dim, .. } = self.head else {
            return Ok(None);
        };
        let uniform = (0..points * noise_dim).map(|_| rng.random()).collect();
        self.noise(uniform, device).map(Some)
    }

    /// As [`LawNetwork::draw_noise`], but spread: every coordinate of u has one point in each of `points` equal strata (a Latin hypercube,
    /// McKay et al. 1979), so that few points stand well for the law, as free particles do.
    ///
    /// # Errors
    /// As [`LawNetwork::draw_noise`].
    pub fn spread_noise(
        &self,
        points: usize,
        rng: &mut StreamRng,
        device: Device,
    ) -> Result<Option<Tensor>, CoreError> {
        let Head::Implicit { noise_dim, .. } = self.head else {
            return Ok(None);
        };
        let mut uniform = vec![0.0; points * noise_dim];
        let mut strata: Vec<usize> = (0..points).collect();
        for coordinate in 0..noise_dim {
            strata.shuffle(rng);
            let column = uniform.iter_mut().skip(coordinate).step_by(noise_dim);
            for (u, stratum) in column.zip(&strata) {
                *u = (*stratum as f32 + rng.random::<f32>()) / points as f32;
            }
        }
        self.noise(uniform, device).map(Some)
    }

    fn noise(&self, uniform: Vec<f32>, device: Device) -> Result<Tensor, CoreError> {
        let Head::Implicit {
            noise_dim,
            frequencies,
            ..
        } = self.head
        else {
            return Err(CoreError::Tensor("particles need no noise".into()));
        };
        let width = 1 + frequencies;
        let mut values = Vec::with_capacity(uniform.len() * width);
        for u in &uniform {
            values.push((u - 0.5) * 12.0_f32.sqrt());
            // cos((j+1) x) = 2 cos x cos(j x) - cos((j-1) x).
            let twice = 2.0 * (std::f32::consts::PI * u).cos();
            let (mut before, mut cosine) = (2.0_f32.sqrt(), twice / 2.0_f32.sqrt());
            for _ in 0..frequencies {
                values.push(cosine);
                (before, cosine) = (cosine, twice * cosine - before);
            }
        }
        let points = (uniform.len() / noise_dim) as i64;
        let shape = [points, (noise_dim * width) as i64];
        pushforward_core::tensor::from_f32(&values, &shape, device)
    }

    /// Points [B, A, N, d] for observations [B, ..], `extra` [B, k] and, for an implicit law, noise [N, k] or, of each row's own, [B, N, k].
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(
        &self,
        leaves: &[Tensor],
        observations: &Tensor,
        extra: Option<&Tensor>,
        noise: Option<&Tensor>,
    ) -> Result<Tensor, CoreError> {
        let features = self.torso.forward(leaves, observations, extra)?;
        let batch = features.size()[0];
        match (&self.head, noise) {
            (Head::Particles { points }, _) => {
                let actions = points
                    .iter()
                    .map(|points| points.forward(leaves, &features))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(Tensor::f_cat(&actions, 1)?.f_view([
                    batch,
                    self.actions,
                    self.particles,
                    self.dim,
                ])?)
            }
            (
                Head::Implicit {
                    features: project,
                    noise: embed,
                    joint,
                    points,
                    ..
                },
                Some(noise),
            ) => {
                // The first layer over [features; noise] is computed once per state and once per draw, and added.
                let state = project.forward(leaves, &features)?.f_unsqueeze(1)?;
                let draw = embed.forward(leaves, noise)?;
                let hidden = joint.forward(leaves, &state.f_add(&draw)?.f_relu()?)?;
                let count = noise.size()[noise.dim() - 2];
                Ok(points
                    .forward(leaves, &hidden)?
                    .f_view([batch, count, self.actions, self.dim])?
                    .f_permute([0, 2, 1, 3])?)
            }
            (Head::Implicit { .. }, None) => Err(CoreError::Tensor(
                "an implicit law needs noise to be evaluated".into(),
            )),
        }
    }

    /// Points [B, N, d] of one action for each row, otherwise as [`LawNetwork::forward`].
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward_taken(
        &self,
        leaves: &[Tensor],
        observations: &Tensor,
        extra: Option<&Tensor>,
        noise: Option<&Tensor>,
        taken: &[i64],
    ) -> Result<Tensor, CoreError> {
        let batch = taken.len() as i64;
        let device = observations.device();
        let Head::Particles { points } = &self.head else {
            let all = self.forward(leaves, observations, extra, noise)?;
            let index = Tensor::f_from_slice(taken)?
                .f_to_device(device)?
                .f_view([batch, 1, 1, 1])?
                .f_expand([batch, 1, all.size()[2], self.dim], false)?;
            return Ok(all.f_gather(1, &index, false)?.f_squeeze_dim(1)?);
        };
        let features = self.torso.forward(leaves, observations, extra)?;
        let mut order: Vec<i64> = (0..batch).collect();
        order.sort_by_key(|&row| taken[row as usize]);
        let mut inverse = vec![0_i64; taken.len()];
        for (place, &row) in order.iter().enumerate() {
            inverse[row as usize] = place as i64;
        }
        let index =
            |rows: &[i64]| Ok::<_, CoreError>(Tensor::f_from_slice(rows)?.f_to_device(device)?);
        let grouped = features.f_index_select(0, &index(&order)?)?;
        let mut start = 0;
        let mut clouds = Vec::new();
        for (action, points) in points.iter().enumerate() {
            let count = taken.iter().filter(|&&own| own == action as i64).count() as i64;
            if count > 0 {
                clouds.push(points.forward(leaves, &grouped.f_narrow(0, start, count)?)?);
                start += count;
            }
        }
        Ok(Tensor::f_cat(&clouds, 0)?
            .f_index_select(0, &index(&inverse)?)?
            .f_view([batch, self.particles, self.dim])?)
    }
}
