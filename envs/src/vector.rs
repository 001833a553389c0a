//! Many copies of one environment stepped together.

use crate::{
    Env, EnvConfig, EnvError, EnvSpec, ObservationKind, ObservationMut, Outcome, StreamRng,
};

/// Rows of observations, one after another, in the element type of the environment.
#[derive(Clone, Debug, PartialEq)]
pub enum ObservationBuffer {
    /// Floats, `[rows, length]`.
    F32(Vec<f32>),
    /// Bytes, `[rows, length]`.
    U8(Vec<u8>),
}

impl ObservationBuffer {
    /// A buffer of `elements` zeros.
    pub fn zeros(kind: ObservationKind, elements: usize) -> Self {
        match kind {
            ObservationKind::F32 => Self::F32(vec![0.0; elements]),
            ObservationKind::U8 => Self::U8(vec![0; elements]),
        }
    }

    /// Element type.
    pub fn kind(&self) -> ObservationKind {
        match self {
            Self::F32(_) => ObservationKind::F32,
            Self::U8(_) => ObservationKind::U8,
        }
    }

    /// Number of elements in all rows together.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::U8(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the buffer hold `elements` elements; new ones are zero, and memory once taken is kept.
    pub fn resize(&mut self, elements: usize) {
        match self {
            Self::F32(values) => values.resize(elements, 0.0),
            Self::U8(values) => values.resize(elements, 0),
        }
    }

    /// Row `row` of observations of `length` elements, to be written by an environment.
    ///
    /// # Panics
    /// If the row lies beyond the buffer.
    pub fn row_mut(&mut self, row: usize, length: usize) -> ObservationMut<'_> {
        let range = row * length..(row + 1) * length;
        match self {
            Self::F32(values) => ObservationMut::F32(&mut values[range]),
            Self::U8(values) => ObservationMut::U8(&mut values[range]),
        }
    }
}

/// Environments are handed to threads in this many groups, whatever the number of threads.
const GROUPS: usize = 16;

/// From this much work on (bytes of observation and a flat amount per environment) a step is worth waking other threads for.
const PARALLEL_WORK: usize = 1 << 18;
const WORK_PER_ENV: usize = 256;

/// Start of a saved state, with its version.
const MAGIC: &[u8; 8] = b"vecenv01";

struct Slot {
    env: Box<dyn Env>,
    rng: StreamRng,
}

/// E copies of one environment, each with its own random stream, that reset themselves when an episode ends.
///
/// A step gives for every environment the reward, the outcome and the observation of the true successor; where the episode ended, the
/// current observation is then that of a fresh episode. Results do not depend on the number of threads. A step does not allocate.
///
/// ```
/// use pushforward_envs::{EnvConfig, ObservationBuffer, VectorEnv};
/// let config = EnvConfig::default();
/// let mut envs = VectorEnv::new(&config, 3, 7, "environment")?;
/// envs.step_all(&[0, 0, 0]);
/// assert_eq!(envs.rewards().len(), 3 * envs.spec().reward_dim);
/// # Ok::<(), pushforward_envs::EnvError>(())
/// ```
pub struct VectorEnv {
    spec: EnvSpec,
    /// Elements of one observation.
    length: usize,
    slots: Vec<Slot>,
    rewards: Vec<f32>,
    outcomes: Vec<Outcome>,
    successors: ObservationBuffer,
    current: ObservationBuffer,
    successor_states: Vec<u32>,
    current_states: Vec<u32>,
}

impl VectorEnv {
    /// Builds `count` environments on the streams (`label`, 0..count) under the root seed and starts an episode in each.
    ///
    /// # Errors
    /// [`EnvError`] if the environment cannot be built, or `count` is 0.
    pub fn new(
        config: &EnvConfig,
        count: usize,
        root_seed: u64,
        label: &str,
    ) -> Result<Self, EnvError> {
        let envs = (0..count)
            .map(|_| config.build())
            .collect::<Result<Vec<_>, _>>()?;
        Self::from_envs(envs, root_seed, label)
    }

    /// As [`VectorEnv::new`], from environments of one specification.
    ///
    /// # Errors
    /// [`EnvError::Setting`] if there are none or their specifications differ.
    pub fn from_envs(
        envs: Vec<Box<dyn Env>>,
        root_seed: u64,
        label: &str,
    ) -> Result<Self, EnvError> {
        let Some(first) = envs.first() else {
            return Err(EnvError::Setting {
                name: "vector".to_owned(),
                message: "0 environments, expected at least 1".to_owned(),
            });
        };
        let spec = first.spec().clone();
        if let Some(index) = envs.iter().position(|env| *env.spec() != spec) {
            return Err(EnvError::Setting {
                name: spec.name,
                message: format!(
                    "environment {index} has another specification than environment 0"
                ),
            });
        }
        let (count, length) = (envs.len(), spec.observation.len());
        let slots = (0..)
            .zip(envs)
            .map(|(index, env)| Slot {
                env,
                rng: StreamRng::new(root_seed, label, index),
            })
            .collect();
        let mut vector = Self {
            length,
            slots,
            rewards: vec![0.0; count * spec.reward_dim],
            outcomes: vec![Outcome::Continue; count],
            successors: ObservationBuffer::zeros(spec.observation.kind, count * length),
            current: ObservationBuffer::zeros(spec.observation.kind, count * length),
            successor_states: vec![0; count],
            current_states: vec![0; count],
            spec,
        };
        vector.reset_all();
        Ok(vector)
    }

