//! The best possible probability of meeting all constraints of a maze, exactly.

use std::collections::HashMap;

use crate::maze::{ACTIONS, Destination, Map, MazeConfig};
use crate::{Constraint, Discount, EnvConfig, EnvError};

/// Largest number of states that are enumerated.
const MAX_STATES: usize = 1 << 20;

/// Longest episode that is searched, which bounds the depth of the recursion.
const MAX_DEPTH: usize = 1000;

/// The best possible probability of meeting all constraints on the discounted return from the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConstraintOptimum {
    /// max over policies of P(all constraints hold).
    pub probability: f64,
    /// Number of distinct states (position, cells visited, C_t, t) that were enumerated.
    pub states: usize,
}

/// The optimum of a maze environment by backward induction over (position, cells visited, C_t, t), memoised over reachable states.
///
/// In each state the agent makes a legal move or, where some move is illegal, stays for ever; waiting for a while first is left out. On a
/// forced cell the move is drawn, and an illegal draw costs a step. The time limit ends an episode with what it has collected.
///
/// # Errors
/// [`EnvError::Enumeration`] if an item's reward is random (low < high), there are no constraints, or the state space is too large;
/// [`EnvError`] if `config` is no maze or Γ does not fit.
pub fn constraint_optimum(
    config: &EnvConfig,
    constraints: &[Constraint],
    discount: &Discount,
) -> Result<ConstraintOptimum, EnvError> {
    let maze: MazeConfig = config.parse()?;
    let map = maze.read_map(config.name())?;
    let refuse = |message: String| Err(EnvError::Enumeration(message));
    if constraints.is_empty() {
        return refuse(format!("{} has no constraints", config.name()));
    }
    let dim = map.reward_dim();
    if discount.dim() != dim {
        return refuse(format!(
            "Γ is {0} x {0}, expected {dim} x {dim}",
            discount.dim()
        ));
    }
    if let Some(constraint) = constraints.iter().find(|c| c.dim >= dim) {
        return refuse(format!(
            "a constraint is on dim {}, expected 0 to {}",
            constraint.dim,
            dim - 1
        ));
    }
    for item in map.items() {
        let range = map.reward_range(item.dim);
        if range.low != range.high {
            return refuse(format!(
                "items of dim {} pay {} to {}, expected low = high: with random rewards there are infinitely many states",
                item.dim, range.low, range.high
            ));
        }
    }
    // A path visits each cell once, so only illegal draws on forced cells make an episode longer than that.
    let forced = (0..map.cells()).any(|cell| map.forced(cell).is_some());
    let longest = if forced {
        maze.max_steps
    } else {
        maze.max_steps.min(map.cells())
    };
    if longest > MAX_DEPTH {
        return refuse(format!(
            "episodes of up to {longest} steps, expected at most {MAX_DEPTH}"
        ));
    }
    let mut power = discount.identity();
    let mut powers = Vec::with_capacity(longest);
    for _ in 0..longest {
        powers.push(power.clone());
        discount.advance(&mut power);
    }
    let mut search = Search {
        map: &map,
        constraints,
        powers,
        limit: maze.max_steps,
        values: HashMap::new(),
    };
    let start = State {
        cell: map.start(),
        time: 0,
        visited: vec![0; map.cells().div_ceil(64)],
        collected: vec![0.0_f64.to_bits(); dim],
    };
    let probability = search.value(start)?;
    Ok(ConstraintOptimum {
        probability,
        states: search.values.len(),
    })
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    cell: usize,
    time: usize,
    /// Cells left so far, one bit each.
    visited: Vec<u64>,
    /// Bits of C_t.
    collected: Vec<u64>,
}

enum Move {
    Illegal,
    Exit,
    To(State),
}

struct Search<'a> {
    map: &'a Map,
    constraints: &'a [Constraint],
    /// Γ^t by t.
    powers: Vec<Vec<f64>>,
    limit: usize,
    values: HashMap<State, f64>,
}

