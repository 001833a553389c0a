//! Networks as descriptions over a set of parameters: `forward` is a function of the leaves and the input.

use pushforward_envs::{ObservationKind, ObservationSpec};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use crate::{CoreError, parameters::ParameterBuilder};

/// An affine map y = W x + b of the last axis.
#[derive(Clone, Debug)]
pub struct Linear {
    pub(crate) weight: usize,
    pub(crate) bias: Option<usize>,
    /// Length of the output.
    pub outputs: i64,
}

impl Linear {
    /// Adds a map of `inputs` to `outputs` values; weights uniform in ±√(3 gain / inputs) (variance gain / inputs), bias 0.
    pub fn new(
        builder: &mut ParameterBuilder,
        name: &str,
        inputs: i64,
        outputs: i64,
        gain: f64,
    ) -> Self {
        let bound = (3.0 * gain / inputs as f64).sqrt();
        let weight = builder.uniform(&format!("{name}.weight"), &[outputs, inputs], bound);
        let bias = builder.uniform(&format!("{name}.bias"), &[outputs], 0.0);
        Self::over(weight, Some(bias), outputs)
    }

    /// The map of parameters that were added before: a weight `[outputs, inputs]` and, unless b = 0, a bias `[outputs]`.
    pub fn over(weight: usize, bias: Option<usize>, outputs: i64) -> Self {
        Self {
            weight,
            bias,
            outputs,
        }
    }

    /// As [`Linear::new`] with independent Gaussian biases.
    pub fn with_spread_bias(
        builder: &mut ParameterBuilder,
        name: &str,
        inputs: i64,
        outputs: i64,
        gain: f64,
        deviation: f64,
    ) -> Self {
        let bound = (3.0 * gain / inputs as f64).sqrt();
        let weight = builder.uniform(&format!("{name}.weight"), &[outputs, inputs], bound);
        let bias = builder.gaussian(&format!("{name}.bias"), &[outputs], 0.0, deviation);
        Self::over(weight, Some(bias), outputs)
    }

    /// W x + b for x of shape [.., inputs].
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(&self, leaves: &[Tensor], input: &Tensor) -> Result<Tensor, CoreError> {
        let bias = self.bias.map(|bias| &leaves[bias]);
        Ok(input.f_linear(&leaves[self.weight], bias)?)
    }
}

/// A stack of affine maps, each followed by max(0, ·).
#[derive(Clone, Debug)]
pub struct Mlp {
    pub(crate) layers: Vec<Linear>,
}

impl Mlp {
    /// Adds layers of the given widths (He initialisation: gain 2).
    pub fn new(builder: &mut ParameterBuilder, name: &str, inputs: i64, widths: &[usize]) -> Self {
        let mut width = inputs;
        let layers = widths
            .iter()
            .enumerate()
            .map(|(index, &outputs)| {
                let layer = Linear::new(
                    builder,
                    &format!("{name}.{index}"),
                    width,
                    outputs as i64,
                    2.0,
                );
                width = outputs as i64;
                layer
            })
            .collect();
        Self { layers }
    }

    /// The last layer's activations, shape [.., last width].
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(&self, leaves: &[Tensor], input: &Tensor) -> Result<Tensor, CoreError> {
        let mut features = input.shallow_clone();
        for layer in &self.layers {
            features = layer.forward(leaves, &features)?.f_relu_()?;
        }
        Ok(features)
    }
}

/// Settings of a [`Torso`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TorsoConfig {
    /// Widths of the fully connected layers; after convolutions too. Default [256, 256].
    pub hidden: Vec<usize>,
    /// Channels of the three convolutions of an image torso (kernels 8, 4, 3, strides 4, 2, 1 as in DQN, Nature 2015, narrowed for images
    /// smaller than 36 pixels). Default [32, 64, 64].
    pub channels: [usize; 3],
}

impl Default for TorsoConfig {
    fn default() -> Self {
        Self {
            hidden: vec![256, 256],
            channels: [32, 64, 64],
        }
    }
}

#[derive(Clone, Debug)]
struct Convolution {
    weight: usize,
    bias: usize,
    stride: i64,
}

