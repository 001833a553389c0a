//! Fixed policies that need no network.

use rand::RngCore;
use serde::{Deserialize, Serialize};

use crate::{Env, EnvError, StreamRng};

/// Largest distance from 1 that the sum of a row of probabilities may have.
const SUM_TOLERANCE: f64 = 1e-6;

/// A fixed policy as written in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", from = "Written")]
pub enum PolicyConfig {
    /// Every action with the same probability, in every state.
    #[default]
    Uniform,
    /// One row of action probabilities for each table state.
    Table {
        /// `[table states][actions]`; each row is non-negative and sums to 1 within 1e-6.
        probabilities: Vec<Vec<f64>>,
    },
    /// One action, always.
    Action {
        /// Name of the action, such as `forward`.
        action: String,
    },
}

/// The written form: serde checks the keys of braced variants only, so `uniform` is braced here.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Written {
    Uniform {},
    Table { probabilities: Vec<Vec<f64>> },
    Action { action: String },
}

impl From<Written> for PolicyConfig {
    fn from(written: Written) -> Self {
        match written {
            Written::Uniform {} => Self::Uniform,
            Written::Table { probabilities } => Self::Table { probabilities },
            Written::Action { action } => Self::Action { action },
        }
    }
}

#[derive(Clone, Debug)]
enum Rule {
    Uniform,
    Action(usize),
    /// Cumulative probabilities, `[table states, actions]`, the last of each row infinite so that rounding loses no draw.
    Table(Vec<f64>),
}

/// A fixed policy, validated against an environment.
#[derive(Clone, Debug)]
pub struct Policy {
    rule: Rule,
    actions: usize,
    /// `[rows, actions]`: one row if the policy ignores the state, else one for each table state.
    probabilities: Vec<f32>,
}

impl Policy {
    /// Builds the policy for `env`.
    ///
    /// # Errors
    /// [`EnvError::Policy`] if an action is unknown, the environment has no table states, or a table has a wrong size or a row that is no distribution.
    pub fn new(config: &PolicyConfig, env: &dyn Env) -> Result<Self, EnvError> {
        let spec = env.spec();
        let actions = spec.actions();
        let wrong = |message: String| Err(EnvError::Policy(message));
        let (rule, probabilities) = match config {
            PolicyConfig::Uniform => (Rule::Uniform, vec![1.0 / actions as f32; actions]),
            PolicyConfig::Action { action } => {
                let Some(index) = spec.action_names.iter().position(|name| name == action) else {
                    let nearest = spec.action_names.iter().max_by(|a, b| {
                        strsim::jaro_winkler(a, action).total_cmp(&strsim::jaro_winkler(b, action))
                    });
                    return wrong(format!(
                        "action \"{action}\" is not one of {} ({}); did you mean \"{}\"?",
                        spec.name,
                        spec.action_names.join(", "),
                        nearest.map_or("", String::as_str),
                    ));
                };
                let mut row = vec![0.0; actions];
                row[index] = 1.0;
                (Rule::Action(index), row)
            }
            PolicyConfig::Table { probabilities } => {
                let Some((_, states)) = env.table_state() else {
                    return wrong(format!(
                        "{} has no table states, expected kind uniform or action",
                        spec.name
                    ));
                };
                if probabilities.len() != states {
                    return wrong(format!(
                        "the table has {} rows, expected {states} (the table states of {})",
                        probabilities.len(),
                        spec.name
                    ));
                }
                let mut cumulative = Vec::with_capacity(states * actions);
                for (state, row) in probabilities.iter().enumerate() {
                    if row.len() != actions {
                        return wrong(format!(
                            "row {state} of the table has {} entries, expected {actions} (one per action)",
                            row.len()
                        ));
                    }
                    if let Some(entry) = row.iter().find(|p| !p.is_finite() || **p < 0.0) {
                        return wrong(format!(
                            "row {state} of the table has entry {entry}, expected probabilities"
                        ));
                    }
                    let sum: f64 = row.iter().sum();
                    if (sum - 1.0).abs() > SUM_TOLERANCE {
                        return wrong(format!(
                            "row {state} of the table sums to {sum}, expected 1"
                        ));
                    }
                    // Everything from the last possible action on is infinite: a draw above the rounded sum must not
                    // fall to an action of probability 0.
                    let last = row.iter().rposition(|p| *p > 0.0).unwrap_or(0);
                    let mut total = 0.0;
                    cumulative.extend(row.iter().enumerate().map(|(action, p)| {
                        total += p;
                        if action >= last { f64::INFINITY } else { total }
                    }));
                }
                let flat = probabilities.iter().flatten().map(|p| *p as f32).collect();
                (Rule::Table(cumulative), flat)
            }
        };
        Ok(Self {
            rule,
            actions,
            probabilities,
        })
    }

