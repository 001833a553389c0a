//! Trainable parameters: named leaves of the autograd graph that share one flat buffer.

use std::ops::Range;

use rand::Rng;
use rayon::prelude::*;
use tch::{Device, Tensor};

use crate::{CoreError, NamedArray, dense::ParameterValues, tensor};
use pushforward_envs::StreamRng;

/// Each parameter starts at a multiple of this many f32 (64 bytes), so that libtorch's kernels always see the same alignment.
const ALIGNMENT: usize = 16;

/// Values that one worker takes at a time.
const BLOCK: usize = 1 << 14;

/// Place of one parameter in the flat buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterLayout {
    /// Unique name, such as `torso.0.weight`.
    pub name: String,
    /// Shape of the tensor.
    pub shape: Vec<i64>,
    /// First element in the flat buffer.
    pub offset: usize,
}

impl ParameterLayout {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    /// Its elements in the flat buffer.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len()
    }

    /// Whether the parameter has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Collects parameters while a network is described; their initial values come from one stream in the order of the description.
pub struct ParameterBuilder {
    layouts: Vec<ParameterLayout>,
    values: Vec<f32>,
    rng: StreamRng,
}

impl ParameterBuilder {
    /// An empty set whose initial values are drawn from `rng`.
    pub fn new(rng: StreamRng) -> Self {
        Self {
            layouts: Vec::new(),
            values: Vec::new(),
            rng,
        }
    }

    /// Adds a parameter with entries uniform in ±`bound` and returns its index.
    pub fn uniform(&mut self, name: &str, shape: &[i64], bound: f64) -> usize {
        self.add(name, shape, |rng| {
            ((rng.random::<f64>() * 2.0 - 1.0) * bound) as f32
        })
    }

    /// Adds a parameter with independent Gaussian entries and returns its index.
    pub fn gaussian(&mut self, name: &str, shape: &[i64], mean: f64, deviation: f64) -> usize {
        self.add(name, shape, |rng| {
            let draw: f64 = rng.sample(rand_distr::StandardNormal);
            (mean + deviation * draw) as f32
        })
    }

    /// Adds a parameter of one value throughout and returns its index.
    pub fn constant(&mut self, name: &str, shape: &[i64], value: f32) -> usize {
        self.add(name, shape, |_| value)
    }

    /// Adds a parameter with entries of variance 1/`inputs`, Gaussian but cut off at two deviations, and returns its index.
    ///
    /// This is LeCun's initialisation as the libraries JAX and Flax have it.
    pub fn lecun(&mut self, name: &str, shape: &[i64], inputs: i64) -> usize {
        // The deviation of a standard Gaussian cut off at ±2.
        let deviation = 1.0 / (inputs as f64).sqrt() / 0.879_625_661_034_239_8;
        self.add(name, shape, |rng| {
            loop {
                let draw: f64 = rng.sample(rand_distr::StandardNormal);
                if draw.abs() <= 2.0 {
                    return (deviation * draw) as f32;
                }
            }
        })
    }

    /// Adds a parameter of `blocks` random orthogonal matrices `[size, size]`, one above the other, and returns its index.
    pub fn orthogonal(&mut self, name: &str, blocks: usize, size: usize) -> usize {
        let matrices: Vec<f32> = (0..blocks)
            .flat_map(|_| orthogonal(size, &mut self.rng))
            .collect();
        let mut entries = matrices.into_iter();
        let shape = [(blocks * size) as i64, size as i64];
        self.add(name, &shape, |_| entries.next().unwrap_or(0.0))
    }

    fn add(
        &mut self,
        name: &str,
        shape: &[i64],
        mut draw: impl FnMut(&mut StreamRng) -> f32,
    ) -> usize {
        let layout = ParameterLayout {
            name: name.into(),
            shape: shape.to_vec(),
            offset: self.values.len(),
        };
        self.values
            .extend((0..layout.len()).map(|_| draw(&mut self.rng)));
        self.values
            .resize(self.values.len().next_multiple_of(ALIGNMENT), 0.0);
        self.layouts.push(layout);
        self.layouts.len() - 1
    }

