//! Named arrays and their file format.

use std::collections::BTreeMap;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tch::{Device, Kind, Tensor};

use crate::CoreError;

/// Elements of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum ArrayData {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit integers.
    I64(Vec<i64>),
}

/// An array with a name, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedArray {
    /// Its name, such as `online/torso.0.weight`.
    pub name: String,
    /// Axis lengths.
    pub shape: Vec<usize>,
    /// Its elements, as many as the product of the shape.
    pub data: ArrayData,
}

impl NamedArray {
    /// An array of floats.
    pub fn f32(name: impl Into<String>, shape: Vec<usize>, data: Vec<f32>) -> Self {
        Self {
            name: name.into(),
            shape,
            data: ArrayData::F32(data),
        }
    }

    /// An array of integers.
    pub fn i64(name: impl Into<String>, shape: Vec<usize>, data: Vec<i64>) -> Self {
        Self {
            name: name.into(),
            shape,
            data: ArrayData::I64(data),
        }
    }

    /// The elements as floats.
    ///
    /// # Errors
    /// [`CoreError::Checkpoint`] if they are integers.
    pub fn as_f32(&self) -> Result<&[f32], CoreError> {
        match &self.data {
            ArrayData::F32(values) => Ok(values),
            ArrayData::I64(_) => Err(CoreError::Checkpoint {
                path: self.name.clone(),
                message: "64-bit integers, expected 32-bit floats".into(),
            }),
        }
    }

    /// The elements as integers.
    ///
    /// # Errors
    /// [`CoreError::Checkpoint`] if they are floats.
    pub fn as_i64(&self) -> Result<&[i64], CoreError> {
        match &self.data {
            ArrayData::I64(values) => Ok(values),
            ArrayData::F32(_) => Err(CoreError::Checkpoint {
                path: self.name.clone(),
                message: "32-bit floats, expected 64-bit integers".into(),
            }),
        }
    }

    /// A copy of a tensor of kind float or int64, on whatever device it is.
    ///
    /// # Errors
    /// [`CoreError::Torch`] or [`CoreError::Checkpoint`] for another kind.
    pub fn from_tensor(name: impl Into<String>, tensor: &Tensor) -> Result<Self, CoreError> {
        let name = name.into();
        let shape = tensor.size().iter().map(|&axis| axis as usize).collect();
        let flat = tensor
            .detach()
            .f_to_device(Device::Cpu)?
            .f_contiguous()?
            .f_view([-1])?;
        let data = match flat.kind() {
            Kind::Float => ArrayData::F32(Vec::<f32>::try_from(&flat)?),
            Kind::Int64 => ArrayData::I64(Vec::<i64>::try_from(&flat)?),
            kind => {
                return Err(CoreError::Checkpoint {
                    path: name,
                    message: format!("a tensor of kind {kind:?}, expected Float or Int64"),
                });
            }
        };
        Ok(Self { name, shape, data })
    }

    /// A tensor on the CPU with these elements.
    ///
    /// # Errors
    /// [`CoreError::Torch`] if the shape does not fit the elements.
    pub fn to_tensor(&self) -> Result<Tensor, CoreError> {
        let shape: Vec<i64> = self.shape.iter().map(|&axis| axis as i64).collect();
        let flat = match &self.data {
            ArrayData::F32(values) => Tensor::f_from_slice(values)?,
            ArrayData::I64(values) => Tensor::f_from_slice(values)?,
        };
        Ok(flat.f_reshape(shape)?)
    }

    fn len(&self) -> usize {
        match &self.data {
            ArrayData::F32(values) => values.len(),
            ArrayData::I64(values) => values.len(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match &self.data {
            ArrayData::F32(values) => values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            ArrayData::I64(values) => values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        }
    }
}

/// The safetensors file of some arrays; the same arrays give the same bytes in any order.
pub(super) fn serialize(arrays: &[NamedArray]) -> Result<Vec<u8>, String> {
    let mut bytes = BTreeMap::new();
    for array in arrays {
        let expected: usize = array.shape.iter().product();
        if array.len() != expected {
            return Err(format!(
                "array {} has {} elements, expected {expected} for shape {:?}",
                array.name,
                array.len(),
                array.shape
            ));
        }
        if bytes.insert(&array.name, (array, array.bytes())).is_some() {
            return Err(format!("two arrays are named {}", array.name));
        }
    }
    let views = bytes
        .iter()
        .map(|(name, (array, bytes))| {
            let kind = match array.data {
                ArrayData::F32(_) => Dtype::F32,
                ArrayData::I64(_) => Dtype::I64,
            };
            TensorView::new(kind, array.shape.clone(), bytes).map(|view| (name.as_str(), view))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    safetensors::serialize(views, None).map_err(|error| error.to_string())
}

/// The arrays of a safetensors file, sorted by name.
pub(super) fn deserialize(bytes: &[u8]) -> Result<Vec<NamedArray>, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut arrays = file
        .iter()
        .map(|(name, view)| {
            let data = match view.dtype() {
                Dtype::F32 => ArrayData::F32(decode(view.data(), f32::from_le_bytes)),
                Dtype::I64 => ArrayData::I64(decode(view.data(), i64::from_le_bytes)),
                kind => {
                    return Err(format!(
                        "array {name} of type {kind:?}, expected F32 or I64"
                    ));
                }
            };
            Ok(NamedArray {
                name: name.to_owned(),
                shape: view.shape().to_vec(),
                data,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    arrays.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(arrays)
}

fn decode<T, const N: usize>(bytes: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes
        .as_chunks::<N>()
        .0
        .iter()
        .map(|chunk| decode(*chunk))
        .collect()
}

/// The arrays in the order of `expected`, if names, count and shapes agree.
pub(super) fn matching<'a>(
    arrays: &'a [NamedArray],
    expected: &[(String, Vec<usize>)],
) -> Result<Vec<&'a NamedArray>, String> {
    let found = expected
        .iter()
        .map(|(name, shape)| {
            let array = arrays
                .binary_search_by(|array| array.name.as_str().cmp(name))
                .map(|index| &arrays[index])
                .map_err(|_| format!("array {name} is missing, expected shape {shape:?}"))?;
            if array.shape == *shape {
                Ok(array)
            } else {
                Err(format!(
                    "array {name} has shape {:?}, expected {shape:?}",
                    array.shape
                ))
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(extra) = arrays
        .iter()
        .find(|array| expected.iter().all(|(name, _)| *name != array.name))
    {
        return Err(format!(
            "array {} of shape {:?} is not expected ({} arrays, expected {})",
            extra.name,
            extra.shape,
            arrays.len(),
            expected.len()
        ));
    }
    Ok(found)
}
