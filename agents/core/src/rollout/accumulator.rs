//! The return so far of ongoing episodes.

use pushforward_envs::Discount;
use serde::{Deserialize, Serialize};

/// Length k of the extra vector [C_t, Γ^t] of agents that condition on the return so far: d, and 1, d or d² numbers for Γ^t.
pub fn extra_length(discount: &Discount) -> usize {
    discount.dim() + power_length(discount)
}

fn power_length(discount: &Discount) -> usize {
    let dim = discount.dim();
    if discount.scalar().is_some() {
        1
    } else if discount.is_diagonal() {
        dim
    } else {
        dim * dim
    }
}

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

    /// Writes [C_t, Γ^t] in the form that suits the discount.
    pub(super) fn write_extra(&self, discount: &Discount, environment: usize, extra: &mut [f32]) {
        let dim = discount.dim();
        let (so_far, rest) = extra.split_at_mut(dim);
        for (entry, &value) in so_far.iter_mut().zip(self.sum(dim, environment)) {
            *entry = value as f32;
        }
        let power = &self.powers[environment * dim * dim..(environment + 1) * dim * dim];
        // A scalar or diagonal power is its diagonal; the first entry stands for a scalar.
        let stride = if discount.is_diagonal() { dim + 1 } else { 1 };
        for (entry, &value) in rest.iter_mut().zip(power.iter().step_by(stride)) {
            *entry = value as f32;
        }
    }
}
