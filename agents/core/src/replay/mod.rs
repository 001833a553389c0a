//! A replay buffer for vector rewards: each observation stored once, n-step windows with a matrix discount, uniform or prioritised draws.
//!
//! Every environment has its own ring of slots, one per observation in time order. A slot holds the observation and, once the step is
//! taken, the action, the reward and how the step left the episode; the successor is simply the next slot. The final observation of an
//! episode takes a slot of its own without an action, and the next episode starts in the slot after it. So no transition crosses a
//! reset, and the newest slot, whose successor does not exist yet, is never drawn.

mod batch;
mod copy;
mod memory;
mod sample;
mod state;
mod sum_tree;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use memory::available_memory;

use pushforward_envs::{Discount, ObservationKind, ObservationSpec, Outcome};
use serde::{Deserialize, Serialize};

use crate::{CoreError, ObservationBuffer};
use sum_tree::SumTree;

/// Settings of the replay buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplayConfig {
    /// Observations kept, over all environments together; a transition takes one, and the end of an episode one more.
    pub capacity: usize,
    /// Whether transitions are drawn in proportion to priority^`priority_exponent` instead of uniformly.
    pub prioritised: bool,
    /// Exponent on priorities, 0 = uniform (Schaul et al. 2016: 0.6).
    pub priority_exponent: f64,
    /// Importance exponent β at the start, which the caller anneals to 1 (Schaul et al. 2016: 0.4).
    pub importance_exponent: f64,
    /// Steps n in a window.
    pub n_step: usize,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self {
            capacity: 100_000,
            prioritised: false,
            priority_exponent: 0.6,
            importance_exponent: 0.4,
            n_step: 1,
        }
    }
}

/// Sizes that a replay buffer is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayShape {
    /// Element type of an observation.
    pub kind: ObservationKind,
    /// Number of elements of an observation.
    pub length: usize,
    /// Length d of the reward vector.
    pub reward_dim: usize,
    /// Length k of the extra vector that is stored with every observation, 0 for none.
    pub extra: usize,
    /// Number of environments that write.
    pub environments: usize,
}

impl ReplayShape {
    /// The shape for observations of `spec`.
    pub fn new(
        spec: &ObservationSpec,
        reward_dim: usize,
        extra: usize,
        environments: usize,
    ) -> Self {
        Self {
            kind: spec.kind,
            length: spec.len(),
            reward_dim,
            extra,
            environments,
        }
    }

    fn element_bytes(&self) -> usize {
        match self.kind {
            ObservationKind::F32 => 4,
            ObservationKind::U8 => 1,
        }
    }
}

impl ReplayConfig {
    /// Checks ranges.
    ///
    /// # Errors
    /// [`CoreError::Replay`] with the setting that is out of range.
    pub fn validate(&self) -> Result<(), CoreError> {
        let wrong = |message: String| Err(CoreError::Replay(message));
        if self.capacity == 0 {
            return wrong("capacity = 0, expected at least 1".into());
        }
        if self.n_step == 0 {
            return wrong("n_step = 0, expected at least 1".into());
        }
        for (name, exponent) in [
            ("priority_exponent", self.priority_exponent),
            ("importance_exponent", self.importance_exponent),
        ] {
            if !(0.0..=1.0).contains(&exponent) {
                return wrong(format!("{name} = {exponent}, expected 0 to 1"));
            }
        }
        Ok(())
    }

    /// Slots in each environment's ring: an equal share of the capacity, but always room for a whole window and the slot being written.
    fn slots(&self, environments: usize) -> usize {
        self.capacity
            .div_ceil(environments.max(1))
            .max(self.n_step.saturating_add(2))
    }

