//! Mazes with vector rewards: each cell is visited at most once, and each item pays a random amount on its own coordinate.

mod map;
mod observer;

use std::path::Path;

use rand::RngCore;
use serde::{Deserialize, Serialize};

use crate::registry::EnvSettings;
use crate::{Env, EnvError, EnvSpec, ObservationMut, Outcome, Picture, StreamRng};

pub use map::{ACTIONS, Destination, Edge, Item, Map, RewardRange};
use observer::Observer;

/// What a maze shows of its state; each is Markov but for the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MazeObservation {
    /// `[size, size, 3]` bytes: white ground, black walls, one-way walls red (up/left) and yellow (down/right), blocked cells grey 200,
    /// item squares in the map's colours, the agent a triangle of grey 100, a margin of 5 %.
    Image,
    /// `[6 + d, height, width]` floats 0/1: agent, blocked cells, items of each coordinate, and the edges open up, left, down and right.
    Grid,
    /// `[2 * height * width + items]` floats 0/1: agent, blocked cells, and each item's presence.
    Features,
}

/// Settings of the environments `maze/*` and `maze`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MazeConfig {
    /// Path of the map file; for `maze` only.
    pub map: Option<String>,
    /// What the agent sees.
    pub observation: MazeObservation,
    /// Side length of the image in pixels, at least 16; only `image` uses it.
    pub size: usize,
    /// Steps after which an episode is truncated.
    pub max_steps: usize,
}

impl Default for MazeConfig {
    fn default() -> Self {
        Self {
            map: None,
            observation: MazeObservation::Features,
            size: 84,
            max_steps: 150,
        }
    }
}

impl MazeConfig {
    /// The checked map that an environment of this name has.
    ///
    /// # Errors
    /// [`EnvError::Setting`] if `map` is missing or out of place, otherwise as [`Map::read`].
    pub fn read_map(&self, name: &str) -> Result<Map, EnvError> {
        let wrong = |message: String| EnvError::Setting {
            name: name.to_owned(),
            message,
        };
        match (name.strip_prefix("maze/").and_then(Map::shipped), &self.map) {
            (Some(map), None) => Ok(map),
            (None, Some(path)) => Map::read(Path::new(path)),
            (Some(_), Some(path)) => Err(wrong(format!(
                "map = \"{path}\" is only for the environment `maze`"
            ))),
            (None, None) => Err(wrong(
                "map is missing, expected the path of a map file".to_owned(),
            )),
        }
    }
}

/// Marks in the table of moves.
const WALL: u32 = u32::MAX;
const EXIT: u32 = u32::MAX - 1;

/// The part of a maze that changes.
#[derive(Clone, Debug, PartialEq)]
struct State {
    position: u32,
    time: u32,
    /// Whether the agent has left the grid.
    left: bool,
    blocked: Vec<bool>,
    /// By item.
    present: Vec<bool>,
}

/// A maze environment.
#[derive(Clone, Debug)]
pub struct Maze {
    spec: EnvSpec,
    map: Map,
    /// By cell and action: a cell, [`WALL`] or [`EXIT`].
    moves: Vec<[u32; ACTIONS]>,
    limit: u32,
    initial: State,
    state: State,
    observer: Observer,
}

impl Maze {
    /// Builds a maze on a map.
    ///
    /// # Errors
    /// [`EnvError::Setting`] for `max_steps = 0` or an image too small for the map.
    pub fn new(name: &str, config: &MazeConfig, map: Map) -> Result<Self, EnvError> {
        let wrong = |message: String| EnvError::Setting {
            name: name.to_owned(),
            message,
        };
        if config.max_steps == 0 {
            return Err(wrong("max_steps = 0, expected at least 1".to_owned()));
        }
        let initial = State {
            position: map.start() as u32,
            time: 0,
            left: false,
            blocked: (0..map.cells()).map(|cell| map.blocked(cell)).collect(),
            present: vec![true; map.items().len()],
        };
        let observer = Observer::new(&map, config, &initial).map_err(wrong)?;
        let moves = (0..map.cells())
            .map(|cell| {
                std::array::from_fn(|action| match map.destination(cell, action) {
                    Destination::Wall => WALL,
                    Destination::Exit => EXIT,
                    Destination::Cell(next) => next as u32,
                })
            })
            .collect();
        Ok(Self {
            spec: EnvSpec {
                name: name.to_owned(),
                observation: observer.spec(),
                action_names: ["up", "left", "down", "right"].map(str::to_owned).to_vec(),
                reward_dim: map.reward_dim(),
                max_steps: Some(config.max_steps),
                constraints: map.constraints().to_vec(),
            },
            limit: u32::try_from(config.max_steps).unwrap_or(u32::MAX),
            moves,
            state: initial.clone(),
            initial,
            observer,
            map,
        })
    }

    /// The checked map: cells, edges, items, forced moves and constraints.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Index of the agent's cell, or of the cell that it left the grid from.
    pub fn position(&self) -> usize {
        self.state.position as usize
    }

    /// Whether an action moves the agent now: an open edge, and no blocked cell behind it.
    pub fn is_legal(&self, action: usize) -> bool {
        match self.moves[self.position()][action] {
            WALL => false,
            EXIT => true,
            next => !self.state.blocked[next as usize],
        }
    }

