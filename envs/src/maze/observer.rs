//! Observations of a maze: drawn once per change into a frame of their own, then copied.

use super::{ACTIONS, Edge, Map, MazeConfig, MazeObservation, State};
use crate::{ObservationKind, ObservationMut, ObservationSpec, Picture};

/// Smallest side of an image observation, in pixels.
const MIN_SIZE: usize = 16;
/// A cell needs a pixel of wall and a pixel of inside.
const MIN_CELL: usize = 2;

const WHITE: [u8; 3] = [255, 255, 255];
const BLACK: [u8; 3] = [0, 0, 0];
const RED: [u8; 3] = [255, 0, 0];
const YELLOW: [u8; 3] = [255, 255, 0];
const BLOCKED: [u8; 3] = [200, 200, 200];
const AGENT: [u8; 3] = [100, 100, 100];

/// A frame and what it is after a reset.
#[derive(Clone, Debug)]
struct Frame<T> {
    initial: Vec<T>,
    current: Vec<T>,
}

#[derive(Clone, Debug)]
enum Content {
    Features(Frame<f32>),
    Grid(Frame<f32>),
    Image(Canvas, Frame<u8>),
}

/// Keeps the observation of the current state drawn.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    spec: ObservationSpec,
    content: Content,
    /// The frame is not that of the state (nobody was looking): draw it anew before it is copied.
    stale: bool,
    /// Somebody looks at this step.
    wanted: bool,
}

impl Observer {
    pub(super) fn new(map: &Map, config: &MazeConfig, initial: &State) -> Result<Self, String> {
        let (height, width, cells) = (map.height(), map.width(), map.cells());
        let (shape, content) = match config.observation {
            MazeObservation::Features => {
                let length = 2 * cells + map.items().len();
                let mut frame = vec![0.0; length];
                (0..cells).for_each(|cell| draw_features(&mut frame, map, initial, cell));
                (vec![length], Content::Features(Frame::new(frame)))
            }
            MazeObservation::Grid => {
                let planes = 2 + map.reward_dim() + ACTIONS;
                let mut frame = vec![0.0; planes * cells];
                (0..cells).for_each(|cell| draw_grid(&mut frame, map, initial, cell));
                for (action, plane) in frame[(planes - ACTIONS) * cells..]
                    .chunks_exact_mut(cells)
                    .enumerate()
                {
                    for (cell, value) in plane.iter_mut().enumerate() {
                        let open = map.destination(cell, action) != super::Destination::Wall;
                        *value = f32::from(u8::from(open));
                    }
                }
                (
                    vec![planes, height, width],
                    Content::Grid(Frame::new(frame)),
                )
            }
            MazeObservation::Image => {
                let size = config.size;
                if size < MIN_SIZE {
                    return Err(format!("size = {size}, expected at least {MIN_SIZE}"));
                }
                // 5 % of margin on either side leave 90 %.
                let needed = (MIN_CELL * height.max(width) * 10).div_ceil(9);
                if size < needed {
                    return Err(format!(
                        "size = {size} gives less than {MIN_CELL} pixels a cell on a {height} x {width} map, expected at least {needed}"
                    ));
                }
                let canvas = Canvas::new(map, size);
                let frame = canvas.draw(map, initial);
                (
                    vec![size, size, 3],
                    Content::Image(canvas, Frame::new(frame)),
                )
            }
        };
        let (kind, high) = match content {
            Content::Image(..) => (ObservationKind::U8, 255.0),
            _ => (ObservationKind::F32, 1.0),
        };
        Ok(Self {
            spec: ObservationSpec {
                shape,
                kind,
                low: 0.0,
                high,
            },
            content,
            stale: false,
            wanted: true,
        })
    }

    pub(super) fn spec(&self) -> ObservationSpec {
        self.spec.clone()
    }

    /// Says before a step whether its observation will be written.
    #[inline]
    pub(super) fn expect(&mut self, observation: &ObservationMut<'_>) {
        self.wanted = !matches!(observation, ObservationMut::Skip);
    }

