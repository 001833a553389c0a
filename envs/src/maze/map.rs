//! Map files: reading, checking, and the read-only model of a maze.

use std::path::Path;

use serde::Deserialize;

use crate::{Constraint, EnvError, MAX_REWARD_DIM};

/// The maps of the suite by name.
const SHIPPED: [(&str, &str); 7] = [
    ("exclusive", include_str!("../maps/exclusive.json")),
    ("inclusive", include_str!("../maps/inclusive.json")),
    ("four-rewards", include_str!("../maps/four-rewards.json")),
    ("constraint-a", include_str!("../maps/constraint-a.json")),
    ("constraint-b", include_str!("../maps/constraint-b.json")),
    ("constraint-c", include_str!("../maps/constraint-c.json")),
    ("constraint-d", include_str!("../maps/constraint-d.json")),
];

/// Number of actions: 0 up, 1 left, 2 down, 3 right.
pub const ACTIONS: usize = 4;

/// What an edge does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Closed both ways (0).
    Wall,
    /// Open both ways (1).
    Open,
    /// Open for moves up or left only (2).
    OneWayBack,
    /// Open for moves down or right only (3).
    OneWayForth,
}

/// Where an action leads by the edges alone; blocked cells are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere: a wall.
    Wall,
    /// Across the border: the episode terminates.
    Exit,
    /// To the cell with this index.
    Cell(usize),
}

/// An item on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Cell index, `row * width + column`.
    pub cell: usize,
    /// Coordinate of the reward that it pays.
    pub dim: usize,
}

/// Law of the items of one coordinate: uniform on [low, high].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewardRange {
    /// Smallest reward.
    pub low: f64,
    /// Largest reward.
    pub high: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemEntry {
    dim: i64,
    cell: [i64; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForcedEntry {
    cell: [i64; 2],
    probs: Vec<f64>,
}

/// A map file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapFile {
    name: String,
    height: usize,
    width: usize,
    start: [i64; 2],
    reward_dim: usize,
    reward_uniform: Vec<RewardRange>,
    items: Vec<ItemEntry>,
    item_rgb: Vec<[u8; 3]>,
    horizontal_edges: Vec<Vec<i64>>,
    vertical_edges: Vec<Vec<i64>>,
    #[serde(default)]
    blocked: Vec<[i64; 2]>,
    #[serde(default)]
    forced_action_probs: Vec<ForcedEntry>,
    #[serde(default)]
    constraint: Vec<Constraint>,
}

/// A checked map. Cells are indexed row-major, `row * width + column`; actions are 0 up, 1 left, 2 down, 3 right.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    name: String,
    height: usize,
    width: usize,
    start: usize,
    ranges: Vec<RewardRange>,
    /// Sorted by cell.
    items: Vec<Item>,
    /// Items of cell c are `items[first_item[c]..first_item[c + 1]]`.
    first_item: Vec<u32>,
    item_rgb: Vec<[u8; 3]>,
    /// (height + 1) rows of width edges, then height rows of (width + 1) edges.
    horizontal: Vec<Edge>,
    vertical: Vec<Edge>,
    blocked: Vec<bool>,
    forced: Vec<Option<[f64; ACTIONS]>>,
    constraints: Vec<Constraint>,
}

impl Map {
    /// One of the suite's maps, such as `exclusive`.
    pub fn shipped(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.iter().find(|(shipped, _)| *shipped == name)?;
        Some(Self::parse(name, text).expect("the suite's maps are valid"))
    }

