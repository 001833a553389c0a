use super::*;

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
fn what_nobody_looked_at_is_drawn_when_somebody_does() {
    let mut maze = shipped("inclusive", &MazeConfig::default());
    let mut rng = rng();
    let (mut first, mut later, mut reward) = ([0.0; 56], [0.0; 56], [0.0; 2]);
    maze.reset(&mut rng, ObservationMut::F32(&mut first));
    maze.step(
        RIGHT,
        &mut rng,
        &mut reward,
        ObservationMut::F32(&mut later),
    );
    assert_ne!(first, later);
    maze.reset(&mut rng, ObservationMut::Skip);
    maze.observe(ObservationMut::F32(&mut later));
    assert_eq!(first, later);
    maze.step(RIGHT, &mut rng, &mut reward, ObservationMut::Skip);
    maze.step(
        RIGHT,
        &mut rng,
        &mut reward,
        ObservationMut::F32(&mut later),
    );
    assert_eq!([later[0], later[1], later[2]], [0.0, 0.0, 1.0]);
    assert_eq!([later[25], later[26], later[27]], [1.0, 1.0, 0.0]);
}