impl Search<'_> {
    /// Whether C_t as it is meets all constraints, as a probability.
    fn settled(&self, state: &State) -> f64 {
        let collected: Vec<f64> = state
            .collected
            .iter()
            .map(|bits| f64::from_bits(*bits))
            .collect();
        let met = self
            .constraints
            .iter()
            .all(|constraint| constraint.slack(&collected) > 0.0);
        f64::from(u8::from(met))
    }

    fn value(&mut self, state: State) -> Result<f64, EnvError> {
        if state.time == self.limit {
            return Ok(self.settled(&state));
        }
        if let Some(value) = self.values.get(&state) {
            return Ok(*value);
        }
        let value = match self.map.forced(state.cell) {
            Some(probabilities) => {
                let mut value = 0.0;
                for (action, probability) in probabilities.into_iter().enumerate() {
                    if probability > 0.0 {
                        let next = match self.moved(&state, action) {
                            Move::Exit => self.settled(&state),
                            Move::To(next) => self.value(next)?,
                            Move::Illegal if self.trapped(&state) => self.settled(&state),
                            Move::Illegal => self.value(State {
                                time: state.time + 1,
                                ..state.clone()
                            })?,
                        };
                        value += probability * next;
                    }
                }
                value
            }
            None => {
                let mut value: f64 = 0.0;
                for action in 0..ACTIONS {
                    value = value.max(match self.moved(&state, action) {
                        // An illegal move, made for ever, and leaving both settle for C_t.
                        Move::Illegal | Move::Exit => self.settled(&state),
                        Move::To(next) => self.value(next)?,
                    });
                }
                value
            }
        };
        if self.values.len() == MAX_STATES {
            return Err(EnvError::Enumeration(
                "more than 2^20 states of (position, cells visited, C_t, t)".to_owned(),
            ));
        }
        self.values.insert(state, value);
        Ok(value)
    }

    /// Whether no possible draw of a forced cell moves: then nothing changes any more.
    fn trapped(&self, state: &State) -> bool {
        let forced = self.map.forced(state.cell);
        (0..ACTIONS).all(|action| {
            forced.is_some_and(|probabilities| probabilities[action] == 0.0)
                || matches!(self.moved(state, action), Move::Illegal)
        })
    }

    fn moved(&self, state: &State, action: usize) -> Move {
        let to = match self.map.destination(state.cell, action) {
            Destination::Wall => return Move::Illegal,
            Destination::Exit => return Move::Exit,
            Destination::Cell(to) => to,
        };
        let visited = |cell: usize| state.visited[cell / 64] >> (cell % 64) & 1 == 1;
        if self.map.blocked(to) || visited(to) {
            return Move::Illegal;
        }
        let dim = state.collected.len();
        let mut next = state.clone();
        next.cell = to;
        next.time += 1;
        next.visited[state.cell / 64] |= 1 << (state.cell % 64);
        for item in &self.map.items()[self.map.items_at(to)] {
            // As the environment pays it.
            let reward = f64::from(self.map.reward_range(item.dim).low as f32);
            for (i, bits) in next.collected.iter_mut().enumerate() {
                let paid = self.powers[state.time][i * dim + item.dim] * reward;
                *bits = (f64::from_bits(*bits) + paid).to_bits();
            }
        }
        Move::To(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiscountConfig;

    fn optimum(name: &str, gamma: f64) -> Result<ConstraintOptimum, EnvError> {
        let config = EnvConfig::new(name, toml::Table::new()).unwrap();
        let env = config.build().unwrap();
        let discount =
            Discount::new(&DiscountConfig::Scalar(gamma), env.spec().reward_dim).unwrap();
        constraint_optimum(&config, &env.spec().constraints, &discount)
    }

    #[test]
    fn the_shipped_constraint_maps_have_their_known_optima() {
        for (name, probability) in [("a", 1.0), ("b", 1.0), ("c", 1.0), ("d", 0.5)] {
            let optimum = optimum(&format!("maze/constraint-{name}"), 0.99).unwrap();
            assert!(
                (optimum.probability - probability).abs() < 1e-12,
                "{name}: {optimum:?}"
            );
            assert!((36..=3199).contains(&optimum.states), "{name}: {optimum:?}");
        }
    }

    #[test]
    fn random_rewards_and_missing_constraints_are_refused() {
        let message = optimum("maze/exclusive", 0.99).unwrap_err().to_string();
        assert!(message.contains("no constraints"), "{message}");
        let config = EnvConfig::new("maze/exclusive", toml::Table::new()).unwrap();
        let discount = Discount::new(&DiscountConfig::Scalar(0.99), 2).unwrap();
        let above = Constraint {
            dim: 0,
            op: crate::ConstraintOp::Greater,
            value: 0.1,
        };
        let message = constraint_optimum(&config, &[above], &discount)
            .unwrap_err()
            .to_string();
        assert!(message.contains("low = high"), "{message}");
        assert!(optimum("chain", 0.99).is_err());
    }

    /// A corridor of three cells with an exit on the right, items of 1 on the second and third, and a fair forced draw between left (a wall
    /// at the start) and right on the first cell.
    const CORRIDOR: &str = r#"{
        "name": "corridor", "height": 1, "width": 3, "start": [0, 0], "reward_dim": 1,
        "reward_uniform": [{"low": 1.0, "high": 1.0}],
        "items": [{"dim": 0, "cell": [0, 1]}, {"dim": 0, "cell": [0, 2]}],
        "item_rgb": [[1, 2, 3]],
        "horizontal_edges": [[0, 0, 0], [0, 0, 0]],
        "vertical_edges": [[0, 1, 1, 1]],
        "blocked": [],
        "forced_action_probs": [{"cell": [0, 0], "probs": [0.0, 0.5, 0.0, 0.5]}]
    }"#;

    #[test]
    fn forced_draws_and_stopping_by_hand() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("corridor.json");
        std::fs::write(&path, CORRIDOR).unwrap();
        let settings = toml::from_str(&format!("map = {path:?}\nmax_steps = 10")).unwrap();
        let config = EnvConfig::new("maze", settings).unwrap();
        let discount = Discount::new(&DiscountConfig::Scalar(0.5), 1).unwrap();
        let constraint = |op, value| Constraint { dim: 0, op, value };
        let (above, below) = (crate::ConstraintOp::Greater, crate::ConstraintOp::Less);
        let probability = |constraints: &[Constraint]| {
            constraint_optimum(&config, constraints, &discount)
                .unwrap()
                .probability
        };
        // The first item is reached after w wasted draws with probability 2^-(w+1) and pays 2^-w, the second 2^-(w+1): 1.5·2^-w in all.
        // More than .6 needs w <= 1: ½ + ¼. More than 1 needs w = 0.
        assert_eq!(probability(&[constraint(above, 0.6)]), 0.75);
        assert_eq!(probability(&[constraint(above, 1.0)]), 0.5);
        // Between .6 and 1.2: w = 0 by stopping at the first item (1), w = 1 by both items (.75).
        assert_eq!(
            probability(&[constraint(above, 0.6), constraint(below, 1.2)]),
            0.75
        );
        // Something at all, however small: all but the ten wasted draws of the time limit.
        assert_eq!(
            probability(&[constraint(above, 0.0)]),
            1.0 - 0.5_f64.powi(10)
        );
    }
}
