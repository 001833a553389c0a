//! Several seeds of one configuration as means with intervals.

use std::collections::BTreeMap;
use std::path::Path;

use pushforward_core::trainer::Evaluation;
use serde_json::json;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::folder::RunFolder;
use super::pictures::{CURVES, History};
use crate::failure::Failure;
use crate::plots::{self, Band, Series};

/// A mean and the half width of its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Mean over the seeds.
    pub mean: f64,
    /// Half width; none for a single seed.
    pub half_width: Option<f64>,
}

impl Interval {
    /// The interval of `values`, which are not empty.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        // A law with at least one degree of freedom always exists.
        let quantile = StudentsT::new(0.0, 1.0, count - 1.0)
            .ok()
            .map(|law| law.inverse_cdf(0.975));
        let half_width = quantile.map(|t| t * (squares / (count - 1.0) / count).sqrt());
        Self { mean, half_width }
    }
}

/// Seeds written as `0..4` (0, 1, 2, 3) or `0,7,9`.
///
/// # Errors
/// [`Failure::Input`] if they are not seeds, are empty or repeat.
pub fn parse_seeds(text: &str) -> Result<Vec<u64>, Failure> {
    let wrong = || {
        Failure::input(format!(
            "--seeds: got `{text}`, expected a range such as 0..4 or a list such as 0,7,9 without repetition"
        ))
    };
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    let seeds: Vec<u64> = match text.split_once("..") {
        Some((first, end)) => (number(first)?..number(end)?).collect(),
        None => text.split(',').map(number).collect::<Result<_, _>>()?,
    };
    let mut unique = seeds.clone();
    unique.sort_unstable();
    unique.dedup();
    if seeds.is_empty() || unique.len() != seeds.len() {
        return Err(wrong());
    }
    Ok(seeds)
}

/// Writes `aggregate.json` (mean and 95 % interval of every final figure) and curves with bands to `folder`, and gives the lines to print.
///
/// # Errors
/// [`Failure::Run`] if a run cannot be read or a file cannot be written.
pub fn aggregate(
    folder: &Path,
    seeds: &[u64],
    runs: &[(RunFolder, Evaluation)],
) -> Result<Vec<String>, Failure> {
    let mut figures: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (_, evaluation) in runs {
        for (tag, number) in &evaluation.scalars {
            figures.entry(tag).or_default().push(*number);
        }
    }
    figures.retain(|_, values| values.len() == runs.len());
    let intervals: BTreeMap<&str, Interval> = figures
        .iter()
        .map(|(tag, values)| (*tag, Interval::of(values)))
        .collect();
    let rows: serde_json::Map<String, serde_json::Value> = intervals
        .iter()
        .map(|(tag, interval)| {
            let row = json!({
                "mean": interval.mean,
                "half_width_95": interval.half_width,
                "values": figures[tag],
            });
            ((*tag).to_owned(), row)
        })
        .collect();
    let path = folder.join("aggregate.json");
    let document = json!({ "seeds": seeds, "figures": rows });
    std::fs::write(&path, format!("{document:#}\n"))
        .map_err(|e| Failure::run(format!("cannot write {}: {e}", path.display())))?;
    write_curves(folder, runs)?;
    let lines = intervals
        .iter()
        .map(|(tag, interval)| match interval.half_width {
            Some(half) => format!("{tag}: {:.4} ± {half:.4}", interval.mean),
            None => format!("{tag}: {:.4}", interval.mean),
        });
    Ok(lines.collect())
}

/// Curves of means with bands, over the updates that all runs have.
fn write_curves(folder: &Path, runs: &[(RunFolder, Evaluation)]) -> Result<(), Failure> {
    let histories: Vec<History> = runs
        .iter()
        .map(|(folder, _)| History::read(folder))
        .collect::<Result<_, _>>()?;
    let plots = folder.join("plots");
    std::fs::create_dir_all(&plots)
        .map_err(|e| Failure::run(format!("cannot write to {}: {e}", plots.display())))?;
    for curve in CURVES {
        let mut values: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for history in &histories {
            for (updates, number) in history.points(curve.tag) {
                values.entry(*updates as u64).or_default().push(*number);
            }
        }
        values.retain(|_, values| values.len() == runs.len());
        if values.is_empty() {
            continue;
        }
        let intervals: Vec<(f64, Interval)> = values
            .iter()
            .map(|(updates, values)| (*updates as f64, Interval::of(values)))
            .collect();
        let half = |interval: &Interval| interval.half_width.unwrap_or(0.0);
        let points: Vec<(f64, f64)> = intervals.iter().map(|(x, i)| (*x, i.mean)).collect();
        let low: Vec<f64> = intervals.iter().map(|(_, i)| i.mean - half(i)).collect();
        let high: Vec<f64> = intervals.iter().map(|(_, i)| i.mean + half(i)).collect();
        let name = format!("mean of {} seeds, 95 % interval", runs.len());
        let series = vec![Series {
            name: &name,
            points: &points,
            band: Some(Band {
                low: &low,
                high: &high,
            }),
        }];
        plots::write(&curve.plot(series), &plots, curve.file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_students() {
        // 1, 2, 6: mean 3, variance (4 + 1 + 9)/2 = 7, standard error √(7/3) = 1.527525; t(0.975, 2) = 4.302653.
        let interval = Interval::of(&[1.0, 2.0, 6.0]);
        assert_eq!(interval.mean, 3.0);
        let half = interval.half_width.unwrap();
        assert!((half - 4.302653 * 1.527525).abs() < 1e-4, "{half}");
        assert_eq!(Interval::of(&[5.0]).half_width, None);
    }

    #[test]
    fn seeds_are_ranges_or_lists() {
        assert_eq!(parse_seeds("2..5").unwrap(), [2, 3, 4]);
        assert_eq!(parse_seeds("0, 7,3").unwrap(), [0, 7, 3]);
        for wrong in ["", "3..3", "1,1", "a..b", "-1..2"] {
            assert_eq!(parse_seeds(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn two_runs_make_one_aggregate() {
        let parent = tempfile::tempdir().unwrap();
        let run = |seed: u64, figure: f64| {
            let folder =
                RunFolder::create(&parent.path().join(format!("seed-{seed}")), "", false).unwrap();
            let rows = format!(
                "{{\"env_steps\":8,\"updates\":1,\"train/loss\":{figure}}}\n\
                 {{\"env_steps\":16,\"updates\":2,\"train/loss\":{figure}}}\n"
            );
            std::fs::write(folder.path().join("metrics.jsonl"), rows).unwrap();
            let evaluation = Evaluation {
                scalars: vec![("evaluate/a".into(), figure)],
                ..Evaluation::default()
            };
            (folder, evaluation)
        };
        let runs = [run(0, 1.0), run(1, 3.0)];
        let lines = aggregate(parent.path(), &[0, 1], &runs).unwrap();
        // Mean 2, standard error √2/√2 = 1, t(0.975, 1) = 12.7062.
        assert_eq!(lines, ["evaluate/a: 2.0000 ± 12.7062"]);
        assert!(parent.path().join("plots/loss.png").exists());
        let text = std::fs::read_to_string(parent.path().join("aggregate.json")).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["figures"]["evaluate/a"]["values"][1], 3.0);
    }
}
