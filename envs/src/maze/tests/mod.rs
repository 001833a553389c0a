use proptest::prelude::{any, prop_assert_eq, proptest};
use rand::RngCore;
use serde_json::{Value, json};

use super::*;

mod map;
mod observation;

const UP: usize = 0;
const LEFT: usize = 1;
const DOWN: usize = 2;
const RIGHT: usize = 3;

fn shipped(name: &str, config: &MazeConfig) -> Maze {
    Maze::new(name, config, Map::shipped(name).unwrap()).unwrap()
}

/// A valid 2 x 3 map, d = 2, all edges open but for the walls around the border; the exit is to the right of (1, 2).
fn small() -> Value {
    json!({
        "name": "small", "height": 2, "width": 3, "start": [0, 1], "reward_dim": 2,
        "reward_uniform": [{"low": 0.25, "high": 0.25}, {"low": 1.0, "high": 3.0}],
        "items": [{"dim": 1, "cell": [1, 1]}, {"dim": 0, "cell": [0, 0]}],
        "item_rgb": [[1, 2, 3], [4, 5, 6]],
        "horizontal_edges": [[0, 0, 0], [1, 1, 1], [0, 0, 0]],
        "vertical_edges": [[0, 1, 1, 0], [0, 1, 1, 1]],
        "blocked": [], "forced_action_probs": []
    })
}

fn parse(value: &Value) -> Result<Map, String> {
    Map::parse("small.json", &value.to_string()).map_err(|error| error.to_string())
}

fn maze(value: &Value, max_steps: usize) -> Maze {
    let config = MazeConfig {
        max_steps,
        ..MazeConfig::default()
    };
    Maze::new("maze", &config, parse(value).unwrap()).unwrap()
}

/// Takes a step unseen: outcome, position, reward.
fn step(maze: &mut Maze, action: usize, rng: &mut StreamRng) -> (Outcome, usize, Vec<f32>) {
    let mut reward = vec![f32::NAN; maze.map().reward_dim()];
    let outcome = maze.step(action, rng, &mut reward, ObservationMut::Skip);
    (outcome, maze.position(), reward)
}

fn rng() -> StreamRng {
    StreamRng::new(11, "maze test", 0)
}

#[test]
fn the_upper_way_through_exclusive_pays_its_first_coordinate_four_times() {
    // Cells are 5 row + column: (0,0) > (0,1) > (1,1) > (1,2) > (2,2) > (2,3) > (3,3) > (3,4) > (4,4) > out to the right.
    let mut maze = shipped("exclusive", &MazeConfig::default());
    let mut rng = rng();
    let mut collected = 0;
    for (action, cell) in [
        (RIGHT, 1),
        (DOWN, 6),
        (RIGHT, 7),
        (DOWN, 12),
        (RIGHT, 13),
        (DOWN, 18),
        (RIGHT, 19),
        (DOWN, 24),
    ] {
        let (outcome, position, reward) = step(&mut maze, action, &mut rng);
        assert_eq!((outcome, position), (Outcome::Continue, cell));
        assert_eq!(reward[1], 0.0);
        if action == RIGHT {
            assert!((0.2..=0.6).contains(&reward[0]), "{reward:?}");
            collected += 1;
        } else {
            assert_eq!(reward[0], 0.0);
        }
    }
    assert_eq!(collected, 4);
    let (outcome, position, reward) = step(&mut maze, RIGHT, &mut rng);
    assert_eq!((outcome, position), (Outcome::Terminated, 24));
    assert_eq!(reward, [0.0, 0.0]);
}

#[test]
fn four_rewards_starts_in_the_middle_and_leaves_by_the_left_border() {
    // From (2,1): down to (3,1) needs horizontal_edges[3][1] = 0, a wall; right to (2,2), down to (3,2) with the item of
    // coordinate 3, left to (3,1), left to (3,0), and out across the left border.
    let mut maze = shipped("four-rewards", &MazeConfig::default());
    let mut rng = rng();
    assert_eq!(maze.position(), 11);
    assert_eq!(step(&mut maze, DOWN, &mut rng).1, 11);
    assert_eq!(step(&mut maze, RIGHT, &mut rng).1, 12);
    let (_, position, reward) = step(&mut maze, DOWN, &mut rng);
    assert_eq!((position, &reward[..3]), (17, &[0.0; 3][..]));
    assert!((0.5..=0.7).contains(&reward[3]));
    assert_eq!(step(&mut maze, LEFT, &mut rng).1, 16);
    assert_eq!(step(&mut maze, LEFT, &mut rng).1, 15);
    assert_eq!(
        step(&mut maze, LEFT, &mut rng),
        (Outcome::Terminated, 15, vec![0.0; 4])
    );
}