    /// Probabilities π(·|s) of the actions, length A; a policy that ignores the state accepts any `table_state`.
    pub fn probabilities(&self, table_state: usize) -> &[f32] {
        let start = match self.rule {
            Rule::Table(_) => table_state * self.actions,
            Rule::Uniform | Rule::Action(_) => 0,
        };
        &self.probabilities[start..start + self.actions]
    }

    /// Whether π(·|s) differs between table states.
    pub fn depends_on_state(&self) -> bool {
        matches!(self.rule, Rule::Table(_))
    }

    /// Draws an action for the environment's current state; a policy of one action draws nothing from the stream.
    pub fn sample(&self, env: &dyn Env, rng: &mut StreamRng) -> usize {
        match &self.rule {
            Rule::Uniform => uniform_action(self.actions, rng),
            Rule::Action(action) => *action,
            Rule::Table(cumulative) => {
                let state = env.table_state().map_or(0, |(state, _)| state);
                let row = &cumulative[state * self.actions..(state + 1) * self.actions];
                let draw = (rng.next_u64() >> 11) as f64 * 2.0_f64.powi(-53);
                row.iter().position(|bound| draw < *bound).unwrap_or(0)
            }
        }
    }
}

/// An action uniform on 0..`actions`, to within 2^-32, from one word of the stream.
#[inline]
pub(crate) fn uniform_action(actions: usize, rng: &mut StreamRng) -> usize {
    ((u64::from(rng.next_u32()) * actions as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::Walk;

    fn table(rows: &[&[f64]]) -> PolicyConfig {
        PolicyConfig::Table {
            probabilities: rows.iter().map(|row| row.to_vec()).collect(),
        }
    }

    #[test]
    fn uniform_and_action_have_one_row_for_every_state() {
        let env = Walk::new(3, 0.0);
        let uniform = Policy::new(&PolicyConfig::Uniform, &env).unwrap();
        assert_eq!(uniform.probabilities(2), [0.5, 0.5]);
        let action = PolicyConfig::Action {
            action: "forward".into(),
        };
        let forward = Policy::new(&action, &env).unwrap();
        assert_eq!(forward.probabilities(1), [1.0, 0.0]);
        let mut rng = StreamRng::new(1, "test", 0);
        assert!((0..20).all(|_| forward.sample(&env, &mut rng) == 0));
        // 2000 fair draws: 1000 with standard deviation sqrt(500) = 22.4; 5 of them are 112.
        let ones: usize = (0..2000).map(|_| uniform.sample(&env, &mut rng)).sum();
        assert!(ones.abs_diff(1000) < 112, "{ones}");
    }

    #[test]
    fn a_table_is_followed_state_by_state() {
        let mut env = Walk::new(3, 0.0);
        let rows: [&[f64]; 3] = [&[0.25, 0.75], &[1.0, 0.0], &[0.0, 1.0]];
        let policy = Policy::new(&table(&rows), &env).unwrap();
        assert_eq!(policy.probabilities(0), [0.25, 0.75]);
        let mut rng = StreamRng::new(1, "test", 0);
        // 2000 draws of probability .75: 1500 with standard deviation sqrt(375) = 19.4; 5 of them are 97.
        let ones: usize = (0..2000).map(|_| policy.sample(&env, &mut rng)).sum();
        assert!(ones.abs_diff(1500) < 97, "{ones}");
        for (state, action) in [(1, 0), (2, 1)] {
            env.position = state;
            assert!((0..50).all(|_| policy.sample(&env, &mut rng) == action));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_in_one_line() {
        let env = Walk::new(3, 0.0);
        let message = |config: PolicyConfig| Policy::new(&config, &env).unwrap_err().to_string();
        let misspelt = PolicyConfig::Action {
            action: "forwrad".into(),
        };
        assert_eq!(
            message(misspelt),
            "policy: action \"forwrad\" is not one of walk (forward, stay); did you mean \"forward\"?"
        );
        assert!(message(table(&[&[0.5, 0.5]])).contains("1 rows, expected 3"));
        let half: &[f64] = &[0.5, 0.5];
        assert!(
            message(table(&[half, &[1.0], half]))
                .contains("row 1 of the table has 1 entries, expected 2")
        );
        assert!(
            message(table(&[half, half, &[0.5, 0.4]])).contains("row 2 of the table sums to 0.9")
        );
        assert!(
            message(table(&[&[-0.5, 1.5], half, half]))
                .contains("row 0 of the table has entry -0.5")
        );
    }

    #[test]
    fn the_written_form_is_checked_and_round_trips() {
        let parse = |text: &str| toml::from_str::<PolicyConfig>(text);
        assert_eq!(parse("kind = \"uniform\"").unwrap(), PolicyConfig::Uniform);
        assert!(parse("kind = \"uniform\"\nactoin = 1").is_err());
        let config = parse("kind = \"action\"\naction = \"forward\"").unwrap();
        assert_eq!(parse(&toml::to_string(&config).unwrap()).unwrap(), config);
        let text = serde_json::to_string(&PolicyConfig::Uniform).unwrap();
        assert_eq!(text, r#"{"kind":"uniform"}"#);
    }
}
