//! The interface between environments and everything that steps them.

use serde::{Deserialize, Serialize};

use crate::{EnvError, StreamRng};

/// Element type of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservationKind {
    /// 32-bit floats, flat or as planes.
    F32,
    /// Bytes, for images in height x width x channels order.
    U8,
}

/// Shape, element type and bounds of an observation.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservationSpec {
    /// Axis lengths, row-major; images are `[height, width, channels]`, grids `[planes, height, width]`, feature vectors `[length]`.
    pub shape: Vec<usize>,
    /// Element type.
    pub kind: ObservationKind,
    /// Smallest value that any element can take.
    pub low: f32,
    /// Largest value that any element can take.
    pub high: f32,
}

impl ObservationSpec {
    /// Number of elements, the product of the shape.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the observation has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One constraint on a coordinate of the discounted return from the start of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    /// Coordinate of the return that is constrained.
    pub dim: usize,
    /// Whether the coordinate must stay below or exceed the value.
    pub op: ConstraintOp,
    /// The threshold, in units of return.
    pub value: f64,
}

/// Direction of a [`Constraint`]; both are strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConstraintOp {
    /// The coordinate must be less than the value.
    #[serde(rename = "<")]
    Less,
    /// The coordinate must be greater than the value.
    #[serde(rename = ">")]
    Greater,
}

impl Constraint {
    /// Signed slack of a return: positive exactly where the constraint holds.
    ///
    /// ```
    /// use pushforward_envs::{Constraint, ConstraintOp};
    /// let constraint = Constraint { dim: 1, op: ConstraintOp::Greater, value: 0.7 };
    /// assert!((constraint.slack(&[0.0, 1.0]) - 0.3).abs() < 1e-12);
    /// ```
    pub fn slack(&self, discounted_return: &[f64]) -> f64 {
        match self.op {
            ConstraintOp::Less => self.value - discounted_return[self.dim],
            ConstraintOp::Greater => discounted_return[self.dim] - self.value,
        }
    }
}

/// What an environment is, fixed for its life.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvSpec {
    /// Registry name, such as `maze/exclusive`.
    pub name: String,
    /// Observation shape, type and bounds.
    pub observation: ObservationSpec,
    /// A name for each action; its length is the number of actions.
    pub action_names: Vec<String>,
    /// Length d of the reward vector.
    pub reward_dim: usize,
    /// Steps after which an episode is truncated, if there is a time limit.
    pub max_steps: Option<usize>,
    /// Constraints on the discounted return that come with the environment (empty for most).
    pub constraints: Vec<Constraint>,
}

impl EnvSpec {
    /// Number of actions.
    pub fn actions(&self) -> usize {
        self.action_names.len()
    }
}

/// Where an observation is written; a mismatch with the environment's [`ObservationKind`] or length is a programming error and panics.
pub enum ObservationMut<'a> {
    /// Nowhere: the caller does not look (ground-truth simulation).
    Skip,
    /// A buffer of floats of the observation's length.
    F32(&'a mut [f32]),
    /// A buffer of bytes of the observation's length.
    U8(&'a mut [u8]),
}

/// How a step left the episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The episode goes on.
    Continue,
    /// The process itself ended: the return after this step is zero.
    Terminated,
    /// A time limit ended the episode: the return after this step is not zero, and a target bootstraps through it.
    Truncated,
}

/// An RGB picture, height x width x 3 bytes, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// `height * width * 3` bytes.
    pub rgb: Vec<u8>,
}

/// An environment with a vector reward.
///
/// Dynamics draw from the generator that they are given and from nothing else, so a trajectory is a function of the stream and the
/// actions. No step allocates. Stepping on after `Truncated` is allowed (time goes on and every further step is `Truncated`);
/// stepping after `Terminated` without a reset is a programming error.
pub trait Env: Send {
    /// The environment's fixed description.
    fn spec(&self) -> &EnvSpec;

    /// Starts a new episode and writes its first observation.
    fn reset(&mut self, rng: &mut StreamRng, observation: ObservationMut<'_>);

    /// Takes `action`, writes the reward vector and the true successor's observation (also at the end of an episode).
    fn step(
        &mut self,
        action: usize,
        rng: &mut StreamRng,
        reward: &mut [f32],
        observation: ObservationMut<'_>,
    ) -> Outcome;

    /// Writes the observation of the current state.
    fn observe(&mut self, observation: ObservationMut<'_>);

    /// Appends the complete dynamic state to `bytes`.
    fn save(&self, bytes: &mut Vec<u8>);

    /// Restores a state written by [`Env::save`] of an environment with the same specification.
    ///
    /// # Errors
    /// [`EnvError::State`] if the bytes are not such a state; the environment is then unchanged.
    fn load(&mut self, bytes: &[u8]) -> Result<(), EnvError>;

    /// Whether no reward can ever come again although the episode has not ended (for example, boxed in with no legal move).
    fn absorbed(&self) -> bool {
        false
    }

    /// Index of the current state for policies that are tables, and the number of such states; `None` where there is no small index.
    fn table_state(&self) -> Option<(usize, usize)> {
        None
    }

    /// A picture of the current state for people, where there is one.
    fn picture(&mut self) -> Option<Picture> {
        None
    }
}
