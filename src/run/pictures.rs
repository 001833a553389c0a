//! The pictures of a run.

use std::collections::BTreeMap;
use std::path::Path;

use pushforward_core::metrics::tag;
use pushforward_core::trainer::{Chart, ChartContent, Evaluation, LawPair};
use pushforward_envs::Picture;

use super::folder::RunFolder;
use crate::failure::Failure;
use crate::plots::{self, Curves, HeatMap, JointLaws, PairGrid, Series};

/// Learned laws beside the true ones: one picture for all of them if d = 2, else one each.
///
/// # Errors
/// [`Failure::Run`] if one cannot be drawn.
pub fn of_laws(title: &str, laws: &[LawPair]) -> Result<Vec<Picture>, Failure> {
    match laws.first() {
        None => Ok(Vec::new()),
        Some(law) if law.dim == 2 => Ok(vec![plots::picture(&JointLaws { title, laws })?]),
        Some(_) => laws
            .iter()
            .map(|law| plots::picture(&PairGrid { title, law }))
            .collect(),
    }
}

/// Writes the pictures of an evaluation and the curves of the run so far to `plots/`.
///
/// # Errors
/// [`Failure::Run`] if one cannot be drawn or written.
pub fn write(folder: &RunFolder, title: &str, evaluation: &Evaluation) -> Result<(), Failure> {
    let plots = folder.plots();
    let laws = &evaluation.laws[..];
    match laws {
        [] => {}
        [first, ..] if first.dim == 2 => {
            plots::write(&JointLaws { title, laws }, &plots, "joint-law")?;
        }
        _ => {
            for law in laws {
                let name = format!("joint-law-{}", slug(&law.name));
                plots::write(&PairGrid { title, law }, &plots, &name)?;
            }
        }
    }
    for chart in &evaluation.charts {
        write_chart(chart, &plots)?;
    }
    plots::write_gif(&evaluation.episode, &plots.join("episode.gif"))?;
    let history = History::read(folder)?;
    for curve in CURVES {
        let points = history.points(curve.tag);
        if points.is_empty() {
            continue;
        }
        let series = vec![Series {
            name: curve.name,
            points,
            band: None,
        }];
        plots::write(&curve.plot(series), &plots, curve.file)?;
    }
    let points = history.over_time(tag::EVALUATE_EXPLOITABILITY, &History::timing(folder)?);
    if points.is_empty() {
        return Ok(());
    }
    let name = "exploitability, clairvoyant";
    let plot = Curves {
        title: "Exploitability of the policy (lower is better)",
        x_label: "seconds of training and evaluation",
        y_label: name,
        logarithmic: true,
        reference: None,
        series: vec![Series {
            name,
            points: &points,
            band: None,
        }],
    };
    plots::write(&plot, &plots, "exploitability-over-time")
}

fn write_chart(chart: &Chart, folder: &Path) -> Result<(), Failure> {
    let Chart {
        file,
        title,
        x_label,
        y_label,
        content,
    } = chart;
    match content {
        ChartContent::HeatMap {
            columns,
            values,
            range,
        } => {
            let plot = HeatMap {
                title,
                x_label,
                y_label,
                columns: *columns,
                values,
                y: range.0..range.1,
            };
            plots::write(&plot, folder, file)
        }
        ChartContent::Curves(curves) => {
            let series = curves.iter().map(|(name, points)| Series {
                name,
                points,
                band: None,
            });
            let plot = Curves {
                title,
                x_label,
                y_label,
                logarithmic: false,
                reference: None,
                series: series.collect(),
            };
            plots::write(&plot, folder, file)
        }
    }
}

/// A curve worth a picture.
pub struct Curve {
    /// The metric.
    pub tag: &'static str,
    /// Name of the file, without its extension.
    pub file: &'static str,
    title: &'static str,
    name: &'static str,
    logarithmic: bool,
    reference: Option<(f64, &'static str)>,
}

impl Curve {
    /// The plot of these series.
    pub fn plot<'a>(&'a self, series: Vec<Series<'a>>) -> Curves<'a> {
        Curves {
            title: self.title,
            x_label: "updates",
            y_label: self.name,
            logarithmic: self.logarithmic,
            reference: self.reference,
            series,
        }
    }
}

/// Every curve that gets a picture, where the run has it.
pub const CURVES: [Curve; 7] = [
    Curve {
        tag: tag::EVALUATE_EXPLOITABILITY,
        file: "exploitability",
        title: "Exploitability of the policy (lower is better)",
        name: "exploitability, clairvoyant",
        logarithmic: true,
        reference: None,
    },
    Curve {
        tag: tag::TRAIN_POLICY_VALUE,
        file: "policy-value",
        title: "Value of the policy on the paths of an update",
        name: "value",
        logarithmic: false,
        reference: None,
    },
    Curve {
        tag: tag::EVALUATE_RATIO_TO_FLOOR,
        file: "error",
        title: "Error of the learned law (lower is better)",
        name: "sliced Cramér, ratio to the sampling floor",
        logarithmic: true,
        reference: Some((1.0, "as good as N true samples")),
    },
    Curve {
        tag: tag::TRAIN_LOSS,
        file: "loss",
        title: "Training loss",
        name: "loss",
        logarithmic: true,
        reference: None,
    },
    Curve {
        tag: tag::EVALUATE_UTILITY,
        file: "utility",
        title: "Utility of the evaluation episodes (higher is better)",
        name: "utility",
        logarithmic: false,
        reference: None,
    },
    Curve {
        tag: tag::EVALUATE_CONSTRAINTS_MET,
        file: "constraints-met",
        title: "Evaluation episodes that met all constraints (higher is better)",
        name: "share of episodes",
        logarithmic: false,
        reference: None,
    },
    Curve {
        tag: tag::COLLECT_EPISODE_LENGTH,
        file: "episode-length",
        title: "Length of the episodes while collecting",
        name: "steps",
        logarithmic: false,
        reference: None,
    },
];

/// The scalars of a run over its updates.
#[derive(Debug, Default)]
pub struct History {
    curves: BTreeMap<String, Vec<(f64, f64)>>,
}

impl History {
    /// Reads `metrics.jsonl`.
    ///
    /// # Errors
    /// [`Failure::Run`] if it cannot be read.
    pub fn read(folder: &RunFolder) -> Result<Self, Failure> {
        Self::of(&folder.path().join("metrics.jsonl"))
    }

