//! A base divergence carried to R^d by its lift: the divergence that agents and the command line use.

use std::cell::RefCell;
use std::fmt::Debug;

use pushforward_envs::StreamRng;
use rayon::prelude::*;

use crate::DivergenceError;
use crate::checks::{
    Buffers, UNWEIGHTED_STATISTIC, check_clouds, check_points, check_sizes, finite, length, rows,
};
use crate::config::{LiftConfig, SearchConfig, Statistic};
use crate::directions::{Directions, Draw};
use crate::divergence::{Divergence, Evaluation, Points};
use crate::kernels::pairs::{self, LaneKernel};
use crate::kernels::radial::Radial;
use crate::kernels::{
    Base, Clouds, Element, Scratch, mmd::ambient, one_direction, search::largest, sliced,
};

/// A base divergence and its lift.
#[derive(Debug)]
pub(crate) struct Lifted {
    pub base: Box<dyn Base>,
    pub lift: LiftConfig,
    /// The kernel on R^d of the lifts `exact` and `none`.
    pub radial: Option<Radial>,
    /// The same, fast to evaluate.
    pub fast: Option<Radial>,
    /// The same in lanes, where it has such a form.
    pub lanes: Option<LaneKernel>,
    pub dimension: usize,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Lifted {
    /// Value and gradient (overwritten) of one pair; `found` receives the direction of a search.
    fn element(
        &self,
        element: &Element<'_>,
        directions: &[f32],
        warm_start: Option<&[f32]>,
        gradient: &mut [f32],
        found: Option<&mut [f32]>,
    ) -> f32 {
        SCRATCH.with_borrow_mut(|scratch| {
            if let (Some(radial), Some(lanes)) = (&self.radial, &self.lanes) {
                let (at_zero, statistic) = (radial.at(0.0).0, self.base.statistic());
                let value = pairs::ambient(lanes, at_zero, statistic, element, scratch, gradient);
                // Squares of very large coordinates leave f32; those pairs are computed in f64 below.
                if value.is_finite() {
                    return value as f32;
                }
            }
            if let Some(radial) = &self.fast {
                scratch.load(element);
                scratch.gradient.resize(gradient.len(), 0.0);
                let Scratch {
                    points,
                    gradient: exact,
                    ..
                } = scratch;
                let value = ambient(points, self.dimension, radial, self.base.statistic(), exact);
                for (out, g) in gradient.iter_mut().zip(exact.iter()) {
                    *out = *g as f32;
                }
                return value as f32;
            }
            let LiftConfig::Max { search } = &self.lift else {
                return sliced(self.base.as_ref(), element, directions, scratch, gradient) as f32;
            };
            let value = self.search(element, directions, warm_start, search, scratch);
            let best = std::mem::take(&mut scratch.best);
            scratch.gradient.clear();
            scratch.gradient.resize(gradient.len(), 0.0);
            let Scratch {
                line,
                points,
                projected,
                gradient_line,
                gradient: sum,
                ..
            } = scratch;
            one_direction(
                self.base.as_ref(),
                points,
                &best,
                projected,
                line,
                gradient_line,
                Some(sum),
            );
            for (out, g) in gradient.iter_mut().zip(sum.iter()) {
                *out = *g as f32;
            }
            if let Some(found) = found {
                for (out, b) in found.iter_mut().zip(&best) {
                    *out = *b as f32;
                }
            }
            scratch.best = best;
            value as f32
        })
    }

    /// Leaves the best direction in `scratch.best`.
    fn search(
        &self,
        element: &Element<'_>,
        directions: &[f32],
        warm_start: Option<&[f32]>,
        search: &SearchConfig,
        scratch: &mut Scratch,
    ) -> f64 {
        scratch.load(element);
        scratch.starts.clear();
        let starts = directions.iter().chain(warm_start.into_iter().flatten());
        scratch.starts.extend(starts.map(|&v| f64::from(v)));
        for start in scratch.starts.chunks_exact_mut(self.dimension) {
            normalise(start);
        }
        largest(self.base.as_ref(), search, self.dimension, scratch)
    }

    pub(crate) fn check_directions(
        &self,
        directions: &Directions,
        batch: usize,
    ) -> Result<(), DivergenceError> {
        length(
            "dimension of the directions",
            directions.dimension(),
            self.dimension,
        )?;
        if let Some(own) = directions.batch() {
            length("batch of the directions", own, batch)?;
        }
        self.check_count(directions.count())
    }

    fn check_count(&self, count: usize) -> Result<(), DivergenceError> {
        let needs_some = match &self.lift {
            LiftConfig::Uniform { .. } | LiftConfig::Marginal => true,
            LiftConfig::Max { search } => matches!(search, SearchConfig::Ascent { .. }),
            LiftConfig::Exact | LiftConfig::None => false,
        };
        if needs_some && count == 0 {
            return Err(DivergenceError::Shape {
                what: "directions",
                got: "0".into(),
                expected: "at least 1".into(),
            });
        }
        Ok(())
    }

    fn refuses_weights(&self) -> Option<&'static str> {
        (self.base.statistic() == Statistic::U).then_some(UNWEIGHTED_STATISTIC)
    }
}