    /// Marks the frame as out of date.
    pub(super) fn invalidate(&mut self) {
        self.stale = true;
    }

    /// Takes the frame back to the initial state.
    pub(super) fn reset(&mut self, observation: &ObservationMut<'_>) {
        self.expect(observation);
        self.stale = !self.wanted;
        if self.wanted {
            match &mut self.content {
                Content::Features(frame) | Content::Grid(frame) => frame.reset(),
                Content::Image(_, frame) => frame.reset(),
            }
        }
    }

    /// Draws one cell that changed.
    #[inline]
    pub(super) fn redraw(&mut self, map: &Map, state: &State, cell: usize) {
        if !self.wanted {
            self.stale = true;
        } else if !self.stale {
            self.draw_cell(map, state, cell);
        }
    }

    fn draw_cell(&mut self, map: &Map, state: &State, cell: usize) {
        match &mut self.content {
            Content::Features(frame) => draw_features(&mut frame.current, map, state, cell),
            Content::Grid(frame) => draw_grid(&mut frame.current, map, state, cell),
            Content::Image(canvas, frame) => {
                canvas.draw_cell(&mut frame.current, map, state, cell);
            }
        }
    }

    /// Copies the observation of the state.
    #[inline]
    pub(super) fn write(&mut self, map: &Map, state: &State, observation: ObservationMut<'_>) {
        if matches!(observation, ObservationMut::Skip) {
            return;
        }
        if self.stale {
            (0..map.cells()).for_each(|cell| self.draw_cell(map, state, cell));
            self.stale = false;
        }
        match (&self.content, observation) {
            (Content::Features(frame) | Content::Grid(frame), ObservationMut::F32(values)) => {
                values.copy_from_slice(&frame.current);
            }
            (Content::Image(_, frame), ObservationMut::U8(values)) => {
                values.copy_from_slice(&frame.current);
            }
            _ => panic!("the maze observes {:?}", self.spec.kind),
        }
    }
}

impl<T: Copy> Frame<T> {
    fn new(initial: Vec<T>) -> Self {
        Self {
            current: initial.clone(),
            initial,
        }
    }

    fn reset(&mut self) {
        self.current.copy_from_slice(&self.initial);
    }
}

impl State {
    fn has_agent(&self, cell: usize) -> bool {
        !self.left && self.position as usize == cell
    }
}

#[inline]
fn draw_features(frame: &mut [f32], map: &Map, state: &State, cell: usize) {
    let cells = map.cells();
    frame[cell] = f32::from(u8::from(state.has_agent(cell)));
    frame[cells + cell] = f32::from(u8::from(state.blocked[cell]));
    for index in map.items_at(cell) {
        frame[2 * cells + index] = f32::from(u8::from(state.present[index]));
    }
}

#[inline]
fn draw_grid(frame: &mut [f32], map: &Map, state: &State, cell: usize) {
    let cells = map.cells();
    frame[cell] = f32::from(u8::from(state.has_agent(cell)));
    frame[cells + cell] = f32::from(u8::from(state.blocked[cell]));
    for index in map.items_at(cell) {
        let plane = 2 + map.items()[index].dim;
        frame[plane * cells + cell] = f32::from(u8::from(state.present[index]));
    }
}

/// Where cells and walls lie in a square image.
#[derive(Clone, Debug)]
struct Canvas {
    size: usize,
    thickness: usize,
    /// First pixel of the wall on each vertical and on each horizontal line of the grid.
    columns: Vec<usize>,
    rows: Vec<usize>,
}

/// A rectangle of pixels: columns, rows.
type Area = (std::ops::Range<usize>, std::ops::Range<usize>);

