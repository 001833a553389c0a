//! The tensor layer: fused kernel and tensor operations agree in value and gradient.
#![cfg(feature = "tensor")]

use pushforward_divergences::{Cloud, Divergence, DivergenceConfig, Path};
use pushforward_envs::StreamRng;
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use tch::{Kind, Tensor};

const B: i64 = 5;
const N: i64 = 7;
const M: i64 = 9;

fn config(text: &str) -> DivergenceConfig {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn points(count: i64, d: i64, rng: &mut StreamRng) -> Tensor {
    let values: Vec<f32> = (0..B * count * d)
        .map(|_| StandardNormal.sample(rng))
        .collect();
    Tensor::from_slice(&values).view([B, count, d])
}

fn weights(count: i64, rng: &mut StreamRng) -> Tensor {
    let values: Vec<f32> = (0..B * count).map(|_| rng.random_range(0.1..1.0)).collect();
    let raw = Tensor::from_slice(&values).view([B, count]);
    &raw / raw.sum_dim_intlist(&[1_i64][..], true, Kind::Float)
}

/// Loss `[B]`, its gradient, and whether the target received one.
fn run(
    divergence: &dyn Divergence,
    x: &Tensor,
    y: &Tensor,
    wx: Option<&Tensor>,
    wy: Option<&Tensor>,
    path: Path,
) -> (Vec<f64>, Vec<f64>) {
    let mut rng = StreamRng::new(7, "tensor", 1);
    let directions = divergence.draw(B as usize, &mut rng);
    let x = x.copy().set_requires_grad(true);
    let predicted = Cloud {
        points: x.shallow_clone(),
        weights: wx.map(Tensor::shallow_clone),
    };
    let target = Cloud {
        points: y.copy().set_requires_grad(true),
        weights: wy.map(Tensor::shallow_clone),
    };
    let loss = divergence
        .loss_from(&predicted, &target, &directions, &mut None, path)
        .unwrap_or_else(|e| panic!("{divergence:?}: {e}"));
    assert_eq!(loss.size(), [B]);
    // Unequal factors, so that a mix-up of batch elements shows.
    let factors = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0]);
    (&loss * factors).sum(Kind::Float).backward();
    assert!(!target.points.grad().defined(), "{divergence:?}");
    let host = |t: &Tensor| Vec::<f64>::try_from(t.view([-1]).to_kind(Kind::Double)).expect("1-d");
    (host(&loss.detach()), host(&x.grad()))
}

fn agree(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len());
    let scale = expected.iter().fold(0.0_f64, |a, v| a.max(v.abs()));
    for (g, e) in got.iter().zip(expected) {
        assert!((g - e).abs() <= 1e-5 * scale, "{what}: {g} {e} of {scale}");
    }
}

#[test]
fn both_paths_agree() {
    for lift in [
        r#"{"kind": "uniform", "directions": 11}"#,
        r#"{"kind": "uniform", "directions": 11, "draw": "orthogonal", "per_element": true}"#,
        r#"{"kind": "marginal"}"#,
        r#"{"kind": "max"}"#,
        r#"{"kind": "exact"}"#,
        r#"{"kind": "none"}"#,
    ] {
        for base in [
            r#""kind": "wasserstein", "p": 1"#,
            r#""kind": "wasserstein", "p": 2"#,
            r#""kind": "wasserstein", "p": 3"#,
            r#""kind": "cramer""#,
            r#""kind": "cramer", "statistic": "u""#,
            r#""kind": "mmd""#,
            r#""kind": "mmd", "statistic": "u", "kernel": {"kind": "gaussian", "bandwidths": [0.5, 3], "divide_by_dim": true}"#,
            r#""kind": "mmd", "kernel": {"kind": "multiquadric"}"#,
            r#""kind": "mmd", "kernel": {"kind": "energy", "alpha": 1}"#,
            r#""kind": "mmd", "statistic": "u", "kernel": {"kind": "energy", "alpha": 1.5}"#,
            r#""kind": "mmd", "kernel": {"kind": "laplace", "h": 2.5}"#,
        ] {
            for d in [1, 3] {
                let text = format!("{{{base}, \"lift\": {lift}}}");
                let Ok(divergence) = config(&text).build(d as usize) else {
                    assert!(lift.contains("exact") || lift.contains("none"), "{text}");
                    continue;
                };
                let mut rng = StreamRng::new(3, "tensor", 0);
                let (x, y) = (points(N, d, &mut rng), points(M, d, &mut rng));
                let z = points(N, d, &mut rng);
                let (wx, wy) = (weights(N, &mut rng), weights(M, &mut rng));
                let mut pairs = vec![(&y, None, None), (&z, None, None)];
                if !base.contains("\"u\"") {
                    pairs.push((&y, Some(&wx), Some(&wy)));
                    pairs.push((&y, Some(&wx), None));
                }
                for (target, wx, wy) in pairs {
                    let fused = run(divergence.as_ref(), &x, target, wx, wy, Path::Fastest);
                    let tensor = run(
                        divergence.as_ref(),
                        &x,
                        target,
                        wx,
                        wy,
                        Path::TensorOperations,
                    );
                    agree(&fused.0, &tensor.0, &format!("{text} d={d} value"));
                    agree(&fused.1, &tensor.1, &format!("{text} d={d} gradient"));
                }
            }
        }
    }
}

#[test]
fn wrong_shapes_are_one_line() {
    let divergence = config(r#"{"kind": "cramer"}"#).build(3).expect("valid");
    let mut rng = StreamRng::new(3, "tensor", 0);
    let x = Cloud::new(points(N, 3, &mut rng));
    let directions = divergence.draw(5, &mut rng);
    let other = Cloud::new(points(M, 2, &mut rng));
    let error = divergence.loss(&x, &other, &directions).unwrap_err();
    assert_eq!(
        error.to_string(),
        "divergence: target points: got predicted [5, 7, 3], target [5, 9, 2], expected equal batches and d = 3"
    );
    let double = Cloud::new(x.points.to_kind(Kind::Double));
    let error = divergence.loss(&double, &x, &directions).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("expected [B, points, d] of Float"),
        "{error}"
    );
    let nan = Cloud::new(&x.points * f64::NAN);
    let error = divergence.loss(&nan, &x, &directions).unwrap_err();
    assert_eq!(
        error.to_string(),
        "divergence: predicted points[0] is NaN, expected a finite number"
    );
}
