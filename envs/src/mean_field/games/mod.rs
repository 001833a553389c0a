//! The games that come with the suite, one file each.

pub mod beach_bar;
mod grid;
pub mod linear_quadratic;
pub mod macro_economy;

use rand::{Rng, RngCore};

use crate::{EnvError, StreamRng};

/// Checks that a setting lies in a range, for the games' constructors.
fn in_range<T: PartialOrd + std::fmt::Display>(
    name: &str,
    key: &str,
    value: T,
    low: T,
    high: T,
) -> Result<(), EnvError> {
    // Written so that NaN is refused.
    if value >= low && value <= high {
        return Ok(());
    }
    let message = format!("{key} = {value}, expected {low} to {high}");
    Err(EnvError::game(name, message))
}

/// True with this probability.
fn coin(rng: &mut StreamRng, probability: f64) -> bool {
    rng.random::<f64>() < probability
}

/// Uniform on 0..n.
fn uniform(rng: &mut StreamRng, n: usize) -> usize {
    // 64 bits times n, upper half: uniform to within n / 2^64.
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

/// The number that a certain move or a clipped atom lands on, as an index of 0..n.
fn clip(value: f64, n: usize) -> usize {
    value.clamp(0.0, (n - 1) as f64) as usize
}
