//! Sliced Cramér: one sort of the pooled columns and one walk along them with the running H = F - G.

use super::super::cramer::Cramer;
use super::super::network::sort;
use super::super::simd::{LANES, Row, Simd};
use super::{BlockKernel, FusedScratch, Grid, Sizes, add_gradient, scatter, to_array};
use crate::config::Statistic;

impl BlockKernel for Cramer {
    fn rows(&self, sizes: Sizes) -> usize {
        (sizes.n + sizes.m).next_power_of_two().max(16)
    }

    #[inline(always)]
    fn block<S: Simd>(&self, s: S, own: &mut FusedScratch, sizes: Sizes) -> ([f32; LANES], u32) {
        let (n, m) = (sizes.n, sizes.m);
        let (count, size) = (n + m, self.rows(sizes));
        let mut grid = Grid::new(&own.low, &own.high, size);
        let keys = &mut own.keys[..size];
        grid.keys(s, &own.values[..count], keys);
        sort(s, keys);
        let (lower, upper) = (&keys[count / 8], &keys[count - 1 - count / 8]);
        grid.check_spread([lower; 2], [upper; 2]);

        let slopes = &mut own.values[..count];
        let (mut value, tied) = match self.statistic {
            Statistic::V => walk::<S, false>(s, keys, slopes, n, m),
            Statistic::U => walk::<S, true>(s, keys, slopes, n, m),
        };
        if tied {
            match self.statistic {
                Statistic::V => walk_ties::<S, false>(s, keys, slopes, n, m),
                Statistic::U => walk_ties::<S, true>(s, keys, slopes, n, m),
            }
        }
        scatter(&keys[..count], slopes, &mut own.slopes, size);
        let counts = (n * m) as f32;
        for (value, step) in value.iter_mut().zip(grid.step.0) {
            *value *= step / (counts * counts);
        }
        // A slope is in units of 1/(N·M), a particle weighs 1/N.
        add_gradient(s, own, sizes, 1.0 / (n as f32 * counts), grid.narrow);
        (value, grid.narrow)
    }
}

/// Walks up the sorted columns with H = N·M·(F - G) in whole numbers.
///
/// Gives Σ gap · H² in steps of the positions, and whether two neighbours have one position in any lane; writes each point's slope, right where it
/// is alone at its position: -(Q before + Q after), with Q = H for the V-statistic and H + N·M·(F - ½)/(N-1) for the U-statistic.
#[inline(always)]
fn walk<S: Simd, const U: bool>(
    s: S,
    keys: &[Row<u32>],
    slopes: &mut [Row<f32>],
    n: usize,
    m: usize,
) -> ([f32; LANES], bool) {
    let columns = Columns::new(s, keys.len(), n, m);
    let unbias = Unbias::new(s, n, m);
    let mut value = s.splat(0.0);
    let mut height = s.splat(0.0);
    let mut mass_x = s.splat(0.0);
    let mut previous = s.splat_int(u32::MAX);
    let mut tied = s.splat_int(0);
    for (key, out) in keys[..n + m].iter().zip(slopes.iter_mut()) {
        let key = s.load_int(key);
        let position = s.shift_right(key, columns.shift);
        let gap = s.sub_int(position, previous);
        let is_x = columns.is_x(s, key);
        let mut square = s.mul(height, height);
        let after = s.add(height, s.select(is_x, columns.up, columns.down));
        let mut slope = s.sub(s.splat(0.0), s.add(height, after));
        if U {
            square = s.sub(square, unbias.height(s, mass_x, s.sub(mass_x, height)));
            let mass_after = s.add(mass_x, s.select(is_x, columns.up, s.splat(0.0)));
            slope = s.sub(slope, unbias.slope(s, mass_x, mass_after));
            mass_x = mass_after;
        }
        value = s.add(value, s.mul(s.to_float(gap), square));
        s.store(slope, out);
        height = after;
        tied = s.or(tied, s.equal(position, previous));
        previous = position;
    }
    let mut any = Row::default();
    s.store_int(tied, &mut any);
    (to_array(s, value), any.0.iter().any(|&t| t != 0))
}

