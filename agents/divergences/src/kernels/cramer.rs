//! The Cramér distance ℓ2² = ∫ (F - G)² on the line.

use super::line::{Line, LineScratch, append, sort};
use super::{Base, Element, Scratch, fused};
use crate::config::Statistic;

/// ∫ (F - G)², with its V- or U-statistic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cramer {
    pub statistic: Statistic,
}

impl Base for Cramer {
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
        cramer(line, self.statistic, scratch, gradient, gradient_y)
    }

    #[cfg(feature = "tensor")]
    fn tensor_line(
        &self,
        x: &crate::tensor::Samples,
        y: &crate::tensor::Samples,
    ) -> Result<tch::Tensor, tch::TchError> {
        tensor_cramer(x, y, self.statistic)
    }

    fn fused(
        &self,
        element: &Element<'_>,
        directions: &[f32],
        scratch: &mut Scratch,
        gradient: &mut [f32],
    ) -> Option<f64> {
        fused::sliced(self, self, element, directions, scratch, gradient)
    }
}

/// Value and gradient (overwritten) by one sort of the pooled sample.
///
/// Between neighbours of the pooled sample H = F - G is constant, so the value is Σ gap · H². With mid-rank CDFs the gradient is
/// ∂/∂x_i = -2 w_i H°(x_i), where H° is the mean of H before and after the group of points that tie with x_i.
/// The U-statistic subtracts ½ E|X-X'| / (n-1) = ∫ F(1-F) / (n-1), and the same for y.
pub(crate) fn cramer(
    line: &Line<'_>,
    statistic: Statistic,
    scratch: &mut LineScratch,
    gradient: &mut [f64],
    mut gradient_y: Option<&mut [f64]>,
) -> f64 {
    let n = line.x.len();
    let pooled = &mut scratch.pooled;
    pooled.clear();
    append(pooled, line.x, 0);
    append(pooled, line.y, n);
    sort(pooled);

    let unbias = match statistic {
        Statistic::V => None,
        Statistic::U => Some((
            line.total / (n as f64 - 1.0),
            line.total / (line.y.len() as f64 - 1.0),
        )),
    };
    let (mut mass_x, mut mass_y, mut value) = (0.0, 0.0, 0.0);
    let mut start = 0;
    while start < pooled.len() {
        let z = pooled[start].0;
        let before = mass_x - mass_y;
        let (before_x, before_y) = (mass_x, mass_y);
        let mut end = start;
        while end < pooled.len() && pooled[end].0 == z {
            let index = pooled[end].1 as usize;
            if index < n {
                mass_x += line.mass_x[index];
            } else {
                mass_y += line.mass_y[index - n];
            }
            end += 1;
        }
        let after = mass_x - mass_y;
        for &(_, index) in &pooled[start..end] {
            let index = index as usize;
            if index < n {
                let mut slope = -(before + after);
                if unbias.is_some() {
                    // -(2/n) (F° - ½) / (n - 1) beside (2/n) (G° - F°).
                    slope -= (before_x + mass_x - line.total) / (n as f64 - 1.0);
                }
                gradient[index] = line.mass_x[index] * slope / (line.total * line.total);
            } else if let Some(gradient_y) = gradient_y.as_deref_mut() {
                let mut slope = before + after;
                if unbias.is_some() {
                    slope -= (before_y + mass_y - line.total) / (line.y.len() as f64 - 1.0);
                }
                gradient_y[index - n] = line.mass_y[index - n] * slope / (line.total * line.total);
            }
        }
        if let Some(next) = pooled.get(end) {
            let mut height = after * after;
            if let Some((scale_x, scale_y)) = unbias {
                height -= scale_x * mass_x * (1.0 - mass_x / line.total)
                    + scale_y * mass_y * (1.0 - mass_y / line.total);
            }
            value += (next.0 - z) * height;
        }
        start = end;
    }
    value / (line.total * line.total)
}

/// Σ gap · H² over the sorted pooled samples, `[B, L]`.
#[cfg(feature = "tensor")]
pub(crate) fn tensor_cramer(
    x: &crate::tensor::Samples,
    y: &crate::tensor::Samples,
    statistic: Statistic,
) -> Result<tch::Tensor, tch::TchError> {
    use tch::{Kind, Tensor};
    let (n, m) = (x.count(), y.count());
    let (wx, wy) = (x.line_weights()?, y.line_weights()?);
    let (pooled, order) = Tensor::f_cat(&[&x.points, &y.points], 2)?.f_sort(2, false)?;
    let gaps = pooled
        .f_narrow(2, 1, n + m - 1)?
        .f_sub(&pooled.f_narrow(2, 0, n + m - 1)?)?;
    let cumulative = |weights: &[&Tensor]| -> Result<Tensor, tch::TchError> {
        Tensor::f_cat(weights, 2)?
            .f_gather(2, &order, false)?
            .f_cumsum(2, Kind::Float)?
            .f_narrow(2, 0, n + m - 1)
    };
    let mut height = cumulative(&[&wx, &wy.f_neg()?])?.f_square()?;
    if statistic == Statistic::U {
        let f = cumulative(&[&wx, &wy.f_zeros_like()?])?;
        let g = cumulative(&[&wx.f_zeros_like()?, &wy])?;
        for (cdf, count) in [(f, n), (g, m)] {
            let variance = cdf.f_sub(&cdf.f_square()?)?;
            height = height.f_sub(&variance.f_div_scalar((count - 1) as f64)?)?;
        }
    }
    gaps.f_mul(&height)?
        .f_sum_dim_intlist(&[2_i64][..], false, Kind::Float)
}
