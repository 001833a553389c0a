//! Adam with a state that can be saved, and gradient clipping.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tch::{Device, Tensor};

use crate::{CoreError, parameters::Parameters, schedule::Schedule, tensor};

/// Work is cut into blocks of this many values, whatever the number of threads, so that sums come out the same.
const BLOCK: usize = 1 << 14;

/// Settings of [`Adam`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamConfig {
    /// Step size, a number or a schedule over the run. Default 5e-4.
    pub learning_rate: Schedule,
    /// Decay rate of the first moment, in [0, 1). Default 0.9.
    pub beta1: f64,
    /// Decay rate of the second moment, in [0, 1). Default 0.999.
    pub beta2: f64,
    /// Added to the root of the second moment. Default 1e-8.
    pub epsilon: f64,
    /// Largest Euclidean norm of the whole gradient; larger ones are scaled down to it. 0 means no clipping. Default 10.
    pub clip_norm: f64,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self {
            learning_rate: Schedule::constant(5e-4),
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            clip_norm: 10.0,
        }
    }
}

impl AdamConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`CoreError::Setting`] naming the first value that is out of range.
    pub fn validate(&self) -> Result<(), CoreError> {
        let checks = [
            (
                "learning_rate.initial",
                self.learning_rate.initial,
                self.learning_rate.initial >= 0.0,
            ),
            (
                "learning_rate.final",
                self.learning_rate.last,
                self.learning_rate.last >= 0.0,
            ),
            ("beta1", self.beta1, (0.0..1.0).contains(&self.beta1)),
            ("beta2", self.beta2, (0.0..1.0).contains(&self.beta2)),
            ("epsilon", self.epsilon, self.epsilon > 0.0),
            ("clip_norm", self.clip_norm, self.clip_norm >= 0.0),
        ];
        match checks
            .iter()
            .find(|(_, value, valid)| !valid || !value.is_finite())
        {
            None => Ok(()),
            Some((name, value, _)) => Err(CoreError::Setting(format!(
                "optimiser {name}: got {value}, which is out of range"
            ))),
        }
    }
}

/// The gradient of one step.
#[derive(Clone, Copy, Debug)]
pub enum Gradients<'a> {
    /// On the CPU: one flat buffer for each shard of the batch, laid out as the parameters and added in this order.
    Shards(&'a [&'a [f32]]),
    /// Elsewhere: one tensor for each parameter; an undefined one counts as zero.
    Leaves(&'a [Tensor]),
}

/// Adam (Kingma and Ba 2015, algorithm 1, with bias correction) over one flat parameter buffer.
///
/// m <- β₁ m + (1-β₁) g, v <- β₂ v + (1-β₂) g², θ <- θ - η m̂ / (√v̂ + ε). On the CPU one fused pass over f32 slices, elsewhere
/// tensor operations.
pub struct Adam {
    config: AdamConfig,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    steps: u64,
}

impl Adam {
    /// Zero moments for `parameters`.
    ///
    /// # Errors
    /// If the settings are out of range or libtorch cannot allocate.
    pub fn new(config: AdamConfig, parameters: &Parameters) -> Result<Self, CoreError> {
        config.validate()?;
        let zeros = || parameters.flat().f_zeros_like();
        Ok(Self {
            config,
            first: zeros()?,
            second: zeros()?,
            gradient: zeros()?,
            steps: 0,
        })
    }

    /// Applies one step with the given gradients; gives the Euclidean norm of their sum before clipping.
    ///
    /// `progress` (0 to 1) places the learning rate on its schedule.
    ///
    /// # Errors
    /// [`CoreError::NonFinite`] naming the first parameter with a non-finite gradient; nothing is changed then.
    pub fn step(
        &mut self,
        parameters: &mut Parameters,
        gradients: Gradients<'_>,
        progress: f64,
    ) -> Result<f64, CoreError> {
        let norm = match gradients {
            Gradients::Shards(shards) => self.sum(shards)?,
            Gradients::Leaves(leaves) => self.gather(parameters, leaves)?,
        };
        if !norm.is_finite() {
            return Err(self.blame(parameters)?);
        }
        let clip = self.config.clip_norm;
        let scale = if clip > 0.0 && norm > clip {
            clip / norm
        } else {
            1.0
        };
        self.steps += 1;
        let power = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let correction1 = 1.0 - self.config.beta1.powi(power);
        let correction2 = 1.0 - self.config.beta2.powi(power);
        let rate = self.config.learning_rate.at(progress) / correction1;
        if parameters.flat().device() == Device::Cpu {
            self.fused(
                parameters,
                scale as f32,
                rate as f32,
                correction2.sqrt() as f32,
            )?;
        } else {
            self.composed(parameters, scale, rate, correction2.sqrt())?;
        }
        Ok(norm)
    }

