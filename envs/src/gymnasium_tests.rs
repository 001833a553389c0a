use super::*;
use crate::EnvConfig;
use crate::chain::{Chain, ChainConfig, ChainReward};

fn cartpole() -> Box<dyn Env> {
    toml::from_str::<EnvConfig>("name = \"gymnasium/cartpole\"")
        .unwrap()
        .build()
        .unwrap()
}

/// A chain of three states without slip that pays (1, 2) a step.
fn chain() -> Chain {
    let config = ChainConfig {
        length: 3,
        slip: 0.0,
        reward: ChainReward::Deterministic {
            value: vec![1.0, 2.0],
        },
        ..ChainConfig::default()
    };
    Chain::new("chain", &config).unwrap()
}

#[test]
fn ours_as_theirs_scalarises_and_hands_the_vector_over() {
    let mut env = AsGymnasium::new(chain(), vec![10.0, 0.5]).unwrap();
    assert_eq!(env.action_space(), Space::Discrete(1));
    let (observation, _) = env.reset_seed(4);
    assert_eq!(observation.to_vec(), [1.0, 0.0, 0.0]);
    let (observation, reward, terminated, truncated, info) = env.step(0);
    // 10 * 1 + .5 * 2 = 11.
    assert_eq!((observation.to_vec(), reward), (vec![0.0, 1.0, 0.0], 11.0));
    assert_eq!(info["reward_vector"], serde_json::json!([1.0, 2.0]));
    assert!(!terminated && !truncated);
    env.step(0);
    assert!(env.step(0).2);
    assert!(env.render().is_none());
    let message = AsGymnasium::new(chain(), vec![1.0])
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("1 reward weights, expected d = 2"),
        "{message}"
    );
}

#[test]
fn a_seeded_reset_repeats_and_a_maze_renders() {
    use crate::maze::{Map, Maze, MazeConfig, MazeObservation};
    let config = MazeConfig {
        observation: MazeObservation::Image,
        ..MazeConfig::default()
    };
    let maze = Maze::new("maze", &config, Map::shipped("exclusive").unwrap()).unwrap();
    let mut env = AsGymnasium::new(maze, vec![1.0, 1.0]).unwrap();
    let mut play = |seed| {
        env.reset_seed(seed);
        (env.step(3).1, env.step(2).0)
    };
    let first = play(-5);
    assert_eq!(first, play(-5));
    assert_ne!(first.0, play(6).0);
    let picture = env.render().unwrap();
    assert_eq!(picture.shape()[2], 3);
}

#[test]
fn theirs_as_ours_is_what_it_wraps() {
    // Our chain through both adapters is our chain, its reward scalarised and the limit of 2 steps added.
    let inner = AsGymnasium::new(chain(), vec![10.0, 0.5]).unwrap();
    let mut env = FromGymnasium::new("wrapped", inner, &["forward"], 2, None).unwrap();
    let mut rng = StreamRng::new(0, "gymnasium test", 0);
    let (mut reward, mut observation) = ([0.0], [9.0; 3]);
    env.reset(&mut rng, ObservationMut::F32(&mut observation));
    use Outcome::{Continue, Terminated, Truncated};
    let outcomes: [Outcome; 3] = std::array::from_fn(|_| {
        env.step(
            0,
            &mut rng,
            &mut reward,
            ObservationMut::F32(&mut observation),
        )
    });
    assert_eq!(outcomes, [Continue, Truncated, Terminated]);
    assert_eq!((reward[0], observation), (11.0, [0.0; 3]));
    assert!(env.picture().is_none());
}

#[test]
fn cartpole_falls_under_one_push_and_pays_one_a_step() {
    let mut env = cartpole();
    let mut rng = StreamRng::new(8, "gymnasium test", 0);
    let mut reward = [0.0];
    env.reset(&mut rng, ObservationMut::Skip);
    let mut steps = 0;
    while env.step(1, &mut rng, &mut reward, ObservationMut::Skip) == Outcome::Continue {
        assert_eq!(reward, [1.0]);
        steps += 1;
        assert!(steps < 20, "a pole pushed one way falls within 20 steps");
    }
    assert!(steps >= 5);
    assert!(env.picture().is_some());
}

#[test]
fn cartpole_is_truncated_at_its_limit_by_us() {
    // Leaning after the pole keeps it up: push towards where it falls.
    let mut env = cartpole();
    let mut rng = StreamRng::new(9, "gymnasium test", 0);
    let (mut reward, mut seen) = ([0.0], [0.0; 4]);
    env.reset(&mut rng, ObservationMut::F32(&mut seen));
    for step in 1..=500 {
        let action = usize::from(seen[2] + 0.5 * seen[3] + 0.02 * seen[0] + 0.05 * seen[1] > 0.0);
        let outcome = env.step(
            action,
            &mut rng,
            &mut reward,
            ObservationMut::F32(&mut seen),
        );
        let expected = if step == 500 {
            Outcome::Truncated
        } else {
            Outcome::Continue
        };
        assert_eq!(outcome, expected, "step {step}");
    }
}

#[test]
fn a_saved_cartpole_goes_on_identically() {
    let mut first = cartpole();
    let mut rng = StreamRng::new(10, "gymnasium test", 0);
    let mut reward = [0.0];
    first.reset(&mut rng, ObservationMut::Skip);
    for action in [0, 1, 1, 0, 1] {
        first.step(action, &mut rng, &mut reward, ObservationMut::Skip);
    }
    let mut bytes = Vec::new();
    first.save(&mut bytes);
    let mut second = cartpole();
    second.load(&bytes).unwrap();
    let mut seen = [[0.0; 4]; 2];
    for action in [1, 0, 0] {
        first.step(
            action,
            &mut rng,
            &mut reward,
            ObservationMut::F32(&mut seen[0]),
        );
        second.step(
            action,
            &mut rng,
            &mut reward,
            ObservationMut::F32(&mut seen[1]),
        );
        assert_eq!(seen[0], seen[1]);
    }
    assert!(second.load(&bytes[..3]).is_err());
    assert!(second.load(&[0, 0, 0, 0, 2]).is_err());
}

#[test]
fn wrong_wrapping_is_refused() {
    for (names, limit, expected) in [
        (&["left"][..], 500, "2 actions and 1 names"),
        (&["left", "right"][..], 0, "max_steps = 0"),
    ] {
        let message = FromGymnasium::new("wrapped", CartPole::new(), names, limit, None)
            .err()
            .unwrap()
            .to_string();
        assert!(message.contains(expected), "{message}");
    }
}
