//! `train`, `resume` and `eval`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pushforward_core::trainer::Evaluation;

use super::print;
use crate::cli::{EvalArgs, How, RunArgs, TrainArgs};
use crate::config::resolve;
use crate::failure::Failure;
use crate::machine;
use crate::run::{Ending, RunFolder, Session, aggregate, next_free, parse_seeds};

/// Where runs go unless `--out` says otherwise.
const RUNS: &str = "runs";

/// Trains one seed or several.
///
/// # Errors
/// [`Failure::Input`] before anything is written, [`Failure::Run`] after.
pub fn train(args: &TrainArgs) -> Result<(), Failure> {
    let session = session(&args.how)?;
    let config = resolve(&args.settings)?;
    let Some(seeds) = &args.seeds else {
        let (config, experiment) = session.build(config)?;
        let path = args.out.clone().unwrap_or_else(|| {
            next_free(
                Path::new(RUNS),
                &format!("{}-seed-{}", config.header().name, config.header().seed),
            )
        });
        let (folder, ending) = session.train(&config, experiment, &path, args.force)?;
        let evaluation = complete(ending, &folder)?;
        return summary(&args.how, &folder, &evaluation);
    };
    let seeds = parse_seeds(seeds)?;
    let parent = args
        .out
        .clone()
        .unwrap_or_else(|| next_free(Path::new(RUNS), &format!("{}-seeds", config.header().name)));
    let runs = seeds
        .iter()
        .map(|seed| {
            let (config, experiment) = session.build(config.with_seed(*seed))?;
            let path = parent.join(format!("seed-{seed}"));
            let (folder, ending) = session.train(&config, experiment, &path, args.force)?;
            let evaluation = complete(ending, &folder)?;
            summary(&args.how, &folder, &evaluation)?;
            Ok((folder, evaluation))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let lines = aggregate(&parent, &seeds, &runs)?;
    if args.how.quiet {
        return Ok(());
    }
    print(&format!(
        "{} seeds, mean ± half width of the 95 % interval:\n{}\n{}\n",
        seeds.len(),
        lines.join("\n"),
        parent.join("aggregate.json").display()
    ))
}

/// Goes on with a run.
///
/// # Errors
/// [`Failure::Input`] if there is nothing to go on with, [`Failure::Run`] if the run fails.
pub fn resume(args: &RunArgs) -> Result<(), Failure> {
    let folder = RunFolder::open(&args.run)?;
    let ending = session(&args.how)?.resume(&folder)?;
    let evaluation = complete(ending, &folder)?;
    summary(&args.how, &folder, &evaluation)
}

/// Judges a run again.
///
/// # Errors
/// [`Failure::Input`] if there is no usable checkpoint, [`Failure::Run`] if it cannot be judged.
pub fn eval(args: &EvalArgs) -> Result<(), Failure> {
    let folder = RunFolder::open(&args.run)?;
    let evaluation = session(&args.how)?.evaluate(&folder, args.checkpoint)?;
    summary(&args.how, &folder, &evaluation)
}

/// The session that the flags ask for.
///
/// # Errors
/// [`Failure::Input`] for a device or a number of threads that there is not.
pub fn session(how: &How) -> Result<Session, Failure> {
    let device = machine::device(&how.device)?;
    let threads = machine::set_threads(how.threads)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: the first signal raises the flag, a second one finds it raised and ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|e| Failure::run(format!("cannot watch for signals: {e}")))?;
    }
    Ok(Session {
        device,
        threads,
        quiet: how.quiet,
        stop,
    })
}

fn complete(ending: Ending, folder: &RunFolder) -> Result<Evaluation, Failure> {
    match ending {
        Ending::Complete(evaluation) => Ok(*evaluation),
        Ending::Stopped(updates) => Err(Failure::run(format!(
            "stopped at update {updates}, saved; go on with `pushforward resume {}`",
            folder.path().display()
        ))),
    }
}

/// The figures and where the pictures are.
fn summary(how: &How, folder: &RunFolder, evaluation: &Evaluation) -> Result<(), Failure> {
    if how.quiet {
        return Ok(());
    }
    let mut text = String::new();
    if let Some(headline) = &evaluation.headline {
        let direction = if headline.lower_is_better {
            "lower is better"
        } else {
            "higher is better"
        };
        text.push_str(&format!(
            "{} {:.4} ({direction})\n",
            headline.name, headline.value
        ));
    }
    let mut pictures: Vec<PathBuf> = std::fs::read_dir(folder.plots())
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    pictures.retain(|path| path.extension().is_none_or(|extension| extension != "svg"));
    pictures.sort();
    for picture in pictures {
        text.push_str(&format!("{}\n", picture.display()));
    }
    print(&text)
}
