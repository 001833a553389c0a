//! How good a policy is: exploitability with its parts, and pictures of the populations that it makes.

use pushforward_core::{
    CoreError,
    metrics::tag,
    trainer::{Chart, ChartContent, Curve, Evaluation, Headline},
};
use pushforward_envs::mean_field::{
    MeanFieldGame, Policies, Rollout,
    solve::{Information, exploitability},
};
use serde_json::json;

/// Most paths that are drawn.
const SHOWN_PATHS: usize = 4;

/// Judges a policy by its own episode on evaluation paths; `charts` asks for pictures too.
///
/// # Errors
/// If the episode is not the game's.
pub fn evaluate(
    game: &dyn MeanFieldGame,
    rollout: &Rollout,
    probabilities: &[f32],
    charts: bool,
) -> Result<Evaluation, CoreError> {
    let policies = Policies::from_array(game.spec(), rollout.paths(), probabilities)?;
    let clairvoyant = exploitability(game, rollout, &policies, Information::Clairvoyant)?;
    let mut evaluation = Evaluation::default();
    let mut put = |name: &str, value: f64| evaluation.scalars.push((name.to_owned(), value));
    put(tag::EVALUATE_EXPLOITABILITY, clairvoyant.mean);
    if clairvoyant.standard_error.is_finite() {
        put(
            "evaluate/exploitability_standard_error",
            clairvoyant.standard_error,
        );
    }
    put("evaluate/policy_value", clairvoyant.policy.mean);
    put(
        "evaluate/best_response_value",
        clairvoyant.best_response.mean,
    );
    let adapted = match rollout.noise().is_complete() {
        true => exploitability(game, rollout, &policies, Information::Adapted).ok(),
        false => None,
    };
    if let Some(adapted) = &adapted {
        put("evaluate/adapted_exploitability", adapted.mean);
        put(
            "evaluate/adapted_best_response_value",
            adapted.best_response.mean,
        );
    }
    evaluation.headline = Some(Headline {
        name: tag::EVALUATE_EXPLOITABILITY.into(),
        value: clairvoyant.mean,
        lower_is_better: true,
    });
    evaluation.report = json!({
        "path_weights": rollout.noise().weights(),
        "clairvoyant": clairvoyant,
        "adapted": adapted,
    });
    if charts {
        evaluation.charts = draw(game, rollout);
    }
    Ok(evaluation)
}

/// A heat map of the population on the first few paths, and every watched number of all of them over time.
fn draw(game: &dyn MeanFieldGame, rollout: &Rollout) -> Vec<Chart> {
    let (spec, times) = (game.spec(), rollout.horizon() + 1);
    let shown = rollout.paths().min(SHOWN_PATHS);
    // Evenly spaced, so that paths that differ late in the list are seen too.
    let paths: Vec<usize> = (0..shown).map(|k| k * rollout.paths() / shown).collect();
    let mut charts: Vec<Chart> = paths
        .iter()
        .map(|&path| population(game, rollout, path))
        .collect();
    let mut curves: Vec<(String, Vec<Curve>)> = Vec::new();
    for &path in &paths {
        for time in 0..times {
            let moment = rollout.moment(time, path);
            let observed = spec
                .observation_names
                .iter()
                .cloned()
                .zip(moment.observation.iter().copied());
            let watched = game.indicators(&moment);
            let watched = watched
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value));
            for (name, value) in observed.chain(watched) {
                let place = curves.iter().position(|(own, _)| *own == name);
                let place = place.unwrap_or_else(|| {
                    curves.push((name, Vec::new()));
                    curves.len() - 1
                });
                let series = &mut curves[place].1;
                let label = format!("path {path}");
                if series.last().is_none_or(|(own, _)| *own != label) {
                    series.push((label, Vec::new()));
                }
                if let Some((_, points)) = series.last_mut() {
                    points.push((time as f64, value));
                }
            }
        }
    }
    charts.extend(curves.into_iter().map(|(name, series)| Chart {
        file: name.replace(|c: char| !c.is_alphanumeric(), "-"),
        title: format!("{}: {name} by common-noise path", spec.name),
        x_label: "step".into(),
        y_label: name,
        content: ChartContent::Curves(series),
    }));
    charts
}

/// Most rows of a heat map: neighbouring states are added up beyond.
const MOST_ROWS: usize = 200;

fn population(game: &dyn MeanFieldGame, rollout: &Rollout, path: usize) -> Chart {
    let states = rollout.states();
    let columns = rollout.horizon() + 1;
    let together = states.div_ceil(MOST_ROWS);
    let rows = states.div_ceil(together);
    let mut values = vec![0.0; rows * columns];
    for time in 0..columns {
        for (state, mass) in rollout.moment(time, path).mu.iter().enumerate() {
            values[state / together * columns + time] += mass;
        }
    }
    Chart {
        file: format!("population-{path}"),
        title: format!("{}: population on path {path}", game.spec().name),
        x_label: "step".into(),
        y_label: "state".into(),
        content: ChartContent::HeatMap {
            columns,
            values,
            range: (0.0, (rows * together) as f64),
        },
    }
}