fn normalise(vector: &mut [f64]) {
    let norm = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
    if norm > 0.0 {
        vector.iter_mut().for_each(|v| *v /= norm);
    }
}

impl Divergence for Lifted {
    fn dimension(&self) -> usize {
        self.dimension
    }

    fn exponent(&self) -> f64 {
        self.base.exponent()
    }

    fn draw(&self, batch: usize, rng: &mut StreamRng) -> Directions {
        let d = self.dimension;
        match &self.lift {
            LiftConfig::Uniform {
                directions,
                draw,
                per_element,
            } => Directions::draw(*draw, *directions, d, per_element.then_some(batch), rng),
            LiftConfig::Marginal => Directions::axes(d),
            LiftConfig::Max {
                search: SearchConfig::Ascent { starts, .. },
            } => Directions::draw(Draw::Iid, *starts, d, Some(batch), rng),
            LiftConfig::Max { .. } | LiftConfig::Exact | LiftConfig::None => Directions::none(d),
        }
    }

    fn check_sizes(&self, predicted: usize, target: usize) -> Result<(), DivergenceError> {
        check_sizes(self.base.statistic(), predicted, target)
    }

    fn value_and_gradient(
        &self,
        clouds: &Clouds<'_>,
        directions: &Directions,
        start: Option<&[f32]>,
        values: &mut [f32],
        gradient: &mut [f32],
        found: Option<&mut [f32]>,
    ) -> Result<(), DivergenceError> {
        let buffers = Buffers {
            values: values.len(),
            gradient: gradient.len(),
        };
        check_clouds(self, self.refuses_weights(), clouds, buffers)?;
        let d = self.dimension;
        if let Some(start) = start {
            length("warm start", start.len(), d)?;
            finite("warm start", start)?;
        }
        self.check_directions(directions, clouds.shape.batch)?;
        let size = clouds.shape.predicted * d;
        let rows = values
            .par_iter_mut()
            .zip(gradient.par_chunks_exact_mut(size))
            .enumerate();
        let compute = |index: usize, value: &mut f32, gradient: &mut [f32], found| {
            let element = clouds.element(index);
            *value = self.element(&element, directions.of(index), start, gradient, found);
        };
        if let Some(found) = found {
            length("found directions", found.len(), rows.len() * d)?;
            rows.zip(found.par_chunks_exact_mut(d)).for_each(
                |((index, (value, gradient)), found)| {
                    compute(index, value, gradient, Some(found));
                },
            );
        } else {
            rows.for_each(|(index, (value, gradient))| compute(index, value, gradient, None));
        }
        Ok(())
    }