/// From observations to a feature vector: fully connected for vectors and grids, convolutional first for byte images.
#[derive(Clone, Debug)]
pub struct Torso {
    shape: Vec<i64>,
    convolutions: Vec<Convolution>,
    mlp: Mlp,
    /// Length of the feature vector.
    pub outputs: i64,
}

impl Torso {
    /// Describes a torso for observations of `spec` with `extra` further numbers appended.
    ///
    /// # Errors
    /// [`CoreError::Setting`] if a width is 0 or the image is too small for the convolutions.
    pub fn new(
        builder: &mut ParameterBuilder,
        spec: &ObservationSpec,
        extra: usize,
        config: &TorsoConfig,
    ) -> Result<Self, CoreError> {
        if config.hidden.is_empty() || config.hidden.contains(&0) || config.channels.contains(&0) {
            return Err(CoreError::Setting(format!(
                "torso: got hidden {:?} and channels {:?}, expected at least one hidden layer and no width 0",
                config.hidden, config.channels
            )));
        }
        let mut shape: Vec<i64> = spec.shape.iter().map(|&length| length as i64).collect();
        let mut convolutions = Vec::new();
        let mut inputs = spec.len() as i64;
        if spec.kind == ObservationKind::U8 {
            let [height, width, mut channels] = shape[..] else {
                return Err(CoreError::Setting(format!(
                    "torso: got a byte observation of shape {shape:?}, expected [height, width, channels]"
                )));
            };
            let kernels: [(i64, i64); 3] = if height.min(width) >= 36 {
                [(8, 4), (4, 2), (3, 1)]
            } else {
                [(4, 2), (3, 1), (3, 1)]
            };
            let (mut high, mut wide) = (height, width);
            for (index, ((kernel, stride), outputs)) in
                kernels.into_iter().zip(config.channels).enumerate()
            {
                let outputs = outputs as i64;
                let bound = (6.0 / (channels * kernel * kernel) as f64).sqrt();
                let name = format!("torso.convolution.{index}");
                let weight = builder.uniform(
                    &format!("{name}.weight"),
                    &[outputs, channels, kernel, kernel],
                    bound,
                );
                let bias = builder.uniform(&format!("{name}.bias"), &[outputs], 0.0);
                convolutions.push(Convolution {
                    weight,
                    bias,
                    stride,
                });
                (high, wide) = ((high - kernel) / stride + 1, (wide - kernel) / stride + 1);
                if high < 1 || wide < 1 {
                    return Err(CoreError::Setting(format!(
                        "torso: an image of {height} x {width} is too small for the convolutions"
                    )));
                }
                channels = outputs;
            }
            inputs = channels * high * wide;
        } else {
            shape = vec![inputs];
        }
        let mlp = Mlp::new(builder, "torso", inputs + extra as i64, &config.hidden);
        let outputs = config.hidden[config.hidden.len() - 1] as i64;
        Ok(Self {
            shape,
            convolutions,
            mlp,
            outputs,
        })
    }

    /// The fully connected layers, where there is nothing before them.
    pub fn dense(&self) -> Option<&Mlp> {
        self.convolutions.is_empty().then_some(&self.mlp)
    }

    /// Features [B, outputs] of observations (f32 [B, length], or u8 [B, height · width · channels]) and `extra` [B, k].
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(
        &self,
        leaves: &[Tensor],
        observations: &Tensor,
        extra: Option<&Tensor>,
    ) -> Result<Tensor, CoreError> {
        let mut features = observations.shallow_clone();
        if !self.convolutions.is_empty() {
            let mut shape = vec![observations.size()[0]];
            shape.extend(&self.shape);
            features = observations
                .f_view(shape.as_slice())?
                .f_permute([0, 3, 1, 2])?
                .f_to_kind(Kind::Float)?
                .f_div_scalar(255.0)?;
            for layer in &self.convolutions {
                features = features
                    .f_conv2d(
                        &leaves[layer.weight],
                        Some(&leaves[layer.bias]),
                        [layer.stride, layer.stride],
                        [0, 0],
                        [1, 1],
                        1,
                    )?
                    .f_relu_()?;
            }
            features = features.f_flatten(1, -1)?;
        }
        if let Some(extra) = extra {
            features = Tensor::f_cat(&[&features, extra], 1)?;
        }
        self.mlp.forward(leaves, &features)
    }
}
