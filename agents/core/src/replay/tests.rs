//! The buffer against a plain list of explicit transitions, and its laws.

use proptest::prelude::*;
use pushforward_envs::{Discount, DiscountConfig, ObservationKind, Outcome, StreamRng};

use super::*;

const ENVIRONMENTS: usize = 3;
const DIM: usize = 2;
const EXTRA: usize = 3;
const LENGTH: usize = 2;

fn dense() -> Discount {
    let rows = vec![vec![0.8, 0.1], vec![-0.2, 0.7]];
    Discount::new(&DiscountConfig::Dense(rows), DIM).unwrap()
}

/// A transition with everything written out.
#[derive(Clone, Debug, PartialEq)]
struct Explicit {
    observation: [f32; LENGTH],
    extra: [f32; EXTRA],
    action: usize,
    reward: [f32; DIM],
    outcome: Outcome,
    next_observation: [f32; LENGTH],
    next_extra: [f32; EXTRA],
    next_table_state: u32,
}

/// One environment's history as plain lists; observations are all different, so that any mix-up shows.
#[derive(Default)]
struct Plain {
    /// Episodes of transitions, with the number of observations written before each transition's own.
    episodes: Vec<Vec<(usize, Explicit)>>,
    written: usize,
}

fn observation(environment: usize, written: usize) -> [f32; LENGTH] {
    [environment as f32, written as f32]
}

fn extra(environment: usize, written: usize) -> [f32; EXTRA] {
    [written as f32 + 0.5, -(environment as f32), 7.0]
}

fn table_state(environment: usize, written: usize) -> u32 {
    (1000 * environment + written) as u32
}

fn reward(environment: usize, written: usize) -> [f32; DIM] {
    [written as f32 * 0.25 + 1.0, environment as f32 - 0.5]
}

/// Writes the same history into a buffer and into plain lists; `script[t][e]` says how step t of environment e ends.
fn write(replay: &mut Replay, script: &[[Outcome; ENVIRONMENTS]]) -> Vec<Plain> {
    let gather = |plains: &[Plain], offset: usize| {
        let counts = plains.iter().map(|plain| plain.written - 1 + offset);
        let rows: Vec<(usize, usize)> = counts.enumerate().collect();
        gathered(replay.shape.kind, &rows)
    };
    let mut plains: Vec<Plain> = (0..ENVIRONMENTS).map(|_| Plain::default()).collect();
    for plain in &mut plains {
        plain.episodes.push(Vec::new());
        plain.written = 1;
    }
    let (observations, extras, states) = gather(&plains, 0);
    let kind = replay.shape.kind;
    replay.start(&observations, &extras, &states).unwrap();
    for outcomes in script {
        let actions: Vec<usize> = plains.iter().map(|plain| plain.written % 4).collect();
        let mut rewards = Vec::new();
        let mut successor = Vec::new();
        let mut current = Vec::new();
        for (environment, plain) in plains.iter_mut().enumerate() {
            let count = plain.written - 1;
            let outcome = outcomes[environment];
            rewards.extend(reward(environment, count));
            plain.episodes.last_mut().unwrap().push((
                count,
                Explicit {
                    observation: observation(environment, count),
                    extra: extra(environment, count),
                    action: actions[environment],
                    reward: reward(environment, count),
                    outcome,
                    next_observation: observation(environment, count + 1),
                    next_extra: extra(environment, count + 1),
                    next_table_state: table_state(environment, count + 1),
                },
            ));
            plain.written += 1;
            successor.push((environment, count + 1));
            if outcome != Outcome::Continue {
                plain.episodes.push(Vec::new());
                plain.written += 1;
            }
            current.push((environment, plain.written - 1));
        }
        let (successors, successor_extra, successor_table_states) = gathered(kind, &successor);
        let (observations, extra, table_states) = gathered(kind, &current);
        replay
            .push(&VectorStep {
                actions: &actions,
                rewards: &rewards,
                outcomes,
                successors: &successors,
                successor_extra: &successor_extra,
                successor_table_states: &successor_table_states,
                observations: &observations,
                extra: &extra,
                table_states: &table_states,
            })
            .unwrap();
    }
    plains
}

