//! The recurrent encoder of the public history: one gated recurrent unit for each common-noise path.

use pushforward_core::{
    dense::ParameterValues,
    network::Linear,
    parameters::{ParameterBuilder, ParameterLayout},
};

/// A gated recurrent unit (Cho et al. 2014), max(0, ·) and an affine map: from o_0..o_t to what the policy sees at t.
///
/// r = σ(W_r o + b_r + U_r h), z = σ(W_z o + b_z + U_z h), n = tanh(W_n o + b_n + r (U_n h + c)), h <- (1 - z) n + z h, from h = 0;
/// the output is V max(0, h) + v. Input maps have LeCun's initialisation, recurrent ones are orthogonal, biases 0, as in the library MFAX
/// (arXiv 2602.20141).
#[derive(Clone, Debug)]
pub struct Encoder {
    /// Three maps in one, r, z, n: `[3 H, o]`.
    input: Linear,
    /// The same for the hidden state, `[3 H, H]`, without bias.
    recurrent: Linear,
    /// c, `[H]`.
    candidate_bias: usize,
    output: Linear,
    inputs: usize,
    hidden: usize,
}

/// The record of a pass over T steps of E paths; reused from pass to pass.
#[derive(Clone, Debug, Default)]
pub struct EncoderPass {
    paths: usize,
    time: usize,
    /// o, `[T, E, o]`.
    observations: Vec<f32>,
    /// h before and after every step, `[T + 1, E, H]`.
    hidden: Vec<f32>,
    /// r, z, n, `[T, E, 3 H]`.
    gates: Vec<f32>,
    /// U_n h + c, `[T, E, H]`.
    candidates: Vec<f32>,
    /// max(0, h) after every step, `[T, E, H]`.
    active: Vec<f32>,
    /// Room for one step's products.
    from_input: Vec<f32>,
    from_hidden: Vec<f32>,
}