    /// Number E of environments.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// What each environment is.
    pub fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    /// Starts a new episode everywhere; rewards, outcomes and successors are then those of no step (zero, `Continue`, current).
    pub fn reset_all(&mut self) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let observation = self.current.row_mut(index, self.length);
            slot.env.reset(&mut slot.rng, observation);
        }
        self.forget_step();
    }

    /// Starts a new episode in one environment.
    ///
    /// # Panics
    /// If there is no such environment.
    pub fn reset_one(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let observation = self.current.row_mut(index, self.length);
        slot.env.reset(&mut slot.rng, observation);
        self.current_states[index] = table_state(slot.env.as_ref());
    }

    /// Clears what the last step left, after a reset or a load.
    fn forget_step(&mut self) {
        for (state, slot) in self.current_states.iter_mut().zip(&self.slots) {
            *state = table_state(slot.env.as_ref());
        }
        self.successor_states.copy_from_slice(&self.current_states);
        self.rewards.fill(0.0);
        self.outcomes.fill(Outcome::Continue);
        self.successors.clone_from(&self.current);
    }

    /// Takes one action in every environment, and resets those whose episode ended.
    ///
    /// # Panics
    /// If the number of actions is not E, or an action does not exist.
    pub fn step_all(&mut self, actions: &[usize]) {
        let count = self.count();
        assert_eq!(actions.len(), count, "one action for each environment");
        match (&mut self.successors, &mut self.current) {
            (ObservationBuffer::F32(successors), ObservationBuffer::F32(current)) => Batch {
                length: self.length,
                dim: self.spec.reward_dim,
                slots: &mut self.slots,
                actions,
                rewards: &mut self.rewards,
                outcomes: &mut self.outcomes,
                successors,
                current,
                successor_states: &mut self.successor_states,
                current_states: &mut self.current_states,
            }
            .step(),
            (ObservationBuffer::U8(successors), ObservationBuffer::U8(current)) => Batch {
                length: self.length,
                dim: self.spec.reward_dim,
                slots: &mut self.slots,
                actions,
                rewards: &mut self.rewards,
                outcomes: &mut self.outcomes,
                successors,
                current,
                successor_states: &mut self.successor_states,
                current_states: &mut self.current_states,
            }
            .step(),
            _ => unreachable!("both buffers have the environment's element type"),
        }
    }

    /// Rewards of the last step, `[E, d]`.
    pub fn rewards(&self) -> &[f32] {
        &self.rewards
    }

    /// Outcomes of the last step, `[E]`.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// Observations of the true successors of the last step, `[E, length]`; at the end of an episode, its final observation.
    pub fn successors(&self) -> &ObservationBuffer {
        &self.successors
    }

    /// Observations to act on next, `[E, length]`; after the end of an episode, the first of the next one.
    pub fn observations(&self) -> &ObservationBuffer {
        &self.current
    }

    /// [`Env::table_state`] of the true successors, `[E]`; 0 where the environment has no such index.
    pub fn successor_states(&self) -> &[u32] {
        &self.successor_states
    }

    /// [`Env::table_state`] of the current states, `[E]`; 0 where the environment has no such index.
    pub fn table_states(&self) -> &[u32] {
        &self.current_states
    }

    /// One of the environments.
    ///
    /// # Panics
    /// If there is no such environment.
    pub fn env_mut(&mut self, index: usize) -> &mut dyn Env {
        self.slots[index].env.as_mut()
    }

    /// Appends the states of all environments and of their random streams.
    pub fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(self.count() as u64).to_le_bytes());
        let mut block = Vec::new();
        for slot in &self.slots {
            for part in 0..2 {
                block.clear();
                if part == 0 {
                    serde_json::to_writer(&mut block, &slot.rng)
                        .expect("a generator is four numbers and memory does not fail");
                } else {
                    slot.env.save(&mut block);
                }
                bytes.extend_from_slice(&(block.len() as u64).to_le_bytes());
                bytes.extend_from_slice(&block);
            }
        }
    }

    /// Restores what [`VectorEnv::save`] wrote for as many environments of the same specification.
    ///
    /// Current observations are drawn anew; rewards, outcomes and successors are then those of no step.
    ///
    /// # Errors
    /// [`EnvError::State`] if the bytes are not such a state; the environments may then be partly restored and need a reset.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let cut =
            || EnvError::State("the vector's state is cut off or has a wrong header".to_owned());
        let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(cut)?;
        let count = take_u64(&mut rest).ok_or_else(cut)?;
        if count != self.count() as u64 {
            return Err(EnvError::State(format!(
                "{count} environments, expected {}",
                self.count()
            )));
        }
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let rng = take_block(&mut rest).ok_or_else(cut)?;
            slot.rng = serde_json::from_slice(rng).map_err(|error| {
                EnvError::State(format!("random stream of environment {index}: {error}"))
            })?;
            slot.env.load(take_block(&mut rest).ok_or_else(cut)?)?;
            slot.env.observe(self.current.row_mut(index, self.length));
        }
        if !rest.is_empty() {
            return Err(EnvError::State(format!(
                "{} bytes after the last environment",
                rest.len()
            )));
        }
        self.forget_step();
        Ok(())
    }
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (number, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(u64::from_le_bytes(*number))
}

