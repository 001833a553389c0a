//! A run of a structural policy gradient, as the trainer sees it.

use pushforward_core::{
    Checkpoint, CheckpointStore, CoreError, NamedArray,
    checkpoint::Contents,
    metrics::{StepCount, tag},
    optimiser::{Adam, Gradients},
    parameters::Parameters,
    trainer::{Evaluation, Experiment, Headline},
};
use pushforward_envs::{
    StreamRng,
    mean_field::{MeanFieldGame, NoisePaths, PushForward},
};
use rand::RngCore;
use serde::{Deserialize, Serialize};

use crate::{
    agent::{Episode, StructuralAgent},
    config::StructuralRun,
    judge,
};

/// The learning problem: a game, an agent and its optimiser.
pub struct StructuralExperiment {
    run: StructuralRun,
    game: Box<dyn MeanFieldGame>,
    agent: StructuralAgent,
    parameters: Parameters,
    optimiser: Adam,
    gradient: Vec<f32>,
    episode: Episode,
    /// All paths of the game, where every update takes them.
    complete: Option<NoisePaths>,
    /// Gives the key of every update's paths.
    keys: StreamRng,
    steps: StepCount,
    window: Window,
}

/// Sums since the last report.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    updates: u64,
    value: f64,
    gradient_norm: f64,
}

/// What a checkpoint holds beside arrays.
#[derive(Serialize, Deserialize)]
struct State {
    optimiser_steps: u64,
    steps: StepCount,
    keys: StreamRng,
}

/// Prefixes of the arrays of a checkpoint.
const ARRAYS: [&str; 3] = ["online", "adam.first", "adam.second"];

impl StructuralExperiment {
    /// A fresh run.
    ///
    /// # Errors
    /// If any setting is out of range or does not fit the others.
    pub fn new(run: StructuralRun) -> Result<Self, CoreError> {
        for (name, got) in [
            ("rollout.paths", run.rollout.paths),
            ("eval.paths", run.eval.paths),
        ] {
            if got == 0 {
                return Err(CoreError::Setting(format!(
                    "{name}: got 0, expected at least 1"
                )));
            }
        }
        let game = run.game.build()?;
        // Checks the game as a whole.
        PushForward::new(&*game)?;
        let complete = match run.rollout.complete {
            false => None,
            true => Some(NoisePaths::complete(&*game).ok_or_else(|| {
                CoreError::Setting(format!(
                    "rollout.complete: {} has too many common-noise paths to take all, expected false",
                    run.game.name()
                ))
            })?),
        };
        let (agent, parameters) = StructuralAgent::new(&run.agent, game.spec(), run.seed)?;
        let optimiser = Adam::new(run.agent.optimiser.clone(), &parameters)?;
        Ok(Self {
            gradient: vec![0.0; parameters.flat().numel()],
            complete,
            keys: StreamRng::new(run.seed, "paths", 0),
            episode: Episode::default(),
            steps: StepCount::default(),
            window: Window::default(),
            run,
            game,
            agent,
            parameters,
            optimiser,
        })
    }

    /// The game.
    pub fn game(&self) -> &dyn MeanFieldGame {
        &*self.game
    }

    fn play(&mut self, noise: NoisePaths) -> Result<(), CoreError> {
        let mut simulator = PushForward::new(&*self.game)?;
        let own = self.parameters.values()?;
        self.agent
            .play(own, &mut simulator, noise, &mut self.episode)
    }
}

impl Experiment for StructuralExperiment {
    fn steps(&self) -> StepCount {
        self.steps
    }

    fn advance(&mut self, progress: f64) -> Result<(), CoreError> {
        let noise = match &self.complete {
            Some(complete) => complete.clone(),
            None => {
                let paths = self.run.rollout.paths;
                NoisePaths::sample(&*self.game, paths, self.keys.next_u64())?
            }
        };
        let paths = noise.paths();
        self.play(match self.run.rollout.merge_equal {
            true => noise.distinct().0,
            false => noise,
        })?;
        let own = self.parameters.values()?;
        let value = self.agent.loss_gradient(
            own,
            &*self.game,
            &mut self.episode,
            self.run.agent.entropy.at(progress),
            &mut self.gradient,
        )?;
        if !value.is_finite() {
            return Err(CoreError::NonFinite {
                what: "value of the policy".into(),
                step: self.steps.updates,
            });
        }
        let gradient_norm = self.optimiser.step(
            &mut self.parameters,
            Gradients::Shards(&[&self.gradient]),
            progress,
        )?;
        self.steps.updates += 1;
        self.steps.env_steps += (paths * self.game.spec().horizon) as u64;
        self.window.updates += 1;
        self.window.value += value;
        self.window.gradient_norm += gradient_norm;
        Ok(())
    }

    fn report(&mut self, progress: f64) -> Vec<(String, f64)> {
        let window = std::mem::take(&mut self.window);
        let count = window.updates.max(1) as f64;
        let rate = self.run.agent.optimiser.learning_rate.at(progress);
        [
            (tag::TRAIN_POLICY_VALUE, window.value / count),
            (tag::TRAIN_GRADIENT_NORM, window.gradient_norm / count),
            (tag::TRAIN_LEARNING_RATE, rate),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn evaluate(&mut self, last: bool) -> Result<Evaluation, CoreError> {
        let (paths, seed) = (self.run.eval.paths, self.run.eval.seed);
        self.play(NoisePaths::evaluation(&*self.game, paths, seed)?)?;
        let Some((rollout, probabilities)) = self.episode.record() else {
            return Err(CoreError::Setting("no episode has been played".into()));
        };
        judge::evaluate(&*self.game, rollout, probabilities, last)
    }

    fn save(&self, store: &CheckpointStore, headline: Option<&Headline>) -> Result<(), CoreError> {
        let [first, second] = self.optimiser.moments();
        let mut arrays = Vec::new();
        for (prefix, flat) in ARRAYS.iter().zip([self.parameters.flat(), first, second]) {
            arrays.extend(self.parameters.arrays(prefix, flat)?);
        }
        let state = State {
            optimiser_steps: self.optimiser.steps(),
            steps: self.steps,
            keys: self.keys.clone(),
        };
        let state = serde_json::to_value(state)
            .map_err(|error| CoreError::Setting(format!("checkpoint state: {error}")))?;
        let contents = Contents {
            arrays: &arrays,
            state: &state,
            files: &[],
            replay: None,
            headline,
        };
        store.save(self.steps.updates, &contents).map(drop)
    }

    fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), CoreError> {
        let names: Vec<_> = ARRAYS
            .iter()
            .flat_map(|prefix| self.parameters.names(prefix))
            .collect();
        let arrays: Vec<&NamedArray> = checkpoint.matching(&names)?;
        let state: State = serde_json::from_value(checkpoint.state.clone()).map_err(|error| {
            CoreError::Checkpoint {
                path: checkpoint.path.display().to_string(),
                message: format!("state.json: {error}"),
            }
        })?;
        let count = self.parameters.layouts().len();
        let flat = |part: usize| {
            self.parameters
                .gather(&arrays[part * count..(part + 1) * count])
        };
        let (online, moments) = (flat(0)?, [flat(1)?, flat(2)?]);
        self.parameters.assign(&online)?;
        self.optimiser.restore(state.optimiser_steps, moments);
        self.steps = state.steps;
        self.keys = state.keys;
        self.window = Window::default();
        Ok(())
    }

    fn sizes(&self) -> String {
        format!("{} parameters", self.parameters.count())
    }
}