    /// Reads and checks a map file.
    ///
    /// # Errors
    /// [`EnvError::Io`] if it cannot be read, [`EnvError::Map`] with the cell and the reason if it is not a map.
    pub fn read(path: &Path) -> Result<Self, EnvError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| EnvError::Io {
            path: name.clone(),
            source,
        })?;
        Self::parse(&name, &text)
    }

    /// Checks the text of a map file; `path` names it in errors.
    ///
    /// # Errors
    /// [`EnvError::Map`] with the cell and the reason.
    pub fn parse(path: &str, text: &str) -> Result<Self, EnvError> {
        serde_json::from_str::<MapFile>(text)
            .map_err(|error| error.to_string())
            .and_then(Self::check)
            .map_err(|message| EnvError::Map {
                path: path.to_owned(),
                message,
            })
    }

    fn check(file: MapFile) -> Result<Self, String> {
        let (height, width, dim) = (file.height, file.width, file.reward_dim);
        if height == 0 || width == 0 {
            return Err(format!("{height} x {width} cells, expected at least 1 x 1"));
        }
        if !(1..=MAX_REWARD_DIM).contains(&dim) {
            return Err(format!(
                "reward_dim = {dim}, expected 1 to {MAX_REWARD_DIM}"
            ));
        }
        let horizontal = edges(
            "horizontal_edges",
            &file.horizontal_edges,
            (height + 1, "height + 1"),
            (width, "width"),
        )?;
        let vertical = edges(
            "vertical_edges",
            &file.vertical_edges,
            (height, "height"),
            (width + 1, "width + 1"),
        )?;
        if file.reward_uniform.len() != dim || file.item_rgb.len() != dim {
            return Err(format!(
                "{} entries in reward_uniform and {} in item_rgb, expected reward_dim = {dim} of each",
                file.reward_uniform.len(),
                file.item_rgb.len()
            ));
        }
        for (i, RewardRange { low, high }) in file.reward_uniform.iter().enumerate() {
            if !(low <= high && low.is_finite() && high.is_finite()) {
                return Err(format!(
                    "reward_uniform of dim {i} has low = {low} and high = {high}, expected low <= high"
                ));
            }
        }
        let index = |what: &str, cell: [i64; 2]| {
            let [row, column] = cell;
            if (0..height as i64).contains(&row) && (0..width as i64).contains(&column) {
                Ok(row as usize * width + column as usize)
            } else {
                Err(format!(
                    "{what} at ({row}, {column}) is off the {height} x {width} grid"
                ))
            }
        };
        let at = |cell: [i64; 2]| format!("({}, {})", cell[0], cell[1]);
        let mut blocked = vec![false; height * width];
        for cell in &file.blocked {
            blocked[index("blocked cell", *cell)?] = true;
        }
        let start = index("start", file.start)?;
        if blocked[start] {
            return Err(format!("start at {} is on a blocked cell", at(file.start)));
        }
        let mut items = Vec::with_capacity(file.items.len());
        for item in &file.items {
            let cell = index("item", item.cell)?;
            if !(0..dim as i64).contains(&item.dim) {
                return Err(format!(
                    "item at {} has dim {}, expected 0 to {}",
                    at(item.cell),
                    item.dim,
                    dim - 1
                ));
            }
            if blocked[cell] {
                return Err(format!("item at {} is on a blocked cell", at(item.cell)));
            }
            items.push(Item {
                cell,
                dim: item.dim as usize,
            });
        }
        items.sort_by_key(|item| item.cell);
        let mut first_item = vec![0_u32; height * width + 1];
        for item in &items {
            first_item[item.cell + 1] += 1;
        }
        for cell in 0..height * width {
            first_item[cell + 1] += first_item[cell];
        }
        let mut forced = vec![None; height * width];
        for entry in &file.forced_action_probs {
            let cell = index("forced_action_probs", entry.cell)?;
            let wrong =
                |what: String| Err(format!("forced_action_probs at {} {what}", at(entry.cell)));
            let Ok(probabilities) = <[f64; ACTIONS]>::try_from(entry.probs.as_slice()) else {
                return wrong(format!(
                    "has {} probabilities, expected {ACTIONS} (up, left, down, right)",
                    entry.probs.len()
                ));
            };
            if let Some(p) = probabilities.iter().find(|p| !(0.0..=1.0).contains(*p)) {
                return wrong(format!("has the probability {p}, expected 0 to 1"));
            }
            let sum: f64 = probabilities.iter().sum();
            if (sum - 1.0).abs() > 1e-9 {
                return wrong(format!("sums to {sum}, expected 1 within 1e-9"));
            }
            if forced[cell].replace(probabilities).is_some() {
                return wrong("is given twice".to_owned());
            }
        }
        for constraint in &file.constraint {
            if constraint.dim >= dim || !constraint.value.is_finite() {
                return Err(format!(
                    "constraint on dim {} with value {}, expected dim 0 to {} and a finite value",
                    constraint.dim,
                    constraint.value,
                    dim - 1
                ));
            }
        }
        let map = Self {
            name: file.name,
            height,
            width,
            start,
            ranges: file.reward_uniform,
            items,
            first_item,
            item_rgb: file.item_rgb,
            horizontal,
            vertical,
            blocked,
            forced,
            constraints: file.constraint,
        };
        if !map.exit_is_reachable() {
            return Err(format!(
                "no exit can be reached from the start at {}",
                at(file.start)
            ));
        }
        Ok(map)
    }

    /// Whether some path by edges, unblocked cells and possible actions leaves the grid; a bounded, iterative search.
    fn exit_is_reachable(&self) -> bool {
        let mut seen = self.blocked.clone();
        seen[self.start] = true;
        let mut frontier = vec![self.start];
        while let Some(cell) = frontier.pop() {
            for action in 0..ACTIONS {
                if self.forced[cell].is_some_and(|probabilities| probabilities[action] == 0.0) {
                    continue;
                }
                match self.destination(cell, action) {
                    Destination::Exit => return true,
                    Destination::Cell(next) if !seen[next] => {
                        seen[next] = true;
                        frontier.push(next);
                    }
                    _ => {}
                }
            }
        }
        false
    }

    /// The map's own name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of cells, height x width.
    pub fn cells(&self) -> usize {
        self.height * self.width
    }

    /// Index of the start cell.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Length d of the reward vector.
    pub fn reward_dim(&self) -> usize {
        self.ranges.len()
    }

    /// Law of the items of a coordinate.
    pub fn reward_range(&self, dim: usize) -> RewardRange {
        self.ranges[dim]
    }

    /// All items, sorted by cell.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Indices into [`Map::items`] of the items on a cell.
    pub fn items_at(&self, cell: usize) -> std::ops::Range<usize> {
        self.first_item[cell] as usize..self.first_item[cell + 1] as usize
    }

    /// Colour of the items of a coordinate.
    pub fn item_rgb(&self, dim: usize) -> [u8; 3] {
        self.item_rgb[dim]
    }

    /// The edge above cell (row, column); row `height` is the bottom border.
    pub fn horizontal_edge(&self, row: usize, column: usize) -> Edge {
        self.horizontal[row * self.width + column]
    }

    /// The edge left of cell (row, column); column `width` is the right border.
    pub fn vertical_edge(&self, row: usize, column: usize) -> Edge {
        self.vertical[row * (self.width + 1) + column]
    }

    /// Whether a cell is blocked from the start.
    pub fn blocked(&self, cell: usize) -> bool {
        self.blocked[cell]
    }

    /// The law that replaces the chosen action on a cell, if it is a forced one.
    pub fn forced(&self, cell: usize) -> Option<[f64; ACTIONS]> {
        self.forced[cell]
    }

    /// Constraints on the discounted return from the start.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// Where an action leads from a cell by the edges alone.
    pub fn destination(&self, cell: usize, action: usize) -> Destination {
        let (row, column) = (cell / self.width, cell % self.width);
        // An edge, the value that opens it one way, whether it is on the border, and the cell behind it.
        let (edge, one_way, border, behind) = match action {
            0 => (
                self.horizontal_edge(row, column),
                Edge::OneWayBack,
                row == 0,
                cell.wrapping_sub(self.width),
            ),
            1 => (
                self.vertical_edge(row, column),
                Edge::OneWayBack,
                column == 0,
                cell.wrapping_sub(1),
            ),
            2 => (
                self.horizontal_edge(row + 1, column),
                Edge::OneWayForth,
                row + 1 == self.height,
                cell + self.width,
            ),
            3 => (
                self.vertical_edge(row, column + 1),
                Edge::OneWayForth,
                column + 1 == self.width,
                cell + 1,
            ),
            _ => panic!("no action {action}"),
        };
        if edge != Edge::Open && edge != one_way {
            Destination::Wall
        } else if border {
            Destination::Exit
        } else {
            Destination::Cell(behind)
        }
    }
}

/// Checks the shape and values of an edge table and flattens it.
fn edges(
    key: &str,
    rows: &[Vec<i64>],
    (row_count, row_rule): (usize, &str),
    (column_count, column_rule): (usize, &str),
) -> Result<Vec<Edge>, String> {
    if rows.len() != row_count {
        return Err(format!(
            "{key} has {} rows, expected {row_rule} = {row_count}",
            rows.len()
        ));
    }
    let mut flat = Vec::new();
    for (row, values) in rows.iter().enumerate() {
        if values.len() != column_count {
            return Err(format!(
                "{key} row {row} has {} edges, expected {column_rule} = {column_count}",
                values.len()
            ));
        }
        for (column, value) in values.iter().enumerate() {
            flat.push(match value {
                0 => Edge::Wall,
                1 => Edge::Open,
                2 => Edge::OneWayBack,
                3 => Edge::OneWayForth,
                _ => {
                    return Err(format!(
                        "{key} at ({row}, {column}) is {value}, expected 0 wall, 1 open, 2 one-way up/left or 3 one-way down/right"
                    ));
                }
            });
        }
    }
    Ok(flat)
}
