//! Sliced value and gradient, eight directions at a time, in f32.
//!
//! A block of eight directions projects both clouds, runs its kernel on the eight columns, and multiplies the slopes with the directions into the
//! gradient. Kernels that need an order map the projections of each direction to 25-bit whole numbers over their range, append the particle's index
//! as the low bits and sort the columns by a network. That order is the order of the projections up to 2^-25 of their range, which is the rounding
//! of an f32 projection itself; closer points count as ties. Columns whose bulk is too narrow for that (a far outlier) go to the f64 kernel.
#![allow(unsafe_code)] // Calls a function compiled for AVX2 after asking the processor, and scatters to masked indices without checks.

pub(crate) mod cramer;
pub(crate) mod spectral;
pub(crate) mod wasserstein;

use super::simd::{LANES, Portable, Row, Simd};
use super::{Base, Element, Scratch, one_direction};

/// Most points of both clouds together; above it the f64 kernels take over.
const MOST_POINTS: usize = 512;

/// Half of the whole numbers that a projection is mapped to; the margin below 2^24 keeps rounding from overflowing.
const HALF: f32 = 16_777_200.0;

/// Steps that the middle three quarters of a column must span; columns below it are sorted in f64.
const LEAST_SPREAD: u32 = 1 << 16;

/// A kernel on eight columns of projections.
pub(crate) trait BlockKernel {
    /// Rows that a sorted column needs for these sizes.
    fn rows(&self, sizes: Sizes) -> usize;

    /// Value of each lane, and a bit mask of the lanes left to the f64 kernel; adds to `own.gradient` for the other lanes.
    ///
    /// Finds the projections in `own.values`, x first, and their range in `own.low` and `own.high`.
    fn block<S: Simd>(&self, s: S, own: &mut FusedScratch, sizes: Sizes) -> ([f32; LANES], u32);
}

/// N, M and d.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub n: usize,
    pub m: usize,
    pub d: usize,
}

/// Working memory of one thread.
#[derive(Debug, Default)]
pub(crate) struct FusedScratch {
    /// Centred points of both clouds.
    centred: Vec<f32>,
    /// Projections, later slopes in sorted order.
    values: Vec<Row<f32>>,
    /// Range of the projections.
    low: Row<f32>,
    high: Row<f32>,
    /// Sort keys, and those of a second sort.
    keys: Vec<Row<u32>>,
    second_keys: Vec<Row<u32>>,
    /// Slopes by particle.
    slopes: Vec<Row<f32>>,
    /// Gradient per coordinate and lane.
    gradient: Vec<Row<f32>>,
    /// Directions of one block, per coordinate: for projecting, and scaled by 1/L for the gradient.
    theta: Vec<Row<f32>>,
    theta_scaled: Vec<Row<f32>>,
    spectral: spectral::SpectralScratch,
}

