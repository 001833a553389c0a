//! How far learned return laws are from samples of the truth.
//!
//! One call compares many clouds with one reference: the reference is projected and sorted once per direction, and each cloud of N points
//! then costs O(N log M) by binary search in prefix sums.

use pushforward_envs::StreamRng;
use rand::Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Number of fixed directions of the sliced figures.
pub const DIRECTIONS: usize = 256;

/// Reference samples, at most, that the energy distance uses: its self term is quadratic in them.
const ENERGY_SAMPLES: usize = 8192;

/// Reference samples, at most, on which the direction of the max-sliced figure is refined; its value is taken on all of them.
const REFINEMENT_SAMPLES: usize = 4096;

/// Steps of the refinement.
const REFINEMENT_STEPS: usize = 12;

/// Distances between a cloud and the truth; all are non-negative and 0 is best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Mean over directions of W_1, in units of return.
    pub sliced_wasserstein_1: f64,
    /// Mean over directions of W_2², in squared units of return.
    pub sliced_wasserstein_2: f64,
    /// Mean over directions of ℓ_2² = ∫ (F - G)², in units of return; the headline.
    pub sliced_cramer: f64,
    /// Largest W_1 over directions, after local refinement, in units of return.
    pub max_sliced_wasserstein_1: f64,
    /// 2 E‖X-Y‖ - E‖X-X'‖ - E‖Y-Y'‖ on the first 8192 reference samples, in units of return.
    pub energy_distance: f64,
    /// ‖E X - E Y‖, in units of return.
    pub mean_error: f64,
    /// Frobenius norm of the difference of covariances, in squared units of return.
    pub covariance_error: f64,
    /// Mean over pairs of coordinates of the absolute difference of correlations; a coordinate without variance has correlation 0.
    pub correlation_error: f64,
}

impl Figures {
    /// Names of the figures, in the order of [`Figures::to_array`].
    pub const NAMES: [&'static str; 8] = [
        "sliced_wasserstein_1",
        "sliced_wasserstein_2",
        "sliced_cramer",
        "max_sliced_wasserstein_1",
        "energy_distance",
        "mean_error",
        "covariance_error",
        "correlation_error",
    ];

    /// The figures as an array.
    pub fn to_array(self) -> [f64; 8] {
        [
            self.sliced_wasserstein_1,
            self.sliced_wasserstein_2,
            self.sliced_cramer,
            self.max_sliced_wasserstein_1,
            self.energy_distance,
            self.mean_error,
            self.covariance_error,
            self.correlation_error,
        ]
    }

    /// The figures from an array in the order of [`Figures::NAMES`].
    pub fn from_array(values: [f64; 8]) -> Self {
        Self {
            sliced_wasserstein_1: values[0],
            sliced_wasserstein_2: values[1],
            sliced_cramer: values[2],
            max_sliced_wasserstein_1: values[3],
            energy_distance: values[4],
            mean_error: values[5],
            covariance_error: values[6],
            correlation_error: values[7],
        }
    }

    /// The mean of each figure; zeros for none.
    pub fn mean(all: &[Self]) -> Self {
        let mut total = [0.0; 8];
        for figures in all {
            total
                .iter_mut()
                .zip(figures.to_array())
                .for_each(|(t, f)| *t += f);
        }
        Self::from_array(total.map(|t| t / all.len().max(1) as f64))
    }
}

/// A law of finitely many points.
#[derive(Clone, Copy, Debug)]
pub struct Cloud<'a> {
    /// `[N, d]`, row-major.
    pub points: &'a [f32],
    /// N non-negative weights of positive sum (they are normalised); equal weights where absent.
    pub weights: Option<&'a [f64]>,
}

