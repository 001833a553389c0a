//! Drawing transitions and gathering them into a batch.

use pushforward_envs::StreamRng;
use rand::Rng;
use rayon::prelude::*;

use super::copy::Element;
use super::{Batch, Replay, Slot};
use crate::{CoreError, ObservationBuffer};

/// Observations of a batch in bytes from which copying is shared out over threads.
const PARALLEL_BYTES: usize = 1 << 18;

/// Smallest priority, so that no transition is lost for good.
const SMALLEST_PRIORITY: f64 = 1e-6;

impl Replay {
    /// Draws `size` transitions with replacement into `batch`, which allocates nothing once it has held as many.
    ///
    /// Uniform replay draws each ready transition with equal probability. Prioritised replay draws transition i with probability
    /// P(i) = w_i / Σ w, w_i = priority_i^α, one in each of `size` equal strata of Σ w, and sets the weights
    /// (len · P(i))^-β divided by the largest of the batch, with β = `importance_exponent` (Schaul et al. 2016).
    ///
    /// # Errors
    /// [`CoreError::Replay`] if no transition is ready or `batch` has another element type.
    pub fn sample(
        &self,
        size: usize,
        importance_exponent: f64,
        rng: &mut StreamRng,
        batch: &mut Batch,
    ) -> Result<(), CoreError> {
        if self.is_empty() {
            return Err(CoreError::Replay(
                "sampled before any transition was complete".into(),
            ));
        }
        if batch.observations.kind() != self.shape.kind
            || batch.next_observations.kind() != self.shape.kind
        {
            return Err(CoreError::Replay(format!(
                "batch of type {:?}, expected {:?}",
                batch.observations.kind(),
                self.shape.kind
            )));
        }
        batch.resize(
            size,
            self.shape.length,
            self.shape.reward_dim,
            self.shape.extra,
        );
        if self.tree.is_some() {
            self.draw_prioritised(importance_exponent, rng, batch);
        } else {
            self.draw_uniform(rng, batch);
        }
        self.gather(batch);
        Ok(())
    }

    /// Sets the priorities of sampled transitions, named by [`Batch::indices`]; those overwritten since are passed over.
    ///
    /// # Errors
    /// [`CoreError::Replay`] if lengths differ or a priority is negative or not finite; nothing changes then.
    pub fn update_priorities(
        &mut self,
        indices: &[u64],
        priorities: &[f32],
    ) -> Result<(), CoreError> {
        super::check_length("priorities", priorities.len(), indices.len())?;
        if let Some(priority) = priorities
            .iter()
            .find(|priority| !priority.is_finite() || **priority < 0.0)
        {
            return Err(CoreError::Replay(format!(
                "priority {priority}, expected a finite number of at least 0"
            )));
        }
        if self.tree.is_none() {
            return Ok(());
        }
        for (&index, &priority) in indices.iter().zip(priorities) {
            let (environment, count) = self.locate(index);
            if count < self.oldest(environment)
                || count > self.rings[environment].head
                || !self.is_ready(environment, count)
            {
                continue;
            }
            let slot = self.slot(environment, count);
            let weight =
                (f64::from(priority) + SMALLEST_PRIORITY).powf(self.config.priority_exponent);
            self.largest_weight = self.largest_weight.max(weight);
            if let Some(tree) = &mut self.tree {
                tree.set(slot, weight);
            }
        }
        Ok(())
    }

    /// Environment and count of a transition's name.
    fn locate(&self, index: u64) -> (usize, u64) {
        let environments = self.shape.environments as u64;
        ((index % environments) as usize, index / environments)
    }

    /// Draws slots until one is ready; rings fill at nearly the same pace, so few draws are thrown away.
    fn draw_uniform(&self, rng: &mut StreamRng, batch: &mut Batch) {
        let environments = self.shape.environments as u64;
        let longest = (0..self.shape.environments)
            .map(|environment| self.filled(environment))
            .max()
            .unwrap_or(0) as u64;
        for index in &mut batch.indices {
            *index = loop {
                let draw = rng.random_range(0..environments * longest);
                let environment = (draw % environments) as usize;
                let count = self.oldest(environment) + draw / environments;
                if count <= self.rings[environment].head && self.is_ready(environment, count) {
                    break count * environments + environment as u64;
                }
            };
        }
        batch.weights.fill(1.0);
    }

