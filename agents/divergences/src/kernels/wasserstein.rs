//! The Wasserstein distance W_p^p on the line.

use super::fused::wasserstein::Coupling;
use super::line::{Line, LineScratch, sort_into};
use super::{Base, Element, Scratch, fused};

/// ∫_0^1 |F⁻¹(u) - G⁻¹(u)|^p du.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wasserstein {
    /// p >= 1.
    pub p: f64,
}

impl Base for Wasserstein {
    fn exponent(&self) -> f64 {
        self.p
    }

    fn line(
        &self,
        line: &Line<'_>,
        scratch: &mut LineScratch,
        gradient: &mut [f64],
        gradient_y: Option<&mut [f64]>,
    ) -> f64 {
        if self.p == 1.0 {
            couple(line, scratch, gradient, gradient_y, |u| (u.abs(), sign(u)))
        } else if self.p == 2.0 {
            couple(line, scratch, gradient, gradient_y, |u| (u * u, 2.0 * u))
        } else {
            let p = self.p;
            couple(line, scratch, gradient, gradient_y, |u| {
                (u.abs().powf(p), p * u.abs().powf(p - 1.0) * sign(u))
            })
        }
    }

    fn fused(
        &self,
        element: &Element<'_>,
        directions: &[f32],
        scratch: &mut Scratch,
        gradient: &mut [f32],
    ) -> Option<f64> {
        let (n, m) = element.sizes();
        if !self.has_fused(n, m) {
            return None;
        }
        if self.p == 1.0 {
            let kernel = Coupling::<false>;
            fused::sliced(&kernel, self, element, directions, scratch, gradient)
        } else {
            let kernel = Coupling::<true>;
            fused::sliced(&kernel, self, element, directions, scratch, gradient)
        }
    }

    #[cfg(feature = "tensor")]
    fn tensor_line(
        &self,
        x: &crate::tensor::Samples,
        y: &crate::tensor::Samples,
    ) -> Result<tch::Tensor, tch::TchError> {
        use tch::{Kind, Tensor};
        let cost = |difference: Tensor| match self.p {
            1.0 => difference.f_abs(),
            2.0 => difference.f_square(),
            p => difference.f_abs()?.f_pow_tensor_scalar(p),
        };
        let (xs, order_x) = x.points.f_sort(2, false)?;
        let (ys, order_y) = y.points.f_sort(2, false)?;
        if x.count() == y.count() && x.weights.is_none() && y.weights.is_none() {
            return cost(xs.f_sub(&ys)?)?.f_mean_dim(&[2_i64][..], false, Kind::Float);
        }
        // Merged quantile grids: pieces of (0, 1) on which both quantile functions are constant.
        let cumulative = |weights: Tensor, order: &Tensor| {
            weights.f_gather(2, order, false)?.f_cumsum(2, Kind::Float)
        };
        let cx = cumulative(x.line_weights()?, &order_x)?;
        let cy = cumulative(y.line_weights()?, &order_y)?;
        let (grid, _) = Tensor::f_cat(&[&cx, &cy], 2)?.f_sort(2, false)?;
        let start = grid.f_narrow(2, 0, 1)?.f_zeros_like()?;
        let pieces = x.count() + y.count();
        let before = Tensor::f_cat(&[&start, &grid.f_narrow(2, 0, pieces - 1)?], 2)?;
        let widths = grid.f_sub(&before)?;
        let middles = grid.f_add(&before)?.f_mul_scalar(0.5)?.f_contiguous()?;
        let quantiles = |sorted: &Tensor, cdf: &Tensor, count: i64| {
            let none: Option<&Tensor> = None;
            let index = middles
                .f_searchsorted(&cdf.f_contiguous()?, false, false, "left", none)?
                .f_clamp_max(count - 1)?;
            sorted.f_gather(2, &index, false)
        };
        let difference = quantiles(&xs, &cx, x.count())?.f_sub(&quantiles(&ys, &cy, y.count())?)?;
        cost(difference)?
            .f_mul(&widths)?
            .f_sum_dim_intlist(&[2_i64][..], false, Kind::Float)
    }
}

/// The sign of u, with sign(0) = 0.
fn sign(u: f64) -> f64 {
    if u == 0.0 { 0.0 } else { u.signum() }
}

/// Walks along the merged quantile grids of both samples: each piece of mass costs `cost(x - y)`, whose derivative goes to the gradient.
fn couple(
    line: &Line<'_>,
    scratch: &mut LineScratch,
    gradient: &mut [f64],
    mut gradient_y: Option<&mut [f64]>,
    cost: impl Fn(f64) -> (f64, f64),
) -> f64 {
    sort_into(&mut scratch.pooled, line.x, 0);
    sort_into(&mut scratch.second, line.y, 0);
    gradient.fill(0.0);
    if let Some(gradient_y) = gradient_y.as_deref_mut() {
        gradient_y.fill(0.0);
    }
    let (mut i, mut j) = (0, 0);
    let first = |sorted: &[(f64, u32)], masses: &[f64]| masses[sorted[0].1 as usize];
    let mut left_x = first(&scratch.pooled, line.mass_x);
    let mut left_y = first(&scratch.second, line.mass_y);
    let mut value = 0.0;
    loop {
        let (x, index_x) = scratch.pooled[i];
        let (y, index_y) = scratch.second[j];
        let mass = left_x.min(left_y);
        let (c, slope) = cost(x - y);
        value += mass * c;
        gradient[index_x as usize] += mass * slope / line.total;
        if let Some(gradient_y) = gradient_y.as_deref_mut() {
            gradient_y[index_y as usize] -= mass * slope / line.total;
        }
        let (end_x, end_y) = (left_x <= left_y, left_y <= left_x);
        left_x -= mass;
        left_y -= mass;
        if end_x {
            i += 1;
            let Some(next) = scratch.pooled.get(i) else {
                break;
            };
            left_x = line.mass_x[next.1 as usize];
        }
        if end_y {
            j += 1;
            let Some(next) = scratch.second.get(j) else {
                break;
            };
            left_y = line.mass_y[next.1 as usize];
        }
    }
    value / line.total
}
