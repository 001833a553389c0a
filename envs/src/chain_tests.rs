use proptest::prelude::{any, prop_assert_eq, proptest};
use rand::RngCore;

use super::*;

fn chain(config: &ChainConfig) -> Chain {
    Chain::new("chain", config).unwrap()
}

/// Draws `count` rewards of a chain that is too long to leave.
fn draws(reward: ChainReward, dim: usize, count: usize) -> Vec<Vec<f32>> {
    let config = ChainConfig {
        length: MAX_LENGTH,
        dim,
        reward,
        ..ChainConfig::default()
    };
    let mut chain = chain(&config);
    let mut rng = StreamRng::new(3, "chain test", 0);
    (0..count)
        .map(|_| {
            let mut reward = vec![f32::NAN; dim];
            let outcome = chain.step(0, &mut rng, &mut reward, ObservationMut::Skip);
            assert_eq!(outcome, Outcome::Continue);
            reward
        })
        .collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn without_slip_the_walk_is_the_line_and_the_bonus_comes_once() {
    let config = ChainConfig {
        length: 3,
        slip: 0.0,
        dim: 2,
        reward: ChainReward::Deterministic {
            value: vec![1.0, -0.5],
        },
        terminal_bonus: Some(vec![10.0, 20.0]),
        ..ChainConfig::default()
    };
    let mut chain = chain(&config);
    let mut rng = StreamRng::new(0, "chain test", 0);
    let (mut observation, mut reward) = ([9.0; 3], [9.0; 2]);
    chain.reset(&mut rng, ObservationMut::F32(&mut observation));
    assert_eq!(observation, [1.0, 0.0, 0.0]);
    for (expected, reward_expected, outcome_expected, state) in [
        ([0.0, 1.0, 0.0], [1.0, -0.5], Outcome::Continue, 1),
        ([0.0, 0.0, 1.0], [1.0, -0.5], Outcome::Continue, 2),
        // 1 + 10 and -0.5 + 20, and no state is marked outside the line.
        ([0.0, 0.0, 0.0], [11.0, 19.5], Outcome::Terminated, 2),
    ] {
        let outcome = chain.step(
            0,
            &mut rng,
            &mut reward,
            ObservationMut::F32(&mut observation),
        );
        assert_eq!((observation, reward), (expected, reward_expected));
        assert_eq!(outcome, outcome_expected);
        assert_eq!(chain.table_state(), Some((state, 3)));
    }
}

#[test]
fn back_moves_left_and_stays_at_the_first_state() {
    let config = ChainConfig {
        slip: 0.0,
        back: true,
        ..ChainConfig::default()
    };
    let mut chain = chain(&config);
    let mut rng = StreamRng::new(0, "chain test", 0);
    let mut reward = [0.0; 2];
    let mut walk = |action| {
        chain.step(action, &mut rng, &mut reward, ObservationMut::Skip);
        chain.table_state().unwrap().0
    };
    assert_eq!([1, 0, 0, 1, 1, 0].map(&mut walk), [0, 1, 2, 1, 0, 1]);
}

#[test]
fn slips_have_their_probability_and_are_independent_of_the_reward() {
    // 40,000 steps with slip .3: the standard errors are .0023 for the slip and .0034 for its product with the coordinate.
    let config = ChainConfig {
        length: MAX_LENGTH,
        slip: 0.3,
        ..ChainConfig::default()
    };
    let mut chain = chain(&config);
    let mut rng = StreamRng::new(5, "chain test", 0);
    let mut reward = [0.0; 2];
    let (mut slips, mut both) = (0.0, 0.0);
    for _ in 0..40_000 {
        let before = chain.position;
        chain.step(0, &mut rng, &mut reward, ObservationMut::Skip);
        let slipped = f64::from(u8::from(chain.position == before));
        slips += slipped / 40_000.0;
        both += slipped * f64::from(reward[0]) / 40_000.0;
    }
    assert!((slips - 0.3).abs() < 0.01, "{slips}");
    assert!((both - 0.15).abs() < 0.01, "{both}");
}

#[test]
fn exclusive_and_independent_have_equal_marginals_and_different_joints() {
    let exclusive = draws(ChainReward::Exclusive {}, 3, 30_000);
    let independent = draws(ChainReward::Independent {}, 3, 30_000);
    for rewards in [&exclusive, &independent] {
        for i in 0..3 {
            // Standard error sqrt(2/9/30000) = .0027.
            let marginal = mean(rewards.iter().map(|r| f64::from(r[i])));
            assert!((marginal - 1.0 / 3.0).abs() < 0.012, "{marginal}");
        }
    }
    assert!(exclusive.iter().all(|r| r.iter().sum::<f32>() == 1.0));
    for (i, j) in [(0, 1), (1, 2), (0, 2)] {
        let both = mean(independent.iter().map(|r| f64::from(r[i] * r[j])));
        assert!((both - 1.0 / 9.0).abs() < 0.01, "{both}");
    }
}

#[test]
fn one_coordinate_is_always_paid() {
    for law in [ChainReward::Exclusive {}, ChainReward::Independent {}] {
        assert!(draws(law, 1, 100).iter().all(|r| r == &[1.0]));
    }
}

#[test]
fn gaussian_rewards_have_their_mean_and_covariance() {
    let covariance = vec![vec![4.0, 1.0], vec![1.0, 0.5]];
    let law = ChainReward::Gaussian {
        mean: vec![1.0, -2.0],
        covariance: covariance.clone(),
    };
    let rewards = draws(law, 2, 40_000);
    let centre = [1.0, -2.0];
    for i in 0..2 {
        let got = mean(rewards.iter().map(|r| f64::from(r[i])));
        assert!((got - centre[i]).abs() < 0.05, "{got}");
        for j in 0..2 {
            let got = mean(
                rewards
                    .iter()
                    .map(|r| (f64::from(r[i]) - centre[i]) * (f64::from(r[j]) - centre[j])),
            );
            // The largest standard error is that of the variance 4: 4 sqrt(2/40000) = .028.
            assert!((got - covariance[i][j]).abs() < 0.13, "{got}");
        }
    }
}

#[test]
fn a_singular_covariance_is_factored() {
    // [[1,1],[1,1]] = [1,1]ᵀ[1,1], and a coordinate without variance has a zero row.
    let rows = vec![
        vec![1.0, 1.0, 0.0],
        vec![1.0, 1.0, 0.0],
        vec![0.0, 0.0, 0.0],
    ];
    let factor = cholesky(&rows).unwrap();
    assert_eq!(factor, [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_time_limit_truncates_and_does_not_stop_the_walk() {
    let config = ChainConfig {
        length: 4,
        slip: 0.0,
        max_steps: Some(2),
        ..ChainConfig::default()
    };
    let mut chain = chain(&config);
    let mut rng = StreamRng::new(0, "chain test", 0);
    let mut reward = [0.0; 2];
    let outcomes: [Outcome; 4] =
        std::array::from_fn(|_| chain.step(0, &mut rng, &mut reward, ObservationMut::Skip));
    use Outcome::{Continue, Terminated, Truncated};
    assert_eq!(outcomes, [Continue, Truncated, Truncated, Terminated]);
}

#[test]
fn a_value_learned_through_truncation_is_that_of_the_endless_self_loop() {
    // `back` at state 0 is a self-loop: v = 1 + γ v, so v = 1 / (1 - .9) = 10. A target that took the limit of 7 steps for an end
    // would settle below (1 - .9^7) / .1 = 5.22.
    let config = ChainConfig {
        back: true,
        dim: 1,
        reward: ChainReward::Deterministic { value: vec![] },
        max_steps: Some(7),
        ..ChainConfig::default()
    };
    let envs: Vec<Box<dyn Env>> = (0..2)
        .map(|_| Box::new(chain(&config)) as Box<dyn Env>)
        .collect();
    let mut vector = crate::VectorEnv::from_envs(envs, 0, "chain test").unwrap();
    let mut value = 0.0;
    let mut truncated = 0;
    for _ in 0..400 {
        vector.step_all(&[1, 1]);
        let outcome = vector.outcomes()[0];
        truncated += usize::from(outcome == Outcome::Truncated);
        let bootstrap = f64::from(u8::from(outcome != Outcome::Terminated));
        value = f64::from(vector.rewards()[0]) + 0.9 * bootstrap * value;
    }
    assert_eq!(truncated, 400 / 7);
    assert!((value - 10.0).abs() < 1e-9, "{value}");
}

#[test]
fn settings_out_of_range_are_named() {
    let default = ChainConfig::default;
    for (config, expected) in [
        (
            ChainConfig {
                length: 0,
                ..default()
            },
            "environment chain: length = 0, expected 1 to 1048576",
        ),
        (
            ChainConfig {
                slip: 1.0,
                ..default()
            },
            "slip = 1, expected 0 <= slip < 1",
        ),
        (
            ChainConfig {
                slip: f64::NAN,
                ..default()
            },
            "slip = NaN",
        ),
        (
            ChainConfig {
                dim: 33,
                ..default()
            },
            "dim = 33, expected 1 to 32",
        ),
        (
            ChainConfig {
                max_steps: Some(0),
                ..default()
            },
            "max_steps = 0",
        ),
        (
            ChainConfig {
                terminal_bonus: Some(vec![1.0; 3]),
                ..default()
            },
            "terminal_bonus has 3 entries, expected dim = 2",
        ),
        (
            ChainConfig {
                reward: ChainReward::Deterministic {
                    value: vec![1.0, f64::INFINITY],
                },
                ..default()
            },
            "reward.value has the entry inf, expected finite numbers",
        ),
        (
            ChainConfig {
                reward: ChainReward::Gaussian {
                    mean: vec![],
                    covariance: vec![vec![1.0, 2.0], vec![2.0, 1.0]],
                },
                ..default()
            },
            "not positive semi-definite (row 1, remainder -3e0)",
        ),
        (
            ChainConfig {
                reward: ChainReward::Gaussian {
                    mean: vec![],
                    covariance: vec![vec![1.0, 0.5], vec![0.0, 1.0]],
                },
                ..default()
            },
            "has 0 at (1, 0) and 0.5 at (0, 1), expected a symmetric matrix",
        ),
    ] {
        let message = Chain::new("chain", &config).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_foreign_state_is_refused_and_changes_nothing() {
    let mut chain = chain(&ChainConfig::default());
    chain.position = 2;
    for bytes in [vec![], vec![0; 7], vec![9; 8]] {
        assert!(chain.load(&bytes).is_err());
        assert_eq!(chain.position, 2);
    }
}

proptest! {
    #[test]
    fn a_saved_chain_goes_on_identically(
        seed in any::<u64>(), before in 0_usize..40, after in 1_usize..40, length in 1_usize..9, dim in 1_usize..6,
    ) {
        let config = ChainConfig { length, dim, back: true, reward: ChainReward::Independent {}, ..ChainConfig::default() };
        let mut first = chain(&config);
        let mut rng = StreamRng::new(seed, "chain test", 0);
        let mut actions = StreamRng::new(seed, "chain test", 1);
        let mut reward = vec![0.0; dim];
        for _ in 0..before {
            let action = (actions.next_u32() % 2) as usize;
            if first.step(action, &mut rng, &mut reward, ObservationMut::Skip) == Outcome::Terminated {
                first.reset(&mut rng, ObservationMut::Skip);
            }
        }
        let mut bytes = Vec::new();
        first.save(&mut bytes);
        let mut second = chain(&config);
        second.load(&bytes).unwrap();
        let mut second_rng = rng.clone();
        let mut second_reward = reward.clone();
        for _ in 0..after {
            let action = (actions.next_u32() % 2) as usize;
            let outcome = first.step(action, &mut rng, &mut reward, ObservationMut::Skip);
            prop_assert_eq!(outcome, second.step(action, &mut second_rng, &mut second_reward, ObservationMut::Skip));
            prop_assert_eq!(&reward, &second_reward);
            prop_assert_eq!(first.table_state(), second.table_state());
            if outcome == Outcome::Terminated {
                break;
            }
        }
    }
}
