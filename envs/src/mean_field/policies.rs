//! Policies as tables of probabilities.

use crate::EnvError;

use super::game::GameSpec;
use super::real::Real;

/// Policies π_t(a|s) for every step of E paths, borrowed: `[S, A]` or `[E, S, A]` per step, for one step (then the same at all times) or T.
#[derive(Clone, Debug)]
pub struct Policies<'a, R = f32> {
    steps: Vec<&'a [R]>,
    paths: usize,
    /// S·A.
    row: usize,
}

impl<'a, R: Real> Policies<'a, R> {
    /// Policies of `paths` paths from one table per step, or one table for all steps.
    ///
    /// # Errors
    /// [`EnvError::Game`] if the number of tables is neither 1 nor T, or a table is neither `[S, A]` nor `[E, S, A]`.
    pub fn new(spec: &GameSpec, paths: usize, steps: Vec<&'a [R]>) -> Result<Self, EnvError> {
        let row = spec.states * spec.actions();
        if steps.len() != 1 && steps.len() != spec.horizon {
            let message = format!(
                "policies for {} steps, expected 1 or T = {}",
                steps.len(),
                spec.horizon
            );
            return Err(EnvError::game(&spec.name, message));
        }
        for (time, step) in steps.iter().enumerate() {
            check_step(spec, paths, step.len())
                .map_err(|error| EnvError::game(&spec.name, format!("step {time}: {error}")))?;
        }
        Ok(Self { steps, paths, row })
    }

    /// Policies from one array `[T, E, S, A]` or `[T, S, A]`.
    ///
    /// # Errors
    /// [`EnvError::Game`] if the length does not fit.
    pub fn from_array(spec: &GameSpec, paths: usize, array: &'a [R]) -> Result<Self, EnvError> {
        let step = (array.len() / spec.horizon).max(1);
        Self::new(spec, paths, array.chunks(step).collect())
    }

    /// Number E of paths.
    pub fn paths(&self) -> usize {
        self.paths
    }

    /// π_t of one path, `[S, A]`.
    #[inline]
    pub fn at(&self, time: usize, path: usize) -> &'a [R] {
        let step = self.steps[if self.steps.len() == 1 { 0 } else { time }];
        of_path(step, path, self.row)
    }
}

/// The part of a step's table `[S, A]` or `[E, S, A]` that belongs to a path; `row` = S·A.
#[inline]
pub(crate) fn of_path<R>(step: &[R], path: usize, row: usize) -> &[R] {
    if step.len() == row {
        step
    } else {
        &step[path * row..][..row]
    }
}

/// Checks that a step's table has S·A or E·S·A entries.
pub(crate) fn check_step(spec: &GameSpec, paths: usize, length: usize) -> Result<(), String> {
    let row = spec.states * spec.actions();
    if length == row || length == paths * row {
        return Ok(());
    }
    Err(format!(
        "a policy of {length} probabilities, expected S x A = {row} or E x S x A = {}",
        paths * row
    ))
}