    fn shared_start(&self, clouds: &Clouds<'_>, found: &[f32]) -> Option<Vec<f32>> {
        if !matches!(self.lift, LiftConfig::Max { .. }) || clouds.shape.batch == 0 {
            return None;
        }
        let batch = clouds.shape.batch;
        let candidates = batch.min(16);
        let rows: Vec<&[f32]> = (0..candidates)
            .map(|k| {
                let index = k * batch / candidates;
                &found[index * self.dimension..(index + 1) * self.dimension]
            })
            .collect();
        let means: Vec<f64> = rows
            .par_iter()
            .map(|row| {
                SCRATCH.with_borrow_mut(|scratch| {
                    (0..batch)
                        .map(|index| {
                            scratch.load(&clouds.element(index));
                            let Scratch {
                                line,
                                points,
                                projected,
                                gradient_line,
                                ..
                            } = scratch;
                            let base = self.base.as_ref();
                            one_direction(base, points, row, projected, line, gradient_line, None)
                        })
                        .sum()
                })
            })
            .collect();
        let best = (1..candidates).fold(0, |best, k| if means[k] > means[best] { k } else { best });
        Some(rows[best].to_vec())
    }

    fn evaluate(
        &self,
        predicted: &Points<'_>,
        target: &Points<'_>,
        directions: &[f64],
    ) -> Result<Evaluation, DivergenceError> {
        let d = self.dimension;
        let mut scratch = Scratch::default();
        let (n, m) = check_points(self, self.refuses_weights(), predicted, target)?;
        rows("directions", directions.len(), d)?;
        finite("directions", directions)?;
        self.check_count(directions.len() / d)?;
        scratch.points.x.extend_from_slice(predicted.points);
        scratch.points.y.extend_from_slice(target.points);
        scratch
            .points
            .set_masses(n, m, predicted.weights, target.weights);

        let base = self.base.as_ref();
        let mut gradient = vec![0.0; n * d];
        if let Some(radial) = &self.radial {
            let value = ambient(&scratch.points, d, radial, base.statistic(), &mut gradient);
            return Ok(Evaluation::without_directions(
                value,
                base.exponent(),
                gradient,
            ));
        }
        let mut searched = None;
        if let LiftConfig::Max { search } = &self.lift {
            scratch.starts.extend_from_slice(directions);
            scratch.starts.chunks_exact_mut(d).for_each(normalise);
            let value = largest(base, search, d, &mut scratch);
            searched = Some((value, scratch.best.clone()));
        }
        let Scratch {
            line,
            points,
            projected,
            gradient_line,
            ..
        } = &mut scratch;
        if let Some((value, best)) = searched {
            one_direction(
                base,
                points,
                &best,
                projected,
                line,
                gradient_line,
                Some(&mut gradient),
            );
            return Ok(self.evaluation(value, Vec::new(), Some(best), gradient));
        }
        let per_direction: Vec<f64> = directions
            .chunks_exact(d)
            .map(|direction| {
                one_direction(
                    base,
                    points,
                    direction,
                    projected,
                    line,
                    gradient_line,
                    Some(&mut gradient),
                )
            })
            .collect();
        let count = per_direction.len() as f64;
        gradient.iter_mut().for_each(|g| *g /= count);
        let value = per_direction.iter().sum::<f64>() / count;
        Ok(self.evaluation(value, per_direction, None, gradient))
    }

    #[cfg(feature = "tensor")]
    fn loss_from(
        &self,
        predicted: &crate::Cloud,
        target: &crate::Cloud,
        directions: &Directions,
        warm_start: &mut Option<Vec<f32>>,
        path: crate::Path,
    ) -> Result<tch::Tensor, DivergenceError> {
        crate::tensor::loss(self, predicted, target, directions, warm_start, path)
    }
}

impl Lifted {
    fn evaluation(
        &self,
        value: f64,
        per_direction: Vec<f64>,
        direction: Option<Vec<f64>>,
        gradient: Vec<f64>,
    ) -> Evaluation {
        let count = per_direction.len() as f64;
        let squares: f64 = per_direction
            .iter()
            .map(|v| (v - value) * (v - value))
            .sum();
        Evaluation {
            standard_error: (count > 1.0).then(|| (squares / (count * (count - 1.0))).sqrt()),
            direction,
            per_direction,
            ..Evaluation::without_directions(value, self.base.exponent(), gradient)
        }
    }
}
