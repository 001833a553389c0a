//! Steps per second of one core through the vector stepper, and the bytes of a saved state.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pushforward_envs::{EnvConfig, StreamRng, VectorEnv};
use rand::RngCore;

/// Environments and, in the same number, rows of actions drawn beforehand.
const COUNT: usize = 64;

fn stepping(criterion: &mut Criterion) {
    // One thread, so that the figures are those of a core.
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build_global()
        .expect("the pool is built once");
    let mut group = criterion.benchmark_group("vector step");
    group.throughput(Throughput::Elements(COUNT as u64));
    for (label, name, settings) in [
        ("chain exclusive d=2", "chain", ""),
        (
            "chain gaussian d=8",
            "chain",
            "dim = 8\nreward = { kind = \"gaussian\" }",
        ),
        ("maze features", "maze/exclusive", ""),
        ("maze grid", "maze/exclusive", "observation = \"grid\""),
        ("maze image 84", "maze/exclusive", "observation = \"image\""),
        ("cartpole", "gymnasium/cartpole", ""),
    ] {
        let settings = settings.parse().expect("the settings are TOML");
        let config = EnvConfig::new(name, settings).expect("the environment is registered");
        let mut envs = VectorEnv::new(&config, COUNT, 0, "bench").expect("the settings are valid");
        let mut rng = StreamRng::new(0, "bench", 0);
        let actions: Vec<usize> = (0..COUNT * COUNT)
            .map(|_| rng.next_u32() as usize % envs.spec().actions())
            .collect();
        let mut rows = actions.chunks_exact(COUNT).cycle();
        group.bench_function(label, |bencher| {
            bencher.iter(|| envs.step_all(rows.next().expect("the cycle does not end")));
        });
        let mut bytes = Vec::new();
        envs.env_mut(0).save(&mut bytes);
        println!("{label}: {} bytes of state", bytes.len());
    }
    group.finish();
}

fn loading(criterion: &mut Criterion) {
    const SIDE: usize = 300;
    let map = serde_json::json!({
        "name": "open", "height": SIDE, "width": SIDE, "start": [0, 0], "reward_dim": 1,
        "reward_uniform": [{"low": 0, "high": 1}], "items": [], "item_rgb": [[0, 0, 0]],
        "horizontal_edges": vec![vec![1; SIDE]; SIDE + 1],
        "vertical_edges": vec![vec![1; SIDE + 1]; SIDE],
    })
    .to_string();
    criterion.bench_function("read a 300 x 300 map", |bencher| {
        bencher.iter_batched(
            || map.clone(),
            |text| pushforward_envs::maze::Map::parse("open", &text),
            BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, stepping, loading);
criterion_main!(benches);
