//! The extra inputs [C_t, Γ^t] of agents that condition on the return so far.

use pushforward_envs::Discount;

/// How Γ^t is written after C_t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    /// One number.
    Scalar,
    /// The diagonal, d numbers.
    Diagonal,
    /// All rows, d² numbers.
    Dense,
}

/// The layout of [C_t, Γ^t]: d numbers for C_t = Σ_{k<t} Γ^k R_k, then 1, d or d² for a scalar, diagonal or dense Γ^t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraLayout {
    dim: usize,
    power: Power,
}

impl ExtraLayout {
    /// The layout that suits the discount.
    pub fn new(discount: &Discount) -> Self {
        let power = match discount.scalar() {
            Some(_) => Power::Scalar,
            None if discount.is_diagonal() => Power::Diagonal,
            None => Power::Dense,
        };
        Self {
            dim: discount.dim(),
            power,
        }
    }

    /// Length d of a return.
    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    /// Length k of the extra inputs.
    pub fn length(&self) -> usize {
        self.dim
            + match self.power {
                Power::Scalar => 1,
                Power::Diagonal => self.dim,
                Power::Dense => self.dim * self.dim,
            }
    }

    /// Writes C_t `[d]` and Γ^t `[d, d]` into `extra` `[k]`.
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn write(&self, so_far: &[f64], power: &[f64], extra: &mut [f32]) {
        let (first, rest) = extra.split_at_mut(self.dim);
        for (entry, value) in first.iter_mut().zip(so_far) {
            *entry = *value as f32;
        }
        // A scalar or diagonal power is its diagonal; the first entry stands for a scalar.
        let stride = match self.power {
            Power::Scalar | Power::Diagonal => self.dim + 1,
            Power::Dense => 1,
        };
        for (entry, value) in rest.iter_mut().zip(power.iter().step_by(stride)) {
            *entry = *value as f32;
        }
    }

    /// The extra inputs at the start of an episode: C_0 = 0 and Γ^0 = I.
    pub fn start(&self) -> Vec<f32> {
        let mut extra = vec![0.0; self.length()];
        let stride = match self.power {
            Power::Scalar | Power::Diagonal => 1,
            Power::Dense => self.dim + 1,
        };
        let power = extra[self.dim..].iter_mut();
        power.step_by(stride).for_each(|entry| *entry = 1.0);
        extra
    }

    /// Coordinate `i` of C_t + Γ^t z.
    ///
    /// # Panics
    /// If a slice is too short.
    #[inline]
    pub fn total(&self, extra: &[f32], z: &[f32], i: usize) -> f64 {
        let (so_far, power) = extra.split_at(self.dim);
        let product = |entry: f32, z: f32| f64::from(entry) * f64::from(z);
        let future = match self.power {
            Power::Scalar => product(power[0], z[i]),
            Power::Diagonal => product(power[i], z[i]),
            Power::Dense => {
                let row = &power[i * self.dim..(i + 1) * self.dim];
                row.iter()
                    .zip(z)
                    .map(|(entry, z)| product(*entry, *z))
                    .sum()
            }
        };
        f64::from(so_far[i]) + future
    }
}

#[cfg(test)]
mod tests {
    use pushforward_envs::DiscountConfig;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        // C = (1, 2), Γ^t z for z = (10, 100), by hand.
        for (config, power, expected) in [
            (
                DiscountConfig::Scalar(0.9),
                [0.5, 0.0, 0.0, 0.5],
                [6.0, 52.0],
            ),
            (
                DiscountConfig::Diagonal(vec![0.9, 0.8]),
                [0.5, 0.0, 0.0, 0.25],
                [6.0, 27.0],
            ),
            (
                DiscountConfig::Dense(vec![vec![0.5, 0.1], vec![0.0, 0.5]]),
                [0.5, 0.25, 0.0, 0.75],
                [31.0, 77.0],
            ),
        ] {
            let layout = ExtraLayout::new(&Discount::new(&config, 2).unwrap());
            let mut extra = vec![f32::NAN; layout.length()];
            layout.write(&[1.0, 2.0], &power, &mut extra);
            let total = |extra: &[f32]| [0, 1].map(|i| layout.total(extra, &[10.0, 100.0], i));
            assert_eq!(total(&extra), expected);
            assert_eq!(total(&layout.start()), [10.0, 100.0]);
            layout.write(&[0.0; 2], &[1.0, 0.0, 0.0, 1.0], &mut extra);
            assert_eq!(layout.start(), extra);
        }
    }
}
