use proptest::prelude::{any, prop_assert_eq, proptest};
use rand::RngCore;
use serde_json::{Value, json};

use super::*;

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
fn one_way_walls_open_one_way() {
    for (value, back, forth) in [
        (0, false, false),
        (1, true, true),
        (2, true, false),
        (3, false, true),
    ] {
        let mut file = small();
        // Between (0,0) and (0,1), and between (0,2) and (1,2).
        file["vertical_edges"][0][1] = json!(value);
        file["horizontal_edges"][1][2] = json!(value);
        let map = parse(&file).unwrap();
        let open = |cell, action| map.destination(cell, action) != Destination::Wall;
        assert_eq!(
            (open(1, LEFT), open(0, RIGHT)),
            (back, forth),
            "edge {value}"
        );
        assert_eq!((open(5, UP), open(2, DOWN)), (back, forth), "edge {value}");
    }
    // The same on the border: only an edge that opens outwards is an exit.
    for (value, exit) in [(2, true), (3, false)] {
        let mut file = small();
        file["horizontal_edges"][0][0] = json!(value);
        let expected = if exit {
            Destination::Exit
        } else {
            Destination::Wall
        };
        assert_eq!(parse(&file).unwrap().destination(0, UP), expected);
    }
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
    let mut maze = super::tests::maze(&file, 2);
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
    let mut maze = super::tests::maze(&file, 150);
    step(&mut maze, LEFT, &mut rng);
    assert!(maze.is_legal(DOWN) && maze.absorbed());
}

#[test]
fn features_hold_agent_blocked_cells_and_items() {
    let mut maze = shipped("exclusive", &MazeConfig::default());
    let mut rng = rng();
    // 25 cells twice and 8 items.
    assert_eq!(maze.spec().observation.shape, [58]);
    let mut features = [9.0; 58];
    maze.reset(&mut rng, ObservationMut::F32(&mut features));
    let ones =
        |range: std::ops::Range<usize>, features: &[f32]| features[range].iter().sum::<f32>();
    assert_eq!(features[0], 1.0);
    assert_eq!(
        [
            ones(0..25, &features),
            ones(25..50, &features),
            ones(50..58, &features)
        ],
        [1.0, 12.0, 8.0]
    );
    let mut reward = [0.0; 2];
    maze.step(
        RIGHT,
        &mut rng,
        &mut reward,
        ObservationMut::F32(&mut features),
    );
    // The agent is on (0,1), (0,0) is blocked, and the item on (0,1), the first by cell, is gone.
    assert_eq!(
        [features[0], features[1], features[25], features[50]],
        [0.0, 1.0, 1.0, 0.0]
    );
    assert_eq!(ones(25..58, &features), 13.0 + 7.0);
}

