//! How good the agent is: learned laws against the truth, or episodes of the greedy policy.

use std::path::PathBuf;

use pushforward_core::{
    Behaviour, Collector, CollectorConfig, CoreError,
    metrics::tag,
    trainer::{Evaluation, Headline, LawPair},
};
use pushforward_envs::{
    Discount, DiscountConfig, DiskCache, Env, EnvSpec, Outcome, Picture, Policy, StreamRng,
    ground_truth::{ReturnLaw, cached_ground_truth},
    optimal::constraint_optimum,
    probe::{ProbeState, probe_set},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    actor::SdrlActor,
    experiment::Setup,
    law::{Cloud, Figures, law_figures, ratio_to_floor},
    learner::{Learner, Rule},
    utility::Utility,
};

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
    /// Samplings of N true returns whose mean figure is the floor. Default 32.
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

/// Environments that play evaluation episodes side by side.
const EPISODE_ENVIRONMENTS: usize = 32;

/// Longest evaluation episode of an environment without a time limit.
const LONGEST_EPISODE: u64 = 10_000;

/// Samples of the truth that go into pictures.
const PICTURE_SAMPLES: usize = 4096;

/// Judges an agent at its probe states, or by episodes.
pub struct Judge {
    spec: EnvSpec,
    learning: Discount,
    discount: Discount,
    probes: Vec<ProbeState>,
    env_text: String,
    cache: DiskCache,
    /// Floors of the start state, one for each action, once they are known.
    floors: Vec<Figures>,
    /// Best possible probability of meeting the environment's constraints, where it can be computed.
    optimum: Option<f64>,
}

/// Figures of one state, by action.
#[derive(Clone, Debug, Serialize)]
struct StateFigures {
    state: usize,
    learned: Vec<Figures>,
    floor: Vec<Figures>,
    /// Σ_actions figure / Σ_actions floor.
    ratio_to_floor: Figures,
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
            floors: Vec::new(),
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

    fn evaluate_laws(
        &mut self,
        setup: &Setup,
        learner: &Learner,
        policy: &Policy,
        last: bool,
    ) -> Result<Evaluation, CoreError> {
        let actor = SdrlActor::new(learner);
        let mut rng = StreamRng::new(setup.eval.seed, "evaluate laws", learner.updates());
        let dim = self.spec.reward_dim;
        let particles = actor.particles();
        let block = particles * dim;
        let states = if last && setup.eval.probe {
            self.probes.len()
        } else {
            1
        };
        let mut evaluation = Evaluation::default();
        let mut all = Vec::new();
        for state in 0..states {
            let observation = &self.probes[state].observation;
            let points = actor.laws(observation, &[], 1, particles, &mut rng)?;
            let known = if state == 0 {
                std::mem::take(&mut self.floors)
            } else {
                Vec::new()
            };
            let (mut learned, mut floor) = (Vec::new(), Vec::new());
            for (action, own) in points.chunks_exact(block).enumerate() {
                let truth = self.reference(setup, policy, state, action)?;
                let (reference, draws) = truth.split_at(setup.eval.reference_samples * dim);
                let mut clouds = vec![Cloud {
                    points: own,
                    weights: None,
                }];
                if known.is_empty() {
                    clouds.extend(draws.chunks_exact(block).map(|points| Cloud {
                        points,
                        weights: None,
                    }));
                }
                let figures = law_figures(reference, dim, &clouds);
                learned.push(figures[0]);
                floor.push(
                    known
                        .get(action)
                        .copied()
                        .unwrap_or(Figures::mean(&figures[1..])),
                );
                if state == 0 {
                    let shown = PICTURE_SAMPLES.min(setup.eval.reference_samples) * dim;
                    evaluation.laws.push(LawPair {
                        name: self.spec.action_names[action].clone(),
                        dim,
                        learned: own.to_vec(),
                        truth: reference[..shown].to_vec(),
                    });
                }
            }
            if state == 0 {
                self.floors.clone_from(&floor);
            }
            all.push(StateFigures {
                state,
                ratio_to_floor: ratio_to_floor(&learned, &floor),
                learned,
                floor,
            });
        }
        self.report_laws(&mut evaluation, &all);
        Ok(evaluation)
    }