fn take_block<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_u64(rest)?).ok()?;
    let (block, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(block)
}

#[inline]
fn table_state(env: &dyn Env) -> u32 {
    env.table_state().map_or(0, |(state, _)| state as u32)
}

/// An element type of observations.
trait Element: Copy + Send + Sync {
    fn wrap(row: &mut [Self]) -> ObservationMut<'_>;
}

impl Element for f32 {
    fn wrap(row: &mut [Self]) -> ObservationMut<'_> {
        ObservationMut::F32(row)
    }
}

impl Element for u8 {
    fn wrap(row: &mut [Self]) -> ObservationMut<'_> {
        ObservationMut::U8(row)
    }
}

/// Neighbouring environments and their rows of every buffer.
struct Batch<'a, T> {
    length: usize,
    dim: usize,
    slots: &'a mut [Slot],
    actions: &'a [usize],
    rewards: &'a mut [f32],
    outcomes: &'a mut [Outcome],
    successors: &'a mut [T],
    current: &'a mut [T],
    successor_states: &'a mut [u32],
    current_states: &'a mut [u32],
}

impl<T: Element> Batch<'_, T> {
    fn step(self) {
        let count = self.slots.len();
        let work = count * (self.length * size_of::<T>() + WORK_PER_ENV);
        if work < PARALLEL_WORK {
            self.step_serially();
        } else {
            self.step_in_groups(count.div_ceil(GROUPS));
        }
    }

    /// Halves the batch until a part is one group; every environment has its own stream, so the order does not matter.
    fn step_in_groups(mut self, group: usize) {
        let count = self.slots.len();
        if count <= group {
            return self.step_serially();
        }
        let middle = (count.div_ceil(group) / 2) * group;
        let (left, right) = self.split(middle);
        rayon::join(
            || left.step_in_groups(group),
            || right.step_in_groups(group),
        );
    }

    fn split(&mut self, middle: usize) -> (Batch<'_, T>, Batch<'_, T>) {
        let (length, dim) = (self.length, self.dim);
        let slots = self.slots.split_at_mut(middle);
        let actions = self.actions.split_at(middle);
        let rewards = self.rewards.split_at_mut(middle * dim);
        let outcomes = self.outcomes.split_at_mut(middle);
        let successors = self.successors.split_at_mut(middle * length);
        let current = self.current.split_at_mut(middle * length);
        let successor_states = self.successor_states.split_at_mut(middle);
        let current_states = self.current_states.split_at_mut(middle);
        (
            Batch {
                length,
                dim,
                slots: slots.0,
                actions: actions.0,
                rewards: rewards.0,
                outcomes: outcomes.0,
                successors: successors.0,
                current: current.0,
                successor_states: successor_states.0,
                current_states: current_states.0,
            },
            Batch {
                length,
                dim,
                slots: slots.1,
                actions: actions.1,
                rewards: rewards.1,
                outcomes: outcomes.1,
                successors: successors.1,
                current: current.1,
                successor_states: successor_states.1,
                current_states: current_states.1,
            },
        )
    }

    fn step_serially(self) {
        let rows = self
            .slots
            .iter_mut()
            .zip(self.actions)
            .zip(self.rewards.chunks_exact_mut(self.dim))
            .zip(self.successors.chunks_exact_mut(self.length))
            .zip(self.current.chunks_exact_mut(self.length))
            .zip(&mut *self.outcomes)
            .zip(&mut *self.successor_states)
            .zip(&mut *self.current_states);
        for (((((((slot, action), reward), successor), current), outcome), next), state) in rows {
            let Slot { env, rng } = slot;
            *outcome = env.step(*action, rng, reward, T::wrap(successor));
            *next = table_state(env.as_ref());
            if *outcome == Outcome::Continue {
                current.copy_from_slice(successor);
                *state = *next;
            } else {
                env.reset(rng, T::wrap(current));
                *state = table_state(env.as_ref());
            }
        }
    }
}

#[cfg(test)]
#[path = "vector_tests.rs"]
mod tests;
