//! Kernels k(x, x') of s = ‖x - x'‖², and their means over the directions of the sphere.

use statrs::function::gamma::ln_gamma;

/// A kernel as a function of the squared distance s.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Radial {
    /// Σ_h exp(-s/h).
    Gaussian { bandwidths: Vec<f64> },
    /// -√(1 + h² s).
    Multiquadric { h: f64 },
    /// -scale · s^(α/2).
    Energy { alpha: f64, scale: f64 },
    /// exp(-√s/h).
    Laplace { h: f64 },
    /// Another kernel by interpolation.
    Table(Box<Table>),
    /// Σ_h 1F1(½; d/2; -s/h): the mean of exp(-(θ·v)²/h) over θ, s = ‖v‖².
    Kummer {
        bandwidths: Vec<f64>,
        half_dimension: f64,
    },
}

impl Radial {
    /// k and dk/ds; where k has a kink at s = 0 the derivative there counts as 0.
    #[inline]
    pub fn at(&self, s: f64) -> (f64, f64) {
        match self {
            Self::Gaussian { bandwidths } => {
                let (mut value, mut slope) = (0.0, 0.0);
                for h in bandwidths {
                    let e = (-s / h).exp();
                    value += e;
                    slope -= e / h;
                }
                (value, slope)
            }
            Self::Multiquadric { h } => {
                let root = (1.0 + h * h * s).sqrt();
                (-root, -0.5 * h * h / root)
            }
            Self::Energy { .. } | Self::Laplace { .. } if s == 0.0 => (
                if matches!(self, Self::Laplace { .. }) {
                    1.0
                } else {
                    0.0
                },
                0.0,
            ),
            Self::Energy { alpha, scale } => {
                let power = if *alpha == 1.0 {
                    s.sqrt()
                } else {
                    s.powf(0.5 * alpha)
                };
                (-scale * power, -scale * 0.5 * alpha * power / s)
            }
            Self::Laplace { h } => {
                let root = s.sqrt();
                let e = (-root / h).exp();
                (e, -0.5 * e / (h * root))
            }
            Self::Table(table) => table.at(s),
            Self::Kummer {
                bandwidths,
                half_dimension: b,
            } => {
                let (mut value, mut slope) = (0.0, 0.0);
                for h in bandwidths {
                    value += kummer(0.5, *b, s / h);
                    slope -= 0.5 / b * kummer(1.5, b + 1.0, s / h) / h;
                }
                (value, slope)
            }
        }
    }

    /// The same kernel in a form that is fast to evaluate, to 1e-8 of its largest value.
    pub fn tabulated(&self) -> Self {
        match self {
            Self::Kummer { bandwidths, .. } => {
                let smallest = bandwidths.iter().fold(f64::INFINITY, |a, &h| a.min(h));
                Self::Table(Box::new(Table::new(self.clone(), smallest)))
            }
            _ => self.clone(),
        }
    }

    /// The mean of k(θ·v) over the unit sphere of R^d as a kernel of ‖v‖², where known.
    pub fn sphere_mean(&self, dimension: usize) -> Option<Self> {
        match self {
            Self::Gaussian { .. } if dimension == 1 => Some(self.clone()),
            Self::Gaussian { bandwidths } => Some(Self::Kummer {
                bandwidths: bandwidths.clone(),
                half_dimension: dimension as f64 / 2.0,
            }),
            Self::Energy { alpha, scale } => Some(Self::Energy {
                alpha: *alpha,
                scale: scale * mean_coordinate_power(dimension, *alpha),
            }),
            _ => None,
        }
    }
}

#[cfg(feature = "tensor")]
impl Radial {
    /// Whether the kernel can be written with tensor operations.
    pub fn has_tensor_form(&self) -> bool {
        !matches!(self, Self::Kummer { .. } | Self::Table(_))
    }

