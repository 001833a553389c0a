//! The border between Rust slices and libtorch tensors.
#![allow(unsafe_code)] // Views of tensor memory as slices: the fused kernels and the optimiser work on raw f32.

use tch::{Device, Kind, Tensor};

use crate::CoreError;

/// Makes libtorch run every call on the calling thread alone.
///
/// Parallelism is ours (fixed shards on rayon), because libtorch does not promise equal results at different thread counts.
pub fn single_threaded() {
    tch::set_num_threads(1);
}

/// Builds the global rayon pool with `threads` workers, each with one intra-op libtorch thread.
///
/// # Errors
/// If the global pool exists already with other settings.
pub fn start_workers(threads: usize) -> Result<(), CoreError> {
    single_threaded();
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .start_handler(|_| single_threaded())
        .build_global()
        .map_err(|error| CoreError::Setting(format!("threads: {error}")))
}

/// The values of a contiguous f32 tensor on the CPU, without a copy.
///
/// # Errors
/// [`CoreError::Tensor`] if the tensor is of another type, on another device or not contiguous.
pub fn f32_slice(tensor: &Tensor) -> Result<&[f32], CoreError> {
    check(tensor)?;
    // SAFETY: `check` saw a contiguous f32 tensor on the CPU, whose storage outlives the borrow of its handle.
    Ok(unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast::<f32>(), tensor.numel()) })
}

/// The values of a contiguous f32 tensor on the CPU, to be written in place.
///
/// The tensor's own mutable borrow does not exclude other handles on the same storage: the caller must not use those meanwhile.
///
/// # Errors
/// As [`f32_slice`].
pub fn f32_slice_mut(tensor: &mut Tensor) -> Result<&mut [f32], CoreError> {
    check(tensor)?;
    // SAFETY: as in `f32_slice`; updates happen between forward passes, when no other handle is read.
    Ok(unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<f32>(), tensor.numel()) })
}

fn check(tensor: &Tensor) -> Result<(), CoreError> {
    let (kind, device, contiguous) = (tensor.kind(), tensor.device(), tensor.is_contiguous());
    if kind == Kind::Float && device == Device::Cpu && contiguous {
        return Ok(());
    }
    Err(CoreError::Tensor(format!(
        "got {kind:?} on {device:?}, contiguous: {contiguous}; expected contiguous Float on Cpu"
    )))
}

/// A copy of `values` as a tensor of `shape` on `device`.
///
/// # Errors
/// [`CoreError::Tensor`] if the shape does not hold exactly the values.
pub fn from_f32(values: &[f32], shape: &[i64], device: Device) -> Result<Tensor, CoreError> {
    check_length(values.len(), shape)?;
    Ok(Tensor::f_from_slice(values)?
        .f_view(shape)?
        .to_device(device))
}

/// A copy of bytes as a tensor of `shape` on `device`.
///
/// # Errors
/// As [`from_f32`].
pub fn from_u8(values: &[u8], shape: &[i64], device: Device) -> Result<Tensor, CoreError> {
    check_length(values.len(), shape)?;
    Ok(Tensor::f_from_slice(values)?
        .f_view(shape)?
        .to_device(device))
}

fn check_length(length: usize, shape: &[i64]) -> Result<(), CoreError> {
    if shape.iter().product::<i64>() == length as i64 {
        return Ok(());
    }
    Err(CoreError::Tensor(format!(
        "{length} values do not fill the shape {shape:?}"
    )))
}

/// A copy of a tensor's values as f32 in row-major order.
///
/// # Errors
/// If libtorch cannot copy it to the CPU.
pub fn to_f32(tensor: &Tensor) -> Result<Vec<f32>, CoreError> {
    let cpu = tensor
        .f_to_device(Device::Cpu)?
        .f_to_kind(Kind::Float)?
        .f_contiguous()?;
    Ok(f32_slice(&cpu)?.to_vec())
}

/// The device of this name: `cpu`, `cuda` or `cuda:INDEX`.
///
/// # Errors
/// [`CoreError::Setting`] for another name, and for a CUDA device where libtorch sees none: there is no silent fall back.
pub fn device(name: &str) -> Result<Device, CoreError> {
    let cuda = |index: usize| {
        if !tch::Cuda::is_available() || index >= tch::Cuda::device_count().max(0) as usize {
            return Err(CoreError::Setting(format!(
                "device {name}: libtorch sees {} CUDA devices; run scripts/setup-libtorch --cuda on a machine with a GPU, or use --device cpu",
                tch::Cuda::device_count()
            )));
        }
        Ok(Device::Cuda(index))
    };
    match name {
        "cpu" => Ok(Device::Cpu),
        "cuda" => cuda(0),
        other => match other.strip_prefix("cuda:").map(str::parse) {
            Some(Ok(index)) => cuda(index),
            _ => Err(CoreError::Setting(format!(
                "device: got {name:?}, expected cpu, cuda or cuda:INDEX"
            ))),
        },
    }
}