fn gathered(
    kind: ObservationKind,
    rows: &[(usize, usize)],
) -> (ObservationBuffer, Vec<f32>, Vec<u32>) {
    let values = rows.iter().flat_map(|&(e, count)| observation(e, count));
    let observations = match kind {
        ObservationKind::F32 => ObservationBuffer::F32(values.collect()),
        ObservationKind::U8 => ObservationBuffer::U8(values.map(|value| value as u8).collect()),
    };
    let extras = rows
        .iter()
        .flat_map(|&(e, count)| extra(e, count))
        .collect();
    let states = rows
        .iter()
        .map(|&(e, count)| table_state(e, count))
        .collect();
    (observations, extras, states)
}

/// All windows that can be drawn, keyed by (environment, observations written before): (first transition, R, bootstrap, last transition).
type Windows = std::collections::BTreeMap<(usize, usize), (Explicit, [f64; 2], [f64; 4], Explicit)>;

fn windows(plains: &[Plain], n: usize, slots: usize) -> Windows {
    let gamma = [[0.8, 0.1], [-0.2, 0.7]];
    let times = |power: [[f64; 2]; 2]| {
        let mut out = [[0.0; 2]; 2];
        for i in 0..2 {
            for j in 0..2 {
                out[i][j] = power[i][0] * gamma[0][j] + power[i][1] * gamma[1][j];
            }
        }
        out
    };
    let mut all = Windows::new();
    for (environment, plain) in plains.iter().enumerate() {
        for episode in &plain.episodes {
            for (index, (count, first)) in episode.iter().enumerate() {
                let over = episode.last().unwrap().1.outcome != Outcome::Continue;
                let steps = n.min(episode.len() - index);
                if (steps < n && !over) || count + slots < plain.written {
                    continue;
                }
                let mut power = [[1.0, 0.0], [0.0, 1.0]];
                let mut sum = [0.0; 2];
                for (_, step) in &episode[index..index + steps] {
                    for i in 0..2 {
                        sum[i] += power[i][0] * f64::from(step.reward[0])
                            + power[i][1] * f64::from(step.reward[1]);
                    }
                    power = times(power);
                }
                let last = episode[index + steps - 1].1.clone();
                if last.outcome == Outcome::Terminated {
                    power = [[0.0; 2]; 2];
                }
                let power = [power[0][0], power[0][1], power[1][0], power[1][1]];
                all.insert((environment, *count), (first.clone(), sum, power, last));
            }
        }
    }
    all
}

fn shape(kind: ObservationKind) -> ReplayShape {
    ReplayShape {
        kind,
        length: LENGTH,
        reward_dim: DIM,
        extra: EXTRA,
        environments: ENVIRONMENTS,
    }
}

fn config(capacity: usize, n_step: usize, prioritised: bool) -> ReplayConfig {
    ReplayConfig {
        capacity,
        n_step,
        prioritised,
        ..ReplayConfig::default()
    }
}

fn rows(buffer: &ObservationBuffer) -> Vec<f32> {
    match buffer {
        ObservationBuffer::F32(values) => values.clone(),
        ObservationBuffer::U8(values) => values.iter().map(|&value| f32::from(value)).collect(),
    }
}

/// Checks a batch row by row against the plain windows and returns which were drawn.
fn check(batch: &Batch, all: &Windows) -> std::collections::BTreeSet<(usize, usize)> {
    let mut seen = std::collections::BTreeSet::new();
    let (observations, next_observations) =
        (rows(&batch.observations), rows(&batch.next_observations));
    for row in 0..batch.size {
        let key = (
            (batch.indices[row] % ENVIRONMENTS as u64) as usize,
            (batch.indices[row] / ENVIRONMENTS as u64) as usize,
        );
        let (first, sum, power, last) = all
            .get(&key)
            .unwrap_or_else(|| panic!("{key:?} must not be drawn"));
        seen.insert(key);
        assert_eq!(observations[row * 2..row * 2 + 2], first.observation);
        assert_eq!(
            next_observations[row * 2..row * 2 + 2],
            last.next_observation
        );
        assert_eq!(batch.extra[row * 3..row * 3 + 3], first.extra);
        assert_eq!(batch.next_extra[row * 3..row * 3 + 3], last.next_extra);
        assert_eq!(batch.actions[row], first.action as i64);
        assert_eq!(batch.next_table_state[row], last.next_table_state);
        for i in 0..2 {
            let got = f64::from(batch.rewards[row * 2 + i]);
            assert!(
                (got - sum[i]).abs() <= 1e-6 * (1.0 + sum[i].abs()),
                "{got} {sum:?}"
            );
        }
        for i in 0..4 {
            let got = f64::from(batch.bootstrap[row * 4 + i]);
            assert!((got - power[i]).abs() <= 1e-6, "{got} {power:?}");
        }
    }
    seen
}