impl EncoderPass {
    /// Starts over at h = 0.
    pub fn start(&mut self, paths: usize, horizon: usize, encoder: &Encoder) {
        let (rows, hidden) = (horizon * paths, encoder.hidden);
        self.paths = paths;
        self.time = 0;
        self.observations.resize(rows * encoder.inputs, 0.0);
        self.hidden.resize((rows + paths) * hidden, 0.0);
        self.hidden[..paths * hidden].fill(0.0);
        self.gates.resize(rows * 3 * hidden, 0.0);
        self.candidates.resize(rows * hidden, 0.0);
        self.active.resize(rows * hidden, 0.0);
        self.from_input.resize(paths * 3 * hidden, 0.0);
        self.from_hidden.resize(paths * 3 * hidden, 0.0);
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

impl Encoder {
    /// Adds the parameters of an encoder of `inputs` numbers with `hidden` units, which are also the length of its output.
    pub fn new(builder: &mut ParameterBuilder, inputs: usize, hidden: usize) -> Self {
        let (o, h) = (inputs as i64, hidden as i64);
        let weight = builder.lecun("encoder.input.weight", &[3 * h, o], o);
        let bias = builder.constant("encoder.input.bias", &[3 * h], 0.0);
        let recurrent = builder.orthogonal("encoder.recurrent.weight", 3, hidden);
        let candidate_bias = builder.constant("encoder.recurrent.candidate_bias", &[h], 0.0);
        let out_weight = builder.lecun("encoder.output.weight", &[h, h], h);
        let out_bias = builder.constant("encoder.output.bias", &[h], 0.0);
        Self {
            input: Linear::over(weight, Some(bias), 3 * h),
            recurrent: Linear::over(recurrent, None, 3 * h),
            candidate_bias,
            output: Linear::over(out_weight, Some(out_bias), h),
            inputs,
            hidden,
        }
    }

    /// Length H of the output.
    pub fn outputs(&self) -> usize {
        self.hidden
    }

    /// One step: the observations `[E, o]` of the pass's time to outputs `[E, H]`.
    pub fn step(
        &self,
        own: ParameterValues<'_>,
        pass: &mut EncoderPass,
        observations: &[f32],
        outputs: &mut [f32],
    ) {
        let (paths, size) = (pass.paths, self.hidden);
        let (start, block) = (pass.time * paths, paths * size);
        pass.observations[start * self.inputs..][..observations.len()]
            .copy_from_slice(observations);
        let (before, after) = pass.hidden[start * size..].split_at_mut(block);
        let after = &mut after[..block];
        self.input
            .values(own, observations, &mut pass.from_input, paths);
        self.recurrent
            .values(own, before, &mut pass.from_hidden, paths);
        let bias = own.get(self.candidate_bias);
        let gates = &mut pass.gates[start * 3 * size..][..3 * block];
        let candidates = &mut pass.candidates[start * size..][..block];
        let active = &mut pass.active[start * size..][..block];
        for path in 0..paths {
            let wide = path * 3 * size..(path + 1) * 3 * size;
            let (input, hidden) = (
                &pass.from_input[wide.clone()],
                &pass.from_hidden[wide.clone()],
            );
            let gates = &mut gates[wide];
            for unit in 0..size {
                let place = path * size + unit;
                let (z_at, n_at) = (size + unit, 2 * size + unit);
                let r = sigmoid(input[unit] + hidden[unit]);
                let z = sigmoid(input[z_at] + hidden[z_at]);
                let candidate = hidden[n_at] + bias[unit];
                let n = (input[n_at] + r * candidate).tanh();
                (gates[unit], gates[z_at], gates[n_at]) = (r, z, n);
                candidates[place] = candidate;
                after[place] = (1.0 - z) * n + z * before[place];
                active[place] = after[place].max(0.0);
            }
        }
        self.output.values(own, active, outputs, paths);
        pass.time += 1;
    }

    /// Adds the parameter gradients of a whole pass to `gradient`, for gradients `slopes` `[T, E, H]` of its outputs: backpropagation through
    /// time without truncation.
    pub fn add_gradient(
        &self,
        own: ParameterValues<'_>,
        pass: &EncoderPass,
        slopes: &[f32],
        gradient: &mut [f32],
    ) {
        let (paths, size) = (pass.paths, self.hidden);
        let (rows, block) = (pass.time * paths, paths * size);
        let layouts: &[ParameterLayout] = own.layouts;
        self.output
            .add_parameter_gradient(layouts, &pass.active, slopes, rows, gradient);
        let mut of_hidden = vec![0.0; rows * size];
        self.output
            .input_gradient(own, slopes, rows, &mut of_hidden);
        let mut of_input = vec![0.0; rows * 3 * size];
        let mut of_recurrent = vec![0.0; rows * 3 * size];
        // ∂h of the step after, then of the step itself.
        let mut later = vec![0.0; block];
        let mut through = vec![0.0; block];
        for time in (0..pass.time).rev() {
            let start = time * paths;
            for path in 0..paths {
                let row = start + path;
                let gates = &pass.gates[row * 3 * size..][..3 * size];
                let input = &mut of_input[row * 3 * size..][..3 * size];
                let recurrent = &mut of_recurrent[row * 3 * size..][..3 * size];
                for unit in 0..size {
                    let (place, here) = (row * size + unit, path * size + unit);
                    let (z_at, n_at) = (size + unit, 2 * size + unit);
                    let (r, z, n) = (gates[unit], gates[z_at], gates[n_at]);
                    let before = pass.hidden[place];
                    let out = if pass.active[place] > 0.0 {
                        of_hidden[place]
                    } else {
                        0.0
                    };
                    let g = later[here] + out;
                    let of_n = g * (1.0 - z) * (1.0 - n * n);
                    let of_z = g * (before - n) * z * (1.0 - z);
                    let of_r = of_n * pass.candidates[place] * r * (1.0 - r);
                    (input[unit], input[z_at], input[n_at]) = (of_r, of_z, of_n);
                    (recurrent[unit], recurrent[z_at], recurrent[n_at]) = (of_r, of_z, of_n * r);
                    later[here] = g * z;
                }
            }
            let recurrent = &of_recurrent[start * 3 * size..][..3 * block];
            self.recurrent
                .input_gradient(own, recurrent, paths, &mut through);
            later.iter_mut().zip(&through).for_each(|(a, b)| *a += b);
        }
        self.input
            .add_parameter_gradient(layouts, &pass.observations, &of_input, rows, gradient);
        let before = &pass.hidden[..rows * size];
        self.recurrent
            .add_parameter_gradient(layouts, before, &of_recurrent, rows, gradient);
        let bias = &mut gradient[layouts[self.candidate_bias].range()];
        for row in of_recurrent.chunks_exact(3 * size) {
            let candidates = &row[2 * size..];
            bias.iter_mut().zip(candidates).for_each(|(a, b)| *a += b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pushforward_core::tensor;
    use pushforward_envs::StreamRng;
    use rand::Rng;
    use tch::{Device, Kind, Tensor};

    /// Five steps of three paths, two inputs, seven units, against the same formulas on tensors with autograd.
    #[test]
    fn outputs_and_gradients_are_those_of_autograd() {
        let (horizon, paths, inputs, hidden) = (5, 3, 2, 7);
        let mut builder = ParameterBuilder::new(StreamRng::new(1, "test", 0));
        let encoder = Encoder::new(&mut builder, inputs, hidden);
        let parameters = builder.build(Device::Cpu).unwrap();
        let mut rng = StreamRng::new(2, "test", 0);
        let mut draw =
            |count: usize| -> Vec<f32> { (0..count).map(|_| rng.random::<f32>() - 0.5).collect() };
        // Biases start at zero, where a mistake in them would not show.
        let flat = draw(parameters.flat().numel());
        let mut parameters = parameters;
        parameters.assign(&Tensor::from_slice(&flat)).unwrap();
        let observations = draw(horizon * paths * inputs);
        let slopes = draw(horizon * paths * hidden);

        let own = parameters.values().unwrap();
        let mut pass = EncoderPass::default();
        // A pass of another shape first: nothing of it may be left.
        pass.start(4, 2, &encoder);
        encoder.step(own, &mut pass, &[0.5; 8], &mut vec![0.0; 4 * hidden]);
        pass.start(paths, horizon, &encoder);
        let mut outputs = vec![0.0; slopes.len()];
        for (observations, outputs) in observations
            .chunks_exact(paths * inputs)
            .zip(outputs.chunks_exact_mut(paths * hidden))
        {
            encoder.step(own, &mut pass, observations, outputs);
        }
        let mut gradient = vec![0.0; own.flat.len()];
        encoder.add_gradient(own, &pass, &slopes, &mut gradient);

        let leaves = parameters.handles();
        let [w, b, u, c, v, d] = &leaves[..] else {
            panic!("six parameters");
        };
        let shape = |values: &[f32], width: usize| {
            let shape = [horizon as i64, paths as i64, width as i64];
            tensor::from_f32(values, &shape, Device::Cpu).unwrap()
        };
        let (observations, slopes) = (shape(&observations, inputs), shape(&slopes, hidden));
        let mut h = Tensor::zeros([paths as i64, hidden as i64], (Kind::Float, Device::Cpu));
        let mut expected = Vec::new();
        for time in 0..horizon as i64 {
            let input = observations.get(time).linear(w, Some(b)).chunk(3, 1);
            let recurrent = h.linear(u, None::<&Tensor>).chunk(3, 1);
            let r = (&input[0] + &recurrent[0]).sigmoid();
            let z = (&input[1] + &recurrent[1]).sigmoid();
            let n = (&input[2] + r * (&recurrent[2] + c)).tanh();
            h = (1.0 - &z) * n + z * h;
            expected.push(h.relu().linear(v, Some(d)));
        }
        let expected = Tensor::stack(&expected, 0);
        let close = |got: &[f32], expected: &Tensor| {
            let expected = tensor::to_f32(expected).unwrap();
            got.iter()
                .zip(&expected)
                .all(|(a, b)| (a - b).abs() < 1e-5 + 1e-5 * b.abs())
        };
        assert!(close(&outputs, &expected));
        let objective = (expected * slopes).sum(Kind::Float);
        let reference = Tensor::run_backward(&[objective], &leaves, false, false);
        for (layout, reference) in parameters.layouts().iter().zip(&reference) {
            assert!(
                close(&gradient[layout.range()], reference),
                "{}",
                layout.name
            );
        }
    }
}