#[test]
fn the_grid_has_planes_for_agent_blocked_items_and_moves() {
    let config = MazeConfig {
        observation: MazeObservation::Grid,
        ..MazeConfig::default()
    };
    let mut maze = Maze::new("maze", &config, parse(&small()).unwrap()).unwrap();
    assert_eq!(maze.spec().observation.shape, [8, 2, 3]);
    let mut grid = [9.0; 48];
    maze.reset(&mut rng(), ObservationMut::F32(&mut grid));
    let plane = |index: usize| grid[index * 6..][..6].to_vec();
    assert_eq!(plane(0), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(plane(1), [0.0; 6]);
    assert_eq!(plane(2), [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(plane(3), [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(plane(4), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0], "up");
    assert_eq!(plane(5), [0.0, 1.0, 1.0, 0.0, 1.0, 1.0], "left");
    assert_eq!(plane(6), [1.0, 1.0, 1.0, 0.0, 0.0, 0.0], "down");
    assert_eq!(
        plane(7),
        [1.0, 1.0, 0.0, 1.0, 1.0, 1.0],
        "right, with the exit"
    );
}

#[test]
fn the_image_has_the_colours_of_the_map() {
    let config = MazeConfig {
        observation: MazeObservation::Image,
        ..MazeConfig::default()
    };
    let mut maze = shipped("exclusive", &config);
    assert_eq!(maze.spec().observation.shape, [84, 84, 3]);
    let mut image = vec![7; 84 * 84 * 3];
    let mut rng = rng();
    maze.reset(&mut rng, ObservationMut::U8(&mut image));
    let at = |image: &[u8], row: usize, column: usize| {
        <[u8; 3]>::try_from(&image[(row * 84 + column) * 3..][..3]).unwrap()
    };
    // Cells are .9 * 84 / 5 = 15.12 pixels, walls 2: lines start at round(4.2 + 15.12 k) - 1 = 3, 18, 33, 48, 64, 79.
    assert_eq!(at(&image, 0, 0), [255; 3], "the margin is white");
    assert_eq!(at(&image, 3, 3), [0; 3], "the border is a wall");
    assert_eq!(
        at(&image, 19, 25),
        [255, 255, 0],
        "the edge below (0,1) is one-way down"
    );
    assert_eq!(
        at(&image, 11, 26),
        [175, 255, 175],
        "an item of coordinate 0 on (0,1)"
    );
    assert_eq!(
        at(&image, 26, 11),
        [255, 175, 175],
        "an item of coordinate 1 on (1,0)"
    );
    assert_eq!(at(&image, 11, 40), [200; 3], "(0,2) is blocked");
    assert_eq!(at(&image, 16, 11), [100; 3], "the agent's base on (0,0)");
    assert_eq!(at(&image, 6, 7), [255; 3], "beside the agent's apex");
    let mut reward = [0.0; 2];
    maze.step(RIGHT, &mut rng, &mut reward, ObservationMut::U8(&mut image));
    assert_eq!(at(&image, 16, 11), [200; 3], "(0,0) is blocked now");
    assert_eq!(at(&image, 16, 26), [100; 3], "the agent's base on (0,1)");
    let mut maze = shipped("constraint-a", &config);
    maze.reset(&mut rng, ObservationMut::U8(&mut image));
    assert_eq!(
        at(&image, 41, 64),
        [255, 0, 0],
        "the edge left of (2,4) is one-way left"
    );
}

#[test]
fn states_look_different_in_an_image_of_any_size() {
    for size in [16, 17, 33, 84, 200] {
        let config = MazeConfig {
            observation: MazeObservation::Image,
            size,
            ..MazeConfig::default()
        };
        let mut maze = shipped("constraint-b", &config);
        let mut rng = rng();
        let mut images = Vec::new();
        maze.reset(&mut rng, ObservationMut::Skip);
        for action in [DOWN, DOWN, LEFT, LEFT, DOWN] {
            let mut image = vec![0; size * size * 3];
            maze.observe(ObservationMut::U8(&mut image));
            assert!(!images.contains(&image), "size {size}");
            images.push(image);
            step(&mut maze, action, &mut rng);
        }
    }
}

#[test]
fn an_image_too_small_for_the_map_is_refused() {
    let map = Map::shipped("exclusive").unwrap();
    for (size, expected) in [(0, "size = 0, expected at least 16"), (15, "size = 15")] {
        let config = MazeConfig {
            observation: MazeObservation::Image,
            size,
            ..MazeConfig::default()
        };
        let message = Maze::new("maze/exclusive", &config, map.clone())
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn the_shipped_maps_are_what_they_were_published_as() {
    for (name, cells, dim, items, constraints) in [
        ("exclusive", 25, 2, 8, 0),
        ("inclusive", 25, 2, 6, 0),
        ("four-rewards", 25, 4, 4, 0),
        ("constraint-a", 25, 3, 9, 3),
        ("constraint-b", 49, 3, 15, 3),
        ("constraint-c", 36, 3, 12, 3),
        ("constraint-d", 36, 3, 13, 3),
    ] {
        let map = Map::shipped(name).unwrap();
        assert_eq!(map.name(), name);
        assert_eq!(
            (
                map.cells(),
                map.reward_dim(),
                map.items().len(),
                map.constraints().len()
            ),
            (cells, dim, items, constraints)
        );
    }
}

#[test]
fn bad_maps_are_refused_with_the_cell_and_the_reason() {
    let cases: [(&str, Value, &str); 24] = [
        ("/height", json!(0), "0 x 3 cells, expected at least 1 x 1"),
        (
            "/reward_dim",
            json!(33),
            "reward_dim = 33, expected 1 to 32",
        ),
        (
            "/horizontal_edges",
            json!([]),
            "horizontal_edges has 0 rows, expected height + 1 = 3",
        ),
        (
            "/vertical_edges/1",
            json!([0, 1, 1]),
            "vertical_edges row 1 has 3 edges, expected width + 1 = 4",
        ),
        (
            "/horizontal_edges/2",
            json!([]),
            "horizontal_edges row 2 has 0 edges, expected width = 3",
        ),
        (
            "/vertical_edges/0/2",
            json!(4),
            "vertical_edges at (0, 2) is 4, expected 0 wall",
        ),
        (
            "/horizontal_edges/1/0",
            json!(-1),
            "horizontal_edges at (1, 0) is -1, expected 0 wall",
        ),
        (
            "/start",
            json!([2, 0]),
            "start at (2, 0) is off the 2 x 3 grid",
        ),
        (
            "/start",
            json!([0, -1]),
            "start at (0, -1) is off the 2 x 3 grid",
        ),
        (
            "/blocked",
            json!([[0, 1]]),
            "start at (0, 1) is on a blocked cell",
        ),
        (
            "/blocked",
            json!([[1, 1]]),
            "item at (1, 1) is on a blocked cell",
        ),
        (
            "/blocked",
            json!([[5, 5]]),
            "blocked cell at (5, 5) is off the 2 x 3 grid",
        ),
        (
            "/items/0/cell",
            json!([0, 3]),
            "item at (0, 3) is off the 2 x 3 grid",
        ),
        (
            "/items/0/dim",
            json!(2),
            "item at (1, 1) has dim 2, expected 0 to 1",
        ),
        (
            "/items/1/dim",
            json!(-1),
            "item at (0, 0) has dim -1, expected 0 to 1",
        ),
        (
            "/reward_uniform/1/low",
            json!(4.0),
            "reward_uniform of dim 1 has low = 4 and high = 3, expected low <= high",
        ),
        (
            "/item_rgb",
            json!([[1, 2, 3]]),
            "2 entries in reward_uniform and 1 in item_rgb, expected reward_dim = 2",
        ),
        (
            "/forced_action_probs",
            json!([{"cell": [0, 2], "probs": [0.5, 0.25, 0.25, 1e-8]}]),
            "forced_action_probs at (0, 2) sums to 1.00000001, expected 1 within 1e-9",
        ),
        (
            "/forced_action_probs",
            json!([{"cell": [0, 2], "probs": [1.5, -0.5, 0, 0]}]),
            "forced_action_probs at (0, 2) has the probability 1.5",
        ),
        (
            "/forced_action_probs",
            json!([{"cell": [0, 2], "probs": [1.0]}]),
            "forced_action_probs at (0, 2) has 1 probabilities, expected 4",
        ),
        (
            "/forced_action_probs",
            json!([{"cell": [9, 2], "probs": [1, 0, 0, 0]}]),
            "forced_action_probs at (9, 2) is off the 2 x 3 grid",
        ),
        (
            "/vertical_edges/1/3",
            json!(0),
            "no exit can be reached from the start at (0, 1)",
        ),
        (
            "/vertical_edges/1/3",
            json!(2),
            "no exit can be reached from the start at (0, 1)",
        ),
        (
            "/width",
            json!("3"),
            "invalid type: string \"3\", expected usize at line 1 column",
        ),
    ];
    assert!(parse(&small()).is_ok());
    for (pointer, value, expected) in cases {
        let mut file = small();
        *file.pointer_mut(pointer).unwrap() = value;
        let message = parse(&file).unwrap_err();
        assert!(message.starts_with("map small.json: "), "{message}");
        assert!(message.contains(expected), "{pointer}: {message}");
        assert!(!message.contains('\n'));
    }
    let mut file = small();
    file["constraint"] = json!([{"dim": 2, "op": "<", "value": 0.5}]);
    assert!(parse(&file).unwrap_err().contains("constraint on dim 2"));
    file["constraints"] = json!([]);
    assert!(
        parse(&file)
            .unwrap_err()
            .contains("unknown field `constraints`")
    );
}

#[test]
fn a_single_cell_needs_an_exit() {
    let mut file = json!({
        "name": "cell", "height": 1, "width": 1, "start": [0, 0], "reward_dim": 1, "reward_uniform": [{"low": 0, "high": 1}],
        "items": [], "item_rgb": [[0, 0, 0]], "horizontal_edges": [[0], [0]], "vertical_edges": [[0, 0]]
    });
    let message = parse(&file).unwrap_err();
    assert!(
        message.contains("no exit can be reached from the start at (0, 0)"),
        "{message}"
    );
    file["vertical_edges"][0][0] = json!(1);
    let mut maze = maze(&file, 150);
    assert_eq!(step(&mut maze, LEFT, &mut rng()).0, Outcome::Terminated);
}

#[test]
fn a_large_map_loads_and_plays() {
    let side = 300;
    let file = json!({
        "name": "large", "height": side, "width": side, "start": [150, 150], "reward_dim": 1,
        "reward_uniform": [{"low": 0.5, "high": 0.5}], "item_rgb": [[0, 0, 255]],
        "items": (0..side).map(|k| json!({"dim": 0, "cell": [k, (k * 7) % side]})).collect::<Vec<_>>(),
        "horizontal_edges": vec![vec![1; side]; side + 1], "vertical_edges": vec![vec![1; side + 1]; side],
    });
    let mut maze = maze(&file, 150);
    let mut rng = rng();
    for _ in 0..149 {
        assert_eq!(step(&mut maze, RIGHT, &mut rng).0, Outcome::Continue);
    }
    assert_eq!(maze.position() % side, 299);
    assert_eq!(step(&mut maze, RIGHT, &mut rng).0, Outcome::Terminated);
}

#[test]
fn a_map_file_is_read_and_its_absence_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.json");
    std::fs::write(&path, small().to_string()).unwrap();
    let config = MazeConfig {
        map: Some(path.display().to_string()),
        ..MazeConfig::default()
    };
    let env = config.build("maze").unwrap();
    assert_eq!(
        (env.spec().name.as_str(), env.spec().reward_dim),
        ("maze", 2)
    );
    let message = config.build("maze/exclusive").err().unwrap().to_string();
    assert!(
        message.contains("is only for the environment `maze`"),
        "{message}"
    );
    let message = MazeConfig::default()
        .build("maze")
        .err()
        .unwrap()
        .to_string();
    assert!(message.contains("map is missing"), "{message}");
    std::fs::remove_file(&path).unwrap();
    let message = config.build("maze").err().unwrap().to_string();
    assert!(message.contains("mine.json: No such file"), "{message}");
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