#[test]
fn a_cell_left_is_blocked_and_an_item_pays_once() {
    let mut maze = maze(&small(), 150);
    let mut rng = rng();
    // (0,1) > (0,0) with the item of exactly .25; back is blocked; the wall above is a wall: only time passes.
    assert_eq!(
        step(&mut maze, LEFT, &mut rng),
        (Outcome::Continue, 0, vec![0.25, 0.0])
    );
    let words = rng.clone();
    for action in [RIGHT, UP, LEFT] {
        assert!(!maze.is_legal(action));
        assert_eq!(
            step(&mut maze, action, &mut rng),
            (Outcome::Continue, 0, vec![0.0, 0.0])
        );
    }
    assert_eq!(rng, words, "an illegal move draws nothing");
    let (_, position, reward) = {
        step(&mut maze, DOWN, &mut rng);
        step(&mut maze, RIGHT, &mut rng)
    };
    assert_eq!((position, reward[0]), (4, 0.0));
    assert!((1.0..=3.0).contains(&reward[1]));
    assert_eq!(
        step(&mut maze, RIGHT, &mut rng),
        (Outcome::Continue, 5, vec![0.0, 0.0])
    );
    assert_eq!(
        step(&mut maze, RIGHT, &mut rng),
        (Outcome::Terminated, 5, vec![0.0, 0.0])
    );
}

#[test]
fn rewards_are_uniform_on_their_range() {
    let mut maze = maze(&small(), 150);
    let mut rng = rng();
    let (mut mean, mut square) = (0.0, 0.0);
    for _ in 0..20_000 {
        maze.reset(&mut rng, ObservationMut::Skip);
        let reward = f64::from(step(&mut maze, DOWN, &mut rng).2[1]);
        mean += reward / 20_000.0;
        square += (reward - 2.0).powi(2) / 20_000.0;
    }
    // Uniform on [1, 3]: mean 2, variance 4/12 = .3333; standard errors .0041 and .0021.
    assert!((mean - 2.0).abs() < 0.017, "{mean}");
    assert!((square - 1.0 / 3.0).abs() < 0.01, "{square}");
}

#[test]
fn a_forced_cell_draws_its_own_action() {
    // constraint-a forces (1,0) to down with 1/3 and right with 2/3, whatever is chosen.
    let mut maze = shipped("constraint-a", &MazeConfig::default());
    let mut rng = rng();
    let mut right = 0;
    for _ in 0..9000 {
        maze.reset(&mut rng, ObservationMut::Skip);
        assert_eq!(step(&mut maze, DOWN, &mut rng).1, 5);
        let position = step(&mut maze, UP, &mut rng).1;
        assert!(position == 6 || position == 10, "{position}");
        right += usize::from(position == 6);
    }
    // The standard error of the share is sqrt(2/9/9000) = .005.
    let share = right as f64 / 9000.0;
    assert!((share - 2.0 / 3.0).abs() < 0.02, "{share}");
}

#[test]
fn a_draw_that_rounding_leaves_over_goes_to_a_possible_action() {
    // The probabilities stop 4e-10 short of 1; the last action has none and is never drawn.
    let probabilities = [0.5, 0.0, 0.5 - 4e-10, 0.0];
    let mut rng = rng();
    for _ in 0..1000 {
        assert!([0, 2].contains(&draw_action(&probabilities, &mut rng)));
    }
}

