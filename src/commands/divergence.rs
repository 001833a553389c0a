//! `divergence`: two clouds in, numbers out.

use std::path::Path;

use pushforward_divergences::{DivergenceConfig, Evaluation, Points};
use pushforward_envs::StreamRng;
use serde_json::json;

use super::print;
use crate::cli::DivergenceArgs;
use crate::config::Layers;
use crate::failure::Failure;

/// Compares two clouds.
///
/// # Errors
/// [`Failure::Input`] for files that are not clouds of one dimension, and for settings that do not fit.
pub fn divergence(args: &DivergenceArgs) -> Result<(), Failure> {
    let config = config(args)?;
    let (first, dim) = read_cloud(&args.first)?;
    let (second, other) = read_cloud(&args.second)?;
    if dim != other {
        return Err(Failure::input(format!(
            "{} has {other} columns, but {} has {dim}",
            args.second.display(),
            args.first.display()
        )));
    }
    let divergence = config.build(dim).map_err(Failure::input)?;
    let weights_x = read_weights(args.weights_x.as_deref(), first.len() / dim)?;
    let weights_y = read_weights(args.weights_y.as_deref(), second.len() / dim)?;
    let directions = match &args.directions_file {
        Some(path) => {
            let (directions, columns) = read_cloud(path)?;
            if columns != dim {
                return Err(Failure::input(format!(
                    "{} has {columns} columns, expected d = {dim}",
                    path.display()
                )));
            }
            unit(directions, dim, path)?
        }
        None => {
            let mut rng = StreamRng::new(args.seed, "directions", 0);
            let drawn = divergence.draw(1, &mut rng);
            let directions = drawn.of(0).iter().map(|x| f64::from(*x)).collect();
            unit(directions, dim, Path::new("drawn directions"))?
        }
    };
    let x = Points {
        points: &first,
        weights: weights_x.as_deref(),
    };
    let y = Points {
        points: &second,
        weights: weights_y.as_deref(),
    };
    let found = divergence
        .evaluate(&x, &y, &directions)
        .map_err(Failure::input)?;
    report(
        args,
        &config,
        &found,
        divergence.exponent(),
        directions.len() / dim,
    )
}

fn report(
    args: &DivergenceArgs,
    config: &DivergenceConfig,
    found: &Evaluation,
    exponent: f64,
    directions: usize,
) -> Result<(), Failure> {
    if args.json {
        let report = json!({
            "divergence": config,
            "exponent": exponent,
            "value": found.value,
            "root": found.root,
            "directions": directions,
            "standard_error": found.standard_error,
            "direction": found.direction,
            "per_direction": found.per_direction,
        });
        return print(&format!("{report}\n"));
    }
    let mut text = format!("value           {}\n", found.value);
    if let Some(root) = found.root
        && exponent != 1.0
    {
        text.push_str(&format!("value^(1/{exponent})     {root}\n"));
    }
    if let Some(error) = found.standard_error {
        text.push_str(&format!(
            "standard error  {error} (over {directions} directions)\n"
        ));
    }
    if let Some(direction) = &found.direction {
        text.push_str(&format!("direction       {direction:?}\n"));
    }
    print(&text)
}

/// The settings of the divergence, as one layer that the usual errors apply to.
fn config(args: &DivergenceArgs) -> Result<DivergenceConfig, Failure> {
    let mut settings = vec![
        format!("kind={}", args.kind),
        format!("lift.kind={}", args.lift),
    ];
    settings.extend(
        args.directions
            .map(|count| format!("lift.directions={count}")),
    );
    settings.extend(args.p.map(|p| format!("p={p}")));
    settings.extend(args.set.iter().cloned());
    let mut layers = Layers::default();
    layers.set(&settings)?;
    layers.resolve()
}

/// Points of a CSV file, row-major, and the number of its columns.
fn read_cloud(path: &Path) -> Result<(Vec<f64>, usize), Failure> {
    let shown = path.display();
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_path(path)
        .map_err(|e| Failure::input(format!("cannot read {shown}: {e}")))?;
    let mut points = Vec::new();
    let mut columns = 0;
    for (index, record) in reader.records().enumerate() {
        let record = record.map_err(|e| Failure::input(format!("cannot read {shown}: {e}")))?;
        let line = record.position().map_or(0, csv::Position::line);
        let row: Vec<Option<f64>> = record.iter().map(|cell| cell.parse().ok()).collect();
        if index == 0 && row.iter().all(Option::is_none) {
            continue;
        }
        if columns == 0 {
            columns = row.len();
        }
        if row.len() != columns {
            return Err(Failure::input(format!(
                "{shown} line {line}: {} columns, expected {columns}",
                row.len()
            )));
        }
        for (cell, number) in record.iter().zip(row) {
            match number.filter(|number| number.is_finite()) {
                Some(number) => points.push(number),
                None => {
                    return Err(Failure::input(format!(
                        "{shown} line {line}: got `{cell}`, expected a finite number"
                    )));
                }
            }
        }
    }
    if points.is_empty() {
        return Err(Failure::input(format!("{shown}: no points")));
    }
    Ok((points, columns))
}

fn read_weights(path: Option<&Path>, points: usize) -> Result<Option<Vec<f64>>, Failure> {
    let Some(path) = path else {
        return Ok(None);
    };
    let (weights, _) = read_cloud(path)?;
    let wrong = |message: String| Failure::input(format!("{}: {message}", path.display()));
    if weights.len() != points {
        return Err(wrong(format!(
            "{} weights, expected {points}, one per point",
            weights.len()
        )));
    }
    if let Some(weight) = weights.iter().find(|weight| **weight < 0.0) {
        return Err(wrong(format!("weight {weight} is negative")));
    }
    if weights.iter().sum::<f64>() <= 0.0 {
        return Err(wrong("the weights sum to 0".to_owned()));
    }
    Ok(Some(weights))
}

/// Rows scaled to length 1.
fn unit(mut directions: Vec<f64>, dim: usize, path: &Path) -> Result<Vec<f64>, Failure> {
    for (index, direction) in directions.chunks_exact_mut(dim).enumerate() {
        let norm = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm == 0.0 {
            return Err(Failure::input(format!(
                "{}: direction {index} is 0",
                path.display()
            )));
        }
        direction.iter_mut().for_each(|x| *x /= norm);
    }
    Ok(directions)
}
