//! A game of one's own in one file: an epidemic in which people decide every day whether to keep their distance.
//!
//! ```text
//! cargo run --release -p pushforward-envs --example epidemic
//! ```

use pushforward_envs::EnvError;
use pushforward_envs::mean_field::tabular::{TabularSolution, fictitious_play};
use pushforward_envs::mean_field::{
    ActionKind, GameSpec, MeanFieldGame, Moment, Moves, NoisePaths, Policies, PushForward, Rollout,
    Transitions,
};

const SUSCEPTIBLE: usize = 0;
const INFECTED: usize = 1;

const GO_OUT: usize = 0;

/// Infections per contact with an infected person, for those who go out and for those who keep their distance.
const CONTAGION: [f64; 2] = [0.9, 0.2];
/// Probability of recovering within a day.
const RECOVERY: f64 = 0.3;
/// Costs of a day, of keeping one's distance and of being infected.
const DISTANCE_COST: f64 = 0.3;
const ILLNESS_COST: f64 = 1.0;

/// Susceptible people catch the disease with probability contagion·(share of infected people) and infected people recover.
pub struct Epidemic {
    spec: GameSpec,
}

impl Epidemic {
    /// An epidemic of so many days.
    pub fn new(days: usize) -> Self {
        Self {
            spec: GameSpec {
                name: "epidemic".to_owned(),
                states: 2,
                action_values: vec![0.0, 1.0],
                action_kind: ActionKind::Discrete,
                horizon: days,
                discount: 0.97,
                noise_names: vec![],
                observation_names: vec!["infected".to_owned()],
                state_features: None,
            },
        }
    }
}

impl MeanFieldGame<f64> for Epidemic {
    fn spec(&self) -> &GameSpec {
        &self.spec
    }

    fn initial_population(&self, _noise: &[f64], mu: &mut [f64]) {
        mu.copy_from_slice(&[0.9, 0.1]);
    }

    fn observe(&self, _time: usize, _noise: &[f64], mu: &[f64], observation: &mut [f64]) {
        observation[0] = mu[INFECTED];
    }

    fn transitions<'a>(
        &'a self,
        now: &Moment<'_, f64>,
        scratch: &'a mut Moves<f64>,
    ) -> Transitions<'a, f64> {
        // Two successors, susceptible and infected, of each of the 2 x 2 states and actions.
        let (targets, weights) = scratch.weighted_mut(4, 2);
        for (pair, (targets, weights)) in targets
            .chunks_exact_mut(2)
            .zip(weights.chunks_exact_mut(2))
            .enumerate()
        {
            let (state, action) = (pair / 2, pair % 2);
            let infected = if state == SUSCEPTIBLE {
                CONTAGION[action] * now.mu[INFECTED]
            } else {
                1.0 - RECOVERY
            };
            targets.copy_from_slice(&[SUSCEPTIBLE as u32, INFECTED as u32]);
            weights.copy_from_slice(&[1.0 - infected, infected]);
        }
        Transitions {
            moves: scratch,
            noise: None,
        }
    }

    fn rewards(&self, _now: &Moment<'_, f64>, _next: &Moment<'_, f64>, rewards: &mut [f64]) {
        for (pair, reward) in rewards.iter_mut().enumerate() {
            let (state, action) = (pair / 2, pair % 2);
            let distance = if action == GO_OUT { 0.0 } else { DISTANCE_COST };
            let illness = if state == INFECTED { ILLNESS_COST } else { 0.0 };
            *reward = -distance - illness;
        }
    }
}

/// Fictitious play, and the population under its policy.
pub fn solve(days: usize) -> Result<(TabularSolution, Rollout<f64>), EnvError> {
    let game = Epidemic::new(days);
    let solution = fictitious_play(&game, 400)?;
    let policies = Policies::from_array(&game.spec, 1, &solution.policy)?;
    let noise = NoisePaths::sample(&game, 1, 0)?;
    let rollout = PushForward::new(&game)?.run(noise, &policies)?;
    Ok((solution, rollout))
}

/// Prints how the epidemic goes when everybody is prudent.
pub fn main() -> Result<(), EnvError> {
    let (solution, rollout) = solve(10)?;
    println!("day  infected  susceptible who keep their distance");
    for day in 0..rollout.horizon() {
        let infected = rollout.mu(day)[INFECTED];
        // Policies are [day, state, action].
        let distance = solution.policy[day * 4 + SUSCEPTIBLE * 2 + 1];
        println!(
            "{day:3}  {:6.1} %  {:6.1} %",
            100.0 * infected,
            100.0 * distance
        );
    }
    for iteration in [0, 10, 100, 400] {
        let gap = solution.exploitability[iteration];
        println!("exploitability after {iteration} iterations: {gap:.5}");
    }
    Ok(())
}