/// Mean over directions and its gradient (overwritten); none where weights or sizes ask for the general kernel.
pub(crate) fn sliced<K: BlockKernel>(
    kernel: &K,
    base: &dyn Base,
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
    let sizes = Sizes {
        n,
        m,
        d: element.dimension,
    };
    let d = sizes.d;
    let count = directions.len() / d;

    let mut own = std::mem::take(&mut scratch.fused);
    own.prepare(element, sizes, kernel.rows(sizes));
    let mut sum = 0.0;
    // The f64 kernel's share of the gradient stays apart until the end.
    let mut loaded = false;
    for block in 0..count.div_ceil(LANES) {
        let lanes = (count - block * LANES).min(LANES);
        own.load_directions(directions, d, block, lanes, count);
        let (values, narrow) = run_block(kernel, &mut own, sizes);
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
    scratch.fused = own;
    Some(sum / count as f64)
}

impl FusedScratch {
    /// Sizes the buffers and centres both clouds, so that a common offset costs no precision.
    fn prepare(&mut self, element: &Element<'_>, sizes: Sizes, rows: usize) {
        let Sizes { n, m, d } = sizes;
        let rows = rows.max(n + m);
        self.values.resize(rows, Row::default());
        self.keys.resize(rows, Row::default());
        self.second_keys.resize(rows, Row::default());
        self.slopes.resize(rows, Row::default());
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

fn run_block<K: BlockKernel>(
    kernel: &K,
    own: &mut FusedScratch,
    sizes: Sizes,
) -> ([f32; LANES], u32) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = super::simd::Avx2::detect() {
        // SAFETY: `avx2` proves that the processor has AVX2.
        return unsafe { block_avx2(avx2, kernel, own, sizes) };
    }
    block(Portable, kernel, own, sizes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn block_avx2<K: BlockKernel>(
    s: super::simd::Avx2,
    kernel: &K,
    own: &mut FusedScratch,
    sizes: Sizes,
) -> ([f32; LANES], u32) {
    block(s, kernel, own, sizes)
}

/// Projects, and runs the kernel.
#[inline(always)]
fn block<S: Simd, K: BlockKernel>(
    s: S,
    kernel: &K,
    own: &mut FusedScratch,
    sizes: Sizes,
) -> ([f32; LANES], u32) {
    let (mut low, mut high) = (s.splat(f32::INFINITY), s.splat(f32::NEG_INFINITY));
    let points = own.centred.chunks_exact(sizes.d);
    for (point, row) in points.zip(own.values.iter_mut()) {
        let mut z = s.splat(0.0);
        for (&p, t) in point.iter().zip(&own.theta) {
            z = s.add(z, s.mul(s.splat(p), s.load(t)));
        }
        low = s.min(z, low);
        high = s.max(z, high);
        s.store(z, row);
    }
    s.store(low, &mut own.low);
    s.store(high, &mut own.high);
    kernel.block(s, own, sizes)
}

/// How projections of one block become whole numbers.
#[derive(Clone, Copy, Debug)]
struct Grid {
    /// Bits of the index below the position.
    shift: u32,
    middle: Row<f32>,
    /// Positions per unit of length, and units of length per position; 0 where all points coincide.
    scale: Row<f32>,
    step: Row<f32>,
    /// Lanes whose range cannot be divided by.
    narrow: u32,
}

impl Grid {
    /// For columns of `size` rows: 25 bits of position, fewer above 128 rows.
    fn new(low: &Row<f32>, high: &Row<f32>, size: usize) -> Self {
        let shift = size.trailing_zeros();
        let half = HALF / (1_u32 << Self::lost(shift)) as f32;
        let mut grid = Self {
            shift,
            middle: Row::default(),
            scale: Row::default(),
            step: Row::default(),
            narrow: 0,
        };
        for lane in 0..LANES {
            let radius = 0.5 * high.0[lane] - 0.5 * low.0[lane];
            grid.middle.0[lane] = 0.5 * high.0[lane] + 0.5 * low.0[lane];
            if radius > 1e-30 && radius < 1e30 {
                grid.scale.0[lane] = half / radius;
                grid.step.0[lane] = radius / half;
            } else if radius != 0.0 {
                grid.narrow |= 1 << lane;
            }
        }
        grid
    }

    fn lost(shift: u32) -> u32 {
        shift.max(7) - 7
    }

    /// Keys of the projections `values`; further keys are the largest possible.
    #[inline(always)]
    fn keys<S: Simd>(&self, s: S, values: &[Row<f32>], keys: &mut [Row<u32>]) {
        let (middle, scale) = (s.load(&self.middle), s.load(&self.scale));
        let offset = s.splat_int((1 << 24) >> Self::lost(self.shift));
        for (index, (row, key)) in values.iter().zip(keys.iter_mut()).enumerate() {
            let position = s.mul(s.sub(s.load(row), middle), scale);
            // In this order NaN, from projections that overflow, becomes -HALF.
            let position = s.min(s.max(position, s.splat(-HALF)), s.splat(HALF));
            let position = s.add_int(s.to_int(position), offset);
            let key_value = s.or(
                s.shift_left(position, self.shift),
                s.splat_int(index as u32),
            );
            s.store_int(key_value, key);
        }
        for row in &mut keys[values.len()..] {
            row.0 = [u32::MAX; LANES];
        }
    }

    /// The position of a lane of a key.
    fn position(&self, key: &Row<u32>, lane: usize) -> u32 {
        key.0[lane] >> self.shift
    }

    /// Adds the lanes whose bulk, from `lower` to `upper`, spans too few positions.
    fn check_spread(&mut self, lower: [&Row<u32>; 2], upper: [&Row<u32>; 2]) {
        for lane in 0..LANES {
            let low = self
                .position(lower[0], lane)
                .min(self.position(lower[1], lane));
            let high = self
                .position(upper[0], lane)
                .max(self.position(upper[1], lane));
            if high - low < LEAST_SPREAD && self.step.0[lane] > 0.0 {
                self.narrow |= 1 << lane;
            }
        }
    }
}

/// Carries slopes in sorted order back to their particles: row `index` of `slopes` receives what stands beside the key with that index.
#[inline(always)]
fn scatter(keys: &[Row<u32>], sorted: &[Row<f32>], slopes: &mut [Row<f32>], size: usize) {
    let slopes = &mut slopes[..size];
    assert!(size.is_power_of_two());
    let mask = size - 1;
    for (key, slope) in keys.iter().zip(sorted) {
        for lane in 0..LANES {
            // SAFETY: `slopes` has `size` rows, a power of two, so the masked index lies inside.
            let row = unsafe { slopes.get_unchecked_mut(key.0[lane] as usize & mask) };
            row.0[lane] = slope.0[lane];
        }
    }
}

/// Adds slopes `[N]` of eight columns times `factor` times the directions to the gradient, but for the lanes of `narrow`.
#[inline(always)]
fn add_gradient<S: Simd>(s: S, own: &mut FusedScratch, sizes: Sizes, factor: f32, narrow: u32) {
    for t in own.theta_scaled.iter_mut() {
        for lane in 0..LANES {
            t.0[lane] *= if narrow & (1 << lane) != 0 {
                0.0
            } else {
                factor
            };
        }
    }
    let rows = own.gradient.chunks_exact_mut(sizes.d);
    for (slope, out) in own.slopes[..sizes.n].iter().zip(rows) {
        let slope = s.load(slope);
        for (t, row) in own.theta_scaled.iter().zip(out) {
            s.store(s.add(s.load(row), s.mul(slope, s.load(t))), row);
        }
    }
}

#[inline(always)]
fn to_array<S: Simd>(s: S, value: S::F) -> [f32; LANES] {
    let mut row = Row::default();
    s.store(value, &mut row);
    row.0
}
