//! Affine maps on the CPU without an autograd graph: values and gradients as matrix products over flat parameter buffers.
//!
//! For the small fully connected networks of this suite the graph costs as much as the arithmetic. These functions are the same maps as
//! the tensor path of [`crate::network`], which stays for every other network and device. Products that do not need each other run side
//! by side; how they are cut does not depend on the number of threads.

use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul, s};

use crate::{
    network::{Linear, Mlp},
    parameters::ParameterLayout,
};

/// The values of a set of parameters on the CPU.
#[derive(Clone, Copy, Debug)]
pub struct ParameterValues<'a> {
    /// The flat buffer.
    pub flat: &'a [f32],
    /// Where each parameter stands in it.
    pub layouts: &'a [ParameterLayout],
}

impl<'a> ParameterValues<'a> {
    /// One parameter by its index.
    pub fn get(&self, index: usize) -> &'a [f32] {
        &self.flat[self.layouts[index].range()]
    }
}

/// Rows `[rows, length / rows]` of a slice.
fn view(values: &[f32], rows: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((rows, values.len() / rows), values).expect("whole rows")
}

fn view_mut(values: &mut [f32], rows: usize) -> ArrayViewMut2<'_, f32> {
    let columns = values.len() / rows;
    ArrayViewMut2::from_shape((rows, columns), values).expect("whole rows")
}

impl Linear {
    /// Y = X Wᵀ + b: `output` `[rows, outputs]` for `input` `[rows, inputs]`.
    ///
    /// # Panics
    /// If a slice does not hold `rows` rows of its width.
    pub fn values(&self, own: ParameterValues<'_>, input: &[f32], output: &mut [f32], rows: usize) {
        if rows == 0 {
            return;
        }
        let outputs = self.outputs as usize;
        match self.bias.map(|bias| own.get(bias)) {
            None => output.fill(0.0),
            Some(bias) => {
                for row in output.chunks_exact_mut(outputs) {
                    row.copy_from_slice(bias);
                }
            }
        }
        let weight = view(own.get(self.weight), outputs);
        let mut output = view_mut(output, rows);
        general_mat_mul(1.0, &view(input, rows), &weight.t(), 1.0, &mut output);
    }

    /// Adds the gradients ∂W = ∂Yᵀ X and ∂b = Σ_rows ∂Y to `gradient`, a flat buffer laid out as the parameters.
    ///
    /// # Panics
    /// If a slice does not hold `rows` rows of its width.
    pub fn add_parameter_gradient(
        &self,
        layouts: &[ParameterLayout],
        input: &[f32],
        output_gradient: &[f32],
        rows: usize,
        gradient: &mut [f32],
    ) {
        if rows == 0 {
            return;
        }
        let outputs = output_gradient.len() / rows;
        let (output_rows, input_rows) = (view(output_gradient, rows), view(input, rows));
        // Two halves of the outputs, wherever two workers are free.
        let half = outputs / 2;
        let own = &mut gradient[layouts[self.weight].range()];
        let (first, second) = own.split_at_mut(half * input_rows.ncols());
        let multiply = |range: std::ops::Range<usize>, own: &mut [f32]| {
            if !range.is_empty() {
                let left = output_rows.slice(s![.., range.clone()]);
                let mut own = view_mut(own, range.len());
                general_mat_mul(1.0, &left.t(), &input_rows, 1.0, &mut own);
            }
        };
        rayon::join(
            || multiply(0..half, first),
            || multiply(half..outputs, second),
        );
        if let Some(bias) = self.bias {
            let bias = &mut gradient[layouts[bias].range()];
            for row in output_gradient.chunks_exact(outputs) {
                bias.iter_mut().zip(row).for_each(|(sum, g)| *sum += g);
            }
        }
    }

    /// Gradient ∂X = ∂Y W into `input_gradient` `[rows, inputs]` (overwritten).
    ///
    /// # Panics
    /// If a slice does not hold `rows` rows of its width.
    pub fn input_gradient(
        &self,
        own: ParameterValues<'_>,
        output_gradient: &[f32],
        rows: usize,
        input_gradient: &mut [f32],
    ) {
        if rows == 0 {
            return;
        }
        let output_rows = view(output_gradient, rows);
        let weight = view(own.get(self.weight), output_rows.ncols());
        let mut input_gradient = view_mut(input_gradient, rows);
        general_mat_mul(1.0, &output_rows, &weight, 0.0, &mut input_gradient);
    }
}

/// What a pass through an [`Mlp`] leaves for its gradient: the input and every layer's activations; reused from pass to pass.
#[derive(Clone, Debug, Default)]
pub struct Activations {
    rows: usize,
    /// The input `[rows, inputs]`, then one buffer `[rows, width]` for each layer.
    layers: Vec<Vec<f32>>,
    /// Gradients with respect to two neighbouring layers.
    gradients: [Vec<f32>; 2],
}

impl Activations {
    /// The input of the next pass over `rows` rows of `inputs` values, to be filled by the caller.
    pub fn input(&mut self, rows: usize, inputs: usize) -> &mut [f32] {
        self.rows = rows;
        if self.layers.is_empty() {
            self.layers.push(Vec::new());
        }
        self.layers[0].resize(rows * inputs, 0.0);
        &mut self.layers[0]
    }

    /// Number of rows of the pass.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The last layer's activations `[rows, width]`.
    pub fn output(&self) -> &[f32] {
        self.layers.last().map_or(&[], Vec::as_slice)
    }

