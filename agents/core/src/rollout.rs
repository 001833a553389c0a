//! Collecting experience: environments, exploration, the return so far, episode statistics.

mod accumulator;
mod extra;
mod statistics;
#[cfg(test)]
mod tests;

pub use extra::ExtraLayout;
pub use statistics::{Episode, EpisodeStatistics};

use pushforward_envs::{
    Constraint, Discount, EnvSpec, Outcome, Picture, Policy, StreamRng, VectorEnv,
};
use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::{Actor, CoreError, Replay, VectorStep};
use accumulator::Accumulator;

/// First bytes of a saved collector, with the format's version.
const MAGIC: &[u8; 8] = b"PFCOLLE1";

/// Who picks the actions.
pub enum Behaviour<'a> {
    /// A fixed policy; no network is asked.
    Policy(&'a Policy),
    /// The actor, except that each action is replaced by a uniform one with probability `epsilon`.
    Actor {
        /// The acting half of an agent.
        actor: &'a mut dyn Actor,
        /// Exploration rate ε, 0 to 1.
        epsilon: f64,
    },
}

/// What is saved beside the environments' own state.
#[derive(Serialize, Deserialize)]
struct State {
    steps: u64,
    exploration: Vec<StreamRng>,
    acting: StreamRng,
    so_far: Accumulator,
    evaluation: Accumulator,
    undiscounted: Vec<f64>,
    lengths: Vec<u64>,
    statistics: EpisodeStatistics,
}

/// Settings of a collector.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectorConfig {
    /// Root seed of the exploration streams.
    pub seed: u64,
    /// Label of the exploration streams, apart for training and evaluation.
    pub label: String,
    /// The discount that the agent learns with: C_t and Γ^t are of this one.
    pub discount: Discount,
    /// The discount of the episode statistics and of the constraints.
    pub evaluation_discount: Discount,
    /// Whether [C_t, Γ^t] is handed to the actor and stored in replay.
    pub conditioned: bool,
}

/// Steps environments, explores, keeps the return so far, counts episodes and writes replay.
///
/// Every environment has its own stream for exploration, so results do not depend on how the others do, nor on the thread count.
pub struct Collector {
    envs: VectorEnv,
    config: CollectorConfig,
    state: State,
    /// Layout of the extra vector, if conditioned.
    layout: Option<ExtraLayout>,
    extra: Vec<f32>,
    successor_extra: Vec<f32>,
    actions: Vec<usize>,
    explored: Vec<Option<usize>>,
    /// Episodes are listed one by one only while [`Collector::episodes`] runs.
    ended: Option<Vec<Episode>>,
}

impl Collector {
    /// A collector over environments that have just been reset.
    ///
    /// # Errors
    /// [`CoreError::Rollout`] if a discount does not fit the reward.
    pub fn new(envs: VectorEnv, config: CollectorConfig) -> Result<Self, CoreError> {
        let count = envs.count();
        let dim = envs.spec().reward_dim;
        for (name, discount) in [
            ("discount", &config.discount),
            ("evaluation discount", &config.evaluation_discount),
        ] {
            if discount.dim() != dim {
                return Err(CoreError::Rollout(format!(
                    "{name} for d = {}, expected d = {dim} as the reward of {}",
                    discount.dim(),
                    envs.spec().name
                )));
            }
        }
        let layout = config
            .conditioned
            .then(|| ExtraLayout::new(&config.discount));
        let extra_length = layout.map_or(0, |layout| layout.length());
        let exploration = (0..count as u64)
            .map(|index| {
                StreamRng::new(config.seed, &format!("{}/exploration", config.label), index)
            })
            .collect();
        let mut collector = Self {
            state: State {
                steps: 0,
                exploration,
                acting: StreamRng::new(config.seed, &format!("{}/acting", config.label), 0),
                so_far: Accumulator::new(&config.discount, count),
                evaluation: Accumulator::new(&config.evaluation_discount, count),
                undiscounted: vec![0.0; count * dim],
                lengths: vec![0; count],
                statistics: EpisodeStatistics::new(dim),
            },
            layout,
            extra: vec![0.0; count * extra_length],
            successor_extra: vec![0.0; count * extra_length],
            actions: vec![0; count],
            explored: vec![None; count],
            ended: None,
            envs,
            config,
        };
        collector.write_extra();
        Ok(collector)
    }