#[test]
fn the_time_limit_truncates_and_time_goes_on() {
    use Outcome::{Continue, Terminated, Truncated};
    let mut maze = maze(&small(), 2);
    let mut rng = rng();
    let walk = [UP, DOWN, RIGHT, RIGHT].map(|action| step(&mut maze, action, &mut rng).0);
    assert_eq!(walk, [Continue, Truncated, Truncated, Terminated]);
    // Leaving with the last step allowed is an end, not a cut.
    let mut file = small();
    file["start"] = json!([1, 1]);
    let mut maze = self::maze(&file, 2);
    let walk = [RIGHT, RIGHT].map(|action| step(&mut maze, action, &mut rng).0);
    assert_eq!(walk, [Continue, Terminated]);
}

#[test]
fn boxed_in_is_absorbed() {
    // (0,1) > (1,1) > (1,0) > (0,0): up and left are walls, right and down are blocked.
    let mut maze = maze(&small(), 150);
    let mut rng = rng();
    for action in [DOWN, LEFT, UP] {
        assert!(!maze.absorbed());
        step(&mut maze, action, &mut rng);
    }
    assert_eq!(maze.position(), 0);
    assert!(maze.absorbed());
    // A forced cell whose only possible action is a wall boxes in as well.
    let mut file = small();
    file["forced_action_probs"] = json!([{"cell": [0, 0], "probs": [1.0, 0, 0, 0]}]);
    let mut maze = self::maze(&file, 150);
    step(&mut maze, LEFT, &mut rng);
    assert!(maze.is_legal(DOWN) && maze.absorbed());
}

#[test]
fn a_foreign_state_is_refused_and_changes_nothing() {
    let mut maze = maze(&small(), 150);
    let mut bytes = Vec::new();
    maze.save(&mut bytes);
    // 4 + 4 bytes of counters, one flag, 6 cells, 2 items.
    assert_eq!(bytes.len(), 17);
    let before = maze.state.clone();
    let mut off_grid = bytes.clone();
    off_grid[0] = 6;
    let mut no_flag = bytes.clone();
    no_flag[12] = 2;
    for bad in [&bytes[..16], &off_grid, &no_flag] {
        assert!(maze.load(bad).is_err());
        assert_eq!(maze.state, before);
    }
}

proptest! {
    #[test]
    fn a_saved_maze_goes_on_identically(
        seed in any::<u64>(), before in 0_usize..60, after in 1_usize..60, map in 0_usize..7, kind in 0_usize..3,
    ) {
        let name = ["exclusive", "inclusive", "four-rewards", "constraint-a", "constraint-b", "constraint-c", "constraint-d"][map];
        let observation = [MazeObservation::Features, MazeObservation::Grid, MazeObservation::Image][kind];
        let config = MazeConfig { observation, size: 40, ..MazeConfig::default() };
        let mut first = shipped(name, &config);
        let mut rng = StreamRng::new(seed, "maze test", 0);
        let mut actions = StreamRng::new(seed, "maze test", 1);
        for _ in 0..before {
            let action = (actions.next_u32() % 4) as usize;
            if step(&mut first, action, &mut rng).0 == Outcome::Terminated {
                first.reset(&mut rng, ObservationMut::Skip);
            }
        }
        let mut bytes = Vec::new();
        first.save(&mut bytes);
        let mut second = shipped(name, &config);
        second.load(&bytes).unwrap();
        let mut second_rng = rng.clone();
        let length = first.spec().observation.len();
        let (mut floats, mut image) = ([vec![0.0; length], vec![0.0; length]], [vec![0; length], vec![0; length]]);
        for _ in 0..after {
            let action = (actions.next_u32() % 4) as usize;
            let outcome = step(&mut first, action, &mut rng);
            prop_assert_eq!(&outcome, &step(&mut second, action, &mut second_rng));
            for (index, maze) in [&mut first, &mut second].into_iter().enumerate() {
                if observation == MazeObservation::Image {
                    maze.observe(ObservationMut::U8(&mut image[index]));
                } else {
                    maze.observe(ObservationMut::F32(&mut floats[index]));
                }
            }
            prop_assert_eq!(&floats[0], &floats[1]);
            prop_assert_eq!(&image[0], &image[1]);
            if outcome.0 == Outcome::Terminated {
                break;
            }
        }
    }
}
