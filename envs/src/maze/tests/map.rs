use serde_json::{Value, json};

use super::*;

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
