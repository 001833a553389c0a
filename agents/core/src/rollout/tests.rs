//! Running sums by hand, streams, exploration, and continuation after a load.

use pushforward_envs::{
    ConstraintOp, DiscountConfig, Env, EnvError, ObservationKind, ObservationMut, ObservationSpec,
    Policy, PolicyConfig,
};

use super::*;
use crate::{Batch, ObservationBuffer, ReplayConfig, ReplayShape};

/// Counts its steps; the reward of step t is (t + 1, action), and an episode ends after `length` steps.
struct Counter {
    spec: EnvSpec,
    time: usize,
    length: usize,
    end: Outcome,
    /// Step of the episode whose reward is not a number.
    broken: Option<usize>,
}

impl Counter {
    fn new(length: usize, end: Outcome) -> Self {
        Self {
            spec: EnvSpec {
                name: "counter".into(),
                observation: ObservationSpec {
                    shape: vec![1],
                    kind: ObservationKind::F32,
                    low: 0.0,
                    high: 1e6,
                },
                action_names: ["a", "b", "c"].map(str::to_owned).to_vec(),
                reward_dim: 2,
                max_steps: None,
                constraints: vec![Constraint {
                    dim: 0,
                    op: ConstraintOp::Less,
                    value: 1.215,
                }],
            },
            time: 0,
            length,
            end,
            broken: None,
        }
    }

    fn write(&self, observation: ObservationMut<'_>) {
        if let ObservationMut::F32(values) = observation {
            values[0] = self.time as f32;
        }
    }
}

impl Env for Counter {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, _rng: &mut StreamRng, observation: ObservationMut<'_>) {
        self.time = 0;
        self.write(observation);
    }

    fn step(
        &mut self,
        action: usize,
        _rng: &mut StreamRng,
        reward: &mut [f32],
        observation: ObservationMut<'_>,
    ) -> Outcome {
        reward[0] = self.time as f32 + 1.0;
        reward[1] = action as f32;
        if self.broken == Some(self.time) {
            reward[1] = f32::NAN;
        }
        self.time += 1;
        self.write(observation);
        if self.time == self.length {
            self.end
        } else {
            Outcome::Continue
        }
    }

    fn observe(&mut self, observation: ObservationMut<'_>) {
        self.write(observation);
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&(self.time as u64).to_le_bytes());
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let bytes = bytes
            .try_into()
            .map_err(|_| EnvError::State("8 bytes expected".into()))?;
        self.time = u64::from_le_bytes(bytes) as usize;
        Ok(())
    }

    fn table_state(&self) -> Option<(usize, usize)> {
        Some((self.time, 100))
    }
}

/// Always the same action, and how often it was asked.
struct Fixed {
    action: usize,
    asked: usize,
}

impl Actor for Fixed {
    fn act(
        &mut self,
        _observations: &ObservationBuffer,
        _extra: &[f32],
        rows: usize,
        _rng: &mut StreamRng,
        actions: &mut [usize],
    ) -> Result<(), CoreError> {
        assert_eq!(actions.len(), rows);
        self.asked += 1;
        actions.fill(self.action);
        Ok(())
    }
}

fn discount(config: DiscountConfig) -> Discount {
    Discount::new(&config, 2).unwrap()
}

fn dense() -> Discount {
    discount(DiscountConfig::Dense(vec![vec![0.5, 0.25], vec![0.0, 0.5]]))
}

fn collector(envs: Vec<Counter>, discount: Discount, conditioned: bool) -> Collector {
    let envs = envs
        .into_iter()
        .map(|env| Box::new(env) as Box<dyn Env>)
        .collect();
    let config = CollectorConfig {
        seed: 9,
        label: "train".into(),
        discount,
        evaluation_discount: Discount::new(&DiscountConfig::Scalar(0.1), 2).unwrap(),
        conditioned,
    };
    Collector::new(
        VectorEnv::from_envs(envs, 9, "environment").unwrap(),
        config,
    )
    .unwrap()
}

fn replay(collector: &Collector, discount: &Discount) -> Replay {
    let shape = ReplayShape::new(
        &collector.spec().observation,
        2,
        collector.extra_length(),
        collector.envs().count(),
    );
    Replay::new(&ReplayConfig::default(), shape, discount).unwrap()
}