/// The fixed quasi-random directions `[L, d]` of the sliced figures: the one direction of d = 1, an equally spaced half circle for d = 2, a
/// spherical (Fibonacci) lattice for d = 3, orthogonal blocks of a fixed seed from d = 4 on.
pub fn fixed_directions(count: usize, dim: usize) -> Vec<f32> {
    let golden = (1.0 + 5.0_f64.sqrt()) / 2.0;
    match dim {
        1 => vec![1.0],
        2 => (0..count)
            .flat_map(|i| {
                let angle = std::f64::consts::PI * (i as f64 + 0.5) / count as f64;
                [angle.cos() as f32, angle.sin() as f32]
            })
            .collect(),
        3 => (0..count)
            .flat_map(|i| {
                let height = 1.0 - (2.0 * i as f64 + 1.0) / count as f64;
                let angle = std::f64::consts::TAU * i as f64 / golden;
                let radius = (1.0 - height * height).sqrt();
                [
                    (radius * angle.cos()) as f32,
                    (radius * angle.sin()) as f32,
                    height as f32,
                ]
            })
            .collect(),
        _ => {
            let mut rng = StreamRng::new(0, "evaluation directions", 0);
            let mut directions: Vec<f64> = Vec::with_capacity(count * dim);
            while directions.len() < count * dim {
                // Gram-Schmidt of Gaussian vectors within a block of d.
                let block = directions.len() / (dim * dim) * (dim * dim);
                let mut vector: Vec<f64> = (0..dim).map(|_| rng.sample(StandardNormal)).collect();
                for earlier in directions[block..].chunks_exact(dim) {
                    let along: f64 = earlier.iter().zip(&vector).map(|(a, b)| a * b).sum();
                    vector
                        .iter_mut()
                        .zip(earlier)
                        .for_each(|(v, e)| *v -= along * e);
                }
                let norm = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
                directions.extend(vector.iter().map(|v| v / norm));
            }
            directions.into_iter().map(|v| v as f32).collect()
        }
    }
}

