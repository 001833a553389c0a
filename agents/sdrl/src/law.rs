//! How far learned return laws are from samples of the truth.
//!
//! Many clouds are compared with one reference: it is projected and sorted once per direction, and each cloud of N points then costs little more
//! than O(N), by look-up in buckets and prefix sums.

mod refine;
mod shadow;
mod sort;

use pushforward_envs::StreamRng;
use rand::Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use refine::refine;
use shadow::{Columns, Scratch, Shadow};

/// Number of fixed directions of the sliced figures.
pub const DIRECTIONS: usize = 256;

/// Reference samples, at most, that the energy distance uses: its self term is quadratic in them.
const ENERGY_SAMPLES: usize = 8192;

/// Reference samples, at most, on which the direction of the max-sliced figure is refined; its value is taken on all of them.
const REFINEMENT_SAMPLES: usize = 4096;

/// Smallest sum of floors that a ratio divides by.
const SMALLEST_FLOOR: f64 = 1e-9;

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

/// Σ figure / Σ floor of each figure, over the actions of a state: the headline is its `sliced_cramer`.
///
/// Floors that sum to less than 1e-9 (laws without randomness, correlations of one coordinate) count as 1e-9, so that every ratio is finite and 0 is
/// still best.
pub fn ratio_to_floor(learned: &[Figures], floor: &[Figures]) -> Figures {
    let sum = |all: &[Figures], k: usize| all.iter().map(|f| f.to_array()[k]).sum::<f64>();
    Figures::from_array(std::array::from_fn(|k| {
        sum(learned, k) / sum(floor, k).max(SMALLEST_FLOOR)
    }))
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

/// Equally weighted samples of the truth, ready to be compared with.
pub struct Reference {
    dim: usize,
    /// `[L, d]`.
    directions: Vec<f32>,
    moments: Moments,
    /// Everything is centred on the reference's mean first, so that large offsets cost no digits.
    truth: Columns,
    refinement_truth: Columns,
    energy_truth: Columns,
    energy_self: f64,
    /// One for each direction, where they are kept.
    shadows: Vec<Shadow>,
}

impl Reference {
    /// The reference `[M, d]`.
    ///
    /// # Panics
    /// If it is empty or no multiple of `dim`.
    pub fn new(samples: &[f32], dim: usize) -> Self {
        let moments = Moments::new(samples, dim, None);
        let truth = Columns::new(samples, dim, None, &moments.mean);
        let energy_truth = truth.first(ENERGY_SAMPLES);
        Self {
            dim,
            directions: fixed_directions(DIRECTIONS, dim),
            refinement_truth: truth.first(REFINEMENT_SAMPLES),
            energy_self: energy_truth.mean_distance_to(&energy_truth),
            energy_truth,
            moments,
            truth,
            shadows: Vec::new(),
        }
    }

    /// Bytes that [`Reference::keep_shadows`] takes.
    pub fn shadow_bytes(&self) -> usize {
        self.directions.len() / self.dim * Shadow::bytes(self.truth.len)
    }

    /// Keeps the samples sorted along every direction, for clouds that come one at a time.
    pub fn keep_shadows(&mut self) {
        let truth = &self.truth;
        let shadow = |scratch: &mut Scratch, direction: &[f32]| {
            let mut shadow = Shadow::default();
            shadow.set(truth, direction, scratch);
            shadow
        };
        self.shadows = self
            .directions
            .par_chunks_exact(self.dim)
            .map_init(Scratch::default, shadow)
            .collect();
    }

    /// Compares each cloud with the reference, in parallel over directions and clouds.
    ///
    /// # Panics
    /// If a cloud is empty or no multiple of d.
    pub fn figures(&self, clouds: &[Cloud<'_>]) -> Vec<Figures> {
        let centred: Vec<Columns> = clouds
            .iter()
            .map(|cloud| Columns::new(cloud.points, self.dim, cloud.weights, &self.moments.mean))
            .collect();
        let room = || (Shadow::default(), Scratch::default());
        let sliced: Vec<Vec<[f64; 3]>> = self
            .directions
            .par_chunks_exact(self.dim)
            .enumerate()
            .map_init(room, |(own, scratch), (slice, direction)| {
                let shadow = match self.shadows.get(slice) {
                    Some(kept) => kept,
                    None => {
                        own.set(&self.truth, direction, scratch);
                        own
                    }
                };
                centred
                    .iter()
                    .map(|cloud| shadow.compare(cloud, direction, scratch))
                    .collect()
            })
            .collect();
        centred
            .par_iter()
            .enumerate()
            .map_init(room, |(shadow, scratch), (index, cloud)| {
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
                let start = &self.directions[best.0 * self.dim..(best.0 + 1) * self.dim];
                let refined = refine(&self.refinement_truth, cloud, start);
                let max_w1 = if refined == start {
                    best.1
                } else {
                    shadow.set(&self.truth, &refined, scratch);
                    shadow.compare(cloud, &refined, scratch)[0].max(best.1)
                };
                let energy = 2.0 * cloud.mean_distance_to(&self.energy_truth)
                    - cloud.mean_distance_to(cloud)
                    - self.energy_self;
                let own = Moments::new(clouds[index].points, self.dim, clouds[index].weights);
                let (mean_error, covariance_error, correlation_error) = own.errors(&self.moments);
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
