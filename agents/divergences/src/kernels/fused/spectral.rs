//! Sliced MMD with a Gaussian mixture through characteristic functions: O((N + M) K) in place of all pairs.
//!
//! Bochner: k(u) = ∫ k̂(ω) cos(ωu) dω with k̂(ω) = Σ_h √(h/4π) exp(-hω²/4). The trapezoid rule with spacing Δ = 2π/P gives k plus its copies P, 2P, ...
//! away, so with P four standard widths above the largest distance and ω up to where k̂ ends, K terms are exact to f32 rounding:
//! MMD² = Σ_j a_j |φ_x(ω_j) - φ_y(ω_j)|² with a_j = 2Δ k̂(jΔ). Differences of means are squared, so nothing cancels.

use super::super::Element;
use super::super::mmd::Mmd;
use super::super::radial::Radial;
use super::super::simd::{LANES, Row, Simd};
use super::{BlockKernel, FusedScratch, Sizes, add_gradient, to_array};
use crate::config::Statistic;

/// Most frequencies; above it, for clouds much wider than the smallest bandwidth, the f64 kernel takes over.
const MOST_FREQUENCIES: f64 = 256.0;

/// Working memory and the weights of the frequencies for the last extent met.
#[derive(Debug, Default)]
pub(crate) struct SpectralScratch {
    /// What the weights were made for: bandwidths and period.
    bandwidths: Vec<f64>,
    period: f64,
    /// a_0 and a_j.
    first: f64,
    weights: Vec<f32>,
    /// cos and sin of the current frequency, and of the spacing, for each point.
    cos: Vec<Row<f32>>,
    sin: Vec<Row<f32>>,
    step_cos: Vec<Row<f32>>,
    step_sin: Vec<Row<f32>>,
}

impl SpectralScratch {
    /// Makes the weights for points within `radius` of the origin; false where that takes too many frequencies.
    fn prepare(&mut self, bandwidths: &[f64], radius: f64) -> bool {
        let (period, frequencies) = grid(bandwidths, radius);
        if frequencies.is_nan() || frequencies > MOST_FREQUENCIES {
            return false;
        }
        if self.period == period && self.bandwidths == bandwidths {
            return true;
        }
        let spacing = std::f64::consts::TAU / period;
        let density = |frequency: f64| -> f64 {
            bandwidths
                .iter()
                .map(|h| {
                    (h / (2.0 * std::f64::consts::TAU)).sqrt()
                        * (-h * frequency * frequency / 4.0).exp()
                })
                .sum()
        };
        self.period = period;
        self.bandwidths = bandwidths.to_vec();
        self.first = spacing * density(0.0);
        self.weights.clear();
        self.weights.extend(
            (1..=frequencies as usize)
                .map(|j| (2.0 * spacing * density(j as f64 * spacing)) as f32),
        );
        true
    }
}

/// The period, and the number of frequencies, for points within `radius` of the origin.
fn grid(bandwidths: &[f64], radius: f64) -> (f64, f64) {
    let largest = bandwidths.iter().fold(0.0_f64, |a, &h| a.max(h));
    let smallest = bandwidths.iter().fold(f64::INFINITY, |a, &h| a.min(h));
    // Rounded up in steps of 2^(1/4), so that the weights are seldom made anew; exp(-18) = 1.5e-8.
    let needed = 2.0 * radius + (18.0 * largest).sqrt();
    let period = ((needed.log2() * 4.0).ceil() / 4.0).exp2();
    let frequencies = 2.0 * (17.0 / smallest).sqrt() * period / std::f64::consts::TAU;
    (period, frequencies.ceil())
}

/// Whether clouds of this extent need few enough frequencies.
pub(crate) fn covers(bandwidths: &[f64], element: &Element<'_>) -> bool {
    let mut squared = 0.0;
    for c in 0..element.dimension {
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        for cloud in [element.predicted, element.target] {
            for &value in cloud[c..].iter().step_by(element.dimension) {
                low = low.min(value);
                high = high.max(value);
            }
        }
        let width = f64::from(high) - f64::from(low);
        squared += width * width;
    }
    // No point lies farther from the mean than the diagonal of the box.
    grid(bandwidths, squared.sqrt()).1 <= MOST_FREQUENCIES
}

impl BlockKernel for Mmd {
    fn rows(&self, sizes: Sizes) -> usize {
        sizes.n + sizes.m
    }

