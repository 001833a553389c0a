//! Grids that are geometric after a shift, and the cell of a value in one by a table lookup.

use crate::mean_field::real::Real;

/// Points low = g_0 < ... < g_{n-1} = high with g_i + pivot geometric, and a table that finds the cell of a value without a search.
#[derive(Clone, Debug)]
pub(super) struct Grid<R> {
    /// The points in double precision.
    pub exact: Vec<f64>,
    pivot: f64,
    /// The points, and 1 / (g_{i+1} - g_i).
    points: Vec<R>,
    inverse_widths: Vec<R>,
    /// The cell of the smallest value + pivot whose f32 has these leading bits, less the first table entry's bits. Each stretch of values
    /// with equal leading bits is shorter than any cell, so the cell of a value is this one or the next.
    cells: Vec<u32>,
    first_bits: u32,
    shift: u32,
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
        // Leading bits of an f32: the exponent and so many bits of the mantissa that a stretch, 2^-bits long relative to its values, is
        // shorter than half a cell.
        let ratio = ((end - start) / (points - 1) as f64).exp() - 1.0;
        let bits = (2.0 / ratio).log2().ceil().clamp(0.0, 20.0) as u32;
        let shift = 23 - bits;
        let first_bits = ((low + pivot) as f32).to_bits() >> shift;
        let last_bits = ((high + pivot) as f32).to_bits() >> shift;
        let cells = (first_bits..=last_bits)
            .map(|leading| {
                // A value may have been rounded up into this stretch.
                let smallest = f64::from(f32::from_bits(leading << shift)) * (1.0 - 1e-6) - pivot;
                let cell = exact.partition_point(|point| *point <= smallest);
                cell.saturating_sub(1).min(points - 2) as u32
            })
            .collect();
        Self {
            points: exact.iter().map(|point| R::from_f64(*point)).collect(),
            inverse_widths: exact
                .windows(2)
                .map(|pair| R::from_f64(1.0 / (pair[1] - pair[0])))
                .collect(),
            exact,
            pivot,
            cells,
            first_bits,
            shift,
        }
    }

    /// The cell i with g_i <= value < g_{i+1} and the weight of g_{i+1} in the lottery with mean `value`; outside the grid all weight is on
    /// its end.
    #[inline(always)]
    pub fn lottery(&self, value: R) -> (usize, R) {
        let shifted = (value.to_f64() + self.pivot) as f32;
        let stretch = (shifted.to_bits() >> self.shift).saturating_sub(self.first_bits);
        let guess = self.cells[(stretch as usize).min(self.cells.len() - 1)] as usize;
        let above = guess + 2 < self.points.len() && value >= self.points[guess + 1];
        let cell = guess + usize::from(above);
        let weight = (value - self.points[cell]) * self.inverse_widths[cell];
        let weight = if weight < R::ZERO { R::ZERO } else { weight };
        (cell, if weight > R::ONE { R::ONE } else { weight })
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
            for value in values {
                let (cell, weight) = grid.lottery(value);
                let searched = grid.exact.partition_point(|p| *p <= value);
                let searched = searched.saturating_sub(1).min(points - 2);
                assert_eq!(cell, searched, "{value}");
                let inside = value.clamp(grid.exact[0], grid.exact[last]);
                let mean = grid.exact[cell] * (1.0 - weight) + grid.exact[cell + 1] * weight;
                assert!((mean - inside).abs() < 1e-12 * high, "{value}: {mean}");
            }
            assert_eq!(grid.lottery(low - 0.2), (0, 0.0));
            assert_eq!(grid.lottery(high * 7.0), (points - 2, 1.0));
        }
    }
}
