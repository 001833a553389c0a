//! How good the agent is: learned laws against the truth, or episodes of the greedy policy.

mod episodes;
mod laws;

use std::path::PathBuf;

use pushforward_core::{CoreError, trainer::Evaluation};
use pushforward_envs::{
    Discount, DiscountConfig, DiskCache, Env, EnvSpec,
    optimal::constraint_optimum,
    probe::{ProbeState, probe_set},
};
use serde::{Deserialize, Serialize};

use crate::{
    experiment::Setup,
    learner::{Learner, Rule},
};
use laws::StartLaw;

/// How the agent is judged; nothing here changes what it learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalConfig {
    /// Updates between two evaluations, a multiple of `log.interval`; 0: at the end only. Default 2000.
    pub interval: u64,
    /// Seed of evaluation episodes, ground truth and probe states: never that of training. Default 1000.
    pub seed: u64,
    /// Γ of reported returns and of constraints; the agent's own where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discount: Option<DiscountConfig>,
    /// Episodes of a control agent per evaluation. Default 512.
    pub episodes: usize,
    /// Samples of the true law that a learned law is compared with. Default 65536.
    pub reference_samples: usize,
    /// Samplings of N true returns whose mean figure is the floor; an implicit law is sampled as often. Default 32.
    pub floor_draws: usize,
    /// Whether the last evaluation also looks at 16 further states. Default true.
    pub probe: bool,
    /// Folder of the cache of ground truth.
    pub cache: PathBuf,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self {
            interval: 2000,
            seed: 1000,
            discount: None,
            episodes: 512,
            reference_samples: 65_536,
            floor_draws: 32,
            probe: true,
            cache: ".cache/ground-truth".into(),
        }
    }
}

/// Judges an agent at its probe states, or by episodes.
pub struct Judge {
    spec: EnvSpec,
    learning: Discount,
    discount: Discount,
    probes: Vec<ProbeState>,
    env_text: String,
    cache: DiskCache,
    /// The true laws of the start state, one for each action, once they are known.
    start: Vec<StartLaw>,
    /// Best possible probability of meeting the environment's constraints, where it can be computed.
    optimum: Option<f64>,
}

impl Judge {
    /// Prepares the probe states; ground truth is drawn when it is first needed.
    ///
    /// # Errors
    /// If a setting is out of range or does not fit the environment.
    pub fn new(
        setup: &Setup,
        mut env: Box<dyn Env>,
        learning: &Discount,
    ) -> Result<Self, CoreError> {
        let spec = env.spec().clone();
        let config = &setup.eval;
        for (name, got, least) in [
            ("episodes", config.episodes, 1),
            ("reference_samples", config.reference_samples, 2),
            ("floor_draws", config.floor_draws, 1),
        ] {
            if got < least {
                return Err(CoreError::Setting(format!(
                    "eval.{name}: got {got}, expected at least {least}"
                )));
            }
        }
        let discount = match &config.discount {
            Some(config) => Discount::new(config, spec.reward_dim)?,
            None => learning.clone(),
        };
        let settings = serde_json::to_string(&setup.env)
            .map_err(|error| CoreError::Setting(format!("environment: {error}")))?;
        Ok(Self {
            probes: probe_set(env.as_mut(), config.seed)?,
            env_text: format!("{settings} replicate {}", setup.agent.replicate),
            cache: DiskCache::new(&config.cache),
            learning: learning.clone(),
            start: Vec::new(),
            optimum: constraint_optimum(&setup.env, &spec.constraints, &discount)
                .ok()
                .map(|optimum| optimum.probability),
            spec,
            discount,
        })
    }

    /// Γ of reported returns.
    pub fn discount(&self) -> &Discount {
        &self.discount
    }

    /// Judges the agent as it is; `last` adds the further probe states and a rendered episode.
    ///
    /// # Errors
    /// If ground truth cannot be drawn or a prediction is not finite.
    pub fn evaluate(
        &mut self,
        setup: &Setup,
        learner: &Learner,
        last: bool,
    ) -> Result<Evaluation, CoreError> {
        match learner.rule() {
            Rule::Policy { policy, .. } => self.evaluate_laws(setup, learner, policy, last),
            Rule::Greedy { utility, .. } => {
                self.evaluate_episodes(setup, learner, &mut utility.clone(), last)
            }
        }
    }
}
