//! Maximum mean discrepancy with a radial kernel, on the line and on R^d.

use super::cramer::{Cramer, cramer};
use super::line::{Line, LineScratch};
use super::pairs::{self, LaneKernel};
use super::radial::Radial;
use super::{Base, Element, SampleBuffers, Scratch, fused};
use crate::config::Statistic;

/// E k(X,X') - 2 E k(X,Y) + E k(Y,Y') on the line.
#[derive(Debug, Clone)]
pub(crate) struct Mmd {
    pub kernel: Radial,
    /// The same kernel in lanes, where it has such a form.
    pub lanes: Option<LaneKernel>,
    pub statistic: Statistic,
}

impl Mmd {
    pub fn new(kernel: Radial, statistic: Statistic) -> Self {
        Self {
            lanes: LaneKernel::new(&kernel),
            kernel,
            statistic,
        }
    }
}

impl Base for Mmd {
    fn exponent(&self) -> f64 {
        2.0
    }

    fn statistic(&self) -> Statistic {
        self.statistic
    }

    fn line(
        &self,
        line: &Line<'_>,
        scratch: &mut LineScratch,
        gradient: &mut [f64],
        gradient_y: Option<&mut [f64]>,
    ) -> f64 {
        if let Radial::Energy { alpha, scale } = self.kernel
            && alpha == 1.0
        {
            // -|u| is twice the Cramér distance, by one sort in place of all pairs.
            let twice = 2.0 * scale;
            let mut gradient_y = gradient_y;
            let value = cramer(
                line,
                self.statistic,
                scratch,
                gradient,
                gradient_y.as_deref_mut(),
            );
            gradient.iter_mut().for_each(|g| *g *= twice);
            if let Some(gradient_y) = gradient_y {
                gradient_y.iter_mut().for_each(|g| *g *= twice);
            }
            return twice * value;
        }
        mmd(line, 1, &self.kernel, self.statistic, gradient, gradient_y)
    }

    fn fused(
        &self,
        element: &Element<'_>,
        directions: &[f32],
        scratch: &mut Scratch,
        gradient: &mut [f32],
    ) -> Option<f64> {
        match &self.kernel {
            Radial::Gaussian { bandwidths } if fused::spectral::covers(bandwidths, element) => {
                fused::sliced(self, self, element, directions, scratch, gradient)
            }
            Radial::Energy { alpha, scale } if *alpha == 1.0 => {
                let cramer = Cramer {
                    statistic: self.statistic,
                };
                let value = cramer.fused(element, directions, scratch, gradient)?;
                gradient.iter_mut().for_each(|g| *g *= (2.0 * scale) as f32);
                Some(2.0 * scale * value)
            }
            _ => None,
        }
        .or_else(|| {
            let kernel = self.lanes.as_ref()?;
            let at_zero = self.kernel.at(0.0).0;
            let statistic = self.statistic;
            let value = pairs::sliced(
                kernel, at_zero, statistic, element, directions, scratch, gradient,
            );
            // Squares of very large coordinates leave f32: back to the f64 kernel.
            value.is_finite().then_some(value)
        })
    }

    #[cfg(feature = "tensor")]
    fn tensor_line(
        &self,
        x: &crate::tensor::Samples,
        y: &crate::tensor::Samples,
    ) -> Result<tch::Tensor, tch::TchError> {
        if let Radial::Energy { alpha, scale } = self.kernel
            && alpha == 1.0
        {
            return super::cramer::tensor_cramer(x, y, self.statistic)?.f_mul_scalar(2.0 * scale);
        }
        let as_points = |s: &crate::tensor::Samples| -> Result<_, tch::TchError> {
            Ok(crate::tensor::Samples {
                points: s.points.f_unsqueeze(3)?,
                weights: s.weights.as_ref().map(tch::Tensor::shallow_clone),
            })
        };
        self.kernel
            .tensor_mmd(&as_points(x)?, &as_points(y)?, self.statistic)
    }
}

/// MMD² on R^d by all pairs, for points given as rows of d numbers in place of the points of a line; overwrites the gradients.
pub(crate) fn mmd(
    samples: &Line<'_>,
    dimension: usize,
    kernel: &Radial,
    statistic: Statistic,
    gradient: &mut [f64],
    gradient_y: Option<&mut [f64]>,
) -> f64 {
    gradient.fill(0.0);
    let squared = samples.total * samples.total;
    let x = (samples.x, samples.mass_x);
    let y = (samples.y, samples.mass_y);
    let mut value = own_pairs(x, dimension, kernel, statistic, Some(gradient));
    let mut no_gradient: [f64; 0] = [];
    let y_gradient = match gradient_y {
        Some(gradient_y) => {
            gradient_y.fill(0.0);
            gradient_y
        }
        None => &mut no_gradient[..],
    };
    let with_y = !y_gradient.is_empty();
    value += own_pairs(
        y,
        dimension,
        kernel,
        statistic,
        with_y.then_some(&mut *y_gradient),
    );
    for (i, (point, &mass)) in samples
        .x
        .chunks_exact(dimension)
        .zip(samples.mass_x)
        .enumerate()
    {
        for (j, (other, &other_mass)) in samples
            .y
            .chunks_exact(dimension)
            .zip(samples.mass_y)
            .enumerate()
        {
            let (k, slope) = kernel.at(squared_distance(point, other));
            let weight = -2.0 * mass * other_mass;
            value += weight * k;
            for c in 0..dimension {
                let push = weight * 2.0 * slope * (point[c] - other[c]);
                gradient[i * dimension + c] += push;
                if with_y {
                    y_gradient[j * dimension + c] -= push;
                }
            }
        }
    }
    gradient.iter_mut().for_each(|g| *g /= squared);
    y_gradient.iter_mut().for_each(|g| *g /= squared);
    value / squared
}

/// Σ_ik mass_i mass_k k(x_i, x_k), for the U-statistic without the diagonal and times n/(n-1); adds its gradient.
fn own_pairs(
    (points, masses): (&[f64], &[f64]),
    dimension: usize,
    kernel: &Radial,
    statistic: Statistic,
    mut gradient: Option<&mut [f64]>,
) -> f64 {
    let count = masses.len() as f64;
    let (mut value, factor) = match statistic {
        Statistic::V => {
            let diagonal = kernel.at(0.0).0;
            (masses.iter().map(|m| m * m * diagonal).sum(), 1.0)
        }
        Statistic::U => (0.0, count / (count - 1.0)),
    };
    for i in 1..masses.len() {
        let point = &points[i * dimension..(i + 1) * dimension];
        for k in 0..i {
            let other = &points[k * dimension..(k + 1) * dimension];
            let (kernel_value, slope) = kernel.at(squared_distance(point, other));
            let weight = 2.0 * factor * masses[i] * masses[k];
            value += weight * kernel_value;
            if let Some(gradient) = gradient.as_deref_mut() {
                for c in 0..dimension {
                    let push = weight * 2.0 * slope * (point[c] - other[c]);
                    gradient[i * dimension + c] += push;
                    gradient[k * dimension + c] -= push;
                }
            }
        }
    }
    value
}

#[inline]
fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(p, q)| (p - q) * (p - q)).sum()
}

/// MMD² of loaded points of R^d; overwrites `gradient` `[N, d]`.
pub(crate) fn ambient(
    points: &SampleBuffers,
    dimension: usize,
    kernel: &Radial,
    statistic: Statistic,
    gradient: &mut [f64],
) -> f64 {
    mmd(&points.line(), dimension, kernel, statistic, gradient, None)
}
