//! Episodes of the greedy policy.

use pushforward_core::{
    Behaviour, Collector, CollectorConfig, CoreError,
    metrics::tag,
    trainer::{Evaluation, Headline},
};
use pushforward_envs::{Outcome, Picture};
use serde_json::json;

use super::Judge;
use crate::{actor::SdrlActor, experiment::Setup, learner::Learner, utility::Utility};

/// Environments that play evaluation episodes side by side.
const EPISODE_ENVIRONMENTS: usize = 32;

/// Longest evaluation episode of an environment without a time limit.
const LONGEST_EPISODE: u64 = 10_000;

/// Most frames of a filmed episode.
const FILM_FRAMES: usize = 500;

impl Judge {
    pub(super) fn evaluate_episodes(
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