#[test]
fn the_return_so_far_is_stored_with_every_observation() {
    let mut collector = collector(
        vec![
            Counter::new(3, Outcome::Terminated),
            Counter::new(2, Outcome::Truncated),
        ],
        dense(),
        true,
    );
    assert_eq!(collector.extra_length(), 6);
    let mut replay = replay(&collector, &dense());
    let mut actor = Fixed {
        action: 2,
        asked: 0,
    };
    for _ in 0..4 {
        let mut behaviour = Behaviour::Actor {
            actor: &mut actor,
            epsilon: 0.0,
        };
        collector.step(&mut behaviour, Some(&mut replay)).unwrap();
    }
    assert_eq!(actor.asked, 4);
    assert_eq!(collector.env_steps(), 8);
    // Γ = [[.5, .25], [0, .5]], Γ² = [[.25, .25], [0, .25]], Γ³ = [[.125, .1875], [0, .125]]; rewards (1, 2), (2, 2), (3, 2).
    // C_1 = (1, 2); C_2 = C_1 + Γ(2, 2) = (1 + 1 + .5, 2 + 1) = (2.5, 3); C_3 = C_2 + Γ²(3, 2) = (2.5 + .75 + .5, 3 + .5).
    let expected = [
        [0.0, 0.0, 1.0, 0.0, 0.0, 1.0],
        [1.0, 2.0, 0.5, 0.25, 0.0, 0.5],
        [2.5, 3.0, 0.25, 0.25, 0.0, 0.25],
        [3.75, 3.5, 0.125, 0.1875, 0.0, 0.125],
    ];
    let mut batch = Batch::new(ObservationKind::F32);
    let mut rng = StreamRng::new(1, "replay", 0);
    replay.sample(100, 0.0, &mut rng, &mut batch).unwrap();
    let ObservationBuffer::F32(times) = &batch.observations else {
        panic!("floats")
    };
    for (row, &time) in times.iter().enumerate() {
        let time = time as usize;
        assert_eq!(batch.extra[row * 6..row * 6 + 6], expected[time]);
        assert_eq!(batch.next_extra[row * 6..row * 6 + 6], expected[time + 1]);
        assert_eq!(batch.next_table_state[row] as usize, time + 1);
    }
    // Evaluation with γ = .1: environment 0 ended once with 1 + .2 + .03 and 2 + .2 + .02, environment 1 twice with 1 + .2 and 2 + .2.
    let statistics = collector.take_statistics();
    let scalars = statistics.scalars(true);
    let expected = [
        ("collect/episodes", 3.0),
        ("collect/episode_length", 7.0 / 3.0),
        ("collect/terminated", 1.0 / 3.0),
        // 1.23 is not below 1.215, 1.2 is.
        ("collect/constraints_met", 2.0 / 3.0),
        // Undiscounted: 1 + 2 + 3, 1 + 2 twice; 2 per step.
        ("collect/return_0", 12.0 / 3.0),
        ("collect/return_1", 14.0 / 3.0),
        ("collect/discounted_return_0", (1.23 + 1.2 + 1.2) / 3.0),
        ("collect/discounted_return_1", (2.22 + 2.2 + 2.2) / 3.0),
    ];
    assert_eq!(scalars.len(), expected.len());
    for ((name, got), (expected_name, value)) in scalars.iter().zip(expected) {
        assert_eq!(name, expected_name);
        assert!((got - value).abs() < 1e-12, "{name}: {got} {value}");
    }
    assert_eq!(statistics.truncated, 2);
    assert_eq!(
        collector.take_statistics().scalars(true),
        [("collect/episodes".to_owned(), 0.0)]
    );
}

#[test]
fn the_power_is_as_short_as_the_discount_allows() {
    for (config, length) in [
        (DiscountConfig::Scalar(0.5), 3),
        (DiscountConfig::Diagonal(vec![0.5, 0.25]), 4),
    ] {
        let mut collector = collector(
            vec![Counter::new(9, Outcome::Terminated)],
            discount(config),
            true,
        );
        let mut actor = Fixed {
            action: 0,
            asked: 0,
        };
        for _ in 0..2 {
            let mut behaviour = Behaviour::Actor {
                actor: &mut actor,
                epsilon: 0.0,
            };
            collector.step(&mut behaviour, None).unwrap();
        }
        // C_2 = (1 + .5 · 2, 0); .5² = .25, .25² = .0625.
        assert_eq!(collector.extra, [2.0, 0.0, 0.25, 0.0625][..length]);
    }
}

