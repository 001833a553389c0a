//! Value and gradient of sliced divergences: the fused kernel, and the same by tensor operations.
//!
//! B = 64 pairs of clouds, N = M = 64 points in d = 2, L = 64 directions. With `RAYON_NUM_THREADS=1` both sides of the comparison have one thread;
//! on more, the fused kernel also has them.

use criterion::{Criterion, criterion_group, criterion_main};
use pushforward_divergences::{Clouds, DivergenceConfig, Shape};
use pushforward_envs::StreamRng;
use rand_distr::{Distribution, StandardNormal};

const SHAPE: Shape = Shape {
    batch: 64,
    predicted: 64,
    target: 64,
    dimension: 2,
};

fn gaussian(count: usize, rng: &mut StreamRng) -> Vec<f32> {
    (0..count).map(|_| StandardNormal.sample(rng)).collect()
}

fn config(text: &str) -> DivergenceConfig {
    serde_json::from_str(text).expect("valid")
}

fn sliced(c: &mut Criterion) {
    let one_thread = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .expect("a pool of one thread");
    let mut rng = StreamRng::new(0, "bench", 0);
    let size = SHAPE.batch * SHAPE.predicted * SHAPE.dimension;
    let predicted = gaussian(size, &mut rng);
    let target = gaussian(size, &mut rng);
    // A terminal transition: every target particle is the reward.
    let terminal: Vec<f32> = target
        .chunks_exact(SHAPE.target * 2)
        .flat_map(|cloud| cloud[..2].repeat(SHAPE.target))
        .collect();
    let mut group = c.benchmark_group("sliced");
    for (name, text, target) in [
        ("cramer", r#"{"kind": "cramer"}"#, &target),
        ("cramer terminal", r#"{"kind": "cramer"}"#, &terminal),
        (
            "cramer u",
            r#"{"kind": "cramer", "statistic": "u"}"#,
            &target,
        ),
        (
            "wasserstein 1",
            r#"{"kind": "wasserstein", "p": 1}"#,
            &target,
        ),
        (
            "wasserstein 2",
            r#"{"kind": "wasserstein", "p": 2}"#,
            &target,
        ),
        (
            "max cramer",
            r#"{"kind": "cramer", "lift": {"kind": "max"}}"#,
            &target,
        ),
        (
            "exact cramer",
            r#"{"kind": "cramer", "lift": {"kind": "exact"}}"#,
            &target,
        ),
        ("mmd", r#"{"kind": "mmd"}"#, &target),
        (
            "exact mmd",
            r#"{"kind": "mmd", "lift": {"kind": "exact"}}"#,
            &target,
        ),
        (
            "mmd on R^d",
            r#"{"kind": "mmd", "lift": {"kind": "none"}}"#,
            &target,
        ),
    ] {
        let divergence = config(text).build(2).expect("valid");
        let directions = divergence.draw(SHAPE.batch, &mut rng);
        let clouds = Clouds {
            shape: SHAPE,
            predicted: &predicted,
            target,
            predicted_weights: None,
            target_weights: None,
        };
        let mut values = vec![0.0; SHAPE.batch];
        let mut gradient = vec![0.0; size];
        group.bench_function(format!("fused, one thread: {name}"), |b| {
            one_thread.install(|| {
                b.iter(|| {
                    divergence
                        .value_and_gradient(
                            &clouds,
                            &directions,
                            None,
                            &mut values,
                            &mut gradient,
                            None,
                        )
                        .expect("finite");
                });
            });
        });
    }
    group.finish();
}

/// Loss of a batch of tensors and its gradient in the predicted points; libtorch has as many threads as rayon.
#[cfg(feature = "tensor")]
fn tensors(c: &mut Criterion) {
    use pushforward_divergences::{Cloud, Path};
    use tch::{Kind, Tensor};
    tch::set_num_threads(rayon::current_num_threads() as i32);
    let mut rng = StreamRng::new(0, "bench", 0);
    let size = SHAPE.batch * SHAPE.predicted * SHAPE.dimension;
    let cloud = |rng: &mut StreamRng| {
        Tensor::from_slice(&gaussian(size, rng)).view([
            SHAPE.batch as i64,
            SHAPE.predicted as i64,
            SHAPE.dimension as i64,
        ])
    };
    let predicted = Cloud::new(cloud(&mut rng).set_requires_grad(true));
    let target = Cloud::new(cloud(&mut rng));
    let mut group = c.benchmark_group("tensors");
    for (name, text) in [
        ("cramer", r#"{"kind": "cramer"}"#),
        ("wasserstein 1", r#"{"kind": "wasserstein", "p": 1}"#),
        ("mmd on R^d", r#"{"kind": "mmd", "lift": {"kind": "none"}}"#),
    ] {
        let divergence = config(text).build(2).expect("valid");
        let directions = divergence.draw(SHAPE.batch, &mut rng);
        for (label, path) in [
            ("fused", Path::Fastest),
            ("tensor operations", Path::TensorOperations),
        ] {
            let step = || {
                let loss = divergence
                    .loss_from(&predicted, &target, &directions, &mut None, path)
                    .expect("finite");
                let gradient = Tensor::run_backward(
                    &[loss.mean(Kind::Float)],
                    &[&predicted.points],
                    false,
                    false,
                );
                assert_eq!(gradient.len(), 1);
            };
            group.bench_function(format!("{label}: {name}"), |b| b.iter(step));
        }
    }
    group.finish();
}

#[cfg(not(feature = "tensor"))]
fn tensors(_: &mut Criterion) {}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = sliced, tensors
}
criterion_main!(benches);
