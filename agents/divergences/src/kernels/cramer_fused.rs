//! Sliced Cramér value and gradient, eight directions at a time, in f32.
//!
//! Per block of eight directions: project both clouds, map the projections of each direction to 25-bit whole numbers over their range, append the
//! particle's index as the low bits, sort the pooled columns by a network, walk once through the order with the running H = F - G, and scatter
//! each particle's slope back. Counts are whole numbers, so H is exact. The order is that of the projections up to 2^-25 of their range, which is
//! the rounding of an f32 projection itself; closer points count as ties. Columns whose bulk is too narrow for that (a far outlier) go to
//! the f64 kernel on the line.
#![allow(unsafe_code)] // Calls a function compiled for AVX2 after asking the processor, and scatters to masked indices without checks.

use super::cramer::Cramer;
use super::network::sort;
use super::simd::{LANES, Portable, Row, Simd};
use super::{Element, Scratch, one_direction};
use crate::config::Statistic;

/// Most points of both clouds together; above it the f64 kernel takes over.
pub(crate) const MOST_POINTS: usize = 512;

/// Half of the whole numbers that a projection is mapped to; the margin below 2^24 keeps rounding from overflowing.
const HALF: f32 = 16_777_200.0;

/// Steps that the middle three quarters of a column must span; columns below it are sorted in f64.
const LEAST_SPREAD: u32 = 1 << 16;

/// Working memory of one thread.
#[derive(Debug, Default)]
pub(crate) struct CramerScratch {
    /// Centred points of both clouds.
    centred: Vec<f32>,
    /// Projections, then slopes in sorted order.
    values: Vec<Row<f32>>,
    /// Sort keys.
    keys: Vec<Row<u32>>,
    /// Slopes by particle.
    slopes: Vec<Row<f32>>,
    /// Gradient per coordinate and lane.
    gradient: Vec<Row<f32>>,
    /// Directions of one block, per coordinate: for projecting, and scaled by 1/L for the gradient.
    theta: Vec<Row<f32>>,
    theta_scaled: Vec<Row<f32>>,
}

/// Mean over directions and its gradient (overwritten); none where weights or sizes ask for the general kernel.
pub(crate) fn sliced(
    base: &Cramer,
    element: &Element<'_>,
    directions: &[f32],
    scratch: &mut Scratch,
    gradient: &mut [f32],
) -> Option<f64> {
    let (n, m) = element.sizes();
    if element.predicted_weights.is_some()
        || element.target_weights.is_some()
        || n + m > MOST_POINTS
    {
        return None;
    }
    let d = element.dimension;
    let count = directions.len() / d;
    let size = (n + m).next_power_of_two().max(16);

    let mut own = std::mem::take(&mut scratch.cramer);
    own.prepare(element, size);
    let mut sum = 0.0;
    // The f64 kernel's share of the gradient stays apart until the end.
    let mut loaded = false;
    for block in 0..count.div_ceil(LANES) {
        let lanes = (count - block * LANES).min(LANES);
        own.load_directions(directions, d, block, lanes, count);
        let (values, narrow) = run_block(&mut own, n, m, d, base.statistic);
        for lane in 0..lanes {
            if narrow & (1 << lane) == 0 {
                sum += f64::from(values[lane]);
                continue;
            }
            if !loaded {
                scratch.load(element);
                scratch.gradient.clear();
                scratch.gradient.resize(n * d, 0.0);
                loaded = true;
            }
            let direction = &directions[(block * LANES + lane) * d..][..d];
            let Scratch {
                line,
                points,
                projected,
                gradient_line,
                gradient,
                ..
            } = &mut *scratch;
            sum += one_direction(
                base,
                points,
                direction,
                projected,
                line,
                gradient_line,
                Some(gradient),
            );
        }
    }
    for (out, row) in gradient.iter_mut().zip(&own.gradient) {
        let [a, b, c, d, e, f, g, h] = row.0;
        *out = ((a + b) + (c + d)) + ((e + f) + (g + h));
    }
    if loaded {
        for (out, g) in gradient.iter_mut().zip(&scratch.gradient) {
            *out += (g / count as f64) as f32;
        }
    }
    scratch.cramer = own;
    Some(sum / count as f64)
}

impl CramerScratch {
    /// Sizes the buffers and centres both clouds, so that a common offset costs no precision.
    fn prepare(&mut self, element: &Element<'_>, size: usize) {
        let d = element.dimension;
        let (n, m) = element.sizes();
        self.values.resize(size, Row::default());
        self.keys.resize(size, Row::default());
        self.slopes.resize(size, Row::default());
        self.gradient.clear();
        self.gradient.resize(n * d, Row::default());
        self.theta.resize(d, Row::default());
        self.theta_scaled.resize(d, Row::default());
        self.centred.clear();
        self.centred.extend_from_slice(element.predicted);
        self.centred.extend_from_slice(element.target);
        for c in 0..d {
            let sum: f64 = self.centred[c..]
                .iter()
                .step_by(d)
                .map(|&v| f64::from(v))
                .sum();
            let centre = (sum / (n + m) as f64) as f32;
            for value in self.centred[c..].iter_mut().step_by(d) {
                *value -= centre;
            }
        }
    }

    /// Transposes up to eight directions; missing lanes repeat the last direction with weight zero.
    fn load_directions(
        &mut self,
        directions: &[f32],
        d: usize,
        block: usize,
        lanes: usize,
        count: usize,
    ) {
        for lane in 0..LANES {
            let source = block * LANES + lane.min(lanes - 1);
            let weight = if lane < lanes {
                1.0 / count as f32
            } else {
                0.0
            };
            for c in 0..d {
                let t = directions[source * d + c];
                self.theta[c].0[lane] = t;
                self.theta_scaled[c].0[lane] = t * weight;
            }
        }
    }
}