#[test]
fn actions_are_explored_with_the_given_rate() {
    let mut collector = collector(
        (0..3)
            .map(|_| Counter::new(5, Outcome::Terminated))
            .collect(),
        dense(),
        false,
    );
    let mut actor = Fixed {
        action: 1,
        asked: 0,
    };
    let mut counts = [0.0_f64; 3];
    for _ in 0..4000 {
        let mut behaviour = Behaviour::Actor {
            actor: &mut actor,
            epsilon: 0.6,
        };
        collector.step(&mut behaviour, None).unwrap();
        collector
            .actions
            .iter()
            .for_each(|&action| counts[action] += 1.0);
    }
    // ε/3 = .2 for the others and .4 + .2 = .6 for the actor's; standard error sqrt(.24 / 12000) = .0045, four of them.
    for (count, share) in counts.iter().zip([0.2, 0.6, 0.2]) {
        assert!((count / 12_000.0 - share).abs() < 0.018, "{counts:?}");
    }
    actor.asked = 0;
    for _ in 0..10 {
        let mut behaviour = Behaviour::Actor {
            actor: &mut actor,
            epsilon: 1.0,
        };
        collector.step(&mut behaviour, None).unwrap();
    }
    assert_eq!(actor.asked, 0, "no network is needed to explore");
    let mut wrong = Fixed {
        action: 3,
        asked: 0,
    };
    let mut behaviour = Behaviour::Actor {
        actor: &mut wrong,
        epsilon: 0.0,
    };
    let error = collector.step(&mut behaviour, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rollout: the actor chose action 3, expected 0 to 2"
    );
}

#[test]
fn a_table_policy_is_followed() {
    let env = Counter::new(2, Outcome::Terminated);
    // State 0 plays b; state 1 plays a or c.
    let mut probabilities = vec![vec![0.0, 1.0, 0.0]; 100];
    probabilities[1] = vec![0.25, 0.0, 0.75];
    let policy = Policy::new(&PolicyConfig::Table { probabilities }, &env).unwrap();
    let mut collector = collector(vec![env], dense(), false);
    let mut counts = [0.0_f64; 3];
    for step in 0..8000 {
        collector
            .step(&mut Behaviour::Policy(&policy), None)
            .unwrap();
        if step % 2 == 0 {
            assert_eq!(collector.actions, [1]);
        } else {
            counts[collector.actions[0]] += 1.0;
        }
    }
    // Standard error sqrt(.1875 / 4000) = .0068, four of them.
    assert!((counts[0] / 4000.0 - 0.25).abs() < 0.028, "{counts:?}");
    assert_eq!(counts[1], 0.0);
}

