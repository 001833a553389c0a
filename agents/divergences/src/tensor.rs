//! The layer for tch tensors: the fused kernel attached to the autograd graph on the CPU, tensor operations elsewhere.

use tch::{Device, Kind, TchError, Tensor};

use crate::config::LiftConfig;
use crate::divergence::Divergence;
use crate::kernels::{Clouds, Shape};
use crate::lifted::Lifted;
use crate::{Directions, DivergenceError};

impl From<TchError> for DivergenceError {
    fn from(error: TchError) -> Self {
        let text = error.to_string();
        Self::Tensor(text.lines().next().unwrap_or_default().to_string())
    }
}

/// A batch of weighted clouds.
#[derive(Debug)]
pub struct Cloud {
    /// Points `[B, N, d]`, f32.
    pub points: Tensor,
    /// Weights `[B, N]`, each row summing to 1; none: 1/N each.
    pub weights: Option<Tensor>,
}

impl Cloud {
    /// A cloud of equal weights.
    pub fn new(points: Tensor) -> Self {
        Self {
            points,
            weights: None,
        }
    }
}

/// How a loss is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// The fused kernel on the CPU, tensor operations on other devices.
    #[default]
    Fastest,
    /// Tensor operations with autograd everywhere, for comparison.
    TensorOperations,
}

pub(crate) fn loss(
    lifted: &Lifted,
    predicted: &Cloud,
    target: &Cloud,
    directions: &Directions,
    warm_start: &mut Option<Vec<f32>>,
    path: Path,
) -> Result<Tensor, DivergenceError> {
    let shape = common_shape(lifted, predicted, target)?;
    lifted.check_directions(directions, shape.batch)?;
    let device = predicted.points.device();
    let on_tensors = device != Device::Cpu || path == Path::TensorOperations;
    let searches = matches!(lifted.lift, LiftConfig::Max { .. });
    let closed_form_on_cpu = lifted.radial.as_ref().is_some_and(|r| !r.has_tensor_form());
    if on_tensors && !searches && !closed_form_on_cpu {
        return tensor_loss(lifted, predicted, target, directions);
    }
    let (loss, found) = kernel_loss(lifted, predicted, target, directions, warm_start, searches)?;
    if on_tensors && searches {
        // The search itself is no part of the graph: it ran above, and tensor operations follow along the directions found.
        let found = Directions::new(found, lifted.dimension, Some(shape.batch))?;
        return tensor_loss(lifted, predicted, target, &found);
    }
    Ok(loss)
}

/// The loss `[B]` by the kernel on the processor, attached to the graph on the points' device, and the directions found by a search.
pub(crate) fn kernel_loss(
    divergence: &dyn Divergence,
    predicted: &Cloud,
    target: &Cloud,
    directions: &Directions,
    warm_start: &mut Option<Vec<f32>>,
    searches: bool,
) -> Result<(Tensor, Vec<f32>), DivergenceError> {
    let shape = common_shape(divergence, predicted, target)?;
    let (b, d) = (shape.batch, shape.dimension);
    let (x, y) = (host(&predicted.points)?, host(&target.points)?);
    let wx = predicted.weights.as_ref().map(host).transpose()?;
    let wy = target.weights.as_ref().map(host).transpose()?;
    let clouds = Clouds {
        shape,
        predicted: &x,
        target: &y,
        predicted_weights: wx.as_deref(),
        target_weights: wy.as_deref(),
    };
    let mut values = vec![0.0; b];
    let mut gradient = vec![0.0; x.len()];
    let mut found = vec![0.0; if searches { b * d } else { 0 }];
    divergence.value_and_gradient(
        &clouds,
        directions,
        warm_start.as_deref(),
        &mut values,
        &mut gradient,
        searches.then_some(&mut found[..]),
    )?;
    if searches {
        *warm_start = divergence.shared_start(&clouds, &found);
    }
    let device = predicted.points.device();
    let loss = attach(
        &predicted.points,
        &Tensor::f_from_slice(&values)?.f_to(device)?,
        &Tensor::f_from_slice(&gradient)?
            .f_view(&predicted.points.size()[..])?
            .f_to(device)?,
    )?;
    Ok((loss, found))
}