    /// The environments' description.
    pub fn spec(&self) -> &EnvSpec {
        self.envs.spec()
    }

    /// The environments.
    pub fn envs(&self) -> &VectorEnv {
        &self.envs
    }

    /// A picture of one environment, where it has one.
    pub fn picture(&mut self, environment: usize) -> Option<Picture> {
        self.envs.env_mut(environment).picture()
    }

    /// Length k of the extra vector that goes to the actor and to replay.
    pub fn extra_length(&self) -> usize {
        self.layout.map_or(0, |layout| layout.length())
    }

    /// Environment steps taken, over all environments together.
    pub fn env_steps(&self) -> u64 {
        self.state.steps * self.envs.count() as u64
    }

    /// Takes one step in every environment and writes it to `replay`, which is started with the current observations if it was not.
    ///
    /// # Errors
    /// [`CoreError::Reward`] for a reward that is not finite, and what the actor and replay say.
    pub fn step(
        &mut self,
        behaviour: &mut Behaviour<'_>,
        replay: Option<&mut Replay>,
    ) -> Result<(), CoreError> {
        let mut replay = replay;
        if let Some(replay) = &mut replay
            && !replay.is_started()
        {
            replay.start(
                self.envs.observations(),
                &self.extra,
                self.envs.table_states(),
            )?;
        }
        self.choose(behaviour)?;
        self.envs.step_all(&self.actions);
        let dim = self.envs.spec().reward_dim;
        if let Some(index) = self
            .envs
            .rewards()
            .iter()
            .position(|reward| !reward.is_finite())
        {
            return Err(CoreError::Reward {
                name: self.envs.spec().name.clone(),
                environment: index / dim,
                step: self.state.steps,
                coordinate: index % dim,
                value: self.envs.rewards()[index],
            });
        }
        self.state.steps += 1;
        self.account();
        if let Some(replay) = replay {
            replay.push(&VectorStep {
                actions: &self.actions,
                rewards: self.envs.rewards(),
                outcomes: self.envs.outcomes(),
                successors: self.envs.successors(),
                successor_extra: &self.successor_extra,
                successor_table_states: self.envs.successor_states(),
                observations: self.envs.observations(),
                extra: &self.extra,
                table_states: self.envs.table_states(),
            })?;
        }
        Ok(())
    }

    /// Statistics of the episodes that ended since the last call.
    pub fn take_statistics(&mut self) -> EpisodeStatistics {
        let dim = self.envs.spec().reward_dim;
        std::mem::replace(&mut self.state.statistics, EpisodeStatistics::new(dim))
    }

    /// Plays from fresh resets until every environment has ended `per_environment` episodes, and lists exactly these, by environment.
    ///
    /// The same number from each environment keeps short episodes from being counted too often. An episode still going on after
    /// `longest` steps is cut there and listed with outcome `Continue`.
    ///
    /// # Errors
    /// As [`Collector::step`].
    pub fn episodes(
        &mut self,
        behaviour: &mut Behaviour<'_>,
        per_environment: usize,
        longest: u64,
    ) -> Result<Vec<Episode>, CoreError> {
        self.envs.reset_all();
        for environment in 0..self.envs.count() {
            self.begin_episode(environment);
        }
        self.write_extra();
        let mut listed: Vec<Vec<Episode>> = vec![Vec::new(); self.envs.count()];
        while listed
            .iter()
            .any(|episodes| episodes.len() < per_environment)
        {
            self.ended = Some(Vec::new());
            let result = self.step(behaviour, None);
            let ended = self.ended.take().unwrap_or_default();
            result?;
            for episode in ended {
                listed[episode.environment].push(episode);
            }
            for (environment, episodes) in listed.iter_mut().enumerate() {
                if self.state.lengths[environment] >= longest {
                    episodes.push(self.finished(environment, Outcome::Continue));
                    self.envs.reset_one(environment);
                    self.begin_episode(environment);
                }
            }
            self.write_extra();
        }
        for episodes in &mut listed {
            episodes.truncate(per_environment);
        }
        Ok(listed.concat())
    }

