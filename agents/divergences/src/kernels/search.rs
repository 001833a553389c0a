//! The direction of largest divergence: projected gradient ascent on the sphere, or a grid of angles.

use super::{Base, Line, LineScratch, SampleBuffers, Scratch};
use crate::config::SearchConfig;

/// Working memory of a search.
#[derive(Debug, Default)]
pub(crate) struct SearchScratch {
    x: Vec<f64>,
    y: Vec<f64>,
    gradient_x: Vec<f64>,
    gradient_y: Vec<f64>,
    slope: Vec<f64>,
    trial: Vec<f64>,
    trial_slope: Vec<f64>,
    current: Vec<f64>,
}

/// Fills `scratch.best` with the best direction found for the points in `scratch` and gives its value.
///
/// `scratch.starts` holds rows of d numbers, each of length 1. An ascent moves along the gradient's tangent by an angle that is halved whenever the
/// value does not climb, so the result is never below the best start.
pub(crate) fn largest(
    base: &dyn Base,
    search: &SearchConfig,
    dimension: usize,
    scratch: &mut Scratch,
) -> f64 {
    let Scratch {
        line,
        points,
        search: own,
        starts,
        best,
        ..
    } = scratch;
    // Stands where no value is a number, for points whose projections overflow.
    best.clear();
    best.resize(dimension, 0.0);
    best[0] = 1.0;
    let mut best_value = f64::NEG_INFINITY;
    let mut offer = |value: f64, direction: &[f64]| {
        if value > best_value {
            best_value = value;
            best.clear();
            best.extend_from_slice(direction);
        }
    };
    if let SearchConfig::Grid { angles } = search {
        for k in 0..*angles {
            let (sin, cos) = (k as f64 * std::f64::consts::PI / *angles as f64).sin_cos();
            let value = slope_along(base, points, &[cos, sin], line, own, false);
            offer(value, &[cos, sin]);
        }
    }
    for start in starts.chunks_exact(dimension) {
        let mut value = slope_along(base, points, start, line, own, true);
        let SearchConfig::Ascent {
            steps, step_size, ..
        } = search
        else {
            offer(value, start);
            continue;
        };
        own.current.clear();
        own.current.extend_from_slice(start);
        std::mem::swap(&mut own.slope, &mut own.trial_slope);
        let mut angle = *step_size;
        for _ in 0..*steps {
            if !tangent_step(own, angle) {
                break;
            }
            let trial = std::mem::take(&mut own.trial);
            let trial_value = slope_along(base, points, &trial, line, own, true);
            own.trial = trial;
            if trial_value > value {
                value = trial_value;
                std::mem::swap(&mut own.current, &mut own.trial);
                std::mem::swap(&mut own.slope, &mut own.trial_slope);
            } else {
                angle *= 0.5;
            }
        }
        offer(value, &own.current);
    }
    best_value
}

/// `trial` = `current` turned by `angle` towards its tangential slope; false where that slope vanishes.
fn tangent_step(scratch: &mut SearchScratch, angle: f64) -> bool {
    let SearchScratch {
        current,
        slope,
        trial,
        ..
    } = scratch;
    let along: f64 = slope.iter().zip(current.iter()).map(|(g, t)| g * t).sum();
    trial.clear();
    trial.extend(slope.iter().zip(current.iter()).map(|(g, t)| g - along * t));
    let norm = trial.iter().map(|v| v * v).sum::<f64>().sqrt();
    if norm.is_nan() || norm < 1e-300 {
        return false;
    }
    let (sin, cos) = angle.sin_cos();
    for (t, c) in trial.iter_mut().zip(current.iter()) {
        *t = cos * c + sin * *t / norm;
    }
    let length = trial.iter().map(|v| v * v).sum::<f64>().sqrt();
    trial.iter_mut().for_each(|t| *t /= length);
    true
}

/// The value along `direction`, and with `slope` its derivative in the direction's coordinates into `trial_slope`.
fn slope_along(
    base: &dyn Base,
    points: &SampleBuffers,
    direction: &[f64],
    line: &mut LineScratch,
    scratch: &mut SearchScratch,
    slope: bool,
) -> f64 {
    let d = direction.len();
    let SearchScratch {
        x,
        y,
        gradient_x,
        gradient_y,
        trial_slope,
        ..
    } = scratch;
    super::project(x, &points.x, direction);
    super::project(y, &points.y, direction);
    gradient_x.clear();
    gradient_x.resize(x.len(), 0.0);
    gradient_y.clear();
    gradient_y.resize(y.len(), 0.0);
    let samples = Line {
        x,
        y,
        mass_x: &points.mass_x,
        mass_y: &points.mass_y,
        total: points.total,
    };
    let value = base.line(
        &samples,
        line,
        gradient_x,
        slope.then_some(&mut gradient_y[..]),
    );
    if slope {
        trial_slope.clear();
        trial_slope.resize(d, 0.0);
        for (cloud, gradient) in [(&points.x, gradient_x), (&points.y, gradient_y)] {
            for (point, g) in cloud.chunks_exact(d).zip(gradient.iter()) {
                for (out, p) in trial_slope.iter_mut().zip(point) {
                    *out += g * p;
                }
            }
        }
    }
    value
}