    /// Reference samples of the truth and, behind them, the disjoint samples of the floor, [reference + draws · N, d].
    fn reference(
        &self,
        setup: &Setup,
        policy: &Policy,
        state: usize,
        action: usize,
    ) -> Result<Vec<f32>, CoreError> {
        let law = ReturnLaw {
            state: &self.probes[state].state,
            policy,
            first_action: action,
            discount: &self.learning,
        };
        let count = setup.eval.reference_samples
            + setup.eval.floor_draws * setup.agent.representation.particles();
        let make = || setup.build_env();
        Ok(cached_ground_truth(
            &self.cache,
            &self.env_text,
            &make,
            &law,
            count,
            setup.eval.seed,
        )?)
    }

    fn report_laws(&self, evaluation: &mut Evaluation, all: &[StateFigures]) {
        let start = &all[0];
        let headline = start.ratio_to_floor.sliced_cramer;
        let mut put = |name: String, value: f64| evaluation.scalars.push((name, value));
        put(tag::EVALUATE_RATIO_TO_FLOOR.into(), headline);
        let ratios = start.ratio_to_floor.to_array();
        for (name, ratio) in Figures::NAMES.iter().zip(ratios) {
            put(format!("evaluate/ratio_{name}"), ratio);
        }
        for ((figures, floor), action) in start
            .learned
            .iter()
            .zip(&start.floor)
            .zip(&self.spec.action_names)
        {
            for (name, value) in Figures::NAMES.iter().zip(figures.to_array()) {
                put(format!("evaluate/{action}/{name}"), value);
            }
            put(
                format!("evaluate/{action}/ratio_to_floor"),
                ratio_to_floor(&[*figures], &[*floor]).sliced_cramer,
            );
        }
        // Where the return is certain the floor is 0, and a ratio to it says nothing.
        let ratios: Vec<f64> = all
            .iter()
            .filter(|state| Figures::mean(&state.floor).sliced_cramer > CERTAIN)
            .map(|state| state.ratio_to_floor.sliced_cramer)
            .collect();
        if all.len() > 1 && !ratios.is_empty() {
            let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
            put("evaluate/probe_mean_ratio_to_floor".into(), mean);
            let worst = ratios.iter().copied().fold(0.0, f64::max);
            put("evaluate/probe_worst_ratio_to_floor".into(), worst);
        }
        let dim = self.spec.reward_dim;
        for coordinate in 0..dim {
            for (name, of) in [
                (
                    tag::EVALUATE_LEARNED_RETURNS,
                    (|pair| &pair.learned) as fn(&LawPair) -> &Vec<f32>,
                ),
                (tag::EVALUATE_TRUE_RETURNS, |pair| &pair.truth),
            ] {
                let values = evaluation
                    .laws
                    .iter()
                    .flat_map(|pair| of(pair).iter().skip(coordinate).step_by(dim).copied())
                    .collect();
                evaluation
                    .histograms
                    .push((tag::coordinate(name, coordinate), values));
            }
        }
        evaluation.headline = Some(Headline {
            name: tag::EVALUATE_RATIO_TO_FLOOR.into(),
            value: headline,
            lower_is_better: true,
        });
        evaluation.report = json!({ "discount": self.learning.matrix(), "states": all });
    }

