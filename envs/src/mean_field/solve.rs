//! How good a policy is: its value, the best response to the population that it makes, and the gap between the two.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::EnvError;

use super::backward::{Backward, InformationSets, PathValues, check_rollout, start_value};
use super::game::MeanFieldGame;
use super::policies::Policies;
use super::real::Real;
use super::rollout::Rollout;

/// What a best response knows about the common noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Information {
    /// The whole path, its future included: an upper bound, whose exploitability is above 0 even for an equilibrium under common noise.
    #[default]
    Clairvoyant,
    /// The public observations up to now: what a policy can know. Exact, on the tree of all noise paths; not available where these are not few.
    Adapted,
}

/// The value of a policy along its own paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyValue {
    /// Weighted mean over paths of Σ_s μ_0(s) V_0(s).
    pub mean: f64,
    /// Its standard error over paths.
    pub standard_error: f64,
    /// Σ_s μ_0(s) V_0(s) of each path, `[E]`.
    pub paths: Vec<f64>,
    /// V_0(s) of each path, `[E, S]`.
    pub states: Vec<f64>,
}

/// A best response to the population of a rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct BestResponse {
    /// Its value, as for a policy.
    pub value: PolicyValue,
    /// Its action in each state, the lowest of equally good ones, `[T, E, S]`.
    pub actions: Vec<u32>,
}

/// How much an individual could gain by leaving the policy while everybody else keeps it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exploitability {
    /// What the best response knows.
    pub information: Information,
    /// Weighted mean over paths of Σ_s μ_0(s) (B_0(s) - V_0(s)).
    pub mean: f64,
    /// Its standard error over paths.
    pub standard_error: f64,
    /// The same of each path, `[E]`.
    pub paths: Vec<f64>,
    /// The policy's part.
    pub policy: PolicyValue,
    /// The best response's part.
    pub best_response: PolicyValue,
}

/// The value of a policy: V_T = 0, V_t(s) = Σ_a π_t(a|s) (r_t(s, a) + γ Σ_{s'} P_t(s'|s, a) V_{t+1}(s')) along each path.
///
/// # Errors
/// [`EnvError::Game`] if the rollout is not finished or not the game's, or the policies are of other paths.
pub fn policy_value<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    rollout: &Rollout<R>,
    policies: &Policies<'_, R>,
) -> Result<PolicyValue, EnvError> {
    check_rollout(game, rollout, Some(policies))?;
    let pass = Backward {
        game,
        rollout,
        policies: Some(policies),
        best: false,
        keep_actions: false,
        sets: None,
    };
    Ok(collect(rollout, &pass.run(), |path| &path.policy_values))
}

/// The best response to the population of a rollout: B_T = 0, B_t(s) = max_a (r_t(s, a) + γ Σ_{s'} P_t(s'|s, a) B_{t+1}(s')).
///
/// [`Information::Clairvoyant`] maximises along each path. [`Information::Adapted`] takes one action for all paths that public observations
/// do not yet tell apart, the best on their weighted average.
///
/// # Errors
/// [`EnvError::Game`] as [`policy_value`], or if the adapted best response is not available: the noise paths of the rollout are not all
/// paths of the game, or paths with equal observations have different populations (then own experience tells more than observations).
pub fn best_response<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    rollout: &Rollout<R>,
    information: Information,
) -> Result<BestResponse, EnvError> {
    check_rollout(game, rollout, None)?;
    let sets = information_sets(game, rollout, information)?;
    let pass = Backward {
        game,
        rollout,
        policies: None,
        best: true,
        keep_actions: true,
        sets: sets.as_ref(),
    };
    let paths = pass.run();
    let actions = (0..rollout.horizon())
        .flat_map(|time| paths.iter().flat_map(move |path| &path.best_actions[time]))
        .copied()
        .collect();
    Ok(BestResponse {
        value: collect(rollout, &paths, |path| &path.best_values),
        actions,
    })
}

impl BestResponse {
    /// The best response as a policy, `[T, E, S, A]`.
    pub fn policy<R: Real>(&self, actions: usize) -> Vec<R> {
        let mut policy = vec![R::ZERO; self.actions.len() * actions];
        for (row, action) in policy.chunks_exact_mut(actions).zip(&self.actions) {
            row[*action as usize] = R::ONE;
        }
        policy
    }
}

/// The exploitability of a policy in the population that it makes, with its two parts.
///
/// # Errors
/// As [`best_response`].
pub fn exploitability<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    rollout: &Rollout<R>,
    policies: &Policies<'_, R>,
    information: Information,
) -> Result<Exploitability, EnvError> {
    check_rollout(game, rollout, Some(policies))?;
    let sets = information_sets(game, rollout, information)?;
    let pass = Backward {
        game,
        rollout,
        policies: Some(policies),
        best: true,
        keep_actions: false,
        sets: sets.as_ref(),
    };
    let paths = pass.run();
    let policy = collect(rollout, &paths, |path| &path.policy_values);
    let best_response = collect(rollout, &paths, |path| &path.best_values);
    let gaps: Vec<f64> = best_response
        .paths
        .iter()
        .zip(&policy.paths)
        .map(|(best, value)| best - value)
        .collect();
    let (mean, standard_error) = rollout.noise().mean(&gaps);
    Ok(Exploitability {
        information,
        mean,
        standard_error,
        paths: gaps,
        policy,
        best_response,
    })
}

fn collect<R: Real>(
    rollout: &Rollout<R>,
    paths: &[PathValues<R>],
    values: impl Fn(&PathValues<R>) -> &Vec<R>,
) -> PolicyValue {
    let of_paths: Vec<f64> = paths
        .iter()
        .enumerate()
        .map(|(path, of_path)| start_value(rollout, path, values(of_path)))
        .collect();
    let (mean, standard_error) = rollout.noise().mean(&of_paths);
    PolicyValue {
        mean,
        standard_error,
        paths: of_paths,
        states: paths
            .iter()
            .flat_map(|path| values(path).iter().map(|value| value.to_f64()))
            .collect(),
    }
}

/// Groups paths by their public observations up to each time; none for the clairvoyant.
fn information_sets<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    rollout: &Rollout<R>,
    information: Information,
) -> Result<Option<InformationSets>, EnvError> {
    if information == Information::Clairvoyant {
        return Ok(None);
    }
    let refuse = |message: String| Err(EnvError::game(&game.spec().name, message));
    if !rollout.noise().is_complete() {
        return refuse(
            "the adapted best response is not available, expected a rollout on all noise paths of a game that has few".to_owned(),
        );
    }
    let paths = rollout.paths();
    let mut set_of: Vec<Vec<usize>> = Vec::with_capacity(rollout.horizon());
    for time in 0..rollout.horizon() {
        // A set is a set of the step before with one observation; its number is that of its first path in order of appearance.
        let mut sets: HashMap<(usize, Vec<u64>), (usize, usize)> = HashMap::new();
        let mut numbers = Vec::with_capacity(paths);
        for path in 0..paths {
            let before = set_of.last().map_or(0, |sets| sets[path]);
            let moment = rollout.moment(time, path);
            let observation = moment.observation.iter().map(|o| o.to_bits()).collect();
            let fresh = (sets.len(), path);
            let (number, first) = *sets.entry((before, observation)).or_insert(fresh);
            if moment.mu != rollout.moment(time, first).mu {
                return refuse(format!(
                    "the adapted best response is not available: paths {first} and {path} have equal observations up to step {time} and different populations"
                ));
            }
            numbers.push(number);
        }
        set_of.push(numbers);
    }
    Ok(Some(InformationSets { set_of }))
}