    /// Memory that the buffer takes when full, in bytes.
    pub fn bytes(&self, shape: &ReplayShape) -> u64 {
        let slots = self.slots(shape.environments) as u128 * shape.environments as u128;
        let slot = shape.length as u128 * shape.element_bytes() as u128
            + 4 * (shape.extra + shape.reward_dim) as u128
            // Action and table state, 4 bytes each, and how the step ended.
            + 9;
        let tree = if self.prioritised {
            SumTree::bytes(slots)
        } else {
            0
        };
        u64::try_from(slots * slot + tree).unwrap_or(u64::MAX)
    }
}

/// What a slot's step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Slot {
    Continue = 0,
    Terminated = 1,
    Truncated = 2,
    /// The final observation of an episode: no step was taken from it.
    Final = 3,
    /// The newest observation: no step has been taken yet.
    Open = 4,
}

impl Slot {
    fn has_step(self) -> bool {
        matches!(self, Self::Continue | Self::Terminated | Self::Truncated)
    }
}

/// Where one environment's ring stands; slots are counted from the first ever written, and live at the count modulo the ring's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ring {
    /// Count of the newest observation.
    head: u64,
    /// Count of the first observation of the episode that goes on.
    start: u64,
}

/// One step of every environment, as the vector stepper leaves it; all arrays run over environments first.
#[derive(Clone, Copy, Debug)]
pub struct VectorStep<'a> {
    /// Actions taken, `[E]`.
    pub actions: &'a [usize],
    /// Reward vectors, `[E, d]`.
    pub rewards: &'a [f32],
    /// How each step left its episode, `[E]`.
    pub outcomes: &'a [Outcome],
    /// True successors, before any reset, `[E, length]`.
    pub successors: &'a ObservationBuffer,
    /// C and the power of Γ after the step, `[E, k]`.
    pub successor_extra: &'a [f32],
    /// Table states of the true successors, `[E]`.
    pub successor_table_states: &'a [u32],
    /// Observations that the next actions are taken in, after resets, `[E, length]`.
    pub observations: &'a ObservationBuffer,
    /// C and the power of Γ there (zero and the identity after a reset), `[E, k]`.
    pub extra: &'a [f32],
    /// Table states there, `[E]`.
    pub table_states: &'a [u32],
}

/// The replay buffer: one writer, one sampler.
#[derive(Debug)]
pub struct Replay {
    config: ReplayConfig,
    shape: ReplayShape,
    /// Slots in each environment's ring.
    slots: usize,
    /// Γ^0 … Γ^n, `[n + 1, d, d]`.
    powers: Vec<f64>,
    observations: ObservationBuffer,
    extra: Vec<f32>,
    actions: Vec<u32>,
    rewards: Vec<f32>,
    kinds: Vec<Slot>,
    table_states: Vec<u32>,
    rings: Vec<Ring>,
    started: bool,
    /// Transitions that can be drawn.
    ready: u64,
    tree: Option<SumTree>,
    /// Largest leaf weight ever set, which new transitions get so that each is seen soon.
    largest_weight: f64,
}

impl Replay {
    /// An empty buffer; memory is reserved now and touched as it fills.
    ///
    /// # Errors
    /// [`CoreError::Replay`] for a setting out of range, [`CoreError::Memory`] if less memory is available than the full buffer takes.
    pub fn new(
        config: &ReplayConfig,
        shape: ReplayShape,
        discount: &Discount,
    ) -> Result<Self, CoreError> {
        config.validate()?;
        if shape.environments == 0 || shape.length == 0 {
            return Err(CoreError::Replay(format!(
                "{} environments with observations of {} elements, expected at least 1 of each",
                shape.environments, shape.length
            )));
        }
        if discount.dim() != shape.reward_dim {
            return Err(CoreError::Replay(format!(
                "discount for d = {}, expected d = {} as the environment's reward",
                discount.dim(),
                shape.reward_dim
            )));
        }
        memory::check(config.bytes(&shape), available_memory())?;
        let slots = config.slots(shape.environments);
        let all = slots * shape.environments;
        let mut power = discount.identity();
        let mut powers = power.clone();
        for _ in 0..config.n_step {
            discount.advance(&mut power);
            powers.extend_from_slice(&power);
        }
        Ok(Self {
            slots,
            powers,
            observations: ObservationBuffer::zeros(shape.kind, all * shape.length),
            extra: vec![0.0; all * shape.extra],
            actions: vec![0; all],
            rewards: vec![0.0; all * shape.reward_dim],
            kinds: vec![Slot::Continue; all],
            table_states: vec![0; all],
            rings: vec![Ring::default(); shape.environments],
            started: false,
            ready: 0,
            tree: config.prioritised.then(|| SumTree::new(all)),
            largest_weight: 1.0,
            config: config.clone(),
            shape,
        })
    }

