//! Sampling 256 image transitions (512 frames of 84 x 84 x 3 bytes) and writing steps.
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use pushforward_core::{Batch, ObservationBuffer, Replay, ReplayConfig, ReplayShape, VectorStep};
use pushforward_envs::{Discount, DiscountConfig, ObservationKind, Outcome, StreamRng};

const LENGTH: usize = 84 * 84 * 3;
const ENVIRONMENTS: usize = 8;

/// A full buffer of 40,000 frames (0.8 GB): far more than any cache holds.
fn full(prioritised: bool, n_step: usize) -> Replay {
    let config = ReplayConfig {
        capacity: 40_000,
        prioritised,
        n_step,
        ..ReplayConfig::default()
    };
    let shape = ReplayShape {
        kind: ObservationKind::U8,
        length: LENGTH,
        reward_dim: 2,
        extra: 0,
        environments: ENVIRONMENTS,
    };
    let discount = Discount::new(&DiscountConfig::Scalar(0.99), 2).expect("0.99 is below 1");
    let mut replay = Replay::new(&config, shape, &discount).expect("0.8 GB are free");
    let frames = ObservationBuffer::U8(vec![7; ENVIRONMENTS * LENGTH]);
    replay
        .start(&frames, &[], &[0; ENVIRONMENTS])
        .expect("sizes fit");
    for step in 0..5_100 {
        push(&mut replay, &frames, step);
    }
    replay
}

fn push(replay: &mut Replay, frames: &ObservationBuffer, step: usize) {
    let outcome = if step % 150 == 149 {
        Outcome::Truncated
    } else {
        Outcome::Continue
    };
    replay
        .push(&VectorStep {
            actions: &[1; ENVIRONMENTS],
            rewards: &[0.5; 2 * ENVIRONMENTS],
            outcomes: &[outcome; ENVIRONMENTS],
            successors: frames,
            successor_extra: &[],
            successor_table_states: &[0; ENVIRONMENTS],
            observations: frames,
            extra: &[],
            table_states: &[0; ENVIRONMENTS],
        })
        .expect("sizes fit");
}

fn sampling(criterion: &mut Criterion) {
    for (name, prioritised, n_step) in [
        ("sample 256 images, uniform", false, 1),
        ("sample 256 images, prioritised, n = 3", true, 3),
    ] {
        let mut replay = full(prioritised, n_step);
        let mut batch = Batch::new(ObservationKind::U8);
        let mut rng = StreamRng::new(1, "replay", 0);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                replay
                    .sample(256, 0.4, &mut rng, &mut batch)
                    .expect("the buffer is full");
            });
        });
        let frames = ObservationBuffer::U8(vec![9; ENVIRONMENTS * LENGTH]);
        let mut step = 0;
        criterion.bench_function(&format!("write 8 images after {name}"), |bencher| {
            bencher.iter(|| {
                push(&mut replay, &frames, step);
                step += 1;
            });
        });
    }
}

criterion_group!(benches, sampling);
criterion_main!(benches);
