//! Grids that are geometric after a shift, and the cell of a value in one by a table lookup.

use crate::mean_field::kernels::{self, GridTables, Leading};
use crate::mean_field::real::Real;

/// Points low = g_0 < ... < g_{n-1} = high with g_i + pivot geometric, and a table that finds the cell of a value without a search.
#[derive(Clone, Debug)]
pub(super) struct Grid<R> {
    /// The points in double precision.
    pub exact: Vec<f64>,
    pivot: f64,
    /// Start of each cell and one over its width.
    cells: Vec<(R, R)>,
    /// Values whose f32, after adding the pivot, has the same leading bits: a stretch shorter than any cell, so that it lies in one cell or in
    /// two. Its first cell, and where the next one starts.
    stretches: Vec<(u32, R)>,
    leading: Leading<R>,
}

impl<R: Real> Grid<R> {
    /// `points` >= 2 points from `low` to `high` > `low` >= 0, the pivot being at least `smallest_pivot` > 0 and at least `low`.
    pub fn geometric(low: f64, high: f64, points: usize, smallest_pivot: f64) -> Self {
        let pivot = low.abs().max(smallest_pivot);
        let (start, end) = ((low + pivot).ln(), (high + pivot).ln());
        let exact: Vec<f64> = (0..points)
            .map(|i| {
                let log = start + (end - start) * i as f64 / (points - 1) as f64;
                (log.exp() - pivot).max(0.0)
            })
            .collect();
        // A stretch is at most 2^-bits long relative to its values, a cell at least 1 - 1/ratio.
        let ratio = ((end - start) / (points - 1) as f64).exp();
        let bits = (1.1 / (1.0 - 1.0 / ratio)).log2().ceil().clamp(0.0, 20.0) as u32;
        let dropped_bits = 23 - bits;
        let leading = |value: f64| ((value + pivot) as f32).to_bits() >> dropped_bits;
        let stretches = (leading(low)..=leading(high))
            .map(|leading| {
                // A value may have been rounded up into this stretch.
                let start = f64::from(f32::from_bits(leading << dropped_bits));
                let smallest = start * (1.0 - 1e-6) - pivot;
                let cell = exact.partition_point(|point| *point <= smallest);
                let cell = cell.saturating_sub(1).min(points - 2);
                let last = cell + 2 == points;
                let next = if last { f64::INFINITY } else { exact[cell + 1] };
                (cell as u32, R::from_f64(next))
            })
            .collect();
        let cells = exact
            .windows(2)
            .map(|pair| (R::from_f64(pair[0]), R::from_f64(1.0 / (pair[1] - pair[0]))))
            .collect();
        Self {
            pivot,
            cells,
            stretches,
            leading: Leading {
                shift: R::from_f64(pivot),
                first: leading(low),
                dropped_bits,
            },
            exact,
        }
    }

    /// The first and the last point.
    pub fn ends(&self) -> [R; 2] {
        [self.exact[0], self.exact[self.exact.len() - 1]].map(R::from_f64)
    }

    /// Splits values between their neighbouring points: `weights` holds values between the ends and gets the weight of the upper neighbour;
    /// `targets` gets `bases` plus the index of the lower one times `stride`.
    ///
    /// # Panics
    /// If a value lies outside the grid.
    pub fn lotteries(&self, stride: u32, bases: &[u32], targets: &mut [u32], weights: &mut [R]) {
        let tables = GridTables {
            leading: self.leading,
            stretches: &self.stretches,
            cells: &self.cells,
        };
        kernels::lotteries(tables, stride, bases, targets, weights);
    }

    /// The position of a value on the shifted logarithmic scale, 0 at the first point and 1 at the last.
    pub fn relative(&self, value: f64) -> f64 {
        let (low, high) = (self.exact[0], self.exact[self.exact.len() - 1]);
        let log = |x: f64| ((x + self.pivot) / (low + self.pivot)).ln();
        (log(value) / log(high)).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lotteries_agree_with_a_search_and_keep_the_mean() {
        for (low, high, points) in [
            (0.0, 99.0, 200),
            (0.1, 2.0, 5),
            (0.0, 1.0, 2),
            (3.0, 4.0, 999),
        ] {
            let grid = Grid::<f64>::geometric(low, high, points, 0.25);
            let last = points - 1;
            assert!((grid.exact[0] - low).abs() < 1e-12 && (grid.exact[last] - high).abs() < 1e-9);
            let mut values: Vec<f64> = (0..5000)
                .map(|i| low + (high - low) * (f64::from(i) / 5000.0).powi(3))
                .collect();
            values.extend(
                grid.exact
                    .iter()
                    .flat_map(|p| [*p, p * (1.0 - 1e-15), p + 1e-15]),
            );
            values.retain(|value| (grid.exact[0]..=grid.exact[last]).contains(value));
            let mut cells = vec![0; values.len()];
            let mut weights = values.clone();
            grid.lotteries(1, &vec![0; values.len()], &mut cells, &mut weights);
            for ((value, cell), weight) in values.iter().zip(cells).zip(weights) {
                let cell = cell as usize;
                let searched = grid.exact.partition_point(|p| p <= value);
                assert_eq!(cell, searched.saturating_sub(1).min(points - 2), "{value}");
                assert!((0.0..=1.0).contains(&weight), "{value}: {weight}");
                let mean = grid.exact[cell] * (1.0 - weight) + grid.exact[cell + 1] * weight;
                assert!((mean - value).abs() < 1e-12 * high, "{value}: {mean}");
            }
        }
    }
}
