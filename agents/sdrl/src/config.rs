//! Settings of the sliced distributional agent.

use pushforward_core::{
    CoreError, network::TorsoConfig, optimiser::AdamConfig, schedule::Schedule,
};
use pushforward_divergences::{DivergenceConfig, KernelConfig, Statistic};
use pushforward_envs::{Discount, DiscountConfig};
use serde::{Deserialize, Serialize};

use crate::{
    hyperbolic_discount, network::RepresentationConfig, policy::EvaluatedPolicyConfig,
    utility::UtilityConfig,
};

/// The name of this agent in the table of agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Sliced distributional reinforcement learning.
    #[default]
    Sdrl,
}

/// Settings of the agent; every field has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SdrlConfig {
    /// `sdrl`.
    pub kind: Kind,
    /// Γ: a number (γI), a list (diagonal) or a list of rows (dense); operator norm below 1. Default 0.99. A hyperbolic utility sets its own
    /// diagonal grid in place of a number.
    pub discount: DiscountConfig,
    /// Repeats a scalar reward in this many coordinates, one horizon each; 0 (the default) leaves the reward as it is.
    pub replicate: usize,
    /// What is learned: the law of a given policy, or of a greedy one.
    pub objective: ObjectiveConfig,
    /// How a law is represented.
    pub representation: RepresentationConfig,
    /// From observations to features.
    pub torso: TorsoConfig,
    /// What is minimised between the predicted law and its target.
    pub divergence: DivergenceConfig,
    /// The network that targets come from.
    pub target: TargetConfig,
    /// Adam.
    pub optimiser: AdamConfig,
    /// Transitions per update, B. Default 64.
    pub batch_size: usize,
    /// Pieces that a batch is cut into, each worked on by one thread; results depend on it, but not on the number of threads. Default 2.
    pub shards: usize,
}

impl Default for SdrlConfig {
    fn default() -> Self {
        Self {
            kind: Kind::default(),
            discount: DiscountConfig::Scalar(0.99),
            replicate: 0,
            objective: ObjectiveConfig::default(),
            representation: RepresentationConfig::default(),
            torso: TorsoConfig::default(),
            divergence: DivergenceConfig::default(),
            target: TargetConfig::default(),
            optimiser: AdamConfig::default(),
            batch_size: 64,
            shards: 2,
        }
    }
}

/// What is learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ObjectiveConfig {
    /// The law of the return of a given policy.
    Evaluation {
        /// The policy; it also acts.
        #[serde(default)]
        policy: EvaluatedPolicyConfig,
        /// How the action A' of the target R + Γ Z(S', A') is treated.
        #[serde(default)]
        backup: Backup,
    },
    /// The law of the return of the policy that is greedy for a utility of the law.
    Control {
        /// The utility.
        utility: UtilityConfig,
        /// Probability ε of a uniform random action while collecting; default 1 to 0.05 over the first 30 % of the run.
        #[serde(default = "default_epsilon")]
        epsilon: Schedule,
        /// The online network picks the target action, the target network gives its law; default true.
        #[serde(default = "default_true")]
        double: bool,
    },
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self::Evaluation {
            policy: EvaluatedPolicyConfig::default(),
            backup: Backup::default(),
        }
    }
}

/// How the next action of a policy-evaluation target is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backup {
    /// One action is drawn from the policy: the target has N points.
    #[default]
    Sampled,
    /// The mixture over the policy's actions: A·N points weighted by π(a'|s'), with less noise and more work.
    Mixture,
}

fn default_epsilon() -> Schedule {
    Schedule {
        initial: 1.0,
        last: 0.05,
        fraction: 0.3,
        ..Schedule::constant(0.0)
    }
}

fn default_true() -> bool {
    true
}

/// How the target network follows the online network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TargetConfig {
    /// Copied every `interval` updates.
    Hard {
        /// Updates between two copies, at least 1; default 200.
        #[serde(default = "default_interval")]
        interval: u64,
    },
    /// θ' <- θ' + rate (θ - θ') after every update.
    Polyak {
        /// In (0, 1]; default 0.005.
        #[serde(default = "default_rate")]
        rate: f64,
    },
}

fn default_interval() -> u64 {
    200
}

fn default_rate() -> f64 {
    0.005
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self::Polyak {
            rate: default_rate(),
        }
    }
}

impl SdrlConfig {
    /// Γ for returns of length `dim`.
    ///
    /// # Errors
    /// If it is no discount of this length.
    pub fn resolved_discount(&self, dim: usize) -> Result<Discount, CoreError> {
        let hyperbolic = matches!(
            &self.objective,
            ObjectiveConfig::Control {
                utility: UtilityConfig::Hyperbolic { .. },
                ..
            }
        );
        let number = matches!(self.discount, DiscountConfig::Scalar(_));
        let config = if hyperbolic && number {
            hyperbolic_discount(dim)
        } else {
            self.discount.clone()
        };
        Ok(Discount::new(&config, dim)?)
    }

    /// The divergence with the statistic that fits the representation where none is set.
    ///
    /// # Errors
    /// [`CoreError::Setting`] for free particles with a U-statistic, which drives them apart without end.
    pub fn resolved_divergence(&self) -> Result<DivergenceConfig, CoreError> {
        if self.divergence.evaluation_only() {
            return Err(CoreError::Setting(
                "agent.divergence: exact transport (ot) is for evaluation only, expected a sliced divergence, energy, sinkhorn or magnitude".into(),
            ));
        }
        let free = matches!(self.representation, RepresentationConfig::Particles { .. });
        let unbounded = match &self.divergence {
            DivergenceConfig::Cramer { .. } | DivergenceConfig::Energy { .. } => true,
            DivergenceConfig::Mmd { kernel, .. } => matches!(
                kernel,
                KernelConfig::Energy { .. } | KernelConfig::Multiquadric { .. }
            ),
            _ => false,
        };
        if free && unbounded && self.divergence.statistic() == Some(Statistic::U) {
            return Err(CoreError::Setting(
                "agent.divergence.statistic: a U-statistic drives free particles apart without end; use statistic = \"v\", or representation \"implicit\"".into(),
            ));
        }
        let default = if free { Statistic::V } else { Statistic::U };
        Ok(self.divergence.clone().with_default_statistic(default))
    }

    /// Checks what can be checked without an environment.
    ///
    /// # Errors
    /// [`CoreError::Setting`] naming the first setting that is out of range.
    pub fn validate(&self) -> Result<(), CoreError> {
        let refuse = |message: String| Err(CoreError::Setting(message));
        if self.batch_size == 0 {
            return refuse("agent.batch_size: got 0, expected at least 1".into());
        }
        if self.shards == 0 || self.shards > self.batch_size {
            return refuse(format!(
                "agent.shards: got {}, expected 1 to batch_size = {}",
                self.shards, self.batch_size
            ));
        }
        match self.target {
            TargetConfig::Hard { interval: 0 } => {
                return refuse("agent.target.interval: got 0, expected at least 1".into());
            }
            TargetConfig::Polyak { rate } if !(rate > 0.0 && rate <= 1.0) => {
                return refuse(format!(
                    "agent.target.rate: got {rate}, expected more than 0 and at most 1"
                ));
            }
            _ => {}
        }
        if let ObjectiveConfig::Control { epsilon, .. } = &self.objective {
            for value in [epsilon.initial, epsilon.last] {
                if !(0.0..=1.0).contains(&value) {
                    return refuse(format!(
                        "agent.objective.epsilon: got {value}, expected a probability"
                    ));
                }
            }
        }
        self.optimiser.validate()?;
        self.resolved_divergence().map(drop)
    }
}
