//! Clouds by coordinates, and what one direction shows of them.

use rayon::prelude::*;

use super::sort::{DIGITS, Line, Order, bucket, sort};

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
        let row = |i: usize| {
            // The matrix of a law against itself is symmetric: its lower triangle counts twice.
            let end = if same { i } else { other.len };
            let mut total = 0.0;
            for start in (0..end).step_by(PART) {
                let part = start..end.min(start + PART);
                let mut squares = [0.0_f32; PART];
                let squares = &mut squares[..part.len()];
                for (k, column) in other.columns().enumerate() {
                    let x = self.values[k * self.len + i];
                    for (square, y) in squares.iter_mut().zip(&column[part.clone()]) {
                        *square += (x - y) * (x - y);
                    }
                }
                squares
                    .iter_mut()
                    .for_each(|square| *square = square.sqrt());
                total += if other.weights.is_empty() {
                    // Short f32 sums vectorise; between them the sum is f64.
                    f64::from(lane_sum(squares)) / other.len as f64
                } else {
                    let pairs = squares.iter().zip(&other.weights[part]);
                    pairs.map(|(s, w)| f64::from(*s) * w).sum()
                };
            }
            total * self.weight(i) * if same { 2.0 } else { 1.0 }
        };
        let rows: Vec<f64> = (0..self.len).into_par_iter().map(row).collect();
        rows.iter().sum()
    }
}

/// Distances that are taken together, so that they stay in the fastest memory.
const PART: usize = 64;

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

/// Points between two entries of the prefix sums.
const BLOCK: usize = 16;

/// The reference seen along one direction: sorted, with prefix sums.
#[derive(Default)]
pub(super) struct Shadow {
    line: Line,
    sorted: Vec<f32>,
    /// End of each bucket of the line in the sorted order.
    ends: Vec<u32>,
    /// `sums[j]` = Σ y_(i) and Σ y_(i)² over the first j blocks.
    sums: Vec<[f64; 2]>,
    /// E|Y - Y'|.
    spread: f64,
}

/// Room for the work of one thread.
#[derive(Default)]
pub(super) struct Scratch {
    projected: Vec<f32>,
    places: Vec<u32>,
    other_places: Vec<u32>,
    order: Order,
}

impl Shadow {
    /// Bytes that the shadow of `len` points takes.
    pub(super) fn bytes(len: usize) -> usize {
        4 * len + 16 * (len / BLOCK + 1) + 4 * DIGITS
    }

    pub(super) fn set(&mut self, truth: &Columns, direction: &[f32], scratch: &mut Scratch) {
        truth.project(direction, &mut self.sorted);
        let line = Line::covering(&self.sorted);
        let places = &mut scratch.places;
        places.clear();
        places.extend(self.sorted.iter().map(|y| line.place(*y)));
        let mut ends = [0; DIGITS];
        sort(places, &mut scratch.other_places, &mut ends, |place| place);
        for (y, place) in self.sorted.iter_mut().zip(places.iter()) {
            *y = line.value(*place);
        }
        self.line = line;
        self.ends.clear();
        self.ends.extend(ends);
        let m = self.sorted.len() as f64;
        let (mut total, mut spread) = ([0.0; 2], 0.0);
        self.sums.clear();
        self.sums.push(total);
        let (blocks, rest) = self.sorted.as_chunks::<BLOCK>();
        for (index, block) in blocks.iter().enumerate() {
            let [sum, square, ranked] = block_sums(block);
            total = [total[0] + sum, total[1] + square];
            self.sums.push(total);
            // Σ_{i<j} (y_j - y_i) over all pairs is Σ_j y_j (2j + 1 - m).
            spread += (2.0 * (index * BLOCK) as f64 + 1.0 - m) * sum + 2.0 * ranked;
        }
        let [sum, _, ranked] = block_sums(rest);
        spread += (2.0 * (blocks.len() * BLOCK) as f64 + 1.0 - m) * sum + 2.0 * ranked;
        self.spread = 2.0 * spread / (m * m);
    }

