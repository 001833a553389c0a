//! The particle network as matrix products on the CPU, for torsos without convolutions.

use pushforward_core::{
    dense::{Activations, ParameterValues},
    network::{Linear, Mlp},
};

/// A view of a [`crate::network::LawNetwork`] whose values and gradients need no autograd graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DenseLaw<'a> {
    pub torso: &'a Mlp,
    /// One map for each action, from the features to N·d numbers.
    pub points: &'a [Linear],
}

/// Rows of observations and of what is appended to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    /// `[rows, length]`.
    pub observations: &'a [f32],
    /// `[rows, k]`.
    pub extra: &'a [f32],
    pub rows: usize,
}

/// Memory of one pass, reused from update to update.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    activations: Activations,
    /// Rows sorted by their action, so that each head multiplies one block.
    order: Vec<usize>,
    /// Rows of each action.
    counts: Vec<usize>,
    /// Points, or their gradients, in that order.
    grouped: Vec<f32>,
}

impl DenseLaw<'_> {
    /// Features of the rows in the order of `pass.order`.
    fn features(&self, own: ParameterValues<'_>, inputs: Inputs<'_>, pass: &mut Pass) {
        let Inputs {
            observations,
            extra,
            rows,
        } = inputs;
        let (length, k) = (observations.len() / rows, extra.len() / rows);
        let input = pass.activations.input(rows, length + k);
        for (out, &row) in input.chunks_exact_mut(length + k).zip(&pass.order) {
            let (first, second) = out.split_at_mut(length);
            first.copy_from_slice(&observations[row * length..(row + 1) * length]);
            second.copy_from_slice(&extra[row * k..(row + 1) * k]);
        }
        self.torso.values(own, &mut pass.activations);
    }

    /// Points `[rows, N, d]` of one action for each row.
    pub fn taken(
        &self,
        own: ParameterValues<'_>,
        inputs: Inputs<'_>,
        taken: &[i64],
        pass: &mut Pass,
    ) -> Vec<f32> {
        pass.order.clear();
        pass.order.extend(0..inputs.rows);
        pass.order.sort_by_key(|&row| taken[row]);
        pass.counts.clear();
        pass.counts.resize(self.points.len(), 0);
        for &action in taken {
            pass.counts[action as usize] += 1;
        }
        self.features(own, inputs, pass);
        let block = self.points[0].outputs as usize;
        pass.grouped.resize(inputs.rows * block, 0.0);
        let features = pass.activations.output();
        let width = features.len() / inputs.rows;
        let mut start = 0;
        for (points, &count) in self.points.iter().zip(&pass.counts) {
            let end = start + count;
            points.values(
                own,
                &features[start * width..end * width],
                &mut pass.grouped[start * block..end * block],
                count,
            );
            start = end;
        }
        let mut result = vec![0.0; inputs.rows * block];
        for (own, &row) in pass.grouped.chunks_exact(block).zip(&pass.order) {
            result[row * block..(row + 1) * block].copy_from_slice(own);
        }
        result
    }

    /// Points `[rows, A, N, d]` of every action.
    pub fn all(&self, own: ParameterValues<'_>, inputs: Inputs<'_>, pass: &mut Pass) -> Vec<f32> {
        pass.order.clear();
        pass.order.extend(0..inputs.rows);
        self.features(own, inputs, pass);
        let block = self.points[0].outputs as usize;
        pass.grouped.resize(inputs.rows * block, 0.0);
        let actions = self.points.len();
        let mut result = vec![0.0; inputs.rows * actions * block];
        for (action, points) in self.points.iter().enumerate() {
            let features = pass.activations.output();
            points.values(own, features, &mut pass.grouped, inputs.rows);
            for (row, own) in pass.grouped.chunks_exact(block).enumerate() {
                let start = (row * actions + action) * block;
                result[start..start + block].copy_from_slice(own);
            }
        }
        result
    }

    /// Parameter gradients of the last [`DenseLaw::taken`] into the flat buffer `gradient` (overwritten), for gradients `slopes` `[rows, N, d]` of its points.
    pub fn gradient(
        &self,
        own: ParameterValues<'_>,
        pass: &mut Pass,
        slopes: &[f32],
        gradient: &mut [f32],
    ) {
        let rows = pass.activations.rows();
        let block = slopes.len() / rows;
        gradient.fill(0.0);
        for (out, &row) in pass.grouped.chunks_exact_mut(block).zip(&pass.order) {
            out.copy_from_slice(&slopes[row * block..(row + 1) * block]);
        }
        let (features, feature_gradient) = pass.activations.output_gradient();
        let width = features.len() / rows;
        let heads = || {
            let mut end = 0;
            self.points
                .iter()
                .zip(&pass.counts)
                .map(move |(points, &count)| {
                    end += count;
                    (points, end - count..end)
                })
        };
        let (grouped, gradient_of_heads) = (&pass.grouped, &mut *gradient);
        rayon::join(
            || {
                for (points, rows) in heads() {
                    points.add_parameter_gradient(
                        own.layouts,
                        &features[rows.start * width..rows.end * width],
                        &grouped[rows.start * block..rows.end * block],
                        rows.len(),
                        gradient_of_heads,
                    );
                }
            },
            || {
                for (points, rows) in heads() {
                    points.input_gradient(
                        own,
                        &grouped[rows.start * block..rows.end * block],
                        rows.len(),
                        &mut feature_gradient[rows.start * width..rows.end * width],
                    );
                }
            },
        );
        self.torso
            .add_gradient(own, &mut pass.activations, gradient);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{LawNetwork, RepresentationConfig};
    use pushforward_core::{network::TorsoConfig, parameters::ParameterBuilder, tensor};
    use pushforward_envs::{EnvSpec, ObservationKind, ObservationSpec, StreamRng};
    use rand::Rng;
    use tch::{Device, Kind, Tensor};

    /// Five rows of 4 + 2 inputs, three actions of which the last is never taken, N = 7, d = 2: the graph and the products agree.
    #[test]
    fn points_and_gradients_are_those_of_the_graph() {
        let spec = EnvSpec {
            name: "sizes".into(),
            observation: ObservationSpec {
                shape: vec![4],
                kind: ObservationKind::F32,
                low: 0.0,
                high: 1.0,
            },
            action_names: ["left", "right", "never"].map(String::from).to_vec(),
            reward_dim: 2,
            max_steps: None,
            constraints: Vec::new(),
        };
        let torso = TorsoConfig {
            hidden: vec![11, 9],
            ..TorsoConfig::default()
        };
        let particles = RepresentationConfig::Particles {
            particles: 7,
            spread: 0.5,
        };
        let mut builder = ParameterBuilder::new(StreamRng::new(1, "test", 0));
        let network = LawNetwork::new(&mut builder, &spec, 2, &torso, &particles).unwrap();
        let parameters = builder.build(Device::Cpu).unwrap();
        let mut rng = StreamRng::new(2, "test", 0);
        let mut draw =
            |count: usize| -> Vec<f32> { (0..count).map(|_| rng.random::<f32>() - 0.5).collect() };
        let (observations, extra, slopes) = (draw(5 * 4), draw(5 * 2), draw(5 * 7 * 2));
        let taken = [1, 0, 1, 1, 0];

        let own = parameters.values().unwrap();
        let law = network.dense().unwrap();
        let mut pass = Pass::default();
        let inputs = Inputs {
            observations: &observations,
            extra: &extra,
            rows: 5,
        };
        let all = law.all(own, inputs, &mut pass);
        let points = law.taken(own, inputs, &taken, &mut pass);
        let mut gradient = vec![f32::NAN; own.flat.len()];
        law.gradient(own, &mut pass, &slopes, &mut gradient);

        let leaves = parameters.handles();
        let on_tensor =
            |values: &[f32], shape: &[i64]| tensor::from_f32(values, shape, Device::Cpu).unwrap();
        let (observations, extra) = (
            on_tensor(&observations, &[5, 4]),
            on_tensor(&extra, &[5, 2]),
        );
        let every = network.forward(&leaves, &observations, Some(&extra), None);
        let one = network.forward_taken(&leaves, &observations, Some(&extra), None, &taken);
        let (every, one) = (every.unwrap(), one.unwrap());
        let close = |got: &[f32], expected: &Tensor| {
            let expected = tensor::to_f32(expected).unwrap();
            assert_eq!(got.len(), expected.len());
            got.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5)
        };
        assert!(close(&all, &every));
        assert!(close(&points, &one));
        let objective = (one * on_tensor(&slopes, &[5, 7, 2])).sum(Kind::Float);
        let reference = Tensor::run_backward(&[objective], &leaves, false, false);
        for (layout, reference) in parameters.layouts().iter().zip(&reference) {
            let got = &gradient[layout.range()];
            if reference.defined() {
                assert!(close(got, reference), "{}", layout.name);
            } else {
                assert!(layout.name.starts_with("head.never"), "{}", layout.name);
                assert!(got.iter().all(|g| *g == 0.0));
            }
        }
    }
}
