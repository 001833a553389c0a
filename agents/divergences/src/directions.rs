//! Directions on the unit sphere, drawn from a labelled random stream.

use pushforward_envs::StreamRng;
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

use crate::DivergenceError;

/// How directions are drawn from the uniform law on the sphere; each single direction is uniform whichever is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Draw {
    /// Independent: normalised Gaussian vectors.
    #[default]
    Iid,
    /// Random orthonormal bases (Haar) of d directions each, one after the other; the last one is cut off at L.
    Orthogonal,
    /// Spread evenly: for d = 2 equally spaced on the half circle with a random offset, for d = 3 a Fibonacci lattice on the half sphere, randomly
    /// rotated; for other d as `orthogonal`.
    Quasi,
}

/// Unit vectors `[L, d]` shared by a batch, or `[B, L, d]`, one set per pair of clouds.
#[derive(Clone, Debug, PartialEq)]
pub struct Directions {
    values: Vec<f32>,
    count: usize,
    dimension: usize,
    batch: Option<usize>,
}

impl Directions {
    /// Directions given row by row: `[L, d]`, or `[B, L, d]` with `batch`.
    ///
    /// They are used as they are, not normalised. Errors: a length that is no multiple, or an entry that is not finite.
    pub fn new(
        values: Vec<f32>,
        dimension: usize,
        batch: Option<usize>,
    ) -> Result<Self, DivergenceError> {
        let rows = dimension * batch.unwrap_or(1);
        if rows == 0 || !values.len().is_multiple_of(rows) {
            return Err(DivergenceError::Shape {
                what: "directions",
                got: format!("{} numbers", values.len()),
                expected: match batch {
                    None => format!("a multiple of d = {dimension}"),
                    Some(batch) => format!("a multiple of B d = {batch} x {dimension}"),
                },
            });
        }
        if let Some(index) = values.iter().position(|v| !v.is_finite()) {
            return Err(DivergenceError::NotFinite {
                what: "directions",
                index,
                value: values[index].into(),
            });
        }
        Ok(Self {
            count: values.len() / rows,
            values,
            dimension,
            batch,
        })
    }

    /// No directions, for divergences that use none.
    pub fn none(dimension: usize) -> Self {
        Self {
            values: Vec::new(),
            count: 0,
            dimension,
            batch: None,
        }
    }

    /// The d coordinate axes.
    pub fn axes(dimension: usize) -> Self {
        let mut values = vec![0.0; dimension * dimension];
        for axis in 0..dimension {
            values[axis * dimension + axis] = 1.0;
        }
        Self {
            values,
            count: dimension,
            dimension,
            batch: None,
        }
    }

    /// Draws `count` directions, for each of `batch` pairs of clouds or shared by all; for d = 1 the single direction +1.
    pub fn draw(
        draw: Draw,
        count: usize,
        dimension: usize,
        batch: Option<usize>,
        rng: &mut StreamRng,
    ) -> Self {
        if dimension == 1 {
            return Self {
                values: vec![1.0],
                count: 1,
                dimension,
                batch: None,
            };
        }
        let mut values = Vec::with_capacity(batch.unwrap_or(1) * count * dimension);
        for _ in 0..batch.unwrap_or(1) {
            match (draw, dimension) {
                (Draw::Iid, _) => {
                    for _ in 0..count {
                        values.extend(unit_vector(dimension, rng).iter().map(|&v| v as f32));
                    }
                }
                (Draw::Quasi, 2) => half_circle(count, rng.random(), &mut values),
                (Draw::Quasi, 3) => half_sphere(count, &orthonormal(3, rng), &mut values),
                (Draw::Orthogonal | Draw::Quasi, _) => {
                    let mut left = count;
                    while left > 0 {
                        let rows = left.min(dimension);
                        let basis = orthonormal(dimension, rng);
                        values.extend(basis[..rows * dimension].iter().map(|&v| v as f32));
                        left -= rows;
                    }
                }
            }
        }
        Self {
            values,
            count,
            dimension,
            batch,
        }
    }

    /// L, directions of each pair of clouds.
    pub fn count(&self) -> usize {
        self.count
    }

    /// d.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// B where each pair of clouds has directions of its own.
    pub fn batch(&self) -> Option<usize> {
        self.batch
    }

    /// All entries, row-major.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The directions `[L, d]` of pair `index`.
    pub fn of(&self, index: usize) -> &[f32] {
        match self.batch {
            None => &self.values,
            Some(_) => {
                let size = self.count * self.dimension;
                &self.values[index * size..(index + 1) * size]
            }
        }
    }

    /// Directions of the pairs `range` of the batch, for a caller that cuts its batch into shards.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        match self.batch {
            None => self.clone(),
            Some(_) => {
                let size = self.count * self.dimension;
                Self {
                    values: self.values[range.start * size..range.end * size].to_vec(),
                    batch: Some(range.len()),
                    ..*self
                }
            }
        }
    }
}

/// A uniform point of the sphere in R^d.
fn unit_vector(dimension: usize, rng: &mut StreamRng) -> Vec<f64> {
    loop {
        let vector: Vec<f64> = (0..dimension).map(|_| StandardNormal.sample(rng)).collect();
        let norm = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        if norm > 1e-12 {
            return vector.into_iter().map(|v| v / norm).collect();
        }
    }
}

