//! What the sampler hands to a learner.

use pushforward_envs::ObservationKind;

use crate::ObservationBuffer;

/// `size` sampled transitions, each an n-step window of one episode; the buffers are reused from draw to draw.
///
/// With m <= n the number of steps in a window, a target return is
/// `rewards + bootstrap · Z(next_observations, ·)`, that is R_0 + Γ R_1 + … + Γ^(m-1) R_(m-1) + Γ^m Z.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Number of transitions B.
    pub size: usize,
    /// Observations s, `[B, length]`.
    pub observations: ObservationBuffer,
    /// C_t and Γ^t that belong to `observations`, `[B, k]`; empty unless the agent conditions on the return so far.
    pub extra: Vec<f32>,
    /// Actions taken in s, `[B]`.
    pub actions: Vec<i64>,
    /// Σ_{k<m} Γ^k R_k, `[B, d]`.
    pub rewards: Vec<f32>,
    /// Γ^m, or zero if the window ended in termination, `[B, d, d]` by rows.
    pub bootstrap: Vec<f32>,
    /// True successor observations m steps later, `[B, length]`.
    pub next_observations: ObservationBuffer,
    /// C and the power of Γ that belong to `next_observations`, `[B, k]`.
    pub next_extra: Vec<f32>,
    /// Index of the successor for policies that are tables, `[B]`; 0 where the environment has none.
    pub next_table_state: Vec<u32>,
    /// Importance weights, at most 1, `[B]`; all 1 for uniform replay.
    pub weights: Vec<f32>,
    /// Names of the transitions, for [`crate::Replay::update_priorities`], `[B]`.
    pub indices: Vec<u64>,
}

impl Batch {
    /// An empty batch of observations of this type.
    pub fn new(kind: ObservationKind) -> Self {
        Self {
            size: 0,
            observations: ObservationBuffer::zeros(kind, 0),
            extra: Vec::new(),
            actions: Vec::new(),
            rewards: Vec::new(),
            bootstrap: Vec::new(),
            next_observations: ObservationBuffer::zeros(kind, 0),
            next_extra: Vec::new(),
            next_table_state: Vec::new(),
            weights: Vec::new(),
            indices: Vec::new(),
        }
    }

    /// Takes memory for `size` transitions; nothing is allocated if that many were held before.
    pub(crate) fn resize(&mut self, size: usize, length: usize, dim: usize, extra: usize) {
        self.size = size;
        self.observations.resize(size * length);
        self.extra.resize(size * extra, 0.0);
        self.actions.resize(size, 0);
        self.rewards.resize(size * dim, 0.0);
        self.bootstrap.resize(size * dim * dim, 0.0);
        self.next_observations.resize(size * length);
        self.next_extra.resize(size * extra, 0.0);
        self.next_table_state.resize(size, 0);
        self.weights.resize(size, 1.0);
        self.indices.resize(size, 0);
    }
}
