//! MMD² by all pairs in f32, eight partners at a time: points of R^d, or projections as points of R^1.
#![allow(unsafe_code)] // Calls a function compiled for AVX2 after asking the processor.

use super::radial::Radial;
use super::simd::{LANES, Portable, Row, Simd};
use super::{Element, Scratch};
use crate::config::Statistic;

/// A kernel in eight lanes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LaneKernel {
    /// Σ_h exp(-s/h), from the largest h down; where h is half or a third of an earlier one, its term is that one's square or cube.
    Gaussian(Vec<Term>),
    /// -√(1 + h² s).
    Multiquadric { squared: f32 },
    /// -scale √s.
    Energy { scale: f32 },
    /// exp(-√s/h), with 1/h.
    Laplace { inverse: f32 },
}

/// One bandwidth of a Gaussian mixture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Term {
    /// 1/h.
    inverse: f32,
    /// The earlier term of which this is a power.
    power: Option<(usize, u32)>,
}

/// Most bandwidths of a mixture in this kernel.
const MOST_TERMS: usize = 32;

impl LaneKernel {
    /// The kernel in lanes, where it has such a form.
    pub fn new(radial: &Radial) -> Option<Self> {
        match radial {
            Radial::Gaussian { bandwidths } if bandwidths.len() <= MOST_TERMS => {
                let mut sorted = bandwidths.clone();
                sorted.sort_by(|a, b| b.total_cmp(a));
                let earlier = |h: f64, factor: f64, before: &[f64]| {
                    before.iter().position(|&other| other == factor * h)
                };
                let terms = (0..sorted.len())
                    .map(|i| {
                        let (h, before) = (sorted[i], &sorted[..i]);
                        let square = earlier(h, 2.0, before).map(|j| (j, 2));
                        Term {
                            inverse: (1.0 / h) as f32,
                            power: square.or_else(|| earlier(h, 3.0, before).map(|j| (j, 3))),
                        }
                    })
                    .collect();
                Some(Self::Gaussian(terms))
            }
            Radial::Multiquadric { h } => Some(Self::Multiquadric {
                squared: (h * h) as f32,
            }),
            Radial::Energy { alpha, scale } if *alpha == 1.0 => Some(Self::Energy {
                scale: *scale as f32,
            }),
            Radial::Laplace { h } => Some(Self::Laplace {
                inverse: (1.0 / h) as f32,
            }),
            _ => None,
        }
    }

    /// k and dk/ds; at s = 0 the derivative counts as 0 where k has a kink. `powers` is room for the terms of a mixture.
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, squared: S::F, powers: &mut [S::F; MOST_TERMS]) -> (S::F, S::F) {
        match self {
            Self::Gaussian(terms) => {
                let (mut value, mut slope) = (s.splat(0.0), s.splat(0.0));
                for (i, term) in terms.iter().enumerate() {
                    let e = match term.power {
                        None => exp(s, s.mul(squared, s.splat(-term.inverse))),
                        Some((j, 2)) => s.mul(powers[j], powers[j]),
                        Some((j, _)) => s.mul(s.mul(powers[j], powers[j]), powers[j]),
                    };
                    powers[i] = e;
                    value = s.add(value, e);
                    slope = s.sub(slope, s.mul(e, s.splat(term.inverse)));
                }
                (value, slope)
            }
            Self::Multiquadric { squared: h } => {
                let h = s.splat(*h);
                let root = s.sqrt(s.add(s.splat(1.0), s.mul(h, squared)));
                let slope = s.div(s.mul(s.splat(-0.5), h), root);
                (s.sub(s.splat(0.0), root), slope)
            }
            Self::Energy { scale } => {
                let root = s.sqrt(squared);
                let slope = s.div(s.splat(-0.5 * scale), root);
                (s.mul(s.splat(-scale), root), unless_zero(s, squared, slope))
            }
            Self::Laplace { inverse } => {
                let root = s.sqrt(squared);
                let e = exp(s, s.mul(root, s.splat(-inverse)));
                let slope = s.div(s.mul(s.splat(-0.5 * inverse), e), root);
                (e, unless_zero(s, squared, slope))
            }
        }
    }
}

/// `value` where s > 0, else 0.
#[inline(always)]
fn unless_zero<S: Simd>(s: S, squared: S::F, value: S::F) -> S::F {
    let zero = s.equal(s.bits(squared), s.splat_int(0));
    s.select(zero, s.splat(0.0), value)
}

/// e^x for x <= 0, relative error below 2e-7; 1e-38 for x below -87.
#[inline(always)]
fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.max(x, s.splat(-87.0));
    // x = n ln 2 + r with |r| <= ln 2 / 2; the conversion cuts towards zero, so half is taken off first.
    let n = s.to_int(s.sub(s.mul(x, s.splat(std::f32::consts::LOG2_E)), s.splat(0.5)));
    let whole = s.to_float(n);
    let r = s.sub(x, s.mul(whole, s.splat(0.693_359_4)));
    let r = s.add(r, s.mul(whole, s.splat(2.121_944_4e-4)));
    let mut p = s.splat(1.0 / 720.0);
    for c in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = s.add(s.splat(c), s.mul(p, r));
    }
    let power = s.shift_left(s.add_int(n, s.splat_int(127)), 23);
    s.mul(p, s.float_of_bits(power))
}

