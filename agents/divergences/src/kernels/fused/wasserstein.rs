//! Sliced Wasserstein for clouds of equal size: both columns are sorted, and points of equal rank are coupled.

use super::super::network::sort;
use super::super::simd::{LANES, Simd};
use super::super::wasserstein::Wasserstein;
use super::{BlockKernel, FusedScratch, Grid, Sizes, add_gradient, scatter, to_array};

/// W_1 or, with `SQUARED`, W_2².
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coupling<const SQUARED: bool>;

impl Wasserstein {
    /// Whether the fused kernel covers these sizes; p is 1 or 2 then.
    pub fn has_fused(&self, n: usize, m: usize) -> bool {
        n == m && (self.p == 1.0 || self.p == 2.0)
    }
}

impl<const SQUARED: bool> BlockKernel for Coupling<SQUARED> {
    fn rows(&self, sizes: Sizes) -> usize {
        sizes.n.next_power_of_two().max(16)
    }

    #[inline(always)]
    fn block<S: Simd>(&self, s: S, own: &mut FusedScratch, sizes: Sizes) -> ([f32; LANES], u32) {
        let (n, size) = (sizes.n, self.rows(sizes));
        let mut grid = Grid::new(&own.low, &own.high, size);
        let (x, y) = (&mut own.keys[..size], &mut own.second_keys[..size]);
        grid.keys(s, &own.values[..n], x);
        grid.keys(s, &own.values[n..2 * n], y);
        sort(s, x);
        sort(s, y);
        let (lower, upper) = (n / 8, n - 1 - n / 8);
        grid.check_spread([&x[lower], &y[lower]], [&x[upper], &y[upper]]);

        let slopes = &mut own.values[..n];
        let mut value = s.splat(0.0);
        let (zero, one) = (s.splat(0.0), s.splat(1.0));
        for ((x, y), out) in x.iter().zip(y.iter()).zip(slopes.iter_mut()) {
            let x = s.shift_right(s.load_int(x), grid.shift);
            let y = s.shift_right(s.load_int(y), grid.shift);
            // In positions; below 2^25, so exact up to the rounding of the conversion.
            let difference = s.to_float(s.sub_int(x, y));
            let slope = if SQUARED {
                difference
            } else {
                let sign = s.select(s.greater(x, y), one, s.sub(zero, one));
                s.select(s.equal(x, y), zero, sign)
            };
            value = s.add(value, s.mul(difference, slope));
            s.store(slope, out);
        }
        scatter(&x[..n], slopes, &mut own.slopes, size);
        let mut value = to_array(s, value);
        for (value, step) in value.iter_mut().zip(grid.step.0) {
            *value *= if SQUARED { step * step } else { step } / n as f32;
        }
        if SQUARED {
            for t in own.theta_scaled.iter_mut() {
                for (t, step) in t.0.iter_mut().zip(grid.step.0) {
                    *t *= 2.0 * step;
                }
            }
        }
        add_gradient(s, own, sizes, 1.0 / n as f32, grid.narrow);
        (value, grid.narrow)
    }
}
