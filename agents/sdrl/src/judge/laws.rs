//! Learned laws against the truth.

use pushforward_core::{
    CoreError,
    metrics::tag,
    trainer::{Evaluation, Headline, LawPair},
};
use pushforward_envs::{
    StreamRng,
    ground_truth::{ReturnLaw, cached_ground_truth},
};
use serde::Serialize;
use serde_json::json;

use super::Judge;
use crate::{
    actor::SdrlActor,
    experiment::Setup,
    law::{Cloud, Figures, Reference, ratio_to_floor},
    learner::Learner,
    network::RepresentationConfig,
    policy::EvaluatedPolicy,
};

/// Samples of the truth that go into pictures.
const PICTURE_SAMPLES: usize = 4096;

/// Floors of sliced Cramér up to this, in units of return, belong to returns without randomness.
const CERTAIN: f64 = 1e-6;

/// Bytes that the start state's sorted samples may take between evaluations; beyond, they are sorted each time.
const KEPT_BYTES: usize = 384 << 20;

/// The true law of one action in the start state, kept from evaluation to evaluation.
pub(super) struct StartLaw {
    reference: Reference,
    floor: Figures,
    /// The first samples of the reference, for pictures.
    shown: Vec<f32>,
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
    pub(super) fn evaluate_laws(
        &mut self,
        setup: &Setup,
        learner: &Learner,
        policy: &EvaluatedPolicy,
        last: bool,
    ) -> Result<Evaluation, CoreError> {
        if self.start.is_empty() {
            self.start = (0..self.spec.actions())
                .map(|action| self.start_law(setup, policy, action, !last))
                .collect::<Result<_, _>>()?;
        }
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
        // One draw of an implicit law scatters as one draw of the truth does, and is averaged as often.
        let draws = match setup.agent.representation {
            RepresentationConfig::Particles { .. } => 1,
            RepresentationConfig::Implicit { .. } => setup.eval.floor_draws,
        };
        let mut evaluation = Evaluation::default();
        let mut all = Vec::new();
        for state in 0..states {
            let observation = &self.probes[state].observation;
            let points = (0..draws)
                .map(|_| actor.laws(observation, &[], 1, particles, &mut rng))
                .collect::<Result<Vec<_>, _>>()?;
            let (mut learned, mut floor) = (Vec::new(), Vec::new());
            for (action, name) in self.spec.action_names.iter().enumerate() {
                let own = action * block..(action + 1) * block;
                let mut clouds: Vec<Cloud<'_>> = points
                    .iter()
                    .map(|points| equal(&points[own.clone()]))
                    .collect();
                if state == 0 {
                    let law = &self.start[action];
                    learned.push(Figures::mean(&law.reference.figures(&clouds)));
                    floor.push(law.floor);
                    evaluation.laws.push(LawPair {
                        name: name.clone(),
                        dim,
                        learned: points[0][own].to_vec(),
                        truth: law.shown.clone(),
                    });
                } else {
                    let samples = self.truth(setup, policy, state, action)?;
                    let (reference, others) = samples.split_at(setup.eval.reference_samples * dim);
                    clouds.extend(others.chunks_exact(block).map(equal));
                    let figures = Reference::new(reference, dim).figures(&clouds);
                    learned.push(Figures::mean(&figures[..draws]));
                    floor.push(Figures::mean(&figures[draws..]));
                }
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

    /// The true law of an action in the start state; `again` says that it will be compared with more than once.
    fn start_law(
        &self,
        setup: &Setup,
        policy: &EvaluatedPolicy,
        action: usize,
        again: bool,
    ) -> Result<StartLaw, CoreError> {
        let dim = self.spec.reward_dim;
        let samples = self.truth(setup, policy, 0, action)?;
        let (samples, others) = samples.split_at(setup.eval.reference_samples * dim);
        let mut reference = Reference::new(samples, dim);
        if again && reference.shadow_bytes() * self.spec.actions() <= KEPT_BYTES {
            reference.keep_shadows();
        }
        let block = setup.agent.representation.particles() * dim;
        let clouds: Vec<Cloud<'_>> = others.chunks_exact(block).map(equal).collect();
        let shown = PICTURE_SAMPLES.min(setup.eval.reference_samples) * dim;
        Ok(StartLaw {
            floor: Figures::mean(&reference.figures(&clouds)),
            reference,
            shown: samples[..shown].to_vec(),
        })
    }

    /// Reference samples of the truth and, behind them, the disjoint samples of the floor, [reference + draws · N, d].
    fn truth(
        &self,
        setup: &Setup,
        policy: &EvaluatedPolicy,
        state: usize,
        action: usize,
    ) -> Result<Vec<f32>, CoreError> {
        let law = ReturnLaw {
            state: &self.probes[state].state,
            policy: policy.rollout(),
            first_action: action,
            discount: &self.learning,
        };
        let count = setup.eval.reference_samples
            + setup.eval.floor_draws * setup.agent.representation.particles();
        let make = || setup.build_env();
        let samples = cached_ground_truth(
            &self.cache,
            &self.env_text,
            &make,
            &law,
            count,
            setup.eval.seed,
        )?;
        if let Some(value) = samples.iter().find(|value| !value.is_finite()) {
            return Err(CoreError::Setting(format!(
                "{}: a true return is {value}, expected finite rewards",
                self.spec.name
            )));
        }
        Ok(samples)
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
}

/// A cloud of equal weights.
fn equal(points: &[f32]) -> Cloud<'_> {
    Cloud {
        points,
        weights: None,
    }
}