    fn draw_prioritised(&self, importance_exponent: f64, rng: &mut StreamRng, batch: &mut Batch) {
        let Some(tree) = &self.tree else { return };
        let total = tree.total();
        let stratum = total / batch.size as f64;
        let mut largest = 0.0_f64;
        for row in 0..batch.size {
            let position = (row as f64 + rng.random::<f64>()) * stratum;
            let slot = tree.find(position);
            let environment = slot / self.slots;
            let place = (slot % self.slots) as u64;
            // The newest count that lives at this place of the ring.
            let head = self.rings[environment].head;
            let slots = self.slots as u64;
            let count = head - (head % slots + slots - place) % slots;
            batch.indices[row] = count * self.shape.environments as u64 + environment as u64;
            let probability = tree.get(slot) / total;
            let weight = (self.ready as f64 * probability).powf(-importance_exponent);
            largest = largest.max(weight);
            batch.weights[row] = weight as f32;
        }
        let largest = largest as f32;
        batch
            .weights
            .iter_mut()
            .for_each(|weight| *weight /= largest);
    }

    /// Fills the rows named by `batch.indices`.
    fn gather(&self, batch: &mut Batch) {
        let dim = self.shape.reward_dim;
        let k = self.shape.extra;
        for row in 0..batch.size {
            let (environment, count) = self.locate(batch.indices[row]);
            let slot = self.slot(environment, count);
            batch.actions[row] = i64::from(self.actions[slot]);
            let steps = self.window(environment, count);
            let rewards = &mut batch.rewards[row * dim..(row + 1) * dim];
            self.discounted_rewards(environment, count, steps, rewards);
            let last = self.kinds[self.slot(environment, count + steps as u64 - 1)];
            let bootstrap = &mut batch.bootstrap[row * dim * dim..(row + 1) * dim * dim];
            if last == Slot::Terminated {
                bootstrap.fill(0.0);
            } else {
                let power = &self.powers[steps * dim * dim..(steps + 1) * dim * dim];
                for (entry, &value) in bootstrap.iter_mut().zip(power) {
                    *entry = value as f32;
                }
            }
            let next = self.slot(environment, count + steps as u64);
            batch.next_table_state[row] = self.table_states[next];
            batch.extra[row * k..(row + 1) * k]
                .copy_from_slice(&self.extra[slot * k..(slot + 1) * k]);
            batch.next_extra[row * k..(row + 1) * k]
                .copy_from_slice(&self.extra[next * k..(next + 1) * k]);
        }
        let Batch {
            observations,
            next_observations,
            indices,
            ..
        } = batch;
        match (&self.observations, observations, next_observations) {
            (
                ObservationBuffer::F32(all),
                ObservationBuffer::F32(rows),
                ObservationBuffer::F32(next),
            ) => self.copy_rows(all, indices, rows, next),
            (
                ObservationBuffer::U8(all),
                ObservationBuffer::U8(rows),
                ObservationBuffer::U8(next),
            ) => self.copy_rows(all, indices, rows, next),
            _ => unreachable!("element types were checked"),
        }
    }

    /// Number of steps in the window that begins at `count`: n, or fewer if the episode ends before.
    fn window(&self, environment: usize, count: u64) -> usize {
        (0..self.config.n_step)
            .find(|&k| self.kinds[self.slot(environment, count + k as u64)] != Slot::Continue)
            .map_or(self.config.n_step, |k| k + 1)
    }

    /// Σ_{k<steps} Γ^k R_k.
    fn discounted_rewards(&self, environment: usize, count: u64, steps: usize, out: &mut [f32]) {
        let dim = self.shape.reward_dim;
        let mut sum = [0.0_f64; pushforward_envs::MAX_REWARD_DIM];
        for k in 0..steps {
            let slot = self.slot(environment, count + k as u64);
            let reward = &self.rewards[slot * dim..(slot + 1) * dim];
            let power = &self.powers[k * dim * dim..(k + 1) * dim * dim];
            for i in 0..dim {
                for j in 0..dim {
                    sum[i] += power[i * dim + j] * f64::from(reward[j]);
                }
            }
        }
        for (entry, &value) in out.iter_mut().zip(&sum) {
            *entry = value as f32;
        }
    }

    /// Copies the observations at both ends of every window; rows are independent, so the thread count changes nothing.
    fn copy_rows<T: Element>(&self, all: &[T], indices: &[u64], rows: &mut [T], next: &mut [T]) {
        let length = self.shape.length;
        let copy = |(&index, (row, next)): (&u64, (&mut [T], &mut [T]))| {
            let (environment, count) = self.locate(index);
            let from = self.slot(environment, count) * length;
            T::copy(row, &all[from..from + length]);
            let steps = self.window(environment, count) as u64;
            let from = self.slot(environment, count + steps) * length;
            T::copy(next, &all[from..from + length]);
        };
        if size_of_val(rows) < PARALLEL_BYTES {
            indices
                .iter()
                .zip(
                    rows.chunks_exact_mut(length)
                        .zip(next.chunks_exact_mut(length)),
                )
                .for_each(copy);
        } else {
            indices
                .par_iter()
                .zip(
                    rows.par_chunks_exact_mut(length)
                        .zip(next.par_chunks_exact_mut(length)),
                )
                .with_min_len(16)
                .for_each(copy);
        }
    }
}