    /// k of a tensor of squared distances; where k has a kink at 0 its gradient there is 0.
    fn tensor(&self, s: &tch::Tensor) -> Result<tch::Tensor, tch::TchError> {
        // Zeros are replaced before the root, so that no infinite slope meets a zero in the chain rule.
        let with_zeros = |of: &dyn Fn(&tch::Tensor) -> Result<tch::Tensor, tch::TchError>,
                          at_zero: f64| {
            let zero = s.f_eq(0.0)?;
            let value = of(&s.f_masked_fill(&zero, 1.0)?)?;
            value.f_masked_fill(&zero, at_zero)
        };
        match self {
            Self::Gaussian { bandwidths } => {
                let mut sum = s.f_zeros_like()?;
                for h in bandwidths {
                    sum = sum.f_add(&s.f_mul_scalar(-1.0 / h)?.f_exp()?)?;
                }
                Ok(sum)
            }
            Self::Multiquadric { h } => s.f_mul_scalar(h * h)?.f_add_scalar(1.0)?.f_sqrt()?.f_neg(),
            Self::Energy { alpha, scale } => with_zeros(
                &|s| s.f_pow_tensor_scalar(0.5 * alpha)?.f_mul_scalar(-scale),
                0.0,
            ),
            Self::Laplace { h } => {
                with_zeros(&|s| s.f_sqrt()?.f_mul_scalar(-1.0 / h)?.f_exp(), 1.0)
            }
            Self::Kummer { .. } | Self::Table(_) => Err(tch::TchError::Kind(
                "the closed form of a Gaussian kernel has no tensor form".into(),
            )),
        }
    }

    /// MMD² `[B, L]` of samples `[B, L, N, d]` and `[B, L, M, d]`.
    pub fn tensor_mmd(
        &self,
        x: &crate::tensor::Samples,
        y: &crate::tensor::Samples,
        statistic: crate::config::Statistic,
    ) -> Result<tch::Tensor, tch::TchError> {
        use crate::config::Statistic;
        use crate::tensor::Samples;
        use tch::{Kind, Tensor};
        let weights = |s: &Samples| match &s.weights {
            Some(w) => Ok(w.shallow_clone()),
            None => Tensor::f_full(
                [1, 1, s.count()],
                1.0 / s.count() as f64,
                (Kind::Float, s.points.device()),
            ),
        };
        // Σ_ij a_i k(x_i, y_j) b_j
        let pairs = |a: &Samples, b: &Samples| -> Result<Tensor, tch::TchError> {
            let difference = a.points.f_unsqueeze(3)?.f_sub(&b.points.f_unsqueeze(2)?)?;
            let s = difference
                .f_square()?
                .f_sum_dim_intlist(&[4_i64][..], false, Kind::Float)?;
            self.tensor(&s)?
                .f_mul(&weights(a)?.f_unsqueeze(3)?)?
                .f_mul(&weights(b)?.f_unsqueeze(2)?)?
                .f_sum_dim_intlist(&[2_i64, 3][..], false, Kind::Float)
        };
        let own = |a: &Samples| -> Result<Tensor, tch::TchError> {
            let sum = pairs(a, a)?;
            match statistic {
                Statistic::V => Ok(sum),
                Statistic::U => {
                    let n = a.count() as f64;
                    let diagonal = self.at(0.0).0 / n;
                    sum.f_sub_scalar(diagonal)?.f_mul_scalar(n / (n - 1.0))
                }
            }
        };
        own(x)?
            .f_add(&own(y)?)?
            .f_sub(&pairs(x, y)?.f_mul_scalar(2.0)?)
    }
}

/// A smooth kernel by cubic Hermite interpolation in v = ln(1 + s/unit).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    kernel: Radial,
    unit: f64,
    /// k and its change over one interval of v, at each node.
    nodes: Vec<[f64; 2]>,
}

impl Table {
    /// Nodes per unit of v.
    const DENSITY: f64 = 128.0;
    /// Largest v of the table; farther apart the kernel itself is evaluated.
    const LARGEST: usize = 24;

    fn new(kernel: Radial, unit: f64) -> Self {
        let nodes = (0..=Self::LARGEST * Self::DENSITY as usize + 1)
            .map(|i| {
                let v = i as f64 / Self::DENSITY;
                let (k, slope) = kernel.at(unit * v.exp_m1());
                [k, slope * unit * v.exp() / Self::DENSITY]
            })
            .collect();
        Self {
            kernel,
            unit,
            nodes,
        }
    }

    fn at(&self, s: f64) -> (f64, f64) {
        let place = (s / self.unit).ln_1p() * Self::DENSITY;
        let index = place as usize;
        let (Some([a, da]), Some([b, db])) = (self.nodes.get(index), self.nodes.get(index + 1))
        else {
            return self.kernel.at(s);
        };
        let t = place - index as f64;
        let (bend, twist) = (3.0 * (b - a) - 2.0 * da - db, 2.0 * (a - b) + da + db);
        let value = a + t * (da + t * (bend + t * twist));
        let change = da + t * (2.0 * bend + t * 3.0 * twist);
        (value, change * Self::DENSITY / (self.unit + s))
    }
}