fn outcomes() -> impl Strategy<Value = [Outcome; ENVIRONMENTS]> {
    // Every environment has its own mean episode length.
    let one = |goes_on: u32| {
        prop_oneof![
            goes_on => Just(Outcome::Continue),
            1 => Just(Outcome::Terminated),
            1 => Just(Outcome::Truncated),
        ]
    };
    (one(2), one(8), one(30)).prop_map(|(a, b, c)| [a, b, c])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_draw_is_a_transition_of_the_plain_list(
        script in prop::collection::vec(outcomes(), 0..70),
        capacity in 3usize..90,
        n in prop::sample::select(vec![1usize, 2, 3, 10]),
        prioritised: bool,
        bytes: bool,
        seed: u64,
    ) {
        let kind = if bytes { ObservationKind::U8 } else { ObservationKind::F32 };
        let mut replay = Replay::new(&config(capacity, n, prioritised), shape(kind), &dense()).unwrap();
        let plains = write(&mut replay, &script);
        let all = windows(&plains, n, replay.slots);
        prop_assert_eq!(replay.len(), all.len() as u64);
        prop_assert_eq!(replay.is_empty(), all.is_empty());
        let held: usize = plains.iter().map(|plain| plain.written.min(replay.slots)).sum();
        prop_assert_eq!(replay.observations_held(), held as u64);
        let mut batch = Batch::new(kind);
        let mut rng = StreamRng::new(seed, "replay", 0);
        if all.is_empty() {
            prop_assert!(replay.sample(5, 0.4, &mut rng, &mut batch).is_err());
            return Ok(());
        }
        replay.sample(40 * all.len(), 0.4, &mut rng, &mut batch).unwrap();
        let seen = check(&batch, &all);
        // One window is missed by 40·W uniform draws with probability e^-40; strata make it certain for equal priorities.
        prop_assert_eq!(seen.len(), all.len());
    }

    #[test]
    fn a_loaded_buffer_goes_on_identically(
        script in prop::collection::vec(outcomes(), 12..50),
        prioritised: bool,
        seed: u64,
    ) {
        let make = || Replay::new(&config(40, 2, prioritised), shape(ObservationKind::F32), &dense()).unwrap();
        let mut replay = make();
        write(&mut replay, &script);
        let mut rng = StreamRng::new(seed, "replay", 0);
        let mut batch = Batch::new(ObservationKind::F32);
        replay.sample(7, 0.4, &mut rng, &mut batch).unwrap();
        let priorities: Vec<f32> = (0..7).map(|i| 0.1 + i as f32).collect();
        replay.update_priorities(&batch.indices, &priorities).unwrap();
        let mut bytes = Vec::new();
        replay.save(&mut bytes).unwrap();
        // A buffer that already holds something else.
        let mut other = make();
        write(&mut other, &script[..9]);
        other.load(&mut bytes.as_slice()).unwrap();
        let mut again = Vec::new();
        other.save(&mut again).unwrap();
        prop_assert_eq!(&bytes, &again);
        prop_assert_eq!(&replay.tree, &other.tree);
        prop_assert_eq!(replay.len(), other.len());
        let mut other_rng = rng.clone();
        let mut other_batch = Batch::new(ObservationKind::F32);
        for _ in 0..4 {
            replay.sample(5, 0.7, &mut rng, &mut batch).unwrap();
            other.sample(5, 0.7, &mut other_rng, &mut other_batch).unwrap();
            prop_assert_eq!(&batch, &other_batch);
            for one in [&mut replay, &mut other] {
                one.update_priorities(&batch.indices, &priorities[2..]).unwrap();
            }
        }
        prop_assert!(make().load(&mut &bytes[..bytes.len() - 1]).is_err());
    }
}

