//! One update of the learner: MLP 150-256-256-(4·64·2), B = 64, N = 64, L = 64, d = 2, sliced Cramér.
#![allow(missing_docs)] // Criterion's macros write items without documentation.

use criterion::{Criterion, criterion_group, criterion_main};
use pushforward_core::{Batch, ObservationBuffer, tensor};
use pushforward_envs::{
    Env, EnvError, EnvSpec, ObservationKind, ObservationMut, ObservationSpec, Outcome, StreamRng,
};
use pushforward_sdrl::{Learner, SdrlConfig};
use rand::Rng;

const OBSERVATION: usize = 150;
const ACTIONS: usize = 4;
const DIM: usize = 2;

/// An environment of the right sizes that is never stepped.
struct Sizes(EnvSpec);

impl Env for Sizes {
    fn spec(&self) -> &EnvSpec {
        &self.0
    }

    fn reset(&mut self, _: &mut StreamRng, _: ObservationMut<'_>) {}

    fn step(
        &mut self,
        _: usize,
        _: &mut StreamRng,
        _: &mut [f32],
        _: ObservationMut<'_>,
    ) -> Outcome {
        Outcome::Terminated
    }

    fn observe(&mut self, _: ObservationMut<'_>) {}

    fn save(&self, _: &mut Vec<u8>) {}

    fn load(&mut self, _: &[u8]) -> Result<(), EnvError> {
        Ok(())
    }
}

fn update(criterion: &mut Criterion) {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(2);
    tensor::start_workers(threads).expect("the pool is started once");
    let env = Sizes(EnvSpec {
        name: "sizes".into(),
        observation: ObservationSpec {
            shape: vec![OBSERVATION],
            kind: ObservationKind::F32,
            low: 0.0,
            high: 1.0,
        },
        action_names: (0..ACTIONS).map(|action| action.to_string()).collect(),
        reward_dim: DIM,
        max_steps: None,
        constraints: Vec::new(),
    });
    let config = SdrlConfig::default();
    let discount = config.resolved_discount(DIM).expect("a valid discount");
    let mut learner =
        Learner::new(&config, &env, &discount, None, 1, tch::Device::Cpu).expect("valid settings");
    let mut rng = StreamRng::new(1, "bench", 0);
    let size = config.batch_size;
    let mut batch = Batch::new(ObservationKind::F32);
    let mut floats = |count: usize| (0..count).map(|_| rng.random()).collect::<Vec<f32>>();
    batch.observations = ObservationBuffer::F32(floats(size * OBSERVATION));
    batch.next_observations = ObservationBuffer::F32(floats(size * OBSERVATION));
    batch.rewards = floats(size * DIM);
    batch.size = size;
    batch.actions = (0..size as i64).map(|row| row % ACTIONS as i64).collect();
    batch.bootstrap = [0.99, 0.0, 0.0, 0.99].repeat(size);
    batch.next_table_state = vec![0; size];
    batch.weights = vec![1.0; size];
    criterion.bench_function(
        &format!("learner_update/mlp_150_256_256_512/threads_{threads}"),
        |b| {
            b.iter(|| learner.update(&batch, 0.0).expect("finite"));
        },
    );
}

criterion_group!(benches, update);
criterion_main!(benches);