    /// The finished set on `device`.
    ///
    /// # Errors
    /// [`CoreError::Setting`] if nothing was added: an agent without parameters learns nothing.
    pub fn build(self, device: Device) -> Result<Parameters, CoreError> {
        if self.values.is_empty() {
            return Err(CoreError::Setting(
                "the network has no trainable parameters".into(),
            ));
        }
        let flat = Tensor::f_from_slice(&self.values)?.f_to_device(device)?;
        Parameters::over(flat, self.layouts)
    }
}

/// An orthogonal matrix `[size, size]`, uniform on the orthogonal group: Gram and Schmidt on Gaussian rows.
fn orthogonal(size: usize, rng: &mut StreamRng) -> Vec<f32> {
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(size);
    while rows.len() < size {
        let mut row: Vec<f64> = (0..size)
            .map(|_| rng.sample(rand_distr::StandardNormal))
            .collect();
        // Twice, because once leaves rounding errors along the earlier rows.
        for _ in 0..2 {
            for other in &rows {
                let along: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
                row.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
            }
        }
        let norm = row.iter().map(|a| a * a).sum::<f64>().sqrt();
        row.iter_mut().for_each(|a| *a /= norm);
        rows.push(row);
    }
    rows.into_iter().flatten().map(|a| a as f32).collect()
}

/// A set of parameters: one flat f32 buffer and, over it, one leaf tensor for each parameter.
pub struct Parameters {
    flat: Tensor,
    leaves: Vec<Tensor>,
    layouts: Vec<ParameterLayout>,
}

impl Parameters {
    fn over(flat: Tensor, layouts: Vec<ParameterLayout>) -> Result<Self, CoreError> {
        let leaves = layouts
            .iter()
            .map(|layout| {
                let view = flat
                    .f_narrow(0, layout.offset as i64, layout.len() as i64)?
                    .f_view(layout.shape.as_slice())?;
                Ok(view.f_detach()?.set_requires_grad(true))
            })
            .collect::<Result<_, CoreError>>()?;
        Ok(Self {
            flat,
            leaves,
            layouts,
        })
    }

    /// The flat buffer, padding included.
    pub fn flat(&self) -> &Tensor {
        &self.flat
    }

    /// The flat buffer for an in-place update.
    pub fn flat_mut(&mut self) -> &mut Tensor {
        &mut self.flat
    }

    /// Names, shapes and places of the parameters.
    pub fn layouts(&self) -> &[ParameterLayout] {
        &self.layouts
    }

