//! `divergence`: two clouds in, numbers out.

use std::path::Path;

use pushforward_divergences::{
    DIVERGENCES, DivergenceConfig, Evaluation, LIFTS, LiftConfig, Points,
};
use pushforward_envs::StreamRng;
use serde_json::{Value, json};

use super::print;
use crate::cli::DivergenceArgs;
use crate::config::Layers;
use crate::failure::Failure;

/// Compares two clouds.
///
/// # Errors
/// [`Failure::Input`] for files that are not clouds of one dimension, and for settings that do not fit.
pub fn divergence(args: &DivergenceArgs) -> Result<(), Failure> {
    let inputs = Inputs::read(args)?;
    let mut text = String::new();
    if args.kind == "all" {
        for config in every(args)? {
            let row = inputs.compare(&config)?;
            text.push_str(&if args.json { row.json() } else { row.line() });
        }
        if !args.json {
            let head = ["kind", "lift", "value", "root", "standard error"];
            text.insert_str(0, &columns(head.map(str::to_owned)));
        }
        return print(&text);
    }
    let scales: Vec<Option<f64>> = match args.t[..] {
        [] => vec![None],
        _ => args.t.iter().copied().map(Some).collect(),
    };
    for t in &scales {
        let row = inputs.compare(&config(args, *t)?)?;
        if args.json {
            text.push_str(&row.json());
            continue;
        }
        if let (Some(t), true) = (t, scales.len() > 1) {
            text.push_str(&format!("t               {t}\n"));
        }
        text.push_str(&row.paragraph());
    }
    print(&text)
}

/// What is compared.
struct Inputs {
    dimension: usize,
    clouds: [Vec<f64>; 2],
    weights: [Option<Vec<f64>>; 2],
    /// Directions of a file.
    directions: Option<Vec<f64>>,
    seed: u64,
}

impl Inputs {
    fn read(args: &DivergenceArgs) -> Result<Self, Failure> {
        let (first, dimension) = read_cloud(&args.first)?;
        let (second, other) = read_cloud(&args.second)?;
        if dimension != other {
            return Err(Failure::input(format!(
                "{} has {other} columns, but {} has {dimension}",
                args.second.display(),
                args.first.display()
            )));
        }
        let weights = [
            read_weights(args.weights_x.as_deref(), first.len() / dimension)?,
            read_weights(args.weights_y.as_deref(), second.len() / dimension)?,
        ];
        let directions = args.directions_file.as_deref().map(|path| {
            let (directions, columns) = read_cloud(path)?;
            if columns != dimension {
                return Err(Failure::input(format!(
                    "{} has {columns} columns, expected d = {dimension}",
                    path.display()
                )));
            }
            unit(directions, dimension, path)
        });
        Ok(Self {
            dimension,
            clouds: [first, second],
            weights,
            directions: directions.transpose()?,
            seed: args.seed,
        })
    }

    fn compare(&self, config: &DivergenceConfig) -> Result<Row, Failure> {
        let divergence = config.build(self.dimension).map_err(Failure::input)?;
        let directions = match &self.directions {
            Some(directions) => directions.clone(),
            None => {
                let mut rng = StreamRng::new(self.seed, "directions", 0);
                let drawn = divergence.draw(1, &mut rng);
                let directions = drawn.of(0).iter().map(|x| f64::from(*x)).collect();
                unit(directions, self.dimension, Path::new("drawn directions"))?
            }
        };
        let [x, y] = [0, 1].map(|k| Points {
            points: &self.clouds[k],
            weights: self.weights[k].as_deref(),
        });
        let found = divergence
            .evaluate(&x, &y, &directions)
            .map_err(Failure::input)?;
        let config = serde_json::to_value(config)
            .map_err(|error| Failure::input(format!("settings: {error}")))?;
        Ok(Row {
            config,
            exponent: divergence.exponent(),
            directions: directions.len() / self.dimension,
            found,
        })
    }
}

/// One comparison.
struct Row {
    config: Value,
    exponent: f64,
    directions: usize,
    found: Evaluation,
}

impl Row {
    fn kind(&self) -> &str {
        self.config["kind"].as_str().unwrap_or_default()
    }