    #[inline(always)]
    fn block<S: Simd>(&self, s: S, own: &mut FusedScratch, sizes: Sizes) -> ([f32; LANES], u32) {
        let all = (1 << LANES) - 1;
        let Radial::Gaussian { bandwidths } = &self.kernel else {
            return ([0.0; LANES], all);
        };
        let (n, m) = (sizes.n, sizes.m);
        let mut radius = 0.0_f32;
        for lane in 0..LANES {
            radius = radius.max(own.high.0[lane]).max(-own.low.0[lane]);
        }
        let spectral = &mut own.spectral;
        if !spectral.prepare(bandwidths, radius.into()) {
            return ([0.0; LANES], all);
        }
        for buffer in [
            &mut spectral.cos,
            &mut spectral.sin,
            &mut spectral.step_cos,
            &mut spectral.step_sin,
        ] {
            buffer.resize(n + m, Row::default());
        }
        let spacing = std::f64::consts::TAU / spectral.period;
        for (i, z) in own.values[..n + m].iter().enumerate() {
            let (cos, sin) = cos_sin(s, s.mul(s.load(z), s.splat(spacing as f32)));
            for (value, first, current) in [
                (cos, &mut spectral.step_cos, &mut spectral.cos),
                (sin, &mut spectral.step_sin, &mut spectral.sin),
            ] {
                s.store(value, &mut first[i]);
                s.store(value, &mut current[i]);
            }
        }
        let slopes = &mut own.slopes[..n];
        for row in slopes.iter_mut() {
            *row = Row::default();
        }
        let (over_n, over_m) = (s.splat(1.0 / n as f32), s.splat(1.0 / m as f32));
        // U: the self terms times n/(n-1), so x weighs more in its own slope.
        let own_weight = match self.statistic {
            Statistic::V => 1.0,
            Statistic::U => n as f32 / (n as f32 - 1.0),
        };
        let mut value = s.splat(0.0);
        let (mut self_x, mut self_y) = (s.splat(0.0), s.splat(0.0));
        for (j, &weight) in spectral.weights.iter().enumerate() {
            let (mut sums, mut means) = ([s.splat(0.0); 2], [s.splat(0.0); 2]);
            for i in 0..n + m {
                let (cos, sin) = (s.load(&spectral.cos[i]), s.load(&spectral.sin[i]));
                if i == n {
                    means = [s.mul(sums[0], over_n), s.mul(sums[1], over_n)];
                    sums = [s.splat(0.0); 2];
                }
                sums[0] = s.add(sums[0], cos);
                sums[1] = s.add(sums[1], sin);
            }
            let other = [s.mul(sums[0], over_m), s.mul(sums[1], over_m)];
            let gap = [s.sub(means[0], other[0]), s.sub(means[1], other[1])];
            let a = s.splat(weight);
            value = s.add(value, s.mul(a, square_sum(s, gap)));
            if self.statistic == Statistic::U {
                self_x = s.add(self_x, s.mul(a, square_sum(s, means)));
                self_y = s.add(self_y, s.mul(a, square_sum(s, other)));
            }
            let scaled = s.splat(weight * ((j + 1) as f64 * spacing) as f32);
            let k = s.splat(own_weight);
            let push_cos = s.mul(scaled, s.sub(s.mul(k, means[1]), other[1]));
            let push_sin = s.mul(scaled, s.sub(s.mul(k, means[0]), other[0]));
            for (i, slope) in slopes.iter_mut().enumerate() {
                let (cos, sin) = (s.load(&spectral.cos[i]), s.load(&spectral.sin[i]));
                let push = s.sub(s.mul(push_cos, cos), s.mul(push_sin, sin));
                s.store(s.add(s.load(slope), push), slope);
            }
            // On to the next frequency: every point turns by one spacing.
            for i in 0..n + m {
                let (cos, sin) = (s.load(&spectral.cos[i]), s.load(&spectral.sin[i]));
                let (c, t) = (s.load(&spectral.step_cos[i]), s.load(&spectral.step_sin[i]));
                s.store(s.sub(s.mul(cos, c), s.mul(sin, t)), &mut spectral.cos[i]);
                s.store(s.add(s.mul(cos, t), s.mul(sin, c)), &mut spectral.sin[i]);
            }
        }
        let mut value = to_array(s, value);
        if self.statistic == Statistic::U {
            let (first, at_zero) = (spectral.first, self.kernel.at(0.0).0);
            let (self_x, self_y) = (to_array(s, self_x), to_array(s, self_y));
            for lane in 0..LANES {
                let unbias = |own: f32, count: usize| {
                    (f64::from(own) + first - at_zero) / (count as f64 - 1.0)
                };
                value[lane] += (unbias(self_x[lane], n) + unbias(self_y[lane], m)) as f32;
            }
        }
        add_gradient(s, own, sizes, 2.0 / n as f32, 0);
        (value, 0)
    }
}

#[inline(always)]
fn square_sum<S: Simd>(s: S, pair: [S::F; 2]) -> S::F {
    s.add(s.mul(pair[0], pair[0]), s.mul(pair[1], pair[1]))
}

/// cos and sin of |angle| <= π: Taylor polynomials of a quarter of it, doubled twice.
#[inline(always)]
fn cos_sin<S: Simd>(s: S, angle: S::F) -> (S::F, S::F) {
    let x = s.mul(angle, s.splat(0.25));
    let square = s.mul(x, x);
    // 1 - cos x and sin x, to 1e-8 for |x| <= π/4.
    let versed = cubic(s, square, [0.5, -1.0 / 24.0, 1.0 / 720.0, -1.0 / 40_320.0]);
    let versed = s.mul(versed, square);
    let sin = cubic(s, square, [1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0]);
    let mut sin = s.mul(sin, x);
    let mut cos = s.sub(s.splat(1.0), versed);
    for _ in 0..2 {
        let doubled = s.mul(s.splat(2.0), s.mul(sin, cos));
        cos = s.sub(s.splat(1.0), s.mul(s.splat(2.0), s.mul(sin, sin)));
        sin = doubled;
    }
    (cos, sin)
}

/// c_0 + c_1 x + c_2 x² + c_3 x³.
#[inline(always)]
fn cubic<S: Simd>(s: S, x: S::F, c: [f32; 4]) -> S::F {
    let mut sum = s.add(s.splat(c[2]), s.mul(s.splat(c[3]), x));
    sum = s.add(s.splat(c[1]), s.mul(sum, x));
    s.add(s.splat(c[0]), s.mul(sum, x))
}