    /// Appends the complete state: environments, streams, the return so far, statistics.
    pub fn save(&self, bytes: &mut Vec<u8>) {
        let mut envs = Vec::new();
        self.envs.save(&mut envs);
        let state = serde_json::to_vec(&self.state).expect("numbers and lists always serialise");
        bytes.extend_from_slice(MAGIC);
        for block in [envs, state] {
            bytes.extend_from_slice(&(block.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&block);
        }
    }

    /// Restores a state written by [`Collector::save`]; what follows is then the same as it would have been.
    ///
    /// # Errors
    /// [`CoreError::Rollout`] or [`CoreError::Env`] if the bytes are not such a state for the same environments.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), CoreError> {
        let broken = |message: String| CoreError::Rollout(format!("saved state: {message}"));
        let cut = || broken("cut off or of another format".into());
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(cut)?;
        let (envs, rest) = block(rest).ok_or_else(cut)?;
        let (state, rest) = block(rest).ok_or_else(cut)?;
        if !rest.is_empty() {
            return Err(broken(format!("{} bytes too many", rest.len())));
        }
        let state: State =
            serde_json::from_slice(state).map_err(|error| broken(error.to_string()))?;
        let old = &self.state;
        for (name, got, expected) in [
            (
                "exploration streams",
                state.exploration.len(),
                old.exploration.len(),
            ),
            ("episode lengths", state.lengths.len(), old.lengths.len()),
            (
                "returns so far",
                state.so_far.sums.len(),
                old.so_far.sums.len(),
            ),
            ("powers", state.so_far.powers.len(), old.so_far.powers.len()),
            (
                "evaluation returns",
                state.evaluation.sums.len(),
                old.evaluation.sums.len(),
            ),
            (
                "evaluation powers",
                state.evaluation.powers.len(),
                old.evaluation.powers.len(),
            ),
            (
                "undiscounted returns",
                state.undiscounted.len(),
                old.undiscounted.len(),
            ),
            (
                "statistics",
                state.statistics.undiscounted_return.len()
                    + state.statistics.discounted_return.len(),
                2 * self.envs.spec().reward_dim,
            ),
        ] {
            if got != expected {
                return Err(broken(format!("{got} {name}, expected {expected}")));
            }
        }
        self.envs.load(envs)?;
        self.state = state;
        self.write_extra();
        Ok(())
    }

    /// Fills `actions`.
    fn choose(&mut self, behaviour: &mut Behaviour<'_>) -> Result<(), CoreError> {
        let action_count = self.envs.spec().actions();
        match behaviour {
            Behaviour::Policy(policy) => {
                for (environment, rng) in self.state.exploration.iter_mut().enumerate() {
                    let state = self.envs.table_states()[environment] as usize;
                    self.actions[environment] = draw(policy.probabilities(state), rng);
                }
            }
            Behaviour::Actor { actor, epsilon } => {
                for (explored, rng) in self.explored.iter_mut().zip(&mut self.state.exploration) {
                    // Both numbers are always drawn, so that a stream's position does not depend on ε.
                    let (chance, action) = (rng.random::<f64>(), rng.random_range(0..action_count));
                    *explored = (chance < *epsilon).then_some(action);
                }
                // While everything explores, the network is not asked.
                if !self.explored.iter().all(Option::is_some) {
                    actor.act(
                        self.envs.observations(),
                        &self.extra,
                        self.envs.count(),
                        &mut self.state.acting,
                        &mut self.actions,
                    )?;
                }
                for (action, explored) in self.actions.iter_mut().zip(&self.explored) {
                    *action = explored.unwrap_or(*action);
                }
                if let Some(action) = self.actions.iter().find(|&&action| action >= action_count) {
                    return Err(CoreError::Rollout(format!(
                        "the actor chose action {action}, expected 0 to {}",
                        action_count - 1
                    )));
                }
            }
        }
        Ok(())
    }

