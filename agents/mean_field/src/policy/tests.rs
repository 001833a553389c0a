use super::*;
use pushforward_core::tensor;
use pushforward_envs::StreamRng;
use pushforward_envs::mean_field::StateFeatures;
use rand::Rng;
use tch::{Device, Kind, Tensor};

fn spec(kind: ActionKind, states: usize, features: bool) -> GameSpec {
    GameSpec {
        name: "sizes".into(),
        states,
        action_values: vec![0.1, 0.3, 0.5, 0.6, 0.9],
        action_kind: kind,
        horizon: 4,
        discount: 0.9,
        noise_names: Vec::new(),
        observation_names: vec!["one".into(), "two".into()],
        state_features: features.then(|| StateFeatures {
            names: vec!["wealth".into(), "income".into(), "age".into()],
            values: (0..states * 3).map(|i| (i % 11) as f32 / 11.0).collect(),
        }),
    }
}

/// T = 4, E = 3, S = 131 (more than one block), A = 5, k = 2, W = 6, H = 8 for both heads and both kinds of states: probabilities and all
/// gradients are those of the same formulas on tensors with autograd.
#[test]
fn probabilities_and_gradients_are_those_of_autograd() {
    for (kind, features) in [(ActionKind::Discrete, false), (ActionKind::Interval, true)] {
        let (horizon, paths, states, actions, inputs) = (4, 3, 131, 5, 2);
        let spec = spec(kind, states, features);
        let mut builder = ParameterBuilder::new(StreamRng::new(1, "test", 0));
        let network = PolicyNetwork::new(&mut builder, &spec, inputs, 6, 8);
        let mut parameters = builder.build(Device::Cpu).unwrap();
        let mut rng = StreamRng::new(2, "test", 0);
        let mut draw =
            |count: usize| -> Vec<f32> { (0..count).map(|_| rng.random::<f32>() - 0.5).collect() };
        let flat = draw(parameters.flat().numel());
        parameters.assign(&Tensor::from_slice(&flat)).unwrap();
        let public = draw(horizon * paths * inputs);
        let slopes = draw(horizon * paths * states * actions);

        let own = parameters.values().unwrap();
        let mut pass = PolicyPass::default();
        let mut probabilities = vec![0.0; slopes.len()];
        network.start(own, &mut pass, paths, horizon);
        for (public, table) in public
            .chunks_exact(paths * inputs)
            .zip(probabilities.chunks_exact_mut(paths * states * actions))
        {
            network.step(own, &mut pass, public, table);
        }
        let mut gradient = vec![0.0; own.flat.len()];
        let of_public =
            network.add_gradient(own, &mut pass, &probabilities, &slopes, &mut gradient);

        let leaves = parameters.handles();
        let find = |name: &str| {
            let index = parameters.layouts().iter().position(|l| l.name == name);
            &leaves[index.unwrap_or_else(|| panic!("{name}"))]
        };
        let tensor =
            |values: &[f32], shape: &[i64]| tensor::from_f32(values, shape, Device::Cpu).unwrap();
        let rows = (horizon * paths) as i64;
        let x = tensor(&public, &[rows, 2]).set_requires_grad(true);
        let state = match &spec.state_features {
            None => find("policy.state.table").shallow_clone(),
            Some(features) => tensor(&features.values, &[states as i64, 3])
                .linear(find("policy.state.weight"), Some(find("policy.state.bias"))),
        };
        let input = x.linear(find("policy.input.weight"), Some(find("policy.input.bias")));
        let weight = Tensor::cat(
            &[
                find("policy.first.state.weight"),
                find("policy.first.input.weight"),
            ],
            1,
        );
        let joined = Tensor::cat(
            &[
                state.unsqueeze(0).expand([rows, states as i64, 6], false),
                input.unsqueeze(1).expand([rows, states as i64, 6], false),
            ],
            2,
        );
        let out = joined
            .linear(&weight, Some(find("policy.first.input.bias")))
            .relu()
            .linear(
                find("policy.second.weight"),
                Some(find("policy.second.bias")),
            )
            .relu()
            .linear(find("policy.head.weight"), Some(find("policy.head.bias")));
        let logits = match kind {
            ActionKind::Discrete => out,
            ActionKind::Interval => {
                let points: Vec<f32> = spec.action_values.iter().map(|x| *x as f32).collect();
                let points = tensor(&points, &[5]);
                let parameters = out.softplus() + 1.0 + 1e-6;
                let (a, b) = (parameters.narrow(2, 0, 1), parameters.narrow(2, 1, 1));
                // The whole log density, normaliser included.
                let log_beta = a.lgamma() + b.lgamma() - (&a + &b).lgamma();
                (a - 1.0) * points.log() + (b - 1.0) * (points.neg() + 1.0).log() - log_beta
            }
        };
        let expected = logits.softmax(2, Kind::Float);
        let close = |got: &[f32], expected: &Tensor, what: &str| {
            let expected = tensor::to_f32(expected).unwrap();
            assert_eq!(got.len(), expected.len(), "{what}");
            let scale = expected.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
            for (a, b) in got.iter().zip(&expected) {
                assert!(
                    // Sums of 1572 signed f32 terms, on both sides.
                    (a - b).abs() < 1e-4 * scale,
                    "{kind:?} {what}: {a} {b} of {scale}"
                );
            }
        };
        close(&probabilities, &expected, "probabilities");
        let slopes = tensor(&slopes, &[rows, states as i64, actions as i64]);
        let objective = (expected * slopes).sum(Kind::Float);
        let mut wanted: Vec<&Tensor> = leaves.iter().collect();
        wanted.push(&x);
        let reference = Tensor::run_backward(&[objective], &wanted, false, false);
        for (layout, reference) in parameters.layouts().iter().zip(&reference) {
            close(&gradient[layout.range()], reference, &layout.name);
        }
        close(&of_public, &reference[leaves.len()], "public inputs");
    }
}

/// The layers of the peer: 40391 parameters for 99 states, 7 actions and one public number; 33666 for two features and a Beta density.
#[test]
fn parameter_counts_are_those_of_the_peer() {
    let count = |kind, states, features: usize, actions: usize, observations: i64| {
        let mut spec = spec(kind, states, features > 0);
        spec.action_values = (0..actions)
            .map(|a| (a as f64 + 0.5) / actions as f64)
            .collect();
        if let Some(own) = &mut spec.state_features {
            own.names.truncate(features);
            own.values.truncate(states * features);
        }
        let mut builder = ParameterBuilder::new(StreamRng::new(1, "test", 0));
        PolicyNetwork::new(&mut builder, &spec, observations as usize, 64, 128);
        builder.build(Device::Cpu).unwrap().count()
    };
    assert_eq!(count(ActionKind::Discrete, 99, 0, 7, 1), 40_391);
    assert_eq!(count(ActionKind::Discrete, 101, 0, 11, 3), 41_163);
    assert_eq!(count(ActionKind::Interval, 1000, 2, 20, 2), 33_666);
}