    /// Adds the shards in their order; gives the norm of the sum.
    fn sum(&mut self, shards: &[&[f32]]) -> Result<f64, CoreError> {
        let flat = tensor::f32_slice_mut(&mut self.gradient)?;
        let squares: Vec<f64> = flat
            .par_chunks_mut(BLOCK)
            .enumerate()
            .map(|(index, block)| {
                let range = index * BLOCK..index * BLOCK + block.len();
                for (order, shard) in shards.iter().enumerate() {
                    let own = &shard[range.clone()];
                    if order == 0 {
                        block.copy_from_slice(own);
                    } else {
                        block.iter_mut().zip(own).for_each(|(sum, g)| *sum += g);
                    }
                }
                // Sixteen running sums vectorise; a sum of f32 squares over 1024 values keeps 5 digits, the rest is f64.
                block
                    .chunks(1024)
                    .map(|part| {
                        let mut sums = [0.0_f32; 16];
                        let (lanes, rest) = part.as_chunks::<16>();
                        for lane in lanes {
                            for (sum, value) in sums.iter_mut().zip(lane) {
                                *sum += value * value;
                            }
                        }
                        let tail: f32 = rest.iter().map(|value| value * value).sum();
                        f64::from(sums.iter().sum::<f32>() + tail)
                    })
                    .sum()
            })
            .collect();
        Ok(squares.iter().sum::<f64>().sqrt())
    }

    /// Copies the leaves' gradients into the flat buffer; gives its norm.
    fn gather(&mut self, parameters: &Parameters, leaves: &[Tensor]) -> Result<f64, CoreError> {
        tch::no_grad(|| {
            for (layout, gradient) in parameters.layouts().iter().zip(leaves) {
                let mut own =
                    self.gradient
                        .f_narrow(0, layout.offset as i64, layout.len() as i64)?;
                // An action that no row took leaves its head's gradient undefined: it counts as zero.
                if gradient.defined() {
                    own.f_copy_(&gradient.f_reshape([-1])?)?;
                } else {
                    let _ = own.f_zero_()?;
                }
            }
            Ok(self.gradient.f_norm()?.double_value(&[]))
        })
    }

    fn blame(&self, parameters: &Parameters) -> Result<CoreError, CoreError> {
        let values = tensor::to_f32(&self.gradient)?;
        let guilty = parameters
            .layouts()
            .iter()
            .find(|layout| values[layout.range()].iter().any(|v| !v.is_finite()));
        let what = match guilty {
            Some(layout) => format!("gradient of {}", layout.name),
            None => "norm of the gradient".into(),
        };
        Ok(CoreError::NonFinite {
            what,
            step: self.steps,
        })
    }

    fn fused(
        &mut self,
        parameters: &mut Parameters,
        scale: f32,
        rate: f32,
        root_correction: f32,
    ) -> Result<(), CoreError> {
        let (beta1, beta2) = (self.config.beta1 as f32, self.config.beta2 as f32);
        let epsilon = self.config.epsilon as f32;
        let gradient = tensor::f32_slice(&self.gradient)?;
        let first = tensor::f32_slice_mut(&mut self.first)?;
        let second = tensor::f32_slice_mut(&mut self.second)?;
        let values = tensor::f32_slice_mut(parameters.flat_mut())?;
        let inverse_root = 1.0 / root_correction;
        values
            .par_chunks_mut(BLOCK)
            .zip(first.par_chunks_mut(BLOCK))
            .zip(second.par_chunks_mut(BLOCK))
            .zip(gradient.par_chunks(BLOCK))
            .for_each(|(((values, first), second), gradient)| {
                let moments = first.iter_mut().zip(second);
                for ((value, (m, v)), g) in values.iter_mut().zip(moments).zip(gradient) {
                    let g = g * scale;
                    *m += (1.0 - beta1) * (g - *m);
                    *v += (1.0 - beta2) * (g * g - *v);
                    *value -= rate * *m / (v.sqrt() * inverse_root + epsilon);
                }
            });
        Ok(())
    }