    fn evaluate_episodes(
        &mut self,
        setup: &Setup,
        learner: &Learner,
        utility: &mut Utility,
        last: bool,
    ) -> Result<Evaluation, CoreError> {
        let count = EPISODE_ENVIRONMENTS.min(setup.eval.episodes);
        let mut collector = self.collector(setup, learner, count)?;
        let mut actor = SdrlActor::new(learner);
        let mut behaviour = Behaviour::Actor {
            actor: &mut actor,
            epsilon: 0.0,
        };
        let each = setup.eval.episodes.div_ceil(count);
        let episodes = collector.episodes(&mut behaviour, each, LONGEST_EPISODE)?;
        let number = episodes.len() as f64;
        let dim = self.spec.reward_dim;
        let mean = |of: &dyn Fn(&pushforward_core::Episode) -> f64| {
            episodes.iter().map(of).sum::<f64>() / number
        };
        let mut evaluation = Evaluation::default();
        let mut put = |name: String, value: f64| evaluation.scalars.push((name, value));
        put(
            tag::EVALUATE_EPISODE_LENGTH.into(),
            mean(&|episode| episode.length as f64),
        );
        put(
            "evaluate/terminated".into(),
            mean(&|episode| f64::from(u8::from(episode.outcome == Outcome::Terminated))),
        );
        for k in 0..dim {
            put(
                tag::coordinate(tag::EVALUATE_RETURN, k),
                mean(&|episode| episode.undiscounted_return[k]),
            );
            put(
                tag::coordinate(tag::EVALUATE_DISCOUNTED_RETURN, k),
                mean(&|episode| episode.discounted_return[k]),
            );
        }
        let met = mean(&|episode| f64::from(u8::from(episode.constraints_met)));
        let constrained = !self.spec.constraints.is_empty();
        if constrained {
            put(tag::EVALUATE_CONSTRAINTS_MET.into(), met);
            if let Some(optimum) = self.optimum {
                put("evaluate/constraints_met_optimum".into(), optimum);
            }
        }
        let returns: Vec<f32> = episodes
            .iter()
            .flat_map(|episode| episode.discounted_return.iter().map(|&value| value as f32))
            .collect();
        let mut value = [0.0];
        // The law of the achieved returns, judged from the start.
        let extra = utility.start_extra();
        utility.values(&returns, episodes.len(), &extra, &mut value);
        put(tag::EVALUATE_UTILITY.into(), value[0]);
        for k in 0..dim {
            let values = returns.iter().skip(k).step_by(dim).copied().collect();
            evaluation
                .histograms
                .push((tag::coordinate("evaluate/returns", k), values));
        }
        let (name, value) = if utility.needs_extra() && constrained {
            (tag::EVALUATE_CONSTRAINTS_MET, met)
        } else {
            (tag::EVALUATE_UTILITY, value[0])
        };
        evaluation.headline = Some(Headline {
            name: name.into(),
            value,
            lower_is_better: false,
        });
        evaluation.report = json!({
            "discount": self.discount.matrix(),
            "seed": setup.eval.seed,
            "constraints_met_optimum": self.optimum,
            "episodes": episodes,
        });
        if last {
            evaluation.episode = self.film(setup, learner)?;
        }
        Ok(evaluation)
    }

    fn collector(
        &self,
        setup: &Setup,
        learner: &Learner,
        environments: usize,
    ) -> Result<Collector, CoreError> {
        let envs = setup.build_envs(environments, setup.eval.seed, "evaluate episodes")?;
        let config = CollectorConfig {
            seed: setup.eval.seed,
            label: "evaluate episodes".into(),
            discount: self.learning.clone(),
            evaluation_discount: self.discount.clone(),
            conditioned: learner.extra_length() > 0,
        };
        Collector::new(envs, config)
    }

    /// Pictures of one greedy episode, if the environment has pictures.
    fn film(&self, setup: &Setup, learner: &Learner) -> Result<Vec<Picture>, CoreError> {
        let mut collector = self.collector(setup, learner, 1)?;
        let mut actor = SdrlActor::new(learner);
        let mut frames = Vec::new();
        for _ in 0..FILM_FRAMES {
            let Some(frame) = collector.picture(0) else {
                return Ok(frames);
            };
            frames.push(frame);
            let mut behaviour = Behaviour::Actor {
                actor: &mut actor,
                epsilon: 0.0,
            };
            collector.step(&mut behaviour, None)?;
            if collector.envs().outcomes()[0] != Outcome::Continue {
                break;
            }
        }
        Ok(frames)
    }
}

/// Floors of sliced Cramér up to this, in units of return, belong to returns without randomness.
const CERTAIN: f64 = 1e-6;

/// Most frames of a filmed episode.
const FILM_FRAMES: usize = 500;
