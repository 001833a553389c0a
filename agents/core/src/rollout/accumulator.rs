//! The return so far of ongoing episodes.

use pushforward_envs::Discount;
use serde::{Deserialize, Serialize};

use super::ExtraLayout;

/// Running sums of one discount: Σ Γ^t R_t and Γ^t of the ongoing episode of every environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Accumulator {
    /// `[E, d]`.
    pub(super) sums: Vec<f64>,
    /// `[E, d, d]`.
    pub(super) powers: Vec<f64>,
}

impl Accumulator {
    pub(super) fn new(discount: &Discount, environments: usize) -> Self {
        Self {
            sums: vec![0.0; environments * discount.dim()],
            powers: discount.identity().repeat(environments),
        }
    }

    /// Adds Γ^t r and moves on to Γ^(t+1).
    pub(super) fn add(&mut self, discount: &Discount, environment: usize, reward: &[f32]) {
        let dim = discount.dim();
        let sum = &mut self.sums[environment * dim..(environment + 1) * dim];
        let power = &mut self.powers[environment * dim * dim..(environment + 1) * dim * dim];
        for i in 0..dim {
            for j in 0..dim {
                sum[i] += power[i * dim + j] * f64::from(reward[j]);
            }
        }
        discount.advance(power);
    }

    pub(super) fn sum(&self, dim: usize, environment: usize) -> &[f64] {
        &self.sums[environment * dim..(environment + 1) * dim]
    }

    pub(super) fn reset(&mut self, dim: usize, environment: usize) {
        self.sums[environment * dim..(environment + 1) * dim].fill(0.0);
        let power = &mut self.powers[environment * dim * dim..(environment + 1) * dim * dim];
        power.fill(0.0);
        (0..dim).for_each(|i| power[i * dim + i] = 1.0);
    }

    /// Writes [C_t, Γ^t].
    pub(super) fn write_extra(&self, layout: ExtraLayout, environment: usize, extra: &mut [f32]) {
        let dim = layout.dim();
        let power = &self.powers[environment * dim * dim..(environment + 1) * dim * dim];
        layout.write(self.sum(dim, environment), power, extra);
    }
}