    /// Moves along a legal action and collects what lies there.
    #[inline]
    fn advance(&mut self, action: usize, rng: &mut StreamRng, reward: &mut [f32]) {
        let from = self.position();
        let next = self.moves[from][action];
        if next == WALL {
            return;
        }
        if next == EXIT {
            self.state.blocked[from] = true;
            self.state.left = true;
            self.observer.redraw(&self.map, &self.state, from);
            return;
        }
        let to = next as usize;
        if self.state.blocked[to] {
            return;
        }
        self.state.blocked[from] = true;
        self.state.position = next;
        for index in self.map.items_at(to) {
            // Cells are entered once, so the item is there.
            self.state.present[index] = false;
            let dim = self.map.items()[index].dim;
            let range = self.map.reward_range(dim);
            reward[dim] += (range.low + (range.high - range.low) * unit(rng)) as f32;
        }
        self.observer.redraw(&self.map, &self.state, from);
        self.observer.redraw(&self.map, &self.state, to);
    }
}

/// A uniform number in [0, 1) of 53 random bits.
#[inline]
fn unit(rng: &mut StreamRng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// Draws an action; what rounding leaves of the unit interval goes to the last possible one.
#[inline]
fn draw_action(probabilities: &[f64; ACTIONS], rng: &mut StreamRng) -> usize {
    let mut rest = unit(rng);
    let mut last = 0;
    for (action, probability) in probabilities.iter().enumerate() {
        if *probability > 0.0 {
            last = action;
            if rest < *probability {
                break;
            }
            rest -= probability;
        }
    }
    last
}

impl Env for Maze {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, _rng: &mut StreamRng, observation: ObservationMut<'_>) {
        self.state.position = self.initial.position;
        self.state.time = 0;
        self.state.left = false;
        self.state.blocked.copy_from_slice(&self.initial.blocked);
        self.state.present.copy_from_slice(&self.initial.present);
        self.observer.reset(&observation);
        self.observe(observation);
    }

    #[inline]
    fn step(
        &mut self,
        action: usize,
        rng: &mut StreamRng,
        reward: &mut [f32],
        observation: ObservationMut<'_>,
    ) -> Outcome {
        assert!(action < ACTIONS, "no action {action}");
        self.observer.expect(&observation);
        reward.fill(0.0);
        self.state.time = self.state.time.saturating_add(1);
        let action = match self.map.forced(self.position()) {
            None => action,
            Some(probabilities) => draw_action(&probabilities, rng),
        };
        self.advance(action, rng, reward);
        self.observe(observation);
        if self.state.left {
            Outcome::Terminated
        } else if self.state.time >= self.limit {
            Outcome::Truncated
        } else {
            Outcome::Continue
        }
    }

    fn observe(&mut self, observation: ObservationMut<'_>) {
        self.observer.write(&self.map, &self.state, observation);
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        let state = &self.state;
        bytes.extend_from_slice(&state.position.to_le_bytes());
        bytes.extend_from_slice(&state.time.to_le_bytes());
        bytes.push(u8::from(state.left));
        bytes.extend(state.blocked.iter().map(|flag| u8::from(*flag)));
        bytes.extend(state.present.iter().map(|flag| u8::from(*flag)));
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let cells = self.map.cells();
        let expected = 9 + cells + self.map.items().len();
        if bytes.len() != expected {
            return Err(EnvError::State(format!(
                "{} bytes for {}, expected {expected}",
                bytes.len(),
                self.spec.name
            )));
        }
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let position = number(0);
        if position as usize >= cells {
            return Err(EnvError::State(format!(
                "position {position} for {}, expected less than {cells}",
                self.spec.name
            )));
        }
        if let Some(at) = bytes[8..].iter().position(|flag| *flag > 1) {
            return Err(EnvError::State(format!(
                "byte {} for {} is {}, expected 0 or 1",
                8 + at,
                self.spec.name,
                bytes[8 + at]
            )));
        }
        let state = &mut self.state;
        state.position = position;
        state.time = number(4);
        state.left = bytes[8] == 1;
        for (flag, byte) in state.blocked.iter_mut().zip(&bytes[9..]) {
            *flag = *byte == 1;
        }
        for (flag, byte) in state.present.iter_mut().zip(&bytes[9 + cells..]) {
            *flag = *byte == 1;
        }
        self.observer.invalidate();
        Ok(())
    }

    fn absorbed(&self) -> bool {
        let forced = self.map.forced(self.position());
        !self.state.left
            && (0..ACTIONS).all(|action| {
                !self.is_legal(action)
                    || forced.is_some_and(|probabilities| probabilities[action] == 0.0)
            })
    }

    fn table_state(&self) -> Option<(usize, usize)> {
        Some((self.position(), self.map.cells()))
    }

    fn picture(&mut self) -> Option<Picture> {
        Some(observer::picture(&self.map, &self.state))
    }
}

impl EnvSettings for MazeConfig {
    fn build(&self, name: &str) -> Result<Box<dyn Env>, EnvError> {
        Ok(Box::new(Maze::new(name, self, self.read_map(name)?)?))
    }
}

#[cfg(test)]
mod tests;