/// E|θ_1|^α over the unit sphere of R^d: Γ(d/2) Γ((α+1)/2) / (√π Γ((d+α)/2)); for α = 1 this is κ_d.
pub fn mean_coordinate_power(dimension: usize, alpha: f64) -> f64 {
    if dimension == 1 {
        return 1.0;
    }
    let d = dimension as f64;
    (ln_gamma(d / 2.0) + ln_gamma((alpha + 1.0) / 2.0) - ln_gamma((d + alpha) / 2.0)).exp()
        / std::f64::consts::PI.sqrt()
}

/// Kummer's 1F1(a; b; -z) for z >= 0 and b > a > 0.
///
/// Below z = 50 as e^-z 1F1(b-a; b; z), whose terms are all positive; above by the asymptotic series Γ(b)/Γ(b-a) z^-a Σ (a)_n (1+a-b)_n / (n! z^n).
fn kummer(a: f64, b: f64, z: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    if z < 50.0 {
        let mut n = 0.0;
        while term > sum * 1e-17 {
            term *= (b - a + n) / ((b + n) * (n + 1.0)) * z;
            sum += term;
            n += 1.0;
        }
        return (-z).exp() * sum;
    }
    let mut n = 0.0;
    while n < z {
        let next = term * (a + n) * (1.0 + a - b + n) / ((n + 1.0) * z);
        if next == 0.0 || next.abs() < 1e-17 * f64::abs(sum) {
            break;
        }
        term = next;
        sum += term;
        n += 1.0;
    }
    (ln_gamma(b) - ln_gamma(b - a) - a * z.ln()).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1F1(½; 3/2; -z) = √π erf(√z) / (2√z): d = 3, on both sides of the switch at z = 50.
    #[test]
    fn kummer_agrees_with_the_error_function() {
        for z in [1e-8_f64, 0.3, 7.0, 49.9, 50.1, 400.0, 1e9] {
            let root = z.sqrt();
            let expected =
                std::f64::consts::PI.sqrt() * statrs::function::erf::erf(root) / (2.0 * root);
            let got = kummer(0.5, 1.5, z);
            assert!(
                (got / expected - 1.0).abs() < 1e-10,
                "{z}: {got} {expected}"
            );
        }
    }

    #[test]
    fn both_branches_of_kummer_meet() {
        for d in [2.0_f64, 3.0, 8.0, 32.0] {
            for a in [0.5, 1.5] {
                let b = d / 2.0 + a - 0.5;
                let (below, above) = (kummer(a, b, 50.0 - 1e-9), kummer(a, b, 50.0));
                assert!(
                    (below / above - 1.0).abs() < 1e-8,
                    "{d} {a}: {below} {above}"
                );
            }
        }
    }

    #[test]
    fn tables_agree_with_their_kernels() {
        for half_dimension in [1.0, 1.5, 4.0] {
            let kernel = Radial::Kummer {
                bandwidths: vec![0.5, 3.0, 40.0],
                half_dimension,
            };
            let table = kernel.tabulated();
            for i in 0..2000 {
                let s = (f64::from(i) * 0.01).exp_m1();
                let ((k, slope), (fast, fast_slope)) = (kernel.at(s), table.at(s));
                assert!((k - fast).abs() < 1e-8, "{s}: {k} {fast}");
                // Per relative change of s.
                assert!(
                    (slope - fast_slope).abs() * (s + 0.5) < 1e-6,
                    "{s}: {slope} {fast_slope}"
                );
            }
        }
    }

    #[test]
    fn slopes_are_derivatives() {
        let kernels = [
            Radial::Gaussian {
                bandwidths: vec![1.0, 3.0],
            },
            Radial::Multiquadric { h: 2.0 },
            Radial::Energy {
                alpha: 1.5,
                scale: 0.7,
            },
            Radial::Laplace { h: 2.5 },
            Radial::Kummer {
                bandwidths: vec![1.0, 0.01],
                half_dimension: 2.5,
            },
        ];
        for kernel in kernels {
            for s in [0.2, 1.7] {
                let step = 1e-6;
                let difference = (kernel.at(s + step).0 - kernel.at(s - step).0) / (2.0 * step);
                assert!(
                    (kernel.at(s).1 - difference).abs() < 1e-7,
                    "{kernel:?} at {s}"
                );
            }
        }
    }
}
