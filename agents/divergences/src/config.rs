//! Settings of a divergence: a base divergence on the line and the lift that carries it to R^d.

use serde::{Deserialize, Serialize};

use crate::ambient::{Ambient, Unsliced};
use crate::directions::Draw;
use crate::kernels::magnitude::Magnitude;
use crate::kernels::median::MedianMmd;
use crate::kernels::pairs::LaneKernel;
use crate::kernels::radial::Radial;
use crate::kernels::sinkhorn::Sinkhorn;
use crate::kernels::transport::Transport;
use crate::kernels::{Base, cramer::Cramer, mmd::Mmd, wasserstein::Wasserstein};
use crate::lifted::Lifted;
use crate::{Divergence, DivergenceError};

/// A base divergence with its lift; the default is sliced Cramér with 64 directions.
///
/// ```
/// use pushforward_divergences::DivergenceConfig;
/// let config: DivergenceConfig = serde_json::from_str(
///     r#"{"kind": "wasserstein", "p": 2, "lift": {"kind": "uniform", "directions": 32}}"#,
/// )?;
/// assert_eq!(config.build(3)?.dimension(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DivergenceConfig {
    /// W_p^p = ∫_0^1 |F⁻¹(u) - G⁻¹(u)|^p du.
    Wasserstein {
        /// p >= 1; default 1.
        #[serde(default = "default_p")]
        p: f64,
        /// How it is carried to R^d.
        #[serde(default)]
        lift: LiftConfig,
    },
    /// ℓ2² = ∫ (F - G)² = E|X-Y| - ½ E|X-X'| - ½ E|Y-Y'|.
    Cramer {
        /// V (biased) or U (unbiased) self terms; unset: chosen by the agent, else V.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        statistic: Option<Statistic>,
        /// How it is carried to R^d.
        #[serde(default)]
        lift: LiftConfig,
    },
    /// MMD² = E k(X,X') - 2 E k(X,Y) + E k(Y,Y').
    Mmd {
        /// The kernel k.
        #[serde(default)]
        kernel: KernelConfig,
        /// V (biased) or U (unbiased) self terms; unset: chosen by the agent, else V.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        statistic: Option<Statistic>,
        /// How it is carried to R^d.
        #[serde(default)]
        lift: LiftConfig,
    },
    /// Energy distance on R^d, 2 E‖X-Y‖^α - E‖X-X'‖^α - E‖Y-Y'‖^α: MMD² with the kernel -‖u‖^α.
    Energy {
        /// α in (0, 2); default 1.
        #[serde(default = "default_p")]
        alpha: f64,
        /// V (biased) or U (unbiased) self terms; unset: chosen by the agent, else V.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        statistic: Option<Statistic>,
    },
    /// Debiased Sinkhorn divergence on R^d: OT_ε(x, y) - ½ OT_ε(x, x) - ½ OT_ε(y, y) for the cost ‖x - y‖².
    Sinkhorn {
        /// ε > 0 in squared units of the points; default 1.
        #[serde(default = "default_p")]
        epsilon: f64,
    },
    /// Magnitude distance of point sets, 2 Mag(X∪Y) - Mag(X) - Mag(Y) with Mag = 1ᵀK⁻¹1, K_ij = exp(-t ‖x_i - x_j‖).
    Magnitude {
        /// t > 0 in inverse units of the points; default 1.
        #[serde(default = "default_p")]
        t: f64,
    },
    /// Exact optimal transport on R^d, W_p^p, for evaluation: at most 256 points in a cloud.
    Ot {
        /// p >= 1; default 1.
        #[serde(default = "default_p")]
        p: f64,
    },
}

impl Default for DivergenceConfig {
    fn default() -> Self {
        Self::Cramer {
            statistic: None,
            lift: LiftConfig::default(),
        }
    }
}

/// Whether the self terms E k(X,X') include the pairs of a point with itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Included: biased, never negative.
    #[default]
    V,
    /// Left out, the rest rescaled by n/(n-1): unbiased, may be negative.
    U,
}

/// A kernel k(x, x') of s = ‖x - x'‖².
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum KernelConfig {
    /// Σ_h exp(-s/h): a sum over the bandwidths, not a mean.
    Gaussian {
        /// The h, in squared units of the points; default 1, 2, ..., 10 (MMD-DQN, MD3QN).
        #[serde(default = "default_bandwidths")]
        bandwidths: Vec<f64>,
        /// Use s/d in place of s, as MD3QN does; on a line d = 1.
        #[serde(default)]
        divide_by_dim: bool,
    },
    /// -√(1 + h² s).
    Multiquadric {
        /// h > 0; default 1.
        #[serde(default = "default_p")]
        h: f64,
    },
    /// -s^(α/2).
    Energy {
        /// α in (0, 2); default 1.
        #[serde(default = "default_p")]
        alpha: f64,
    },
    /// exp(-√s/h).
    Laplace {
        /// h > 0; default 1.
        #[serde(default = "default_p")]
        h: f64,
    },
    /// exp(-s/h) with h from the median of the pooled points, held constant in the gradient; its gradients from single transitions are biased.
    Median {
        /// Median of what; default `squares`.
        #[serde(default)]
        of: MedianOf,
    },
}

