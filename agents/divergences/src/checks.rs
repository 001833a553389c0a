//! Checks of what callers hand in, each one clear line.

use crate::DivergenceError;
use crate::config::Statistic;
use crate::divergence::{Divergence, Points};
use crate::kernels::Clouds;

/// Why a U-statistic refuses weights.
pub(crate) const UNWEIGHTED_STATISTIC: &str =
    "statistic u is defined for equal weights, got weights; use statistic v";

/// Lengths of the buffers that receive results.
pub(crate) struct Buffers {
    pub values: usize,
    pub gradient: usize,
}

/// Checks sizes, lengths, finiteness and weights of a batch; `refuses_weights` says why weights are refused, where they are.
pub(crate) fn check_clouds(
    divergence: &dyn Divergence,
    refuses_weights: Option<&'static str>,
    clouds: &Clouds<'_>,
    buffers: Buffers,
) -> Result<(), DivergenceError> {
    let shape = clouds.shape;
    let (b, n, m, d) = (shape.batch, shape.predicted, shape.target, shape.dimension);
    length("dimension of the clouds", d, divergence.dimension())?;
    divergence.check_sizes(n, m)?;
    length("predicted points", clouds.predicted.len(), b * n * d)?;
    length("target points", clouds.target.len(), b * m * d)?;
    length("values", buffers.values, b)?;
    length("gradient", buffers.gradient, b * n * d)?;
    finite("predicted points", clouds.predicted)?;
    finite("target points", clouds.target)?;
    for (what, weights, size) in [
        ("predicted weights", clouds.predicted_weights, n),
        ("target weights", clouds.target_weights, m),
    ] {
        let Some(weights) = weights else {
            continue;
        };
        if let Some(why) = refuses_weights {
            return Err(DivergenceError::Setting(why.into()));
        }
        length(what, weights.len(), b * size)?;
        finite(what, weights)?;
        for (cloud, row) in weights.chunks_exact(size).enumerate() {
            let sum: f64 = row.iter().map(|&w| f64::from(w)).sum();
            weigh(what, cloud, row.iter().any(|&w| w < 0.0), sum, 1e-4)?;
        }
    }
    Ok(())
}

/// Checks one pair of clouds in f64 and gives N and M.
pub(crate) fn check_points(
    divergence: &dyn Divergence,
    refuses_weights: Option<&'static str>,
    predicted: &Points<'_>,
    target: &Points<'_>,
) -> Result<(usize, usize), DivergenceError> {
    let d = divergence.dimension();
    for (what, what_weights, cloud) in [
        ("predicted points", "predicted weights", predicted),
        ("target points", "target weights", target),
    ] {
        finite(what, cloud.points)?;
        rows(what, cloud.points.len(), d)?;
        if let Some(weights) = cloud.weights {
            if let Some(why) = refuses_weights {
                return Err(DivergenceError::Setting(why.into()));
            }
            length(what_weights, weights.len(), cloud.points.len() / d)?;
            finite(what_weights, weights)?;
            let negative = weights.iter().any(|&w| w < 0.0);
            weigh(what_weights, 0, negative, weights.iter().sum(), 1e-6)?;
        }
    }
    let (n, m) = (predicted.points.len() / d, target.points.len() / d);
    divergence.check_sizes(n, m)?;
    Ok((n, m))
}

/// At least one point each, and two for the U-statistic.
pub(crate) fn check_sizes(
    statistic: Statistic,
    predicted: usize,
    target: usize,
) -> Result<(), DivergenceError> {
    let (least, why) = match statistic {
        Statistic::V => (1, ""),
        Statistic::U => (2, " for statistic u"),
    };
    for (what, count) in [("predicted points", predicted), ("target points", target)] {
        if count < least {
            return Err(DivergenceError::Shape {
                what,
                got: format!("{count} per cloud"),
                expected: format!("at least {least}{why}"),
            });
        }
    }
    Ok(())
}

/// Errors unless weights are non-negative and sum to 1 within `tolerance`.
fn weigh(
    what: &'static str,
    cloud: usize,
    negative: bool,
    sum: f64,
    tolerance: f64,
) -> Result<(), DivergenceError> {
    let message = if negative {
        "a weight is negative".to_string()
    } else if (sum - 1.0).abs() > tolerance {
        format!("the sum is {sum}, expected 1")
    } else {
        return Ok(());
    };
    Err(DivergenceError::Weights {
        what,
        cloud,
        message,
    })
}

/// Errors unless `got` numbers are whole rows of d.
pub(crate) fn rows(what: &'static str, got: usize, d: usize) -> Result<(), DivergenceError> {
    if got.is_multiple_of(d) {
        return Ok(());
    }
    Err(DivergenceError::Shape {
        what,
        got: format!("{got} numbers"),
        expected: format!("a multiple of d = {d}"),
    })
}

pub(crate) fn length(
    what: &'static str,
    got: usize,
    expected: usize,
) -> Result<(), DivergenceError> {
    if got == expected {
        return Ok(());
    }
    Err(DivergenceError::Shape {
        what,
        got: got.to_string(),
        expected: expected.to_string(),
    })
}

pub(crate) fn finite<T: Copy + Into<f64>>(
    what: &'static str,
    values: &[T],
) -> Result<(), DivergenceError> {
    match values.iter().position(|&v| !v.into().is_finite()) {
        None => Ok(()),
        Some(index) => Err(DivergenceError::NotFinite {
            what,
            index,
            value: values[index].into(),
        }),
    }
}