    /// Adds the last step to all running sums and closes the episodes that ended.
    fn account(&mut self) {
        let dim = self.envs.spec().reward_dim;
        let k = self.extra_length();
        for environment in 0..self.envs.count() {
            let reward = &self.envs.rewards()[environment * dim..(environment + 1) * dim];
            let state = &mut self.state;
            state.so_far.add(&self.config.discount, environment, reward);
            state
                .evaluation
                .add(&self.config.evaluation_discount, environment, reward);
            let undiscounted = &mut state.undiscounted[environment * dim..(environment + 1) * dim];
            for (sum, &value) in undiscounted.iter_mut().zip(reward) {
                *sum += f64::from(value);
            }
            state.lengths[environment] += 1;
            let rows = environment * k..(environment + 1) * k;
            if let Some(layout) = self.layout {
                let extra = &mut self.successor_extra[rows.clone()];
                state.so_far.write_extra(layout, environment, extra);
            }
            let outcome = self.envs.outcomes()[environment];
            if outcome != Outcome::Continue {
                let undiscounted = &state.undiscounted[environment * dim..(environment + 1) * dim];
                let discounted = state.evaluation.sum(dim, environment);
                let met = all_met(&self.envs.spec().constraints, discounted);
                let length = state.lengths[environment];
                state
                    .statistics
                    .add(outcome, length, undiscounted, discounted, met);
                if let Some(mut ended) = self.ended.take() {
                    ended.push(self.finished(environment, outcome));
                    self.ended = Some(ended);
                }
                self.begin_episode(environment);
            }
            if let Some(layout) = self.layout {
                let extra = &mut self.extra[rows];
                self.state.so_far.write_extra(layout, environment, extra);
            }
        }
    }

    /// The ongoing episode as it stands.
    fn finished(&self, environment: usize, outcome: Outcome) -> Episode {
        let dim = self.envs.spec().reward_dim;
        let discounted = self.state.evaluation.sum(dim, environment);
        Episode {
            environment,
            length: self.state.lengths[environment],
            outcome,
            undiscounted_return: self.state.undiscounted
                [environment * dim..(environment + 1) * dim]
                .to_vec(),
            discounted_return: discounted.to_vec(),
            constraints_met: all_met(&self.envs.spec().constraints, discounted),
        }
    }

    /// Sets every running sum of one environment back to the start of an episode.
    fn begin_episode(&mut self, environment: usize) {
        let dim = self.envs.spec().reward_dim;
        self.state.so_far.reset(dim, environment);
        self.state.evaluation.reset(dim, environment);
        self.state.undiscounted[environment * dim..(environment + 1) * dim].fill(0.0);
        self.state.lengths[environment] = 0;
    }

    /// Writes [C_t, Γ^t] of the current observations.
    fn write_extra(&mut self) {
        let Some(layout) = self.layout else {
            return;
        };
        for (environment, extra) in self.extra.chunks_exact_mut(layout.length()).enumerate() {
            self.state.so_far.write_extra(layout, environment, extra);
        }
    }
}

/// Draws an index in proportion to `probabilities`.
fn draw(probabilities: &[f32], rng: &mut StreamRng) -> usize {
    let position = rng.random::<f32>();
    let mut sum = 0.0;
    for (index, probability) in probabilities.iter().enumerate() {
        sum += probability;
        if position < sum {
            return index;
        }
    }
    // Rounding can leave the sum just below 1: the last action that is possible at all.
    probabilities
        .iter()
        .rposition(|&probability| probability > 0.0)
        .unwrap_or(0)
}

fn all_met(constraints: &[Constraint], discounted: &[f64]) -> bool {
    constraints
        .iter()
        .all(|constraint| constraint.slack(discounted) > 0.0)
}

/// Splits a block off that is preceded by its length.
fn block(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}
