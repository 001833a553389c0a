//! How agents see observations and answer with actions.

use pushforward_envs::{ObservationKind, ObservationMut, StreamRng};

use crate::CoreError;

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

/// Something that picks actions for rows of observations: an agent's acting half.
pub trait Actor {
    /// Writes one action per row.
    ///
    /// `observations` is `[rows, length]`; `extra` is `[rows, k]` with C_t (d numbers) and then Γ^t for agents that condition on
    /// the return so far, and empty for the others; `actions` has length `rows`.
    ///
    /// # Errors
    /// If sizes do not fit, or the network's output is not finite.
    fn act(
        &mut self,
        observations: &ObservationBuffer,
        extra: &[f32],
        rows: usize,
        rng: &mut StreamRng,
        actions: &mut [usize],
    ) -> Result<(), CoreError>;
}