/// A line of `states` states with reward 1 per step, one environment, one observation element: the state's number.
fn chain(n: usize, last: Outcome, states: usize) -> (Replay, Batch) {
    let shape = ReplayShape {
        kind: ObservationKind::F32,
        length: 1,
        reward_dim: 1,
        extra: 0,
        environments: 1,
    };
    let discount = Discount::new(&DiscountConfig::Scalar(0.9), 1).unwrap();
    let mut replay = Replay::new(&config(100, n, false), shape, &discount).unwrap();
    let row = |state: usize| ObservationBuffer::F32(vec![state as f32]);
    replay.start(&row(0), &[], &[0]).unwrap();
    for step in 0..2 * states {
        let state = step % states;
        let end = state + 1 == states;
        let now = if end { 0 } else { state + 1 };
        replay
            .push(&VectorStep {
                actions: &[0],
                rewards: &[1.0],
                outcomes: &[if end { last } else { Outcome::Continue }],
                successors: &row(state + 1),
                successor_extra: &[],
                successor_table_states: &[state as u32 + 1],
                observations: &row(now),
                extra: &[],
                table_states: &[now as u32],
            })
            .unwrap();
    }
    (replay, Batch::new(ObservationKind::F32))
}

#[test]
fn all_window_lengths_agree_on_a_chain() {
    // 5 states, reward 1 per step, γ = .9, terminated: V(s) = (1 - .9^(5-s)) / .1 whatever n is. Truncated with an endless
    // continuation: V = 1 / .1 = 10 everywhere, also at the final observation.
    for (last, value) in [
        (
            Outcome::Terminated,
            (|state: f64| (1.0 - 0.9_f64.powf(5.0 - state)) / 0.1) as fn(f64) -> f64,
        ),
        (Outcome::Truncated, |_| 10.0),
    ] {
        for n in [1, 2, 3, 10] {
            let (replay, mut batch) = chain(n, last, 5);
            assert_eq!(replay.len(), 10);
            let mut rng = StreamRng::new(3, "replay", n as u64);
            replay.sample(200, 0.0, &mut rng, &mut batch).unwrap();
            let (states, next) = (rows(&batch.observations), rows(&batch.next_observations));
            for row in 0..200 {
                let bootstrapped = f64::from(batch.bootstrap[row]) * value(f64::from(next[row]));
                let target = f64::from(batch.rewards[row]) + bootstrapped;
                let expected = value(f64::from(states[row]));
                assert!(
                    (target - expected).abs() < 1e-5,
                    "n = {n}: {target} {expected}"
                );
            }
        }
    }
}

#[test]
fn a_window_is_discounted_by_its_own_length() {
    let (replay, mut batch) = chain(3, Outcome::Truncated, 5);
    let mut rng = StreamRng::new(5, "replay", 0);
    replay.sample(100, 0.0, &mut rng, &mut batch).unwrap();
    for (row, state) in rows(&batch.observations).into_iter().enumerate() {
        // States 0 to 2 have three steps before them, state 3 two and state 4 one: .9³ = .729, .9² = .81, .9; rewards 2.71, 1.9, 1.
        let (power, reward) = match state as usize {
            0..=2 => (0.729, 2.71),
            3 => (0.81, 1.9),
            _ => (0.9, 1.0),
        };
        assert!((batch.bootstrap[row] - power).abs() < 1e-6);
        assert!((batch.rewards[row] - reward).abs() < 1e-6);
    }
}