    /// Number of reference points below x.
    fn rank(&self, x: f32) -> usize {
        let bucket = bucket(self.line.place(x));
        let start = bucket.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
        let own = &self.sorted[start..self.ends[bucket] as usize];
        start + own.partition_point(|y| *y < x)
    }

    /// Σ y_(i) and Σ y_(i)² over the first `count` reference points.
    fn first_sums(&self, count: usize) -> [f64; 2] {
        let block = count / BLOCK;
        let rest = &self.sorted[block * BLOCK..count];
        rest.iter().fold(self.sums[block], |sums, y| {
            let y = f64::from(*y);
            [sums[0] + y, sums[1] + y * y]
        })
    }

    /// The same over the reference's quantiles from 0 to u, in units of samples.
    fn quantile_sums(&self, u: f64) -> [f64; 2] {
        let whole = (u as usize).min(self.sorted.len());
        let mut sums = self.first_sums(whole);
        if let Some(y) = self.sorted.get(whole) {
            let (y, part) = (f64::from(*y), u - whole as f64);
            sums = [sums[0] + part * y, sums[1] + part * y * y];
        }
        sums
    }

    /// W_1, W_2² and ∫ (F - G)² between the cloud's shadow and the reference's.
    pub(super) fn compare(
        &self,
        cloud: &Columns,
        direction: &[f32],
        scratch: &mut Scratch,
    ) -> [f64; 3] {
        let Scratch {
            projected, order, ..
        } = scratch;
        cloud.project(direction, projected);
        order.set(projected);
        let m = self.sorted.len() as f64;
        let total = self.first_sums(self.sorted.len())[0];
        let (mut w1, mut w2, mut cross, mut spread) = (0.0, 0.0, 0.0, 0.0);
        let mut below = 0.0;
        let (mut from, mut from_sums) = (0.0, [0.0; 2]);
        for (i, index) in order.indices().enumerate() {
            let weight = cloud.weight(index);
            let rank = self.rank(projected[index]);
            let x = f64::from(projected[index]);
            let above = below + weight;
            // The atom is coupled with the reference's quantiles `from`..`to`.
            let to = if i + 1 == cloud.len {
                m
            } else {
                (above * m).clamp(from, m)
            };
            let to_sums = self.quantile_sums(to);
            let rank_sum = self.first_sums(rank)[0];
            let (split, split_sum) = if (rank as f64) < from {
                (from, from_sums[0])
            } else if rank as f64 > to {
                (to, to_sums[0])
            } else {
                (rank as f64, rank_sum)
            };
            w1 += x * (2.0 * split - from - to) + from_sums[0] + to_sums[0] - 2.0 * split_sum;
            w2 += x * x * (to - from) - 2.0 * x * (to_sums[0] - from_sums[0])
                + (to_sums[1] - from_sums[1]);
            cross += weight * (x * (2.0 * rank as f64 - m) + total - 2.0 * rank_sum);
            spread += weight * x * (below + above - 1.0);
            below = above;
            (from, from_sums) = (to, to_sums);
        }
        [w1 / m, w2 / m, cross / m - spread - 0.5 * self.spread]
    }
}

/// Σ y_i, Σ y_i² and Σ i y_i of a block.
#[inline]
fn block_sums(block: &[f32]) -> [f64; 3] {
    // Four independent lanes, which the compiler turns into vector additions.
    let mut lanes = [[0.0; 4]; 3];
    let (quads, rest) = block.as_chunks::<4>();
    for (start, quad) in (0..).step_by(4).zip(quads) {
        for (lane, y) in quad.iter().enumerate() {
            let y = f64::from(*y);
            lanes[0][lane] += y;
            lanes[1][lane] += y * y;
            lanes[2][lane] += f64::from(start + lane as u32) * y;
        }
    }
    let mut sums = lanes.map(|lanes| (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
    for (i, y) in rest.iter().enumerate() {
        let y = f64::from(*y);
        sums[0] += y;
        sums[1] += y * y;
        sums[2] += (4 * quads.len() + i) as f64 * y;
    }
    sums
}