    /// The gradient with respect to [`Activations::output`], for the caller to fill before [`Mlp::add_gradient`], beside that output.
    pub fn output_gradient(&mut self) -> (&[f32], &mut [f32]) {
        let Self {
            layers, gradients, ..
        } = self;
        let output = layers.last().map_or(&[][..], Vec::as_slice);
        gradients[0].resize(output.len(), 0.0);
        (output, &mut gradients[0])
    }
}

impl Mlp {
    /// The pass itself: fills the activations of every layer from the input that the caller wrote there.
    pub fn values(&self, own: ParameterValues<'_>, activations: &mut Activations) {
        let rows = activations.rows;
        activations
            .layers
            .resize_with(self.layers.len() + 1, Vec::new);
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = activations.layers.split_at_mut(index + 1);
            let output = &mut after[0];
            output.resize(rows * layer.outputs as usize, 0.0);
            layer.values(own, &before[index], output, rows);
            for value in output.iter_mut() {
                *value = value.max(0.0);
            }
        }
    }

    /// Adds the parameter gradients of the last pass to the flat buffer `gradient`, from the output gradient that the caller wrote into
    /// [`Activations::output_gradient`] (destroyed). A zero activation passes no gradient on.
    pub fn add_gradient(
        &self,
        own: ParameterValues<'_>,
        activations: &mut Activations,
        gradient: &mut [f32],
    ) {
        let Activations {
            rows,
            layers,
            gradients: [current, previous],
        } = activations;
        for (index, layer) in self.layers.iter().enumerate().rev() {
            for (g, value) in current.iter_mut().zip(&layers[index + 1]) {
                *g = if *value > 0.0 { *g } else { 0.0 };
            }
            let mut parameters = || {
                layer.add_parameter_gradient(own.layouts, &layers[index], current, *rows, gradient);
            };
            if index == 0 {
                parameters();
                return;
            }
            previous.resize(layers[index].len(), 0.0);
            rayon::join(parameters, || {
                layer.input_gradient(own, current, *rows, previous);
            });
            std::mem::swap(current, previous);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parameters::ParameterBuilder, tensor};
    use pushforward_envs::StreamRng;
    use rand::Rng;
    use tch::{Device, Tensor};

    /// 5 rows through 7 -> 11 -> 3: values and gradients against libtorch's autograd.
    #[test]
    fn values_and_gradients_are_those_of_autograd() {
        let mut builder = ParameterBuilder::new(StreamRng::new(1, "test", 0));
        let mlp = Mlp::new(&mut builder, "torso", 7, &[11, 3]);
        let parameters = builder.build(Device::Cpu).unwrap();
        let mut rng = StreamRng::new(2, "test", 0);
        let mut draw =
            |count: usize| -> Vec<f32> { (0..count).map(|_| rng.random::<f32>() - 0.4).collect() };
        let (input, slopes) = (draw(5 * 7), draw(5 * 3));

        let flat = tensor::to_f32(parameters.flat()).unwrap();
        let own = ParameterValues {
            flat: &flat,
            layouts: parameters.layouts(),
        };
        let mut activations = Activations::default();
        activations.input(5, 7).copy_from_slice(&input);
        mlp.values(own, &mut activations);
        let (output, output_gradient) = activations.output_gradient();
        let output = output.to_vec();
        output_gradient.copy_from_slice(&slopes);
        let mut gradient = vec![0.0; flat.len()];
        mlp.add_gradient(own, &mut activations, &mut gradient);

        let leaves = parameters.handles();
        let expected = mlp
            .forward(
                &leaves,
                &tensor::from_f32(&input, &[5, 7], Device::Cpu).unwrap(),
            )
            .unwrap();
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close(&output, &tensor::to_f32(&expected).unwrap()));
        assert!(output.iter().any(|value| *value > 0.0));
        let slopes = tensor::from_f32(&slopes, &[5, 3], Device::Cpu).unwrap();
        let objective = (expected * slopes).sum(tch::Kind::Float);
        let reference = Tensor::run_backward(&[objective], &leaves, false, false);
        for (layout, reference) in parameters.layouts().iter().zip(&reference) {
            let got = &gradient[layout.range()];
            assert!(
                close(got, &tensor::to_f32(reference).unwrap()),
                "{}",
                layout.name
            );
        }
    }

    /// y = 2x + 1 with rows (3), (5): Σ ∂y x = 1·3 + 10·5 = 53, Σ ∂y = 11, ∂x = 2 ∂y; no rows add nothing.
    #[test]
    fn an_affine_map_by_hand() {
        let mut builder = ParameterBuilder::new(StreamRng::new(1, "test", 0));
        let map = Linear::new(&mut builder, "map", 1, 1, 1.0);
        let parameters = builder.build(Device::Cpu).unwrap();
        let mut flat = vec![0.0; parameters.flat().numel()];
        (flat[0], flat[16]) = (2.0, 1.0);
        let own = ParameterValues {
            flat: &flat,
            layouts: parameters.layouts(),
        };
        let mut output = [0.0; 2];
        map.values(own, &[3.0, 5.0], &mut output, 2);
        assert_eq!(output, [7.0, 11.0]);
        let mut gradient = vec![0.0; flat.len()];
        map.add_parameter_gradient(own.layouts, &[3.0, 5.0], &[1.0, 10.0], 2, &mut gradient);
        assert_eq!((gradient[0], gradient[16]), (53.0, 11.0));
        map.add_parameter_gradient(own.layouts, &[], &[], 0, &mut gradient);
        assert_eq!((gradient[0], gradient[16]), (53.0, 11.0));
        let mut slopes = [0.0; 2];
        map.input_gradient(own, &[1.0, 10.0], 2, &mut slopes);
        assert_eq!(slopes, [2.0, 20.0]);
    }
}