    /// The sizes that the buffer was built for.
    pub fn shape(&self) -> &ReplayShape {
        &self.shape
    }

    /// Number of transitions that can be drawn now.
    pub fn len(&self) -> u64 {
        self.ready
    }

    /// Whether nothing can be drawn yet.
    pub fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// Whether [`Replay::start`] was called, or a state loaded in which it had been.
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Number of observations held.
    pub fn observations_held(&self) -> u64 {
        (0..self.shape.environments)
            .map(|environment| self.filled(environment) as u64)
            .sum()
    }

    /// Writes the first observation of every environment, before the first step.
    ///
    /// # Errors
    /// [`CoreError::Replay`] if it was called before or a size does not fit.
    pub fn start(
        &mut self,
        observations: &ObservationBuffer,
        extra: &[f32],
        table_states: &[u32],
    ) -> Result<(), CoreError> {
        if self.started {
            return Err(CoreError::Replay("started twice".into()));
        }
        self.check_rows("observations", observations, extra, table_states)?;
        self.started = true;
        for environment in 0..self.shape.environments {
            self.write(environment, observations, extra, table_states);
        }
        Ok(())
    }

    /// Writes one step of every environment.
    ///
    /// # Errors
    /// [`CoreError::Replay`] if [`Replay::start`] did not come before or a size does not fit; nothing is written then.
    pub fn push(&mut self, step: &VectorStep<'_>) -> Result<(), CoreError> {
        let ReplayShape {
            environments,
            reward_dim,
            ..
        } = self.shape;
        if !self.started {
            return Err(CoreError::Replay(
                "a step before the first observation".into(),
            ));
        }
        for (name, got, expected) in [
            ("actions", step.actions.len(), environments),
            ("rewards", step.rewards.len(), environments * reward_dim),
            ("outcomes", step.outcomes.len(), environments),
        ] {
            check_length(name, got, expected)?;
        }
        self.check_rows(
            "successors",
            step.successors,
            step.successor_extra,
            step.successor_table_states,
        )?;
        self.check_rows(
            "observations",
            step.observations,
            step.extra,
            step.table_states,
        )?;
        for environment in 0..environments {
            self.push_one(environment, step);
        }
        Ok(())
    }

    fn push_one(&mut self, environment: usize, step: &VectorStep<'_>) {
        let dim = self.shape.reward_dim;
        let n = self.config.n_step as u64;
        let slot = self.slot(environment, self.rings[environment].head);
        self.actions[slot] = step.actions[environment] as u32;
        self.rewards[slot * dim..(slot + 1) * dim]
            .copy_from_slice(&step.rewards[environment * dim..(environment + 1) * dim]);
        let outcome = step.outcomes[environment];
        self.kinds[slot] = match outcome {
            Outcome::Continue => Slot::Continue,
            Outcome::Terminated => Slot::Terminated,
            Outcome::Truncated => Slot::Truncated,
        };
        self.advance_head(environment);
        self.write(
            environment,
            step.successors,
            step.successor_extra,
            step.successor_table_states,
        );
        let Ring { head, start } = self.rings[environment];
        if outcome == Outcome::Continue {
            if head >= start + n {
                self.make_ready(environment, head - n);
            }
            return;
        }
        // The episode is over: the shorter windows at its end are complete now.
        for count in start.max(head.saturating_sub(n))..head {
            self.make_ready(environment, count);
        }
        let last = self.slot(environment, head);
        self.kinds[last] = Slot::Final;
        self.advance_head(environment);
        self.write(
            environment,
            step.observations,
            step.extra,
            step.table_states,
        );
        self.rings[environment].start = head + 1;
    }