#[test]
fn priorities_set_frequencies_and_weights() {
    let discount = dense();
    let mut settings = config(60, 1, true);
    settings.priority_exponent = 0.5;
    let mut replay = Replay::new(&settings, shape(ObservationKind::U8), &discount).unwrap();
    let script = [[Outcome::Continue; ENVIRONMENTS]; 4];
    write(&mut replay, &script);
    assert_eq!(replay.len(), 12);
    // Transition k of the 12 gets priority (k + 1)², hence weight k + 1 for α = ½ (the smallest priority of 1e-6 shifts it by 5e-7).
    let indices: Vec<u64> = (0..12).collect();
    let priorities: Vec<f32> = (1..=12).map(|k| (k * k) as f32).collect();
    replay.update_priorities(&indices, &priorities).unwrap();
    let mut batch = Batch::new(ObservationKind::U8);
    let mut rng = StreamRng::new(11, "replay", 0);
    let draws = 20_000;
    let mut counts = [0.0_f64; 12];
    for _ in 0..draws {
        // Single draws are independent, without strata.
        replay.sample(1, 0.5, &mut rng, &mut batch).unwrap();
        counts[batch.indices[0] as usize] += 1.0;
    }
    let statistic: f64 = counts
        .iter()
        .enumerate()
        .map(|(k, count)| {
            // 1 + … + 12 = 78.
            let expected = f64::from(draws) * (k + 1) as f64 / 78.0;
            (count - expected).powi(2) / expected
        })
        .sum();
    // Chi-square with 11 degrees of freedom exceeds 31.26 with probability .001; the stream is fixed.
    assert!(statistic < 31.26, "{statistic}");
    replay.sample(300, 0.5, &mut rng, &mut batch).unwrap();
    assert!(batch.indices.contains(&0));
    for (index, weight) in batch.indices.iter().zip(&batch.weights) {
        // (12 · (k + 1) / 78)^-½ over that of k = 0, which is the largest: (k + 1)^-½.
        let expected = ((index + 1) as f32).powf(-0.5);
        assert!((weight - expected).abs() < 1e-5, "{index}: {weight}");
    }
    let message = replay
        .update_priorities(&[0], &[f32::NAN])
        .unwrap_err()
        .to_string();
    assert_eq!(
        message,
        "replay: priority NaN, expected a finite number of at least 0"
    );
}

#[test]
fn priorities_of_overwritten_transitions_are_passed_over() {
    let mut replay =
        Replay::new(&config(12, 1, true), shape(ObservationKind::F32), &dense()).unwrap();
    write(&mut replay, &[[Outcome::Continue; ENVIRONMENTS]; 9]);
    // Four slots per environment: counts 6 to 9 are held, 9 is the head. Index 2·3 + 1 is count 2 of environment 1: gone.
    let before = replay.tree.clone();
    replay.update_priorities(&[7, 28], &[50.0, 60.0]).unwrap();
    assert_eq!(replay.tree, before);
    replay.update_priorities(&[25], &[50.0]).unwrap();
    assert_ne!(replay.tree, before);
}

#[test]
fn sampling_does_not_depend_on_the_thread_count() {
    let shape = ReplayShape {
        kind: ObservationKind::F32,
        length: 5000,
        reward_dim: 1,
        extra: 0,
        environments: 1,
    };
    let discount = Discount::new(&DiscountConfig::Scalar(0.5), 1).unwrap();
    let mut replay = Replay::new(&config(40, 1, false), shape, &discount).unwrap();
    let row = |value: usize| ObservationBuffer::F32(vec![value as f32; 5000]);
    replay.start(&row(0), &[], &[0]).unwrap();
    for step in 1..30 {
        replay
            .push(&VectorStep {
                actions: &[0],
                rewards: &[0.0],
                outcomes: &[Outcome::Continue],
                successors: &row(step),
                successor_extra: &[],
                successor_table_states: &[0],
                observations: &row(step),
                extra: &[],
                table_states: &[0],
            })
            .unwrap();
    }
    let batches: Vec<Batch> = [1, 3]
        .into_iter()
        .map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let mut batch = Batch::new(ObservationKind::F32);
            let mut rng = StreamRng::new(1, "replay", 0);
            pool.install(|| replay.sample(50, 0.0, &mut rng, &mut batch))
                .unwrap();
            batch
        })
        .collect();
    assert_eq!(batches[0], batches[1]);
}

#[test]
fn a_batch_keeps_its_memory() {
    let mut replay =
        Replay::new(&config(60, 2, true), shape(ObservationKind::U8), &dense()).unwrap();
    write(&mut replay, &[[Outcome::Continue; ENVIRONMENTS]; 9]);
    let mut batch = Batch::new(ObservationKind::U8);
    let mut rng = StreamRng::new(2, "replay", 0);
    let addresses = |batch: &Batch| {
        let ObservationBuffer::U8(observations) = &batch.observations else {
            panic!("bytes")
        };
        let ObservationBuffer::U8(next) = &batch.next_observations else {
            panic!("bytes")
        };
        [
            observations.as_ptr().addr(),
            next.as_ptr().addr(),
            batch.extra.as_ptr().addr(),
            batch.next_extra.as_ptr().addr(),
            batch.actions.as_ptr().addr(),
            batch.rewards.as_ptr().addr(),
            batch.bootstrap.as_ptr().addr(),
            batch.next_table_state.as_ptr().addr(),
            batch.weights.as_ptr().addr(),
            batch.indices.as_ptr().addr(),
        ]
    };
    replay.sample(17, 0.4, &mut rng, &mut batch).unwrap();
    let before = addresses(&batch);
    for size in [3, 17, 1, 16] {
        replay.sample(size, 0.4, &mut rng, &mut batch).unwrap();
        assert_eq!(batch.size, size);
        assert_eq!(batch.bootstrap.len(), size * 4);
        assert_eq!(addresses(&batch), before);
    }
}