/// The sizes of both batches of clouds, which must fit each other and the divergence.
fn common_shape(
    divergence: &dyn Divergence,
    predicted: &Cloud,
    target: &Cloud,
) -> Result<Shape, DivergenceError> {
    let (b, n, d) = size3("predicted points", &predicted.points)?;
    let (target_b, m, target_d) = size3("target points", &target.points)?;
    if (target_b, target_d) != (b, d) || d != divergence.dimension() {
        return Err(DivergenceError::Shape {
            what: "target points",
            got: format!("predicted [{b}, {n}, {d}], target [{target_b}, {m}, {target_d}]"),
            expected: format!("equal batches and d = {}", divergence.dimension()),
        });
    }
    divergence.check_sizes(n, m)?;
    Ok(Shape {
        batch: b,
        predicted: n,
        target: m,
        dimension: d,
    })
}

/// A tensor `[B]` with the given values, whose gradient in `points` `[B, N, d]` is `gradient`.
///
/// The graph is value + Σ (points - stop(points)) · gradient: the sum is exactly 0, so no digit of the value is lost.
fn attach(points: &Tensor, values: &Tensor, gradient: &Tensor) -> Result<Tensor, DivergenceError> {
    let zero = points.f_sub(&points.f_detach()?)?;
    let sum = zero
        .f_mul(gradient)?
        .f_sum_dim_intlist(&[1_i64, 2][..], false, Kind::Float)?;
    Ok(sum.f_add(values)?)
}

fn size3(what: &'static str, points: &Tensor) -> Result<(usize, usize, usize), DivergenceError> {
    match points.size()[..] {
        [b, n, d] if points.kind() == Kind::Float => Ok((b as usize, n as usize, d as usize)),
        ref other => Err(DivergenceError::Shape {
            what,
            got: format!("{other:?} of {:?}", points.kind()),
            expected: "[B, points, d] of Float".into(),
        }),
    }
}

/// A copy of a tensor in host memory, row-major.
fn host(tensor: &Tensor) -> Result<Vec<f32>, DivergenceError> {
    let tensor = tensor.f_detach()?.f_to(Device::Cpu)?.f_contiguous()?;
    let mut out = vec![0.0_f32; tensor.numel()];
    tensor.f_copy_data(&mut out, tensor.numel())?;
    Ok(out)
}

fn tensor_loss(
    lifted: &Lifted,
    predicted: &Cloud,
    target: &Cloud,
    directions: &Directions,
) -> Result<Tensor, DivergenceError> {
    let device = predicted.points.device();
    let target_points = target.points.f_detach()?;
    let samples = |points: &Tensor, weights: &Option<Tensor>| -> Result<Samples, TchError> {
        Ok(Samples {
            points: points.f_contiguous()?,
            weights: weights
                .as_ref()
                .map(|w| w.f_detach()?.f_unsqueeze(1))
                .transpose()?,
        })
    };
    if let Some(radial) = &lifted.radial {
        let x = samples(&predicted.points.f_unsqueeze(1)?, &predicted.weights)?;
        let y = samples(&target_points.f_unsqueeze(1)?, &target.weights)?;
        let value = radial.tensor_mmd(&x, &y, lifted.base.statistic())?;
        return Ok(value.f_squeeze_dim(1)?);
    }
    let (l, d) = (directions.count() as i64, directions.dimension() as i64);
    let theta = Tensor::f_from_slice(directions.values())?.f_to(device)?;
    let theta = match directions.batch() {
        None => theta.f_view([1, l, d])?,
        Some(b) => theta.f_view([b as i64, l, d])?,
    };
    // [B, L, N]
    let x = theta.f_matmul(&predicted.points.f_transpose(1, 2)?)?;
    let y = theta.f_matmul(&target_points.f_transpose(1, 2)?)?;
    let values = lifted.base.tensor_line(
        &samples(&x, &predicted.weights)?,
        &samples(&y, &target.weights)?,
    )?;
    Ok(values.f_mean_dim(&[1_i64][..], false, Kind::Float)?)
}

/// Samples along directions.
pub(crate) struct Samples {
    /// `[B, L, N]` on lines, `[B, 1, N, d]` in R^d.
    pub points: Tensor,
    /// `[B, 1, N]`; none: 1/N each.
    pub weights: Option<Tensor>,
}

impl Samples {
    /// N.
    pub fn count(&self) -> i64 {
        self.points.size()[2]
    }

    /// Weights `[B, L, N]` of points on lines.
    pub fn line_weights(&self) -> Result<Tensor, TchError> {
        match &self.weights {
            Some(weights) => weights.f_expand_as(&self.points),
            None => self
                .points
                .f_detach()?
                .f_full_like(1.0 / self.count() as f64),
        }
    }
}
