//! Push-forward steps per second and the time of the backward recursions, with paths computed one by one and with equal paths merged.
//!
//! A step is one path advanced once, with its policy ready and its own for each path and time, as a network's would be.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pushforward_envs::mean_field::solve::{Information, exploitability};
use pushforward_envs::mean_field::{
    Baseline, GameConfig, MeanFieldGame, NoisePaths, Policies, PushForward, Rollout,
    structural_gradient,
};

/// Game and number of paths.
const CASES: [(&str, usize); 4] = [
    ("linear-quadratic", 8),
    ("beach-bar", 8),
    ("beach-bar", 128),
    ("macro", 8),
];

fn game(name: &str) -> Box<dyn MeanFieldGame> {
    GameConfig::new(name, toml::Table::new())
        .and_then(|config| config.build())
        .expect("the registry has the game")
}

/// Policies that differ from state to state, one table for each time and path, `[T, E, S, A]`.
fn tables(game: &dyn MeanFieldGame, paths: usize) -> Vec<f32> {
    let spec = game.spec();
    let (states, actions) = (spec.states, spec.actions());
    let table: Vec<f32> = (0..states)
        .flat_map(|s| {
            let scores = (0..actions).map(|a| (0.37 * s as f32 + 0.91 * a as f32).sin().exp());
            let scores: Vec<f32> = scores.collect();
            let total: f32 = scores.iter().sum();
            scores.into_iter().map(move |score| score / total)
        })
        .collect();
    table.repeat(spec.horizon * paths)
}

/// The paths as they are drawn, and with equal ones merged.
fn variants(game: &dyn MeanFieldGame, paths: usize) -> Vec<(&'static str, NoisePaths)> {
    let drawn = NoisePaths::sample(game, paths, 1).expect("there is a path");
    let (distinct, _) = drawn.distinct();
    let merged = distinct.paths() < drawn.paths();
    let mut variants = vec![("each", drawn)];
    if merged {
        variants.push(("merged", distinct));
    }
    variants
}

fn forward(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("push forward");
    for (name, paths) in CASES {
        let game = game(name);
        let spec = game.spec();
        for (variant, noise) in variants(&*game, paths) {
            let tables = tables(&*game, noise.paths());
            let policies =
                Policies::from_array(spec, noise.paths(), &tables).expect("the tables fit");
            let mut simulator = PushForward::new(&*game).expect("the game is valid");
            let mut rollout = simulator.start(noise).expect("the paths fit");
            // Merged paths stand for all their copies.
            group.throughput(Throughput::Elements((paths * spec.horizon) as u64));
            group.bench_function(format!("{name}, {paths} paths, {variant}, episode"), |b| {
                b.iter(|| simulator.rerun(&mut rollout, &policies));
            });
            let start = simulator
                .start(rollout.noise().clone())
                .expect("the paths fit");
            let step = tables.len() / spec.horizon;
            group.bench_function(format!("{name}, {paths} paths, {variant}, stepwise"), |b| {
                b.iter(|| {
                    rollout.clone_from(&start);
                    for table in tables.chunks_exact(step) {
                        simulator
                            .step(&mut rollout, table)
                            .expect("the policy is one");
                    }
                });
            });
        }
    }
    group.finish();
}

fn backward(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("backward");
    for (name, paths) in CASES {
        let game = game(name);
        for (variant, noise) in variants(&*game, paths) {
            let tables = tables(&*game, noise.paths());
            let policies =
                Policies::from_array(game.spec(), noise.paths(), &tables).expect("the tables fit");
            let rollout: Rollout = PushForward::new(&*game)
                .and_then(|mut simulator| simulator.run(noise, &policies))
                .expect("the game runs");
            let label = format!("{name}, {paths} paths, {variant}");
            group.bench_function(format!("{label}, value and best response"), |b| {
                b.iter(|| exploitability(&*game, &rollout, &policies, Information::Clairvoyant));
            });
            let mut gradient = vec![0.0; tables.len()];
            group.bench_function(format!("{label}, structural gradient"), |b| {
                b.iter(|| {
                    structural_gradient(&*game, &rollout, &policies, Baseline::Value, &mut gradient)
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    targets = forward, backward
}
criterion_main!(benches);
