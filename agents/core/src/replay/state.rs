//! Saving and loading a replay buffer: only the filled part, and everything that decides the next draws.

use std::io::{self, Read, Write};

use pushforward_envs::ObservationKind;

use super::{Replay, Ring, Slot, SumTree};
use crate::{CoreError, ObservationBuffer};

/// First bytes of the format, with its version.
const MAGIC: &[u8; 8] = b"PFREPLA1";

/// Elements converted at a time.
const CHUNK: usize = 8192;

impl Replay {
    /// Writes the complete state, little-endian.
    ///
    /// # Errors
    /// What `out` says.
    pub fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        put(out, &self.layout(), u64::to_le_bytes)?;
        put(out, &[u64::from(self.started)], u64::to_le_bytes)?;
        put(out, &[self.largest_weight], f64::to_le_bytes)?;
        for (environment, ring) in self.rings.iter().enumerate() {
            put(out, &[ring.head, ring.start], u64::to_le_bytes)?;
            let first = environment * self.slots;
            let count = self.filled(environment);
            let range = |width: usize| first * width..(first + count) * width;
            match &self.observations {
                ObservationBuffer::F32(all) => {
                    put(out, &all[range(self.shape.length)], f32::to_le_bytes)?;
                }
                ObservationBuffer::U8(all) => out.write_all(&all[range(self.shape.length)])?,
            }
            put(out, &self.extra[range(self.shape.extra)], f32::to_le_bytes)?;
            put(
                out,
                &self.rewards[range(self.shape.reward_dim)],
                f32::to_le_bytes,
            )?;
            put(out, &self.actions[range(1)], u32::to_le_bytes)?;
            put(out, &self.table_states[range(1)], u32::to_le_bytes)?;
            put(out, &self.kinds[range(1)], |kind| [kind as u8])?;
            if let Some(tree) = &self.tree {
                put(out, tree.leaves(first, count), f64::to_le_bytes)?;
            }
        }
        Ok(())
    }

    /// Replaces the contents by a state written by [`Replay::save`]; draws then go on exactly as they would have.
    ///
    /// # Errors
    /// [`CoreError::Replay`] if the state is broken or was saved with other sizes; after an error the buffer must not be used.
    pub fn load(&mut self, input: &mut dyn Read) -> Result<(), CoreError> {
        let broken = |error: io::Error| CoreError::Replay(format!("saved state: {error}"));
        let mut magic = [0; 8];
        input.read_exact(&mut magic).map_err(broken)?;
        if &magic != MAGIC {
            return Err(CoreError::Replay("saved state: not a replay file".into()));
        }
        let expected = self.layout();
        let mut layout = expected;
        get(input, &mut layout, u64::from_le_bytes).map_err(broken)?;
        if layout != expected {
            return Err(CoreError::Replay(format!(
                "saved state for [environments, slots, observation length, bytes per element, d, extra, prioritised, n] = {layout:?}, expected {expected:?}"
            )));
        }
        let mut started = [0_u64];
        get(input, &mut started, u64::from_le_bytes).map_err(broken)?;
        self.started = started[0] != 0;
        let mut weight = [0.0];
        get(input, &mut weight, f64::from_le_bytes).map_err(broken)?;
        self.largest_weight = weight[0];
        if let Some(tree) = &mut self.tree {
            *tree = SumTree::new(self.slots * self.shape.environments);
        }
        for environment in 0..self.shape.environments {
            self.load_ring(environment, input)?;
        }
        if let Some(tree) = &mut self.tree {
            tree.rebuild();
        }
        self.ready = (0..self.shape.environments)
            .map(|environment| {
                (0..self.filled(environment) as u64)
                    .filter(|&k| self.is_ready(environment, self.oldest(environment) + k))
                    .count() as u64
            })
            .sum();
        Ok(())
    }

    fn load_ring(&mut self, environment: usize, input: &mut dyn Read) -> Result<(), CoreError> {
        let broken = |error: io::Error| CoreError::Replay(format!("saved state: {error}"));
        let mut cursors = [0_u64; 2];
        get(input, &mut cursors, u64::from_le_bytes).map_err(broken)?;
        let [head, start] = cursors;
        if start > head {
            return Err(CoreError::Replay(format!(
                "saved state: environment {environment} has its episode's start {start} after its newest observation {head}"
            )));
        }
        self.rings[environment] = Ring { head, start };
        let first = environment * self.slots;
        let count = self.filled(environment);
        let range = |width: usize| first * width..(first + count) * width;
        let (length, extra, dim) = (self.shape.length, self.shape.extra, self.shape.reward_dim);
        match &mut self.observations {
            ObservationBuffer::F32(all) => {
                get(input, &mut all[range(length)], f32::from_le_bytes).map_err(broken)?;
            }
            ObservationBuffer::U8(all) => {
                input.read_exact(&mut all[range(length)]).map_err(broken)?
            }
        }
        get(input, &mut self.extra[range(extra)], f32::from_le_bytes).map_err(broken)?;
        get(input, &mut self.rewards[range(dim)], f32::from_le_bytes).map_err(broken)?;
        get(input, &mut self.actions[range(1)], u32::from_le_bytes).map_err(broken)?;
        get(input, &mut self.table_states[range(1)], u32::from_le_bytes).map_err(broken)?;
        let mut kinds = vec![0_u8; count];
        input.read_exact(&mut kinds).map_err(broken)?;
        for (slot, kind) in self.kinds[range(1)].iter_mut().zip(kinds) {
            *slot = match kind {
                0 => Slot::Continue,
                1 => Slot::Terminated,
                2 => Slot::Truncated,
                3 => Slot::Final,
                4 => Slot::Open,
                _ => {
                    return Err(CoreError::Replay(format!(
                        "saved state: step kind {kind}, expected 0 to 4"
                    )));
                }
            };
        }
        if let Some(tree) = &mut self.tree {
            let mut weights = vec![0.0; count];
            get(input, &mut weights, f64::from_le_bytes).map_err(broken)?;
            if let Some(weight) = weights
                .iter()
                .find(|weight| !weight.is_finite() || **weight < 0.0)
            {
                return Err(CoreError::Replay(format!(
                    "saved state: weight {weight}, expected a finite number of at least 0"
                )));
            }
            tree.set_leaves(first, &weights);
        }
        Ok(())
    }

    fn layout(&self) -> [u64; 8] {
        [
            self.shape.environments as u64,
            self.slots as u64,
            self.shape.length as u64,
            match self.shape.kind {
                ObservationKind::F32 => 4,
                ObservationKind::U8 => 1,
            },
            self.shape.reward_dim as u64,
            self.shape.extra as u64,
            u64::from(self.tree.is_some()),
            self.config.n_step as u64,
        ]
    }
}

/// Writes values through a buffer of fixed size, so that saving takes no memory to speak of.
fn put<T: Copy, const N: usize>(
    out: &mut dyn Write,
    values: &[T],
    encode: impl Fn(T) -> [u8; N],
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(CHUNK.min(values.len()) * N);
    for chunk in values.chunks(CHUNK) {
        buffer.clear();
        for &value in chunk {
            buffer.extend_from_slice(&encode(value));
        }
        out.write_all(&buffer)?;
    }
    Ok(())
}

/// Reads what [`put`] wrote.
fn get<T, const N: usize>(
    input: &mut dyn Read,
    values: &mut [T],
    decode: impl Fn([u8; N]) -> T,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK.min(values.len()) * N];
    for chunk in values.chunks_mut(CHUNK) {
        let bytes = &mut buffer[..chunk.len() * N];
        input.read_exact(bytes)?;
        for (value, bytes) in chunk.iter_mut().zip(bytes.as_chunks::<N>().0) {
            *value = decode(*bytes);
        }
    }
    Ok(())
}
