//! One training iteration and one evaluation of the structural policy gradients, at the sizes of their presets.
#![allow(missing_docs)] // Criterion's macros write items without documentation.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use pushforward_core::{run::RunSettings, tensor};
use pushforward_mean_field::StructuralRun;
use tch::Device;

fn iterations(criterion: &mut Criterion) {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(2);
    tensor::start_workers(threads).expect("the pool is started once");
    for (name, settings) in [
        ("lq_rspg/8_paths_merged", "agent.kind = \"rspg\""),
        (
            "lq_rspg/8_paths",
            "agent.kind = \"rspg\"\nrollout.merge_equal = false",
        ),
        (
            "lq_spg/8_paths",
            "agent.kind = \"spg\"\nrollout.merge_equal = false",
        ),
        (
            "beach_bar_rspg/128_paths",
            "agent.kind = \"rspg\"\nrollout = { paths = 128, merge_equal = false }\ngame.name = \"beach-bar\"",
        ),
        (
            "macro_rspg/8_paths",
            "agent.kind = \"rspg\"\ngame.name = \"macro\"",
        ),
        (
            "macro_spg/8_paths",
            "agent.kind = \"spg\"\ngame.name = \"macro\"",
        ),
    ] {
        let mut run: StructuralRun = toml::from_str(settings).expect("valid settings");
        let mut experiment = run
            .build(Device::Cpu, &mut |warning| panic!("{warning}"))
            .expect("valid settings");
        let mut group = criterion.benchmark_group(name);
        group
            .sample_size(10)
            .measurement_time(Duration::from_secs(8));
        group.bench_function(format!("iteration/threads_{threads}"), |b| {
            b.iter(|| experiment.advance(0.0).expect("finite"));
        });
        group.bench_function(format!("evaluation/threads_{threads}"), |b| {
            b.iter(|| experiment.evaluate(false).expect("finite"));
        });
        group.finish();
    }
}

criterion_group!(benches, iterations);
criterion_main!(benches);
