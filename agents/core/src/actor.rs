//! How agents see observations and answer with actions.

use pushforward_envs::{ObservationBuffer, StreamRng};

use crate::CoreError;

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