    /// Reads `timing.jsonl`.
    fn timing(folder: &RunFolder) -> Result<Self, Failure> {
        Self::of(&folder.path().join("timing.jsonl"))
    }

    fn of(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::run(format!("cannot read {}: {e}", path.display())))?;
        let mut history = Self::default();
        for line in text.lines() {
            let row: BTreeMap<String, Option<f64>> = serde_json::from_str(line)
                .map_err(|e| Failure::run(format!("{}: {e}", path.display())))?;
            let updates = row.get("updates").copied().flatten().unwrap_or(0.0);
            for (tag, number) in row {
                if let Some(number) = number {
                    history
                        .curves
                        .entry(tag)
                        .or_default()
                        .push((updates, number));
                }
            }
        }
        Ok(history)
    }

    /// Points (seconds, value) of a metric, where the time of its update is known.
    fn over_time(&self, tag: &str, timing: &Self) -> Vec<(f64, f64)> {
        let seconds = timing.points(tag::TIME_ELAPSED);
        let at = |updates: f64| seconds.iter().rev().find(|point| point.0 == updates);
        let points = self.points(tag).iter();
        points
            .filter_map(|(updates, value)| Some((at(*updates)?.1, *value)))
            .collect()
    }

    /// Points (updates, value) of a metric; empty if the run has none.
    pub fn points(&self, tag: &str) -> &[(f64, f64)] {
        self.curves.get(tag).map_or(&[], Vec::as_slice)
    }
}

/// A name as part of a file name.
fn slug(name: &str) -> String {
    let words: Vec<&str> = name
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    words.join("-").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(dim: usize) -> LawPair {
        let cloud = |count: usize| (0..count * dim).map(|i| (i % 7) as f32).collect();
        LawPair {
            name: "start, Down".into(),
            dim,
            learned: cloud(9),
            truth: cloud(40),
        }
    }

    #[test]
    fn an_evaluation_leaves_its_pictures() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&parent.path().join("run"), "", false).unwrap();
        let rows = "{\"env_steps\":8,\"updates\":1,\"train/loss\":0.5,\"evaluate/ratio_to_floor\":null}\n\
                    {\"env_steps\":16,\"updates\":2,\"train/loss\":0.25,\"evaluate/ratio_to_floor\":2.0}\n";
        std::fs::write(folder.path().join("timing.jsonl"), "").unwrap();
        std::fs::write(folder.path().join("metrics.jsonl"), rows).unwrap();
        for (dim, files) in [
            (2, vec!["error", "joint-law", "loss"]),
            (3, vec!["error", "joint-law-start-down", "loss"]),
        ] {
            let evaluation = Evaluation {
                laws: vec![law(dim)],
                ..Evaluation::default()
            };
            assert_eq!(of_laws("t", &evaluation.laws).unwrap().len(), 1);
            write(&folder, "t", &evaluation).unwrap();
            for file in files {
                for extension in ["png", "svg"] {
                    let path = folder.plots().join(format!("{file}.{extension}"));
                    assert!(path.exists(), "{}", path.display());
                }
            }
        }
        let history = History::read(&folder).unwrap();
        assert_eq!(history.points("train/loss"), [(1.0, 0.5), (2.0, 0.25)]);
        assert_eq!(history.points("evaluate/ratio_to_floor"), [(2.0, 2.0)]);
        assert!(history.points("evaluate/none").is_empty());
        let timing = "{\"updates\":2,\"time/elapsed_seconds\":7.5}\n";
        std::fs::write(folder.path().join("timing.jsonl"), timing).unwrap();
        let timing = History::timing(&folder).unwrap();
        assert_eq!(history.over_time("train/loss", &timing), [(7.5, 0.25)]);
    }
}
