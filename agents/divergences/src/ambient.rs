//! Divergences that are computed on R^d itself, without directions.

use std::cell::RefCell;
use std::fmt::Debug;

use pushforward_envs::StreamRng;
use rayon::prelude::*;

use crate::DivergenceError;
use crate::checks::{Buffers, check_clouds, check_points, check_sizes};
use crate::config::Statistic;
use crate::directions::Directions;
use crate::divergence::{Divergence, Evaluation, Points};
use crate::kernels::magnitude::MagnitudeRoom;
use crate::kernels::sinkhorn::SinkhornRoom;
use crate::kernels::{Clouds, SampleBuffers, Scratch};

/// A divergence of two weighted clouds of R^d in f64.
pub(crate) trait Ambient: Debug + Send + Sync {
    /// p, such that values are p-th powers of a distance.
    fn exponent(&self) -> f64;

    /// Biased or unbiased self terms.
    fn statistic(&self) -> Statistic {
        Statistic::V
    }

    /// Why weights make no sense, where they make none.
    fn refuses_weights(&self) -> Option<&'static str> {
        None
    }

    /// Whether it is too slow to train on.
    fn evaluation_only(&self) -> bool {
        false
    }

    /// Sizes beyond what the statistic needs.
    fn check_sizes(&self, _predicted: usize, _target: usize) -> Result<(), DivergenceError> {
        Ok(())
    }

    /// Value and gradient (overwritten) in x.
    fn value_and_gradient(
        &self,
        points: &SampleBuffers,
        dimension: usize,
        room: &mut Room,
        gradient: &mut [f64],
    ) -> f64;
}

/// Working memory of one thread, kept between calls.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub sinkhorn: SinkhornRoom,
    pub magnitude: MagnitudeRoom,
}

thread_local! {
    static ROOM: RefCell<(Scratch, Room)> = RefCell::default();
}

/// An [`Ambient`] divergence as agents and the command line use it.
#[derive(Debug)]
pub(crate) struct Unsliced {
    pub inner: Box<dyn Ambient>,
    pub dimension: usize,
}

impl Divergence for Unsliced {
    fn dimension(&self) -> usize {
        self.dimension
    }

    fn exponent(&self) -> f64 {
        self.inner.exponent()
    }

    fn draw(&self, _batch: usize, _rng: &mut StreamRng) -> Directions {
        Directions::none(self.dimension)
    }

    fn check_sizes(&self, predicted: usize, target: usize) -> Result<(), DivergenceError> {
        check_sizes(self.inner.statistic(), predicted, target)?;
        self.inner.check_sizes(predicted, target)
    }

    fn value_and_gradient(
        &self,
        clouds: &Clouds<'_>,
        _directions: &Directions,
        _start: Option<&[f32]>,
        values: &mut [f32],
        gradient: &mut [f32],
        _found: Option<&mut [f32]>,
    ) -> Result<(), DivergenceError> {
        if self.inner.evaluation_only() {
            return Err(DivergenceError::Setting(
                "exact transport is for evaluation only, expected sinkhorn or a sliced divergence as a loss".into(),
            ));
        }
        let buffers = Buffers {
            values: values.len(),
            gradient: gradient.len(),
        };
        check_clouds(self, self.refuses_weights(), clouds, buffers)?;
        let size = clouds.shape.predicted * self.dimension;
        values
            .par_iter_mut()
            .zip(gradient.par_chunks_exact_mut(size))
            .enumerate()
            .for_each(|(index, (value, gradient))| {
                ROOM.with_borrow_mut(|(scratch, room)| {
                    scratch.load(&clouds.element(index));
                    scratch.gradient.resize(gradient.len(), 0.0);
                    let Scratch {
                        points,
                        gradient: exact,
                        ..
                    } = scratch;
                    *value = self
                        .inner
                        .value_and_gradient(points, self.dimension, room, exact)
                        as f32;
                    for (out, g) in gradient.iter_mut().zip(exact.iter()) {
                        *out = *g as f32;
                    }
                });
            });
        Ok(())
    }

    fn shared_start(&self, _clouds: &Clouds<'_>, _found: &[f32]) -> Option<Vec<f32>> {
        None
    }

    fn evaluate(
        &self,
        predicted: &Points<'_>,
        target: &Points<'_>,
        _directions: &[f64],
    ) -> Result<Evaluation, DivergenceError> {
        let (n, m) = check_points(self, self.refuses_weights(), predicted, target)?;
        let mut points = SampleBuffers::default();
        points.x.extend_from_slice(predicted.points);
        points.y.extend_from_slice(target.points);
        points.set_masses(n, m, predicted.weights, target.weights);
        let mut gradient = vec![0.0; predicted.points.len()];
        let value = ROOM.with_borrow_mut(|(_, room)| {
            self.inner
                .value_and_gradient(&points, self.dimension, room, &mut gradient)
        });
        Ok(Evaluation::without_directions(
            value,
            self.exponent(),
            gradient,
        ))
    }

    #[cfg(feature = "tensor")]
    fn loss_from(
        &self,
        predicted: &crate::Cloud,
        target: &crate::Cloud,
        directions: &Directions,
        warm_start: &mut Option<Vec<f32>>,
        _path: crate::Path,
    ) -> Result<tch::Tensor, DivergenceError> {
        crate::tensor::kernel_loss(self, predicted, target, directions, warm_start, false)
            .map(|(loss, _)| loss)
    }
}

impl Unsliced {
    fn refuses_weights(&self) -> Option<&'static str> {
        match self.inner.statistic() {
            Statistic::U => Some(crate::checks::UNWEIGHTED_STATISTIC),
            Statistic::V => self.inner.refuses_weights(),
        }
    }
}