    fn lift(&self) -> &str {
        self.config["lift"]["kind"].as_str().unwrap_or("none")
    }

    fn json(&self) -> String {
        let report = json!({
            "kind": self.kind(),
            "lift": self.lift(),
            "divergence": self.config,
            "exponent": self.exponent,
            "value": self.found.value,
            "root": self.found.root,
            "directions": self.directions,
            "standard_error": self.found.standard_error,
            "direction": self.found.direction,
            "per_direction": self.found.per_direction,
        });
        format!("{report}\n")
    }

    fn line(&self) -> String {
        let or_dash = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.6e}"));
        columns([
            self.kind().to_owned(),
            self.lift().to_owned(),
            format!("{:.6e}", self.found.value),
            or_dash(self.found.root),
            or_dash(self.found.standard_error),
        ])
    }

    fn paragraph(&self) -> String {
        let (found, exponent) = (&self.found, self.exponent);
        let mut text = format!("value           {}\n", found.value);
        if let Some(root) = found.root
            && exponent != 1.0
        {
            text.push_str(&format!("value^(1/{exponent})     {root}\n"));
        }
        if let Some(error) = found.standard_error {
            text.push_str(&format!(
                "standard error  {error} (over {} directions)\n",
                self.directions
            ));
        }
        if let Some(direction) = &found.direction {
            text.push_str(&format!("direction       {direction:?}\n"));
        }
        text
    }
}

fn columns(cells: [String; 5]) -> String {
    let [kind, lift, value, root, error] = cells;
    format!("{kind:<12} {lift:<9} {value:>14} {root:>14} {error:>14}\n")
}

/// Every registered divergence with every lift that it takes, at default settings.
fn every(args: &DivergenceArgs) -> Result<Vec<DivergenceConfig>, Failure> {
    for (name, given) in [
        ("--lift", args.lift.is_some()),
        ("--p", args.p.is_some()),
        ("--t", !args.t.is_empty()),
        ("--epsilon", args.epsilon.is_some()),
        ("--kernel", args.kernel.is_some()),
        ("--set", !args.set.is_empty()),
    ] {
        if given {
            return Err(Failure::input(format!(
                "{name} does not fit --kind all, expected one kind"
            )));
        }
    }
    let mut configs = Vec::new();
    for kind in DIVERGENCES.iter().map(|entry| entry.kind) {
        let plain = resolve(&[format!("kind={kind}")])?;
        if *plain.lift() == LiftConfig::None {
            configs.push(plain);
            continue;
        }
        for lift in LIFTS.iter().map(|entry| entry.kind) {
            let mut settings = vec![format!("kind={kind}"), format!("lift.kind={lift}")];
            if let (Some(count), "uniform") = (args.directions, lift) {
                settings.push(format!("lift.directions={count}"));
            }
            let config = resolve(&settings)?;
            // What the divergence does not take is left out; a bad number of directions is told.
            if lift == "uniform" || config.build(2).is_ok() {
                configs.push(config);
            }
        }
    }
    Ok(configs)
}

/// The settings of the divergence, as one layer that the usual errors apply to.
fn config(args: &DivergenceArgs, t: Option<f64>) -> Result<DivergenceConfig, Failure> {
    let mut settings = vec![format!("kind={}", args.kind)];
    let lift = args.lift.as_deref();
    let lift = lift.or_else(|| args.directions.map(|_| "uniform"));
    settings.extend(lift.map(|lift| format!("lift.kind={lift}")));
    settings.extend(
        args.directions
            .map(|count| format!("lift.directions={count}")),
    );
    settings.extend(args.p.map(|p| format!("p={p}")));
    settings.extend(t.map(|t| format!("t={t}")));
    settings.extend(args.epsilon.map(|epsilon| format!("epsilon={epsilon}")));
    settings.extend(
        args.kernel
            .iter()
            .map(|kernel| format!("kernel.kind={kernel}")),
    );
    settings.extend(args.set.iter().cloned());
    resolve(&settings)
}

fn resolve(settings: &[String]) -> Result<DivergenceConfig, Failure> {
    let mut layers = Layers::default();
    layers.set(settings)?;
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