/// A cloud with one coordinate per row of lanes.
#[derive(Debug, Default)]
struct Columns {
    count: usize,
    /// d coordinates of each group of eight points.
    points: Vec<Row<f32>>,
    /// Weights, 0 beyond the last point.
    weights: Vec<Row<f32>>,
}

impl Columns {
    fn load(&mut self, points: &[f32], weights: Option<&[f32]>, dimension: usize) {
        self.count = points.len() / dimension;
        let groups = self.count.div_ceil(LANES);
        self.points.clear();
        self.points.resize(groups * dimension, Row::default());
        self.weights.clear();
        self.weights.resize(groups, Row::default());
        let sum: f32 = weights.map_or(1.0, |w| w.iter().sum());
        for (i, point) in points.chunks_exact(dimension).enumerate() {
            let (group, lane) = (i / LANES, i % LANES);
            for (c, &value) in point.iter().enumerate() {
                self.points[group * dimension + c].0[lane] = value;
            }
            self.weights[group].0[lane] = weights.map_or(1.0 / self.count as f32, |w| w[i] / sum);
        }
    }

    /// Coordinate c of point i, and its weight.
    fn coordinate(&self, i: usize, c: usize, dimension: usize) -> f32 {
        self.points[i / LANES * dimension + c].0[i % LANES]
    }

    fn weight(&self, i: usize) -> f32 {
        self.weights[i / LANES].0[i % LANES]
    }
}

/// Working memory of one thread.
#[derive(Debug, Default)]
pub(crate) struct PairsScratch {
    x: Columns,
    y: Columns,
    centred_x: Vec<f32>,
    centred_y: Vec<f32>,
    line_x: Vec<f32>,
    line_y: Vec<f32>,
    line_gradient: Vec<f32>,
    sums: Vec<Row<f32>>,
}

/// MMD² of a pair of clouds on R^d and its gradient (overwritten).
pub(crate) fn ambient(
    kernel: &LaneKernel,
    at_zero: f64,
    statistic: Statistic,
    element: &Element<'_>,
    scratch: &mut Scratch,
    gradient: &mut [f32],
) -> f64 {
    let d = element.dimension;
    let own = &mut scratch.pairs;
    own.centre(element);
    own.x.load(&own.centred_x, element.predicted_weights, d);
    own.y.load(&own.centred_y, element.target_weights, d);
    run(kernel, at_zero, statistic, d, own, gradient)
}

/// The same averaged over the projections on `directions` `[L, d]`.
pub(crate) fn sliced(
    kernel: &LaneKernel,
    at_zero: f64,
    statistic: Statistic,
    element: &Element<'_>,
    directions: &[f32],
    scratch: &mut Scratch,
    gradient: &mut [f32],
) -> f64 {
    let d = element.dimension;
    let count = directions.len() / d;
    let own = &mut scratch.pairs;
    own.centre(element);
    gradient.fill(0.0);
    let mut sum = 0.0;
    let mut line = std::mem::take(&mut own.line_gradient);
    line.resize(element.sizes().0, 0.0);
    for direction in directions.chunks_exact(d) {
        for (points, out) in [
            (&own.centred_x, &mut own.line_x),
            (&own.centred_y, &mut own.line_y),
        ] {
            out.clear();
            out.extend(
                points
                    .chunks_exact(d)
                    .map(|p| p.iter().zip(direction).map(|(p, t)| p * t).sum::<f32>()),
            );
        }
        own.x.load(&own.line_x, element.predicted_weights, 1);
        own.y.load(&own.line_y, element.target_weights, 1);
        sum += run(kernel, at_zero, statistic, 1, own, &mut line);
        for (row, g) in gradient.chunks_exact_mut(d).zip(&line) {
            for (out, t) in row.iter_mut().zip(direction) {
                *out += g * t / count as f32;
            }
        }
    }
    own.line_gradient = line;
    sum / count as f64
}

impl PairsScratch {
    /// Copies both clouds, centred, so that a common offset costs no precision.
    fn centre(&mut self, element: &Element<'_>) {
        let d = element.dimension;
        let (n, m) = element.sizes();
        self.centred_x.clear();
        self.centred_x.extend_from_slice(element.predicted);
        self.centred_y.clear();
        self.centred_y.extend_from_slice(element.target);
        for c in 0..d {
            let all = self.centred_x[c..].iter().step_by(d);
            let sum: f64 = all
                .chain(self.centred_y[c..].iter().step_by(d))
                .map(|&v| f64::from(v))
                .sum();
            let centre = (sum / (n + m) as f64) as f32;
            for cloud in [&mut self.centred_x, &mut self.centred_y] {
                for value in cloud[c..].iter_mut().step_by(d) {
                    *value -= centre;
                }
            }
        }
    }
}