#[test]
fn a_million_images_fit_in_22_gib() {
    let shape = ReplayShape {
        kind: ObservationKind::U8,
        length: 84 * 84 * 3,
        reward_dim: 4,
        extra: 0,
        environments: 16,
    };
    // 1e6 · (21168 + 16 + 9) bytes and a tree of 2 · 2^20 · 8 bytes.
    let needed = config(1_000_000, 1, true).bytes(&shape);
    assert_eq!(needed, 21_193_000_000 + (1 << 24));
    assert!(needed < 22 << 30);
}

#[test]
fn bad_settings_are_refused_in_one_line() {
    let build = |settings: &ReplayConfig, discount: &Discount| {
        Replay::new(settings, shape(ObservationKind::U8), discount)
            .unwrap_err()
            .to_string()
    };
    let refused = |change: fn(&mut ReplayConfig)| {
        let mut settings = ReplayConfig::default();
        change(&mut settings);
        build(&settings, &dense())
    };
    assert_eq!(
        refused(|settings| settings.n_step = 0),
        "replay: n_step = 0, expected at least 1"
    );
    assert_eq!(
        refused(|settings| settings.capacity = 0),
        "replay: capacity = 0, expected at least 1"
    );
    assert_eq!(
        refused(|settings| settings.priority_exponent = f64::NAN),
        "replay: priority_exponent = NaN, expected 0 to 1"
    );
    let huge = refused(|settings| settings.capacity = usize::MAX / 2);
    assert!(
        huge.contains("GiB is available: lower `replay.capacity`"),
        "{huge}"
    );
    let scalar = Discount::new(&DiscountConfig::Scalar(0.9), 1).unwrap();
    assert_eq!(
        build(&ReplayConfig::default(), &scalar),
        "replay: discount for d = 1, expected d = 2 as the environment's reward"
    );
}

#[test]
fn sizes_and_order_of_writes_are_checked() {
    let mut replay =
        Replay::new(&config(30, 1, false), shape(ObservationKind::F32), &dense()).unwrap();
    let good = ObservationBuffer::F32(vec![0.0; ENVIRONMENTS * LENGTH]);
    let mut step = VectorStep {
        actions: &[0; 3],
        rewards: &[0.0; 6],
        outcomes: &[Outcome::Continue; 3],
        successors: &good,
        successor_extra: &[0.0; 9],
        successor_table_states: &[0; 3],
        observations: &good,
        extra: &[0.0; 9],
        table_states: &[0; 3],
    };
    let message = |result: Result<(), CoreError>| result.unwrap_err().to_string();
    assert_eq!(
        message(replay.push(&step)),
        "replay: a step before the first observation"
    );
    replay.start(&good, &[0.0; 9], &[0; 3]).unwrap();
    assert_eq!(
        message(replay.start(&good, &[0.0; 9], &[0; 3])),
        "replay: started twice"
    );
    step.rewards = &[0.0; 5];
    assert_eq!(
        message(replay.push(&step)),
        "replay: rewards has 5 entries, expected 6"
    );
    step.rewards = &[0.0; 6];
    let bytes = ObservationBuffer::U8(vec![0; ENVIRONMENTS * LENGTH]);
    step.successors = &bytes;
    assert_eq!(
        message(replay.push(&step)),
        "replay: successors of type U8, expected F32"
    );
    let mut saved = Vec::new();
    replay.save(&mut saved).unwrap();
    let mut other =
        Replay::new(&config(30, 2, false), shape(ObservationKind::F32), &dense()).unwrap();
    let message = message(other.load(&mut saved.as_slice()));
    assert!(
        message.contains("expected [3, 10, 2, 4, 2, 3, 0, 2]"),
        "{message}"
    );
}