/// A Haar-random orthonormal basis, one vector per row: Gram-Schmidt, done twice for accuracy, on independent Gaussian rows.
fn orthonormal(dimension: usize, rng: &mut StreamRng) -> Vec<f64> {
    let mut basis: Vec<f64> = Vec::with_capacity(dimension * dimension);
    while basis.len() < dimension * dimension {
        let mut row = unit_vector(dimension, rng);
        for _ in 0..2 {
            for other in basis.chunks_exact(dimension) {
                let along: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
                for (r, o) in row.iter_mut().zip(other) {
                    *r -= along * o;
                }
            }
        }
        let norm = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        if norm > 1e-8 {
            basis.extend(row.iter().map(|v| v / norm));
        }
    }
    basis
}

/// Angles (k + offset) π/L.
fn half_circle(count: usize, offset: f64, values: &mut Vec<f32>) {
    for k in 0..count {
        let angle = (k as f64 + offset) * std::f64::consts::PI / count as f64;
        values.extend([angle.cos() as f32, angle.sin() as f32]);
    }
}

/// Heights (k + ½)/L and golden-angle longitudes, rotated.
fn half_sphere(count: usize, rotation: &[f64], values: &mut Vec<f32>) {
    let golden = std::f64::consts::PI * (3.0 - 5.0_f64.sqrt());
    for k in 0..count {
        let height = (k as f64 + 0.5) / count as f64;
        let radius = (1.0 - height * height).sqrt();
        let (sin, cos) = (golden * k as f64).sin_cos();
        let point = [radius * cos, radius * sin, height];
        for row in rotation.chunks_exact(3) {
            values.push(row.iter().zip(point).map(|(a, b)| a * b).sum::<f64>() as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(a: &[f32], b: &[f32]) -> f64 {
        a.iter()
            .zip(b)
            .map(|(x, y)| f64::from(*x) * f64::from(*y))
            .sum()
    }

    #[test]
    fn every_draw_gives_unit_vectors_of_the_asked_shape() {
        for draw in [Draw::Iid, Draw::Orthogonal, Draw::Quasi] {
            for d in [2, 3, 5] {
                let mut rng = StreamRng::new(1, "directions", 0);
                let directions = Directions::draw(draw, 11, d, Some(7), &mut rng);
                assert_eq!(directions.values().len(), 7 * 11 * d);
                for row in directions.values().chunks_exact(d) {
                    assert!((dot(row, row) - 1.0).abs() < 1e-6);
                }
                assert_eq!(directions.slice(2..4).of(1), directions.of(3));
            }
        }
    }

    /// E[θ θᵀ] = I/d for the uniform law. One entry has standard deviation below 1/√L, so 5/√40000 = 0.025.
    #[test]
    fn second_moments_are_those_of_the_uniform_law() {
        for draw in [Draw::Iid, Draw::Orthogonal, Draw::Quasi] {
            for d in [2, 3, 4] {
                let mut rng = StreamRng::new(2, "directions", 0);
                let count = 40_000;
                let directions = Directions::draw(draw, count, d, None, &mut rng);
                for a in 0..d {
                    for b in 0..d {
                        let mean: f64 = directions
                            .values()
                            .chunks_exact(d)
                            .map(|row| f64::from(row[a]) * f64::from(row[b]))
                            .sum::<f64>()
                            / count as f64;
                        let expected = if a == b { 1.0 / d as f64 } else { 0.0 };
                        assert!(
                            (mean - expected).abs() < 0.025,
                            "{draw:?} d={d} {a},{b}: {mean}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn orthogonal_blocks_are_orthonormal() {
        let mut rng = StreamRng::new(3, "directions", 0);
        let directions = Directions::draw(Draw::Orthogonal, 8, 4, None, &mut rng);
        let rows: Vec<&[f32]> = directions.values().chunks_exact(4).collect();
        for block in rows.chunks_exact(4) {
            for a in 0..4 {
                for b in 0..a {
                    assert!(dot(block[a], block[b]).abs() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn the_half_circle_is_equally_spaced() {
        let mut rng = StreamRng::new(4, "directions", 0);
        let directions = Directions::draw(Draw::Quasi, 5, 2, None, &mut rng);
        let rows: Vec<&[f32]> = directions.values().chunks_exact(2).collect();
        let step = (std::f64::consts::PI / 5.0).cos();
        for pair in rows.windows(2) {
            assert!((dot(pair[0], pair[1]) - step).abs() < 1e-6);
        }
    }

    #[test]
    fn one_dimension_has_one_direction() {
        let mut rng = StreamRng::new(5, "directions", 0);
        let directions = Directions::draw(Draw::Iid, 64, 1, Some(3), &mut rng);
        assert_eq!(
            (directions.count(), directions.values()),
            (1, &[1.0_f32][..])
        );
    }

    #[test]
    fn wrong_lengths_and_nan_are_named() {
        let error = Directions::new(vec![1.0; 5], 2, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "divergence: directions: got 5 numbers, expected a multiple of d = 2"
        );
        let error = Directions::new(vec![1.0, f32::NAN], 2, None).unwrap_err();
        assert!(
            error.to_string().contains("directions[1] is NaN"),
            "{error}"
        );
    }
}