fn run(
    kernel: &LaneKernel,
    at_zero: f64,
    statistic: Statistic,
    dimension: usize,
    own: &mut PairsScratch,
    gradient: &mut [f32],
) -> f64 {
    let (n, m) = (own.x.count as f64, own.y.count as f64);
    // U: the self terms without the diagonal, times n/(n-1).
    let (factor, unbias_x, unbias_y) = match statistic {
        Statistic::V => (1.0, [1.0, 0.0], [1.0, 0.0]),
        Statistic::U => (
            n / (n - 1.0),
            [n / (n - 1.0), at_zero / (n - 1.0)],
            [m / (m - 1.0), at_zero / (m - 1.0)],
        ),
    };
    let sums = dispatch(kernel, dimension, own, factor as f32, gradient);
    let [xx, xy, yy] = sums;
    (unbias_x[0] * xx - unbias_x[1]) + (unbias_y[0] * yy - unbias_y[1]) - 2.0 * xy
}

fn dispatch(
    kernel: &LaneKernel,
    dimension: usize,
    own: &mut PairsScratch,
    factor: f32,
    gradient: &mut [f32],
) -> [f64; 3] {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = super::simd::Avx2::detect() {
        // SAFETY: `avx2` proves that the processor has AVX2.
        return unsafe { all_pairs_avx2(avx2, kernel, dimension, own, factor, gradient) };
    }
    all_pairs(Portable, kernel, dimension, own, factor, gradient)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn all_pairs_avx2(
    s: super::simd::Avx2,
    kernel: &LaneKernel,
    dimension: usize,
    own: &mut PairsScratch,
    factor: f32,
    gradient: &mut [f32],
) -> [f64; 3] {
    all_pairs(s, kernel, dimension, own, factor, gradient)
}

/// Σ w_i w_k k(x_i, x_k), Σ w_i v_j k(x_i, y_j), Σ v_j v_l k(y_j, y_l), and the gradient of MMD² with the self term of x times `factor`.
#[inline(always)]
fn all_pairs<S: Simd>(
    s: S,
    kernel: &LaneKernel,
    dimension: usize,
    own: &mut PairsScratch,
    factor: f32,
    gradient: &mut [f32],
) -> [f64; 3] {
    let PairsScratch { x, y, sums, .. } = own;
    sums.resize(dimension, Row::default());
    let mut totals = [0.0_f64; 3];
    for (i, row) in gradient.chunks_exact_mut(dimension).enumerate() {
        let weight = x.weight(i);
        row.fill(0.0);
        for (which, others, sign) in [(0, &*x, factor), (1, &*y, -1.0)] {
            let value = one_row(
                s,
                kernel,
                dimension,
                (x, i),
                others,
                0..others.weights.len(),
                Some(sums),
            );
            totals[which] += f64::from(weight) * value;
            for (out, sum) in row.iter_mut().zip(sums.iter()) {
                *out += 4.0 * sign * weight * lane_sum(sum);
            }
        }
    }
    let groups = y.weights.len();
    for j in 0..y.count {
        // Later groups stand for both orders of a pair, groups before that of j were counted from their side.
        let group = j / LANES;
        let own = one_row(s, kernel, dimension, (y, j), y, group..group + 1, None);
        let later = one_row(s, kernel, dimension, (y, j), y, group + 1..groups, None);
        totals[2] += f64::from(y.weight(j)) * (own + 2.0 * later);
    }
    totals
}

/// Σ_j v_j k(point, y_j) over some groups of eight, and Σ_j v_j dk/ds (point - y_j) per coordinate.
#[inline(always)]
fn one_row<S: Simd>(
    s: S,
    kernel: &LaneKernel,
    dimension: usize,
    (cloud, i): (&Columns, usize),
    others: &Columns,
    groups: std::ops::Range<usize>,
    mut sums: Option<&mut Vec<Row<f32>>>,
) -> f64 {
    if let Some(sums) = sums.as_deref_mut() {
        for row in sums.iter_mut() {
            *row = Row::default();
        }
    }
    let mut powers = [s.splat(0.0); MOST_TERMS];
    let mut value = s.splat(0.0);
    for group in groups {
        let columns = &others.points[group * dimension..(group + 1) * dimension];
        let mut squared = s.splat(0.0);
        for (c, column) in columns.iter().enumerate() {
            let difference = s.sub(s.splat(cloud.coordinate(i, c, dimension)), s.load(column));
            squared = s.add(squared, s.mul(difference, difference));
        }
        let weight = s.load(&others.weights[group]);
        let (k, slope) = kernel.at(s, squared, &mut powers);
        value = s.add(value, s.mul(weight, k));
        if let Some(sums) = sums.as_deref_mut() {
            let push = s.mul(weight, slope);
            for (c, (column, sum)) in columns.iter().zip(sums.iter_mut()).enumerate() {
                let difference = s.sub(s.splat(cloud.coordinate(i, c, dimension)), s.load(column));
                s.store(s.add(s.load(sum), s.mul(push, difference)), sum);
            }
        }
    }
    let mut row = Row::default();
    s.store(value, &mut row);
    row.0.iter().map(|&v| f64::from(v)).sum()
}

fn lane_sum(row: &Row<f32>) -> f32 {
    let [a, b, c, d, e, f, g, h] = row.0;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}
