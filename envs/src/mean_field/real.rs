//! The two precisions of populations, values and tables.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// A floating point number: `f32` for training, `f64` for exact solvers and references.
pub trait Real:
    Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;

    /// The nearest number of this precision.
    fn from_f64(value: f64) -> Self;

    /// The same number in double precision.
    fn to_f64(self) -> f64;
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    };
}

real!(f32);
real!(f64);

/// Sums that are kept apart, so that they fill vector registers and rounding errors stay small.
const LANES: usize = 8;

/// Σ_i a_i b_i in double precision; the order of the additions is fixed.
#[inline(always)]
pub(crate) fn dot<R: Real, Q: Real>(a: &[R], b: &[Q]) -> f64 {
    let mut sums = [0.0; LANES];
    let (a_rows, b_rows) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail: f64 = a_rows
        .remainder()
        .iter()
        .zip(b_rows.remainder())
        .map(|(x, y)| x.to_f64() * y.to_f64())
        .sum();
    for (x, y) in a_rows.zip(b_rows) {
        for lane in 0..LANES {
            sums[lane] += x[lane].to_f64() * y[lane].to_f64();
        }
    }
    sums.iter().sum::<f64>() + tail
}

/// Σ_i a_i in double precision; the order of the additions is fixed.
#[inline(always)]
pub(crate) fn sum<R: Real>(values: &[R]) -> f64 {
    let mut sums = [0.0; LANES];
    let rows = values.chunks_exact(LANES);
    let tail: f64 = rows.remainder().iter().map(|x| x.to_f64()).sum();
    for x in rows {
        for lane in 0..LANES {
            sums[lane] += x[lane].to_f64();
        }
    }
    sums.iter().sum::<f64>() + tail
}