#[test]
fn an_environment_does_not_depend_on_its_neighbours() {
    let play = |count: usize| {
        let envs = (0..count)
            .map(|_| Counter::new(4, Outcome::Truncated))
            .collect();
        let mut collector = collector(envs, dense(), true);
        let policy =
            Policy::new(&PolicyConfig::Uniform, &Counter::new(4, Outcome::Truncated)).unwrap();
        (0..50)
            .map(|_| {
                collector
                    .step(&mut Behaviour::Policy(&policy), None)
                    .unwrap();
                (collector.actions[1], collector.extra[6..12].to_vec())
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(play(2), play(5));
}

#[test]
fn a_loaded_collector_goes_on_identically() {
    let make = || {
        let envs = [3, 5, 7].map(|length| Counter::new(length, Outcome::Truncated));
        collector(envs.into(), dense(), true)
    };
    let policy = Policy::new(
        &PolicyConfig::Uniform,
        &Counter::new(1, Outcome::Terminated),
    )
    .unwrap();
    let mut first = make();
    for _ in 0..17 {
        first.step(&mut Behaviour::Policy(&policy), None).unwrap();
    }
    let mut bytes = Vec::new();
    first.save(&mut bytes);
    let mut second = make();
    second.step(&mut Behaviour::Policy(&policy), None).unwrap();
    second.load(&bytes).unwrap();
    assert_eq!(second.extra, first.extra);
    for _ in 0..30 {
        for collector in [&mut first, &mut second] {
            collector
                .step(&mut Behaviour::Policy(&policy), None)
                .unwrap();
        }
        assert_eq!(first.actions, second.actions);
        assert_eq!(first.successor_extra, second.successor_extra);
        assert_eq!(first.envs().rewards(), second.envs().rewards());
    }
    let [mut a, mut b] = [Vec::new(), Vec::new()];
    first.save(&mut a);
    second.save(&mut b);
    assert_eq!(a, b);
    assert_eq!(first.take_statistics(), second.take_statistics());
    let error = second.load(&bytes[..bytes.len() - 1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rollout: saved state: cut off or of another format"
    );
    let mut fewer = collector(vec![Counter::new(3, Outcome::Truncated)], dense(), true);
    let error = fewer.load(&bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rollout: saved state: 3 exploration streams, expected 1"
    );
}

#[test]
fn a_reward_that_is_not_finite_stops_the_run() {
    let mut broken = Counter::new(9, Outcome::Terminated);
    broken.broken = Some(2);
    let mut collector = collector(
        vec![Counter::new(9, Outcome::Terminated), broken],
        dense(),
        false,
    );
    let policy = Policy::new(
        &PolicyConfig::Uniform,
        &Counter::new(1, Outcome::Terminated),
    )
    .unwrap();
    let mut replay = replay(&collector, &dense());
    let mut step = || collector.step(&mut Behaviour::Policy(&policy), Some(&mut replay));
    step().unwrap();
    step().unwrap();
    assert_eq!(
        step().unwrap_err().to_string(),
        "counter: environment 1, step 2: reward[1] is NaN, expected a finite number"
    );
    assert_eq!(replay.len(), 4);
}

#[test]
fn the_same_number_of_episodes_is_listed_from_each_environment() {
    let mut collector = collector(
        vec![
            Counter::new(1, Outcome::Terminated),
            Counter::new(6, Outcome::Truncated),
            Counter::new(1000, Outcome::Terminated),
        ],
        dense(),
        true,
    );
    let mut actor = Fixed {
        action: 1,
        asked: 0,
    };
    let mut behaviour = Behaviour::Actor {
        actor: &mut actor,
        epsilon: 0.0,
    };
    collector.step(&mut behaviour, None).unwrap();
    let episodes = collector.episodes(&mut behaviour, 2, 8).unwrap();
    let seen: Vec<_> = episodes
        .iter()
        .map(|episode| (episode.environment, episode.length, episode.outcome))
        .collect();
    assert_eq!(
        seen,
        [
            (0, 1, Outcome::Terminated),
            (0, 1, Outcome::Terminated),
            (1, 6, Outcome::Truncated),
            (1, 6, Outcome::Truncated),
            (2, 8, Outcome::Continue),
            (2, 8, Outcome::Continue),
        ]
    );
    // 1 + 2 + … + 6 = 21 and one per step; 1 + .2 + .03 + … = 1.23456 with γ = .1.
    assert_eq!(episodes[2].undiscounted_return, [21.0, 6.0]);
    assert!((episodes[2].discounted_return[0] - 1.23456).abs() < 1e-12);
    let met: Vec<bool> = episodes
        .iter()
        .map(|episode| episode.constraints_met)
        .collect();
    assert_eq!(met, [true, true, false, false, false, false]);
}

#[test]
fn a_discount_of_another_size_is_refused() {
    let envs: Vec<Box<dyn Env>> = vec![Box::new(Counter::new(1, Outcome::Terminated))];
    let config = CollectorConfig {
        seed: 0,
        label: "train".into(),
        discount: dense(),
        evaluation_discount: Discount::new(&DiscountConfig::Scalar(0.9), 3).unwrap(),
        conditioned: false,
    };
    let error = Collector::new(
        VectorEnv::from_envs(envs, 0, "environment").unwrap(),
        config,
    )
    .err()
    .unwrap();
    assert_eq!(
        error.to_string(),
        "rollout: evaluation discount for d = 3, expected d = 2 as the reward of counter"
    );
}