/// Compares each cloud with the reference `[M, d]` of equally weighted samples of the truth, in parallel over directions.
///
/// # Panics
/// If the reference or a cloud is empty or no multiple of `dim`.
pub fn law_figures(reference: &[f32], dim: usize, clouds: &[Cloud<'_>]) -> Vec<Figures> {
    let directions = fixed_directions(DIRECTIONS, dim);
    let moments = Moments::new(reference, dim, None);
    // Everything is centred on the reference's mean first, so that large offsets cost no digits.
    let truth = Columns::new(reference, dim, None, &moments.mean);
    let clouds_centred: Vec<Columns> = clouds
        .iter()
        .map(|cloud| Columns::new(cloud.points, dim, cloud.weights, &moments.mean))
        .collect();
    let sliced: Vec<Vec<[f64; 3]>> = directions
        .par_chunks_exact(dim)
        .map_init(Shadow::default, |shadow, direction| {
            shadow.set(&truth, direction);
            clouds_centred
                .iter()
                .map(|cloud| shadow.compare(cloud, direction))
                .collect()
        })
        .collect();
    let energy_truth = truth.first(ENERGY_SAMPLES);
    let energy_self = energy_truth.mean_distance_to(&energy_truth);
    let refinement_truth = truth.first(REFINEMENT_SAMPLES);
    clouds_centred
        .par_iter()
        .enumerate()
        .map_init(Shadow::default, |shadow, (index, cloud)| {
            let mut sums = [0.0; 3];
            let mut best = (0, f64::NEG_INFINITY);
            for (slice, values) in sliced.iter().enumerate() {
                let values = values[index];
                sums.iter_mut().zip(values).for_each(|(s, v)| *s += v);
                if values[0] > best.1 {
                    best = (slice, values[0]);
                }
            }
            let [w1, w2, cramer] = sums.map(|sum| sum / sliced.len() as f64);
            let start = &directions[best.0 * dim..(best.0 + 1) * dim];
            let refined = refine(&refinement_truth, cloud, start);
            let max_w1 = if refined == start {
                best.1
            } else {
                shadow.set(&truth, &refined);
                shadow.compare(cloud, &refined)[0].max(best.1)
            };
            let energy = 2.0 * cloud.mean_distance_to(&energy_truth)
                - cloud.mean_distance_to(cloud)
                - energy_self;
            let own = Moments::new(clouds[index].points, dim, clouds[index].weights);
            let (mean_error, covariance_error, correlation_error) = own.errors(&moments);
            Figures {
                sliced_wasserstein_1: w1,
                sliced_wasserstein_2: w2.max(0.0),
                sliced_cramer: cramer.max(0.0),
                max_sliced_wasserstein_1: max_w1,
                energy_distance: energy.max(0.0),
                mean_error,
                covariance_error,
                correlation_error,
            }
        })
        .collect()
}

/// A cloud by coordinates, so that projections run over contiguous memory.
struct Columns {
    dim: usize,
    len: usize,
    /// `[d, n]`.
    values: Vec<f32>,
    /// Normalised; empty for equal weights.
    weights: Vec<f64>,
}

impl Columns {
    fn new(points: &[f32], dim: usize, weights: Option<&[f64]>, centre: &[f64]) -> Self {
        let len = points.len() / dim;
        assert!(
            len > 0 && points.len() == len * dim,
            "{} values are no cloud of d = {dim}",
            points.len()
        );
        let column = |k: usize| {
            points[k..]
                .iter()
                .step_by(dim)
                .map(move |value| (f64::from(*value) - centre[k]) as f32)
        };
        let total: f64 = weights.map_or(0.0, |weights| weights.iter().sum());
        Self {
            dim,
            len,
            values: (0..dim).flat_map(column).collect(),
            weights: weights.map_or(Vec::new(), |weights| {
                assert_eq!(weights.len(), len, "one weight per point");
                weights.iter().map(|weight| weight / total).collect()
            }),
        }
    }

    /// The first `count` points.
    fn first(&self, count: usize) -> Self {
        let len = count.min(self.len);
        Self {
            dim: self.dim,
            len,
            values: self
                .columns()
                .flat_map(|column| &column[..len])
                .copied()
                .collect(),
            weights: Vec::new(),
        }
    }

    fn columns(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.len)
    }

    fn weight(&self, point: usize) -> f64 {
        self.weights
            .get(point)
            .copied()
            .unwrap_or(1.0 / self.len as f64)
    }

    /// Writes θ·x for every point.
    fn project(&self, direction: &[f32], out: &mut Vec<f32>) {
        out.clear();
        out.resize(self.len, 0.0);
        for (column, theta) in self.columns().zip(direction) {
            out.iter_mut()
                .zip(column)
                .for_each(|(sum, x)| *sum += theta * x);
        }
    }

    /// E‖X - Y‖ of independent X and Y.
    fn mean_distance_to(&self, other: &Self) -> f64 {
        let same = std::ptr::eq(self, other);
        let rows: Vec<f64> = (0..self.len)
            .into_par_iter()
            .map_init(
                || vec![0.0_f32; other.len],
                |squares, i| {
                    // The matrix of a law against itself is symmetric: its lower triangle counts twice.
                    let end = if same { i } else { other.len };
                    let squares = &mut squares[..end];
                    squares.fill(0.0);
                    for (k, column) in other.columns().enumerate() {
                        let x = self.values[k * self.len + i];
                        for (square, y) in squares.iter_mut().zip(column) {
                            *square += (x - y) * (x - y);
                        }
                    }
                    squares
                        .iter_mut()
                        .for_each(|square| *square = square.sqrt());
                    let total: f64 = if other.weights.is_empty() {
                        // Short f32 sums vectorise; between them the sum is f64.
                        squares
                            .chunks(64)
                            .map(|part| f64::from(lane_sum(part)))
                            .sum::<f64>()
                            / other.len as f64
                    } else {
                        squares
                            .iter()
                            .zip(&other.weights)
                            .map(|(s, w)| f64::from(*s) * w)
                            .sum()
                    };
                    total * self.weight(i) * if same { 2.0 } else { 1.0 }
                },
            )
            .collect();
        rows.iter().sum()
    }
}