    /// The values as slices, for the maps of [`crate::dense`].
    ///
    /// # Errors
    /// [`CoreError::Tensor`] if they are not on the CPU.
    pub fn values(&self) -> Result<ParameterValues<'_>, CoreError> {
        Ok(ParameterValues {
            flat: tensor::f32_slice(&self.flat)?,
            layouts: &self.layouts,
        })
    }

    /// Copies one tensor for each parameter, such as its gradient, into a flat buffer laid out as these; an undefined one counts as zero.
    ///
    /// # Errors
    /// [`CoreError::Tensor`] if a tensor is not of f32 on the CPU.
    pub fn flatten(
        layouts: &[ParameterLayout],
        leaves: &[Tensor],
        flat: &mut [f32],
    ) -> Result<(), CoreError> {
        for (layout, leaf) in layouts.iter().zip(leaves) {
            let own = &mut flat[layout.range()];
            if leaf.defined() {
                own.copy_from_slice(tensor::f32_slice(&leaf.f_contiguous()?)?);
            } else {
                own.fill(0.0);
            }
        }
        Ok(())
    }

    /// Number of trainable values, padding excluded.
    pub fn count(&self) -> usize {
        self.layouts.iter().map(ParameterLayout::len).sum()
    }

    /// New handles on the leaves, for one worker: a tensor may move between threads but not be shared.
    pub fn handles(&self) -> Vec<Tensor> {
        self.leaves.iter().map(Tensor::shallow_clone).collect()
    }

    /// A copy in new memory, such as a target network.
    ///
    /// # Errors
    /// If libtorch cannot allocate it.
    pub fn duplicate(&self) -> Result<Self, CoreError> {
        Self::over(self.flat.copy(), self.layouts.clone())
    }

    /// Moves these values towards those of `source`: θ <- θ + rate (θ_source - θ); a rate of 1 copies.
    ///
    /// # Errors
    /// If the two differ in layout.
    pub fn follow(&mut self, source: &Self, rate: f64) -> Result<(), CoreError> {
        if self.layouts != source.layouts {
            return Err(CoreError::Tensor(
                "target and online network differ in layout".into(),
            ));
        }
        if rate >= 1.0 {
            tch::no_grad(|| self.flat.f_copy_(&source.flat))?;
        } else if self.flat.device() == Device::Cpu {
            let rate = rate as f32;
            let online = tensor::f32_slice(&source.flat)?;
            tensor::f32_slice_mut(&mut self.flat)?
                .par_chunks_mut(BLOCK)
                .zip(online.par_chunks(BLOCK))
                .for_each(|(own, online)| {
                    for (own, online) in own.iter_mut().zip(online) {
                        *own += rate * (online - *own);
                    }
                });
        } else {
            let _ = tch::no_grad(|| self.flat.f_lerp_(&source.flat, rate))?;
        }
        Ok(())
    }

    /// Names (after `prefix` and a slash) and shapes of the arrays that [`Parameters::arrays`] gives.
    pub fn names(&self, prefix: &str) -> Vec<(String, Vec<usize>)> {
        let shape = |layout: &ParameterLayout| layout.shape.iter().map(|&n| n as usize).collect();
        self.layouts
            .iter()
            .map(|layout| (format!("{prefix}/{}", layout.name), shape(layout)))
            .collect()
    }

    /// The values of a buffer laid out as this one (this one's own, or an optimiser's moments) as named arrays.
    ///
    /// # Errors
    /// If libtorch cannot copy them to the CPU.
    pub fn arrays(&self, prefix: &str, flat: &Tensor) -> Result<Vec<NamedArray>, CoreError> {
        let values = tensor::to_f32(flat)?;
        Ok(self
            .names(prefix)
            .into_iter()
            .zip(&self.layouts)
            .map(|((name, shape), layout)| {
                NamedArray::f32(name, shape, values[layout.range()].to_vec())
            })
            .collect())
    }

    /// The flat buffer of arrays in the order of [`Parameters::names`], on the device of this one.
    ///
    /// # Errors
    /// If an array is not of floats.
    pub fn gather(&self, arrays: &[&NamedArray]) -> Result<Tensor, CoreError> {
        let mut values = vec![0.0; self.flat.numel()];
        for (array, layout) in arrays.iter().zip(&self.layouts) {
            values[layout.range()].copy_from_slice(array.as_f32()?);
        }
        Ok(Tensor::f_from_slice(&values)?.f_to_device(self.flat.device())?)
    }

    /// Overwrites all values by those of another buffer laid out as this one.
    ///
    /// # Errors
    /// If the length differs.
    pub fn assign(&mut self, flat: &Tensor) -> Result<(), CoreError> {
        tch::no_grad(|| self.flat.f_copy_(flat))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_values_have_their_laws() {
        let mut builder = ParameterBuilder::new(StreamRng::new(1, "test", 0));
        let constant = builder.constant("constant", &[3], 0.5);
        let lecun = builder.lecun("lecun", &[100, 25], 25);
        let orthogonal = builder.orthogonal("orthogonal", 2, 7);
        let parameters = builder.build(Device::Cpu).unwrap();
        let own = parameters.values().unwrap();
        assert_eq!(own.get(constant), [0.5; 3]);
        // 2500 entries of variance 1/25 = .04: the sample variance has a relative deviation below sqrt(2/2500) = .028; none is beyond
        // 2 · .2/.8796 = .4547.
        let values = own.get(lecun);
        let variance = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        assert!((variance / 0.04 - 1.0).abs() < 0.15, "{variance}");
        assert!(values.iter().all(|v| v.abs() <= 0.4548));
        for block in own.get(orthogonal).chunks_exact(49) {
            for (i, a) in block.chunks_exact(7).enumerate() {
                for (j, b) in block.chunks_exact(7).enumerate() {
                    let product: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                    let expected = if i == j { 1.0 } else { 0.0 };
                    assert!((product - expected).abs() < 1e-5);
                }
            }
        }
    }
}