/// One block of directions: the value of each lane, and a bit mask of the lanes left to the f64 kernel.
fn run_block(
    own: &mut CramerScratch,
    n: usize,
    m: usize,
    d: usize,
    statistic: Statistic,
) -> ([f32; LANES], u32) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = super::simd::Avx2::detect() {
        // SAFETY: `avx2` proves that the processor has AVX2.
        return unsafe {
            match statistic {
                Statistic::V => block_avx2::<false>(avx2, own, n, m, d),
                Statistic::U => block_avx2::<true>(avx2, own, n, m, d),
            }
        };
    }
    match statistic {
        Statistic::V => block::<_, false>(Portable, own, n, m, d),
        Statistic::U => block::<_, true>(Portable, own, n, m, d),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn block_avx2<const U: bool>(
    s: super::simd::Avx2,
    own: &mut CramerScratch,
    n: usize,
    m: usize,
    d: usize,
) -> ([f32; LANES], u32) {
    block::<_, U>(s, own, n, m, d)
}

#[inline(always)]
fn block<S: Simd, const U: bool>(
    s: S,
    own: &mut CramerScratch,
    n: usize,
    m: usize,
    d: usize,
) -> ([f32; LANES], u32) {
    let count = n + m;
    let size = own.keys.len();
    let (values, keys, slopes) = (
        &mut own.values[..size],
        &mut own.keys[..size],
        &mut own.slopes[..size],
    );

    // Projections and their range.
    let (mut low, mut high) = (s.splat(f32::INFINITY), s.splat(f32::NEG_INFINITY));
    for (point, row) in own.centred.chunks_exact(d).zip(values.iter_mut()) {
        let mut z = s.splat(0.0);
        for (&p, t) in point.iter().zip(&own.theta) {
            z = s.add(z, s.mul(s.splat(p), s.load(t)));
        }
        low = s.min(z, low);
        high = s.max(z, high);
        s.store(z, row);
    }

    // Keys: the position in the range in 25 bits (fewer above 128 points), then the index.
    let shift = size.trailing_zeros();
    let lost = shift.max(7) - 7;
    let half = HALF / (1_u32 << lost) as f32;
    let mut narrow = 0_u32;
    let (mut middle, mut scale, mut step) = (Row::default(), Row::default(), Row::default());
    let (lowest, highest) = (to_row(s, low), to_row(s, high));
    for lane in 0..LANES {
        let radius = 0.5 * highest[lane] - 0.5 * lowest[lane];
        middle.0[lane] = 0.5 * highest[lane] + 0.5 * lowest[lane];
        if radius > 1e-30 && radius < 1e30 {
            scale.0[lane] = half / radius;
            step.0[lane] = radius / half;
        } else if radius != 0.0 {
            narrow |= 1 << lane;
        }
    }
    let (middle, scale) = (s.load(&middle), s.load(&scale));
    let offset = s.splat_int((1 << 24) >> lost);
    for (index, (row, key)) in values[..count].iter().zip(keys.iter_mut()).enumerate() {
        let position = s.mul(s.sub(s.load(row), middle), scale);
        // In this order NaN, from projections that overflow, becomes -HALF.
        let position = s.min(s.max(position, s.splat(-HALF)), s.splat(HALF));
        let position = s.add_int(s.to_int(position), offset);
        s.store_int(
            s.or(s.shift_left(position, shift), s.splat_int(index as u32)),
            key,
        );
    }
    for row in &mut keys[count..] {
        row.0 = [u32::MAX; LANES];
    }

    sort(s, keys);

    let (lower, upper) = (&keys[count / 8], &keys[count - 1 - count / 8]);
    for lane in 0..LANES {
        let spread = (upper.0[lane] >> shift) - (lower.0[lane] >> shift);
        if spread < LEAST_SPREAD && highest[lane] > lowest[lane] {
            narrow |= 1 << lane;
        }
    }

    let (mut value, tied) = walk::<S, U>(s, keys, values, n, m);
    if tied {
        walk_ties::<S, U>(s, keys, values, n, m);
    }

    // Slopes back to their particles.
    let mask = size - 1;
    for (key, slope) in keys[..count].iter().zip(values[..count].iter()) {
        for lane in 0..LANES {
            // SAFETY: `slopes` has `size` rows, a power of two, so the masked index lies inside.
            let row = unsafe { slopes.get_unchecked_mut(key.0[lane] as usize & mask) };
            row.0[lane] = slope.0[lane];
        }
    }
    let counts = (n * m) as f32;
    // A slope is in units of 1/(N·M), a particle weighs 1/N.
    let slope_scale = 1.0 / (n as f32 * counts);
    for lane in 0..LANES {
        value[lane] *= step.0[lane] / (counts * counts);
    }
    for t in own.theta_scaled.iter_mut() {
        for lane in 0..LANES {
            t.0[lane] *= if narrow & (1 << lane) != 0 {
                0.0
            } else {
                slope_scale
            };
        }
    }
    for (slope, out) in slopes[..n].iter().zip(own.gradient.chunks_exact_mut(d)) {
        let slope = s.load(slope);
        for (t, row) in own.theta_scaled.iter().zip(out) {
            s.store(s.add(s.load(row), s.mul(slope, s.load(t))), row);
        }
    }
    (value, narrow)
}

#[inline(always)]
fn to_row<S: Simd>(s: S, value: S::F) -> [f32; LANES] {
    let mut row = Row::default();
    s.store(value, &mut row);
    row.0
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
    (to_row(s, value), any.0.iter().any(|&t| t != 0))
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