/// Sum over eight independent lanes, which the compiler turns into vector additions.
fn lane_sum(values: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 8];
    let (blocks, rest) = values.as_chunks::<8>();
    for block in blocks {
        lanes
            .iter_mut()
            .zip(block)
            .for_each(|(lane, value)| *lane += value);
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// The reference seen along one direction: sorted, with prefix sums; and scratch space for clouds.
#[derive(Default)]
struct Shadow {
    sorted: Vec<f32>,
    /// `sums[j]` = Σ_{i<j} y_(i), and of squares.
    sums: Vec<f64>,
    squares: Vec<f64>,
    /// E|Y - Y'|.
    spread: f64,
    keys: Vec<u32>,
    scratch: Vec<u32>,
    projected: Vec<f32>,
    atoms: Vec<(f32, f64)>,
}

impl Shadow {
    fn set(&mut self, truth: &Columns, direction: &[f32]) {
        truth.project(direction, &mut self.sorted);
        sort(&mut self.sorted, &mut self.keys, &mut self.scratch);
        let m = self.sorted.len();
        self.sums.resize(m + 1, 0.0);
        self.squares.resize(m + 1, 0.0);
        let (mut sum, mut square, mut spread) = (0.0, 0.0, 0.0);
        for (j, y) in self.sorted.iter().enumerate() {
            let y = f64::from(*y);
            sum += y;
            square += y * y;
            // Σ_{i<j} (y_j - y_i) over all pairs is Σ_j y_j (2j + 1 - m).
            spread += y * (2.0 * j as f64 + 1.0 - m as f64);
            self.sums[j + 1] = sum;
            self.squares[j + 1] = square;
        }
        self.spread = 2.0 * spread / (m as f64 * m as f64);
    }

    /// W_1, W_2² and ∫ (F - G)² between the cloud's shadow and the reference's.
    fn compare(&mut self, cloud: &Columns, direction: &[f32]) -> [f64; 3] {
        cloud.project(direction, &mut self.projected);
        self.atoms.clear();
        self.atoms.extend(
            self.projected
                .iter()
                .enumerate()
                .map(|(i, x)| (*x, cloud.weight(i))),
        );
        self.atoms
            .sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let m = self.sorted.len() as f64;
        let total = self.sums[self.sorted.len()];
        // Sums over the reference's quantiles from 0 to u, in units of samples.
        let partial = |u: f64| {
            let j = u as usize;
            match self.sorted.get(j) {
                Some(y) => {
                    let (y, rest) = (f64::from(*y), u - j as f64);
                    (self.sums[j] + rest * y, self.squares[j] + rest * y * y)
                }
                None => (total, self.squares[self.sorted.len()]),
            }
        };
        let (mut w1, mut w2, mut cross, mut spread) = (0.0, 0.0, 0.0, 0.0);
        let mut below = 0.0;
        let (mut from, mut from_sums) = (0.0, (0.0, 0.0));
        let last = self.atoms.len() - 1;
        for (i, (x, weight)) in self.atoms.iter().enumerate() {
            let rank = self.sorted.partition_point(|y| y < x);
            let x = f64::from(*x);
            let above = below + weight;
            // The atom is coupled with the reference's quantiles `from`..`to`.
            let to = if i == last {
                m
            } else {
                (above * m).clamp(from, m)
            };
            let to_sums = partial(to);
            let rank_sum = self.sums[rank];
            let (split, split_sum) = if (rank as f64) < from {
                (from, from_sums.0)
            } else if rank as f64 > to {
                (to, to_sums.0)
            } else {
                (rank as f64, rank_sum)
            };
            w1 += x * (2.0 * split - from - to) + from_sums.0 + to_sums.0 - 2.0 * split_sum;
            w2 += x * x * (to - from) - 2.0 * x * (to_sums.0 - from_sums.0)
                + (to_sums.1 - from_sums.1);
            cross += weight * (x * (2.0 * rank as f64 - m) + total - 2.0 * rank_sum);
            spread += weight * x * (below + above - 1.0);
            below = above;
            (from, from_sums) = (to, to_sums);
        }
        [w1 / m, w2 / m, cross / m - spread - 0.5 * self.spread]
    }
}

/// Sorts by a radix sort of the bits, 11 at a time, with the keys and scratch given.
fn sort(values: &mut [f32], keys: &mut Vec<u32>, scratch: &mut Vec<u32>) {
    const DIGIT: u32 = 11;
    const MASK: u32 = (1 << DIGIT) - 1;
    // Flipping the sign bit of positive numbers and all bits of negative ones makes the order of bits that of the numbers.
    keys.clear();
    keys.extend(values.iter().map(|value| {
        let bits = value.to_bits();
        bits ^ if bits >> 31 == 1 { u32::MAX } else { 1 << 31 }
    }));
    scratch.clear();
    scratch.resize(keys.len(), 0);
    let mut counts = [[0_u32; 1 << DIGIT]; 3];
    for key in keys.iter() {
        for (pass, count) in counts.iter_mut().enumerate() {
            count[(key >> (DIGIT * pass as u32) & MASK) as usize] += 1;
        }
    }
    for (pass, count) in counts.iter_mut().enumerate() {
        let mut start = 0;
        for entry in count.iter_mut() {
            (*entry, start) = (start, start + *entry);
        }
        for key in keys.iter() {
            let slot = &mut count[(key >> (DIGIT * pass as u32) & MASK) as usize];
            scratch[*slot as usize] = *key;
            *slot += 1;
        }
        std::mem::swap(keys, scratch);
    }
    for (value, key) in values.iter_mut().zip(keys.iter()) {
        *value = f32::from_bits(key ^ if key >> 31 == 1 { 1 << 31 } else { u32::MAX });
    }
}

/// Climbs W_1 of the shadows from a direction by tangent gradient steps, halving the step where it fails; returns the best direction met.
fn refine(truth: &Columns, cloud: &Columns, start: &[f32]) -> Vec<f32> {
    let dim = start.len();
    let mut best = start.to_vec();
    if dim == 1 {
        return best;
    }
    // About the distance between neighbouring directions.
    let mut step = if dim == 2 {
        std::f64::consts::PI / DIRECTIONS as f64
    } else {
        0.25
    };
    let mut coupling = Coupling::default();
    let (mut value, mut gradient) = coupling.value_and_gradient(truth, cloud, &best);
    for _ in 0..REFINEMENT_STEPS {
        let along: f64 = best
            .iter()
            .zip(&gradient)
            .map(|(t, g)| f64::from(*t) * g)
            .sum();
        let tangent: Vec<f64> = best
            .iter()
            .zip(&gradient)
            .map(|(t, g)| g - along * f64::from(*t))
            .collect();
        let norm = tangent.iter().map(|t| t * t).sum::<f64>().sqrt();
        if norm <= 1e-12 {
            break;
        }
        let moved: Vec<f64> = best
            .iter()
            .zip(&tangent)
            .map(|(b, t)| f64::from(*b) + step * t / norm)
            .collect();
        let length = moved.iter().map(|t| t * t).sum::<f64>().sqrt();
        let candidate: Vec<f32> = moved.iter().map(|t| (t / length) as f32).collect();
        let (next, next_gradient) = coupling.value_and_gradient(truth, cloud, &candidate);
        if next > value {
            (best, value, gradient) = (candidate, next, next_gradient);
            step *= 1.5;
        } else {
            step *= 0.5;
        }
    }
    best
}

/// Scratch space of the optimal coupling of two shadows.
#[derive(Default)]
struct Coupling {
    projected: Vec<f32>,
    truth: Vec<(f32, u32)>,
    cloud: Vec<(f32, u32)>,
}

impl Coupling {
    /// W_1 of the shadows and its gradient Σ mass · sign(θ·x - θ·y) (x - y) over the monotone coupling.
    fn value_and_gradient(
        &mut self,
        truth: &Columns,
        cloud: &Columns,
        direction: &[f32],
    ) -> (f64, Vec<f64>) {
        for (columns, order) in [(truth, &mut self.truth), (cloud, &mut self.cloud)] {
            columns.project(direction, &mut self.projected);
            order.clear();
            order.extend(self.projected.iter().zip(0..).map(|(x, i)| (*x, i)));
            order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        let mut value = 0.0;
        let mut gradient = vec![0.0; direction.len()];
        let (mut i, mut j) = (0, 0);
        let (mut left_i, mut left_j) = (cloud.weight(self.cloud[0].1 as usize), truth.weight(0));
        loop {
            let ((x, p), (y, q)) = (self.cloud[i], self.truth[j]);
            let mass = left_i.min(left_j);
            let gap = f64::from(x) - f64::from(y);
            value += mass * gap.abs();
            let signed = if gap < 0.0 { -mass } else { mass };
            for (k, g) in gradient.iter_mut().enumerate() {
                let x = cloud.values[k * cloud.len + p as usize];
                let y = truth.values[k * truth.len + q as usize];
                *g += signed * f64::from(x - y);
            }
            left_i -= mass;
            left_j -= mass;
            // Rounding may leave a remainder at the very end: whichever side is used up moves on.
            if left_i <= left_j {
                i += 1;
                let Some((_, p)) = self.cloud.get(i) else {
                    break;
                };
                left_i = cloud.weight(*p as usize);
            } else {
                j += 1;
                if j == self.truth.len() {
                    break;
                }
                left_j = truth.weight(0);
            }
        }
        (value, gradient)
    }
}

/// Mean and covariance of a law.
struct Moments {
    mean: Vec<f64>,
    /// `[d, d]`.
    covariance: Vec<f64>,
}

impl Moments {
    fn new(points: &[f32], dim: usize, weights: Option<&[f64]>) -> Self {
        let total = weights.map_or((points.len() / dim) as f64, |weights| weights.iter().sum());
        let weight = |i: usize| weights.map_or(1.0, |weights| weights[i]) / total;
        let mut mean = vec![0.0; dim];
        for (i, point) in points.chunks_exact(dim).enumerate() {
            mean.iter_mut()
                .zip(point)
                .for_each(|(m, x)| *m += weight(i) * f64::from(*x));
        }
        let mut covariance = vec![0.0; dim * dim];
        let mut centred = vec![0.0; dim];
        for (i, point) in points.chunks_exact(dim).enumerate() {
            (0..dim).for_each(|k| centred[k] = f64::from(point[k]) - mean[k]);
            for (row, a) in covariance.chunks_exact_mut(dim).zip(&centred) {
                row.iter_mut()
                    .zip(&centred)
                    .for_each(|(c, b)| *c += weight(i) * a * b);
            }
        }
        Self { mean, covariance }
    }

    fn correlation(&self, i: usize, j: usize) -> f64 {
        let dim = self.mean.len();
        let scale = (self.covariance[i * dim + i] * self.covariance[j * dim + j]).sqrt();
        if scale > 0.0 {
            self.covariance[i * dim + j] / scale
        } else {
            0.0
        }
    }

    /// Errors of mean, covariance and correlation.
    fn errors(&self, truth: &Self) -> (f64, f64, f64) {
        let distance = |a: &[f64], b: &[f64]| {
            a.iter()
                .zip(b)
                .map(|(x, y)| (x - y).powi(2))
                .sum::<f64>()
                .sqrt()
        };
        let dim = self.mean.len();
        let mut correlation = 0.0;
        for i in 0..dim {
            for j in 0..i {
                correlation += (self.correlation(i, j) - truth.correlation(i, j)).abs();
            }
        }
        (
            distance(&self.mean, &truth.mean),
            distance(&self.covariance, &truth.covariance),
            correlation / (dim * (dim - 1) / 2).max(1) as f64,
        )
    }
}

#[cfg(test)]
#[path = "law_tests.rs"]
mod tests;