/// The slopes once more where points tie: before and after the whole group of one position.
#[inline(always)]
fn walk_ties<S: Simd, const U: bool>(
    s: S,
    keys: &[Row<u32>],
    slopes: &mut [Row<f32>],
    n: usize,
    m: usize,
) {
    let columns = Columns::new(s, keys.len(), n, m);
    let unbias = Unbias::new(s, n, m);
    let zero = s.splat(0.0);
    let (mut height, mut mass_x) = (zero, zero);
    let (mut group, mut group_x) = (zero, zero);
    let mut previous = s.splat_int(u32::MAX);
    // Upwards: minus the part before the group.
    for (key, out) in keys[..n + m].iter().zip(slopes.iter_mut()) {
        let key = s.load_int(key);
        let position = s.shift_right(key, columns.shift);
        let same = s.equal(position, previous);
        let is_x = columns.is_x(s, key);
        group = s.select(same, group, height);
        let mut slope = s.sub(zero, group);
        if U {
            group_x = s.select(same, group_x, mass_x);
            slope = s.sub(slope, unbias.slope(s, group_x, zero));
            mass_x = s.add(mass_x, s.select(is_x, columns.up, zero));
        }
        s.store(slope, out);
        height = s.add(height, s.select(is_x, columns.up, columns.down));
        previous = position;
    }
    // Downwards: minus the part after the group.
    let mut previous = s.splat_int(u32::MAX);
    for (key, out) in keys[..n + m].iter().zip(slopes.iter_mut()).rev() {
        let key = s.load_int(key);
        let position = s.shift_right(key, columns.shift);
        let same = s.equal(position, previous);
        let is_x = columns.is_x(s, key);
        group = s.select(same, group, height);
        let mut slope = s.sub(s.load(out), group);
        if U {
            group_x = s.select(same, group_x, mass_x);
            slope = s.sub(slope, s.mul(group_x, unbias.inverse));
            mass_x = s.sub(mass_x, s.select(is_x, columns.up, zero));
        }
        s.store(slope, out);
        height = s.sub(height, s.select(is_x, columns.up, columns.down));
        previous = position;
    }
}

/// How keys are read: the position above `shift`, the index below.
struct Columns<S: Simd> {
    shift: u32,
    mask: S::I,
    n: S::I,
    /// What a point of x adds to H, in units of 1/(N·M), and a point of y.
    up: S::F,
    down: S::F,
}

impl<S: Simd> Columns<S> {
    #[inline(always)]
    fn new(s: S, size: usize, n: usize, m: usize) -> Self {
        Self {
            shift: size.trailing_zeros(),
            mask: s.splat_int((size - 1) as u32),
            n: s.splat_int(n as u32),
            up: s.splat(m as f32),
            down: s.splat(-(n as f32)),
        }
    }

    #[inline(always)]
    fn is_x(&self, s: S, key: S::I) -> S::I {
        s.greater(self.n, s.and(key, self.mask))
    }
}

/// What the U-statistic subtracts, in units of the masses: N·M for a whole cloud.
struct Unbias<S: Simd> {
    total: S::F,
    over_total: S::F,
    /// 1/(N-1).
    inverse: S::F,
    /// N·M/(N-1) and N·M/(M-1).
    scale_x: S::F,
    scale_y: S::F,
}

impl<S: Simd> Unbias<S> {
    #[inline(always)]
    fn new(s: S, n: usize, m: usize) -> Self {
        let total = (n * m) as f32;
        Self {
            total: s.splat(total),
            over_total: s.splat(1.0 / total),
            inverse: s.splat(1.0 / (n as f32 - 1.0)),
            scale_x: s.splat(total / (n as f32 - 1.0)),
            scale_y: s.splat(total / (m as f32 - 1.0)),
        }
    }

    /// From H²: F(1-F)/(N-1) + G(1-G)/(M-1).
    #[inline(always)]
    fn height(&self, s: S, f: S::F, g: S::F) -> S::F {
        let of_x = s.mul(f, s.sub(s.splat(1.0), s.mul(f, self.over_total)));
        let of_y = s.mul(g, s.sub(s.splat(1.0), s.mul(g, self.over_total)));
        s.add(s.mul(self.scale_x, of_x), s.mul(self.scale_y, of_y))
    }

    /// From a slope: (F before + F after - 1)/(N-1).
    #[inline(always)]
    fn slope(&self, s: S, before: S::F, after: S::F) -> S::F {
        s.mul(s.sub(s.add(before, after), self.total), self.inverse)
    }
}