impl Canvas {
    fn new(map: &Map, size: usize) -> Self {
        let pitch = 0.9 * size as f64 / map.height().max(map.width()) as f64;
        let thickness = ((pitch / 10.0).round() as usize).max(1);
        let lines = |count: usize| {
            let offset = (size as f64 - pitch * count as f64) / 2.0;
            (0..=count)
                .map(|line| (offset + pitch * line as f64).round() as usize - thickness / 2)
                .collect()
        };
        Self {
            size,
            thickness,
            columns: lines(map.width()),
            rows: lines(map.height()),
        }
    }

    fn fill(&self, frame: &mut [u8], (columns, rows): Area, colour: [u8; 3]) {
        for row in rows {
            let line = &mut frame[(row * self.size + columns.start) * 3..][..columns.len() * 3];
            for pixel in line.chunks_exact_mut(3) {
                pixel.copy_from_slice(&colour);
            }
        }
    }

    /// The whole image of a state.
    fn draw(&self, map: &Map, state: &State) -> Vec<u8> {
        let mut frame = vec![255; self.size * self.size * 3];
        // Walls come last, so that corners are closed.
        for colour in [YELLOW, RED, BLACK] {
            self.draw_edges(&mut frame, map, colour);
        }
        (0..map.cells()).for_each(|cell| self.draw_cell(&mut frame, map, state, cell));
        frame
    }

    fn draw_edges(&self, frame: &mut [u8], map: &Map, colour: [u8; 3]) {
        let drawn = match colour {
            BLACK => Edge::Wall,
            RED => Edge::OneWayBack,
            _ => Edge::OneWayForth,
        };
        let strip = |line: usize| line..line + self.thickness;
        let along = |lines: &[usize], at: usize| lines[at]..lines[at + 1] + self.thickness;
        for row in 0..=map.height() {
            for column in 0..map.width() {
                if map.horizontal_edge(row, column) == drawn {
                    let area = (along(&self.columns, column), strip(self.rows[row]));
                    self.fill(frame, area, colour);
                }
            }
        }
        for row in 0..map.height() {
            for column in 0..=map.width() {
                if map.vertical_edge(row, column) == drawn {
                    let area = (strip(self.columns[column]), along(&self.rows, row));
                    self.fill(frame, area, colour);
                }
            }
        }
    }

    /// Draws the inside of one cell, between its walls: no other pixel depends on the state.
    fn draw_cell(&self, frame: &mut [u8], map: &Map, state: &State, cell: usize) {
        let (row, column) = (cell / map.width(), cell % map.width());
        let columns = self.columns[column] + self.thickness..self.columns[column + 1];
        let rows = self.rows[row] + self.thickness..self.rows[row + 1];
        let ground = if state.blocked[cell] { BLOCKED } else { WHITE };
        self.fill(frame, (columns.clone(), rows.clone()), ground);
        let inset = |range: &std::ops::Range<usize>, share: usize| {
            let margin = range.len() / share;
            range.start + margin..range.end - margin
        };
        for index in map.items_at(cell) {
            if state.present[index] {
                let colour = map.item_rgb(map.items()[index].dim);
                self.fill(frame, (inset(&columns, 5), inset(&rows, 5)), colour);
            }
        }
        if state.has_agent(cell) {
            let (columns, rows) = (inset(&columns, 8), inset(&rows, 8));
            let (height, width) = (rows.len(), columns.len());
            for (line, row) in rows.enumerate() {
                // The apex is on top; the last line is as wide as the base.
                let half = (width * (height - 1 - line)) / (2 * height);
                let area = (columns.start + half..columns.end - half, row..row + 1);
                self.fill(frame, area, AGENT);
            }
        }
    }
}

/// A picture for people, about 32 pixels a cell, fewer on large maps.
pub(super) fn picture(map: &Map, state: &State) -> Picture {
    let longest = map.height().max(map.width());
    let pixels = (1200 / longest).clamp(4, 32);
    let size = (longest * pixels * 10).div_ceil(9).max(MIN_SIZE);
    Picture {
        width: size,
        height: size,
        rgb: Canvas::new(map, size).draw(map, state),
    }
}