    /// Moves the head to the next slot and drops the oldest observation if the ring is full.
    fn advance_head(&mut self, environment: usize) {
        let head = self.rings[environment].head + 1;
        self.rings[environment].head = head;
        if head >= self.slots as u64 {
            let slot = self.slot(environment, head);
            // A ring is longer than a window, so a step this old has its window complete.
            if self.kinds[slot].has_step() {
                self.ready -= 1;
                if let Some(tree) = &mut self.tree {
                    tree.set(slot, 0.0);
                }
            }
        }
    }

    /// Copies row `environment` into the head slot.
    fn write(
        &mut self,
        environment: usize,
        observations: &ObservationBuffer,
        extra: &[f32],
        table_states: &[u32],
    ) {
        let slot = self.slot(environment, self.rings[environment].head);
        let length = self.shape.length;
        let to = slot * length..(slot + 1) * length;
        let from = environment * length..(environment + 1) * length;
        match (&mut self.observations, observations) {
            (ObservationBuffer::F32(to_all), ObservationBuffer::F32(all)) => {
                to_all[to].copy_from_slice(&all[from]);
            }
            (ObservationBuffer::U8(to_all), ObservationBuffer::U8(all)) => {
                to_all[to].copy_from_slice(&all[from]);
            }
            _ => unreachable!("element types were checked"),
        }
        let k = self.shape.extra;
        self.extra[slot * k..(slot + 1) * k]
            .copy_from_slice(&extra[environment * k..(environment + 1) * k]);
        self.table_states[slot] = table_states[environment];
        self.kinds[slot] = Slot::Open;
    }

    fn make_ready(&mut self, environment: usize, count: u64) {
        self.ready += 1;
        let slot = self.slot(environment, count);
        if let Some(tree) = &mut self.tree {
            tree.set(slot, self.largest_weight);
        }
    }

    fn check_rows(
        &self,
        name: &str,
        observations: &ObservationBuffer,
        extra: &[f32],
        table_states: &[u32],
    ) -> Result<(), CoreError> {
        let shape = &self.shape;
        if observations.kind() != shape.kind {
            return Err(CoreError::Replay(format!(
                "{name} of type {:?}, expected {:?}",
                observations.kind(),
                shape.kind
            )));
        }
        check_length(name, observations.len(), shape.environments * shape.length)?;
        check_length("extra", extra.len(), shape.environments * shape.extra)?;
        check_length("table states", table_states.len(), shape.environments)
    }

    /// Index over all rings of the slot with this count.
    fn slot(&self, environment: usize, count: u64) -> usize {
        environment * self.slots + (count % self.slots as u64) as usize
    }

    /// Number of slots in use.
    fn filled(&self, environment: usize) -> usize {
        if !self.started {
            return 0;
        }
        (self.rings[environment].head + 1).min(self.slots as u64) as usize
    }

    /// Count of the oldest observation held.
    fn oldest(&self, environment: usize) -> u64 {
        (self.rings[environment].head + 1).saturating_sub(self.slots as u64)
    }

    /// Whether the window that begins at this count is complete.
    fn is_ready(&self, environment: usize, count: u64) -> bool {
        let Ring { head, start } = self.rings[environment];
        self.kinds[self.slot(environment, count)].has_step()
            && (count < start || count + self.config.n_step as u64 <= head)
    }
}

fn check_length(name: &str, got: usize, expected: usize) -> Result<(), CoreError> {
    if got == expected {
        return Ok(());
    }
    Err(CoreError::Replay(format!(
        "{name} has {got} entries, expected {expected}"
    )))
}