/// What the median of the median heuristic is taken of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MedianOf {
    /// h = median of ‖u‖².
    #[default]
    Squares,
    /// h = 2σ², σ = median of ‖u‖.
    Distances,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self::Gaussian {
            bandwidths: default_bandwidths(),
            divide_by_dim: false,
        }
    }
}

/// How a divergence on the line becomes one on R^d.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LiftConfig {
    /// Mean over random directions.
    Uniform {
        /// L >= 1; default 64.
        #[serde(default = "default_directions")]
        directions: usize,
        /// How they are drawn.
        #[serde(default)]
        draw: Draw,
        /// Draw anew for each pair of clouds, not once per batch.
        #[serde(default)]
        per_element: bool,
    },
    /// Largest value over all directions.
    Max {
        /// How it is sought.
        #[serde(default)]
        search: SearchConfig,
    },
    /// Mean over the whole sphere in closed form, where one is known: Cramér, and MMD with an energy or Gaussian kernel.
    Exact,
    /// Mean over the d coordinate axes: sees no correlation.
    Marginal,
    /// No lift: the kernel on R^d itself (MMD only).
    None,
}

impl Default for LiftConfig {
    fn default() -> Self {
        Self::Uniform {
            directions: default_directions(),
            draw: Draw::default(),
            per_element: false,
        }
    }
}

/// How the direction of largest divergence is sought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SearchConfig {
    /// Projected gradient ascent on the sphere from several starts; the best point met is kept.
    Ascent {
        /// Random starts per pair of clouds, beside the shared one; default 4.
        #[serde(default = "default_starts")]
        starts: usize,
        /// Steps from each start; default 10.
        #[serde(default = "default_steps")]
        steps: usize,
        /// First step, an angle in radians, halved whenever a step does not climb; default 0.5.
        #[serde(default = "default_step_size")]
        step_size: f64,
    },
    /// Equally spaced angles of the half circle (d = 2 only).
    Grid {
        /// Number of angles; default 180.
        #[serde(default = "default_angles")]
        angles: usize,
    },
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self::Ascent {
            starts: default_starts(),
            steps: default_steps(),
            step_size: default_step_size(),
        }
    }
}

fn default_p() -> f64 {
    1.0
}
fn default_bandwidths() -> Vec<f64> {
    (1..=10).map(f64::from).collect()
}
fn default_directions() -> usize {
    64
}
fn default_starts() -> usize {
    4
}
fn default_steps() -> usize {
    10
}
fn default_step_size() -> f64 {
    0.5
}
fn default_angles() -> usize {
    180
}

/// A line of a registry: what a `kind` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value of `kind`.
    pub kind: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
}

/// Base divergences.
pub const DIVERGENCES: &[Entry] = &[
    Entry {
        kind: "cramer",
        summary: "integral of (F - G)^2; sample gradients are unbiased (statistic = v | u)",
    },
    Entry {
        kind: "wasserstein",
        summary: "W_p^p by quantile coupling (p >= 1); single-sample gradients are biased",
    },
    Entry {
        kind: "mmd",
        summary: "maximum mean discrepancy (kernel = gaussian | multiquadric | energy | laplace | median, statistic = v | u)",
    },
    Entry {
        kind: "energy",
        summary: "energy distance on R^d (0 < alpha < 2, statistic = v | u)",
    },
    Entry {
        kind: "sinkhorn",
        summary: "debiased entropic transport on R^d (epsilon); single-sample gradients are biased",
    },
    Entry {
        kind: "magnitude",
        summary: "magnitude distance of point sets of R^d (scale t); single-sample gradients are biased",
    },
    Entry {
        kind: "ot",
        summary: "exact optimal transport on R^d (p >= 1); evaluation only, at most 256 points",
    },
];

/// Lifts from the line to R^d.
pub const LIFTS: &[Entry] = &[
    Entry {
        kind: "uniform",
        summary: "mean over random directions (draw = iid | orthogonal | quasi)",
    },
    Entry {
        kind: "max",
        summary: "largest value over directions (search = ascent, or grid for d = 2)",
    },
    Entry {
        kind: "exact",
        summary: "mean over the whole sphere in closed form (cramer; mmd with energy or gaussian kernel)",
    },
    Entry {
        kind: "marginal",
        summary: "mean over the coordinate axes; sees no correlation",
    },
    Entry {
        kind: "none",
        summary: "the kernel on R^d itself (mmd only)",
    },
];

