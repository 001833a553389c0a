//! Clouds by coordinates, and what one direction shows of them.

use rayon::prelude::*;

/// A cloud by coordinates, so that projections run over contiguous memory.
pub(super) struct Columns {
    dim: usize,
    pub(super) len: usize,
    /// `[d, n]`.
    pub(super) values: Vec<f32>,
    /// Normalised; empty for equal weights.
    weights: Vec<f64>,
}

impl Columns {
    pub(super) fn new(points: &[f32], dim: usize, weights: Option<&[f64]>, centre: &[f64]) -> Self {
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
    pub(super) fn first(&self, count: usize) -> Self {
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

    pub(super) fn weight(&self, point: usize) -> f64 {
        self.weights
            .get(point)
            .copied()
            .unwrap_or(1.0 / self.len as f64)
    }

    /// Writes θ·x for every point.
    pub(super) fn project(&self, direction: &[f32], out: &mut Vec<f32>) {
        out.clear();
        out.resize(self.len, 0.0);
        for (column, theta) in self.columns().zip(direction) {
            out.iter_mut()
                .zip(column)
                .for_each(|(sum, x)| *sum += theta * x);
        }
    }

    /// E‖X - Y‖ of independent X and Y.
    pub(super) fn mean_distance_to(&self, other: &Self) -> f64 {
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
pub(super) struct Shadow {
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
    pub(super) fn set(&mut self, truth: &Columns, direction: &[f32]) {
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
    pub(super) fn compare(&mut self, cloud: &Columns, direction: &[f32]) -> [f64; 3] {
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
pub(super) fn sort(values: &mut [f32], keys: &mut Vec<u32>, scratch: &mut Vec<u32>) {
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