    fn composed(
        &mut self,
        parameters: &mut Parameters,
        scale: f64,
        rate: f64,
        root_correction: f64,
    ) -> Result<(), CoreError> {
        tch::no_grad(|| {
            let gradient = self.gradient.f_mul_scalar(scale)?;
            let _ = self.first.f_lerp_(&gradient, 1.0 - self.config.beta1)?;
            let _ = self
                .second
                .f_lerp_(&gradient.f_square()?, 1.0 - self.config.beta2)?;
            let root = self.second.f_sqrt()?.f_div_scalar(root_correction)?;
            let step = self.first.f_div(&root.f_add_scalar(self.config.epsilon)?)?;
            let _ = parameters.flat_mut().f_sub_(&step.f_mul_scalar(rate)?)?;
            Ok(())
        })
    }

    /// Number of steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// First and second moments, laid out as the parameters.
    pub fn moments(&self) -> [&Tensor; 2] {
        [&self.first, &self.second]
    }

    /// Restores what [`Adam::steps`] and [`Adam::moments`] gave.
    pub fn restore(&mut self, steps: u64, [first, second]: [Tensor; 2]) {
        (self.steps, self.first, self.second) = (steps, first, second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::ParameterBuilder;
    use pushforward_envs::StreamRng;

    /// A buffer laid out with each parameter at a multiple of 16 values.
    fn flat(parts: &[&[f32]]) -> Vec<f32> {
        parts
            .iter()
            .flat_map(|part| {
                let mut padded = part.to_vec();
                padded.resize(part.len().next_multiple_of(16), 0.0);
                padded
            })
            .collect()
    }

    #[test]
    fn two_steps_by_hand() {
        let mut builder = ParameterBuilder::new(StreamRng::new(1, "test", 0));
        builder.uniform("weight", &[1], 0.0);
        let mut parameters = builder.build(Device::Cpu).unwrap();
        let config = AdamConfig {
            learning_rate: Schedule::constant(0.1),
            clip_norm: 0.0,
            ..AdamConfig::default()
        };
        let mut adam = Adam::new(config, &parameters).unwrap();
        // Two shards of 1 and 1: g = 2. m = .2, v = .004; m̂ = 2, v̂ = 4: θ = 0 - .1 · 2/2 = -.1.
        let ones = flat(&[&[1.0]]);
        adam.step(&mut parameters, Gradients::Shards(&[&ones, &ones]), 0.0)
            .unwrap();
        assert!((tensor::to_f32(parameters.flat()).unwrap()[0] + 0.1).abs() < 1e-6);
        // g = -4: m = .9·.2 - .4 = -.22, v = .999·.004 + .016 = .019996;
        // m̂ = -.22/.19 = -1.1578947, v̂ = .019996/.001999 = 10.003002: θ = -.1 + .1 · 1.1578947/3.1627523 = -.0633896.
        let leaf = Tensor::from_slice(&[-4.0_f32]);
        let norm = adam
            .step(&mut parameters, Gradients::Leaves(&[leaf]), 0.0)
            .unwrap();
        assert_eq!(norm, 4.0);
        assert!((tensor::to_f32(parameters.flat()).unwrap()[0] + 0.063_389_6).abs() < 1e-6);
    }

    #[test]
    fn the_norm_is_clipped_and_a_bad_gradient_named() {
        let mut builder = ParameterBuilder::new(StreamRng::new(1, "test", 0));
        builder.uniform("first", &[2], 0.0);
        builder.uniform("second", &[3], 0.0);
        let mut parameters = builder.build(Device::Cpu).unwrap();
        let config = AdamConfig {
            clip_norm: 1.0,
            beta1: 0.0,
            ..AdamConfig::default()
        };
        let mut adam = Adam::new(config, &parameters).unwrap();
        // ‖(3, 0, 0, 4, 0)‖ = 5, clipped to (.6, 0, 0, .8, 0); with β₁ = 0 the first moment is the clipped gradient.
        let shard = flat(&[&[3.0, 0.0], &[0.0, 4.0, 0.0]]);
        let norm = adam.step(&mut parameters, Gradients::Shards(&[&shard]), 0.0);
        assert_eq!(norm.unwrap(), 5.0);
        let first = tensor::to_f32(adam.moments()[0]).unwrap();
        assert!((first[0] - 0.6).abs() < 1e-6 && (first[17] - 0.8).abs() < 1e-6);
        let before = tensor::to_f32(parameters.flat()).unwrap();
        let shard = flat(&[&[0.0; 2], &[0.0, f32::NAN, 0.0]]);
        let message = adam
            .step(&mut parameters, Gradients::Shards(&[&shard]), 0.0)
            .unwrap_err()
            .to_string();
        assert!(message.contains("gradient of second"), "{message}");
        assert_eq!(before, tensor::to_f32(parameters.flat()).unwrap());
    }
}