impl DivergenceConfig {
    /// The lift.
    pub fn lift(&self) -> &LiftConfig {
        match self {
            Self::Wasserstein { lift, .. } | Self::Cramer { lift, .. } | Self::Mmd { lift, .. } => {
                lift
            }
            Self::Energy { .. }
            | Self::Sinkhorn { .. }
            | Self::Magnitude { .. }
            | Self::Ot { .. } => &LiftConfig::None,
        }
    }

    /// The same divergence with another lift; those of R^d itself have none and stay as they are.
    pub fn with_lift(mut self, new: LiftConfig) -> Self {
        match &mut self {
            Self::Wasserstein { lift, .. } | Self::Cramer { lift, .. } | Self::Mmd { lift, .. } => {
                *lift = new;
            }
            Self::Energy { .. }
            | Self::Sinkhorn { .. }
            | Self::Magnitude { .. }
            | Self::Ot { .. } => {}
        }
        self
    }

    /// The statistic, where the divergence has one and it is set.
    pub fn statistic(&self) -> Option<Statistic> {
        match self {
            Self::Cramer { statistic, .. }
            | Self::Mmd { statistic, .. }
            | Self::Energy { statistic, .. } => *statistic,
            _ => None,
        }
    }

    /// The same divergence with an unset statistic set, where it has one.
    pub fn with_default_statistic(mut self, default: Statistic) -> Self {
        match &mut self {
            Self::Cramer { statistic, .. }
            | Self::Mmd { statistic, .. }
            | Self::Energy { statistic, .. } => {
                statistic.get_or_insert(default);
            }
            _ => {}
        }
        self
    }

    /// Checks all settings and builds the divergence on R^d, d = `dimension`.
    ///
    /// Errors: one line that names the setting, what it is and what it should be.
    pub fn build(&self, dimension: usize) -> Result<Box<dyn Divergence>, DivergenceError> {
        if dimension == 0 {
            return setting("dimension is 0, expected at least 1");
        }
        let inner: Box<dyn Ambient> = match self {
            Self::Sinkhorn { epsilon } => Box::new(Sinkhorn {
                epsilon: positive("sinkhorn epsilon", *epsilon)?,
            }),
            Self::Magnitude { t } => Box::new(Magnitude {
                t: positive("magnitude t", *t)?,
            }),
            Self::Ot { p } => Box::new(Transport {
                p: exponent("ot p", *p)?,
            }),
            Self::Mmd {
                kernel: KernelConfig::Median { of },
                statistic,
                lift: LiftConfig::None,
            } => Box::new(MedianMmd {
                of: *of,
                statistic: statistic.unwrap_or_default(),
            }),
            Self::Energy { alpha, statistic } => {
                let kernel = KernelConfig::Energy { alpha: *alpha };
                let (statistic, lift) = (*statistic, LiftConfig::None);
                return Self::Mmd {
                    kernel,
                    statistic,
                    lift,
                }
                .build(dimension);
            }
            Self::Wasserstein { .. } | Self::Cramer { .. } | Self::Mmd { .. } => {
                return Ok(Box::new(self.lifted(dimension)?));
            }
        };
        Ok(Box::new(Unsliced { inner, dimension }))
    }

    /// Whether it may only be evaluated, not trained on.
    pub fn evaluation_only(&self) -> bool {
        matches!(self, Self::Ot { .. })
    }

    fn lifted(&self, dimension: usize) -> Result<Lifted, DivergenceError> {
        let base: Box<dyn Base> = match self {
            Self::Wasserstein { p, .. } => Box::new(Wasserstein {
                p: exponent("wasserstein p", *p)?,
            }),
            Self::Cramer { statistic, .. } => Box::new(Cramer {
                statistic: statistic.unwrap_or_default(),
            }),
            Self::Mmd {
                kernel: KernelConfig::Median { of },
                statistic,
                ..
            } => Box::new(MedianMmd {
                of: *of,
                statistic: statistic.unwrap_or_default(),
            }),
            Self::Mmd {
                kernel, statistic, ..
            } => Box::new(Mmd::new(kernel.radial(1)?, statistic.unwrap_or_default())),
            _ => return setting(format!("{} has no lift", self.kind())),
        };
        let kind = self.kind();
        let radial = match self.lift() {
            LiftConfig::Uniform { directions: 0, .. } => {
                return setting("uniform directions is 0, expected at least 1");
            }
            LiftConfig::Max { search } => {
                search.check(dimension)?;
                None
            }
            LiftConfig::Uniform { .. } | LiftConfig::Marginal => None,
            LiftConfig::Exact => Some(match self {
                Self::Cramer { .. } => Radial::Energy {
                    alpha: 1.0,
                    scale: 0.5,
                }
                .sphere_mean(dimension),
                Self::Mmd { kernel, .. } if !matches!(kernel, KernelConfig::Median { .. }) => {
                    kernel.radial(1)?.sphere_mean(dimension)
                }
                _ => None,
            })
            .map(|mean| {
                mean.ok_or_else(|| {
                    DivergenceError::Setting(format!(
                        "lift exact has no known closed form for {kind}, expected cramer or mmd with an energy or gaussian kernel"
                    ))
                })
            })
            .transpose()?,
            LiftConfig::None => match self {
                Self::Mmd { kernel, .. } => Some(kernel.radial(dimension)?),
                _ => {
                    return setting(format!(
                        "lift none needs a divergence on R^d, got {kind}, expected mmd"
                    ));
                }
            },
        };
        Ok(Lifted {
            base,
            lift: self.lift().clone(),
            fast: radial.as_ref().map(Radial::tabulated),
            lanes: radial.as_ref().and_then(LaneKernel::new),
            radial,
            dimension,
        })
    }

    fn kind(&self) -> String {
        match self {
            Self::Wasserstein { .. } => "wasserstein".into(),
            Self::Cramer { .. } => "cramer".into(),
            Self::Mmd { kernel, .. } => format!("mmd with {} kernel", kernel.name()),
            Self::Energy { .. } => "energy".into(),
            Self::Sinkhorn { .. } => "sinkhorn".into(),
            Self::Magnitude { .. } => "magnitude".into(),
            Self::Ot { .. } => "ot".into(),
        }
    }
}

impl KernelConfig {
    fn name(&self) -> &'static str {
        match self {
            Self::Gaussian { .. } => "a gaussian",
            Self::Multiquadric { .. } => "a multiquadric",
            Self::Energy { .. } => "an energy",
            Self::Laplace { .. } => "a laplace",
            Self::Median { .. } => "a median",
        }
    }

    /// The checked kernel for points of R^d.
    fn radial(&self, dimension: usize) -> Result<Radial, DivergenceError> {
        Ok(match self {
            Self::Gaussian {
                bandwidths,
                divide_by_dim,
            } => {
                if bandwidths.is_empty() {
                    return setting("gaussian bandwidths is empty, expected at least one");
                }
                let factor = if *divide_by_dim {
                    dimension as f64
                } else {
                    1.0
                };
                Radial::Gaussian {
                    bandwidths: bandwidths
                        .iter()
                        .map(|&h| Ok(positive("gaussian bandwidth", h)? * factor))
                        .collect::<Result<_, DivergenceError>>()?,
                }
            }
            Self::Multiquadric { h } => Radial::Multiquadric {
                h: positive("multiquadric h", *h)?,
            },
            Self::Energy { alpha } => {
                if !(*alpha > 0.0 && *alpha < 2.0) {
                    return setting(format!(
                        "energy alpha is {alpha}, expected a number between 0 and 2, both excluded"
                    ));
                }
                Radial::Energy {
                    alpha: *alpha,
                    scale: 1.0,
                }
            }
            Self::Laplace { h } => Radial::Laplace {
                h: positive("laplace h", *h)?,
            },
            Self::Median { .. } => {
                return setting("the median kernel has no bandwidth of its own");
            }
        })
    }
}

impl SearchConfig {
    fn check(&self, dimension: usize) -> Result<(), DivergenceError> {
        match self {
            Self::Ascent { starts: 0, .. } => {
                setting("max ascent starts is 0, expected at least 1")
            }
            Self::Ascent { step_size, .. } if !(step_size.is_finite() && *step_size > 0.0) => {
                setting(format!(
                    "max ascent step_size is {step_size}, expected a finite angle > 0 (radians)"
                ))
            }
            Self::Grid { angles: 0 } => setting("max grid angles is 0, expected at least 1"),
            Self::Grid { .. } if dimension != 2 => setting(format!(
                "max search grid needs d = 2, got d = {dimension}; use search ascent"
            )),
            _ => Ok(()),
        }
    }
}

fn positive(what: &str, value: f64) -> Result<f64, DivergenceError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    setting(format!("{what} is {value}, expected a finite number > 0"))
}

fn exponent(what: &str, p: f64) -> Result<f64, DivergenceError> {
    if p.is_finite() && p >= 1.0 {
        return Ok(p);
    }
    setting(format!("{what} is {p}, expected a finite number >= 1"))
}

fn setting<T>(message: impl Into<String>) -> Result<T, DivergenceError> {
    Err(DivergenceError::Setting(message.into()))
}
