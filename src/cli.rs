//! The command line: what can be asked, and how the answer ends.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::commands;
use crate::failure::{Failure, one_line};

/// Seeds of `reproduce` unless it is told others.
pub const DEFAULT_SEEDS: &str = "0,1,2,3,4";

/// Learns joint laws of vector returns by pushing them through directions.
#[derive(Debug, Parser)]
#[command(name = "pushforward", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train an agent from a preset or a configuration file, and judge it.
    Train(TrainArgs),
    /// Go on with a run from its newest checkpoint, to the end.
    Resume(RunArgs),
    /// Judge the agent of a run again: numbers, pictures and, for control, an episode.
    Eval(EvalArgs),
    /// List what there is.
    List {
        /// What to list; everything if left out.
        what: Option<Listing>,
    },
    /// Print the resolved configuration, and run nothing.
    ShowConfig(Settings),
    /// Measure one claim about these methods: a table and a picture (see `list claims`).
    Reproduce(ReproduceArgs),
    /// Compare two point clouds.
    Divergence(DivergenceArgs),
    /// Report libtorch, threads, CPU features, devices and memory.
    Doctor,
    /// Print a completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write learned points and true samples of a run as NPZ and CSV.
    Export(ExportArgs),
}

/// Which settings, from the bottom layer up: defaults, a preset or file, further files, assignments.
#[derive(Debug, Args)]
pub struct Settings {
    /// A preset (see `list presets`) or a TOML file.
    #[arg(value_name = "PRESET|FILE")]
    pub source: String,
    /// A TOML file on top; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// One setting on top, such as agent.divergence.lift.directions=128; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Root seed of all randomness.
    #[arg(long, allow_negative_numbers = true)]
    pub seed: Option<u64>,
}

/// How to run; nothing here changes a result.
#[derive(Clone, Debug, Args)]
pub struct How {
    /// Device of the networks: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Threads; the number of physical cores if left out.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Print errors only.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Arguments of `train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// What to train.
    #[command(flatten)]
    pub settings: Settings,
    /// How to run.
    #[command(flatten)]
    pub how: How,
    /// The run folder; runs/NAME-seed-SEED-NUMBER if left out.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Replace the run in the folder given by --out.
    #[arg(long)]
    pub force: bool,
    /// Several seeds one after the other, as 0..4 (0, 1, 2, 3) or 0,7,9, with their mean and 95 % interval at the end.
    #[arg(long, conflicts_with = "seed")]
    pub seeds: Option<String>,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The run folder.
    pub run: PathBuf,
    /// How to run.
    #[command(flatten)]
    pub how: How,
}

/// Arguments of `eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// The run folder.
    pub run: PathBuf,
    /// Which checkpoint.
    #[arg(long, value_enum, default_value_t = Which::Latest)]
    pub checkpoint: Which,
    /// How to run.
    #[command(flatten)]
    pub how: How,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The run folder.
    pub run: PathBuf,
    /// Where to write; RUN/export if left out.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Which checkpoint.
    #[arg(long, value_enum, default_value_t = Which::Latest)]
    pub checkpoint: Which,
    /// How to run.
    #[command(flatten)]
    pub how: How,
}

/// Arguments of `reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// The claim (see `list claims`).
    pub claim: String,
    /// Where its table and picture go; results/CLAIM if left out.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Seeds that figures are means over, as 0..5 or 0,7,9.
    #[arg(long, default_value = DEFAULT_SEEDS)]
    pub seeds: String,
    /// The first seed only and small sizes, in seconds: shows that everything works, while the figures mean little.
    #[arg(long)]
    pub quick: bool,
    /// Threads; the number of physical cores if left out.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Print errors only.
    #[arg(long, short)]
    pub quiet: bool,
}

/// A checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// The newest one that is whole.
    Latest,
    /// The one with the best figure.
    Best,
}

/// Arguments of `divergence`.
#[derive(Debug, Args)]
pub struct DivergenceArgs {
    /// CSV file with one point per row (a header row is allowed).
    pub first: PathBuf,
    /// CSV file of the same number of columns.
    pub second: PathBuf,
    /// The divergence (see `list divergences`), or `all` for a table of every kind with every lift it takes.
    #[arg(long, default_value = "cramer")]
    pub kind: String,
    /// How a divergence on the line is carried to R^d (see `list divergences`); uniform if left out.
    #[arg(long)]
    pub lift: Option<String>,
    /// Directions drawn, for the lift `uniform`.
    #[arg(long)]
    pub directions: Option<usize>,
    /// Scales of `magnitude`: one, or several for a sweep (0.1,1,10).
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    pub t: Vec<f64>,
    /// Regularisation of `sinkhorn`, in squared units of the points.
    #[arg(long, allow_negative_numbers = true)]
    pub epsilon: Option<f64>,
    /// Kernel of `mmd`.
    #[arg(long)]
    pub kernel: Option<String>,
    /// Directions given, one per row of a CSV file.
    #[arg(long, value_name = "FILE", conflicts_with = "directions")]
    pub directions_file: Option<PathBuf>,
    /// Seed of the directions.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Weights of the first cloud, one number per row; equal if left out.
    #[arg(long, value_name = "FILE")]
    pub weights_x: Option<PathBuf>,
    /// Weights of the second cloud.
    #[arg(long, value_name = "FILE")]
    pub weights_y: Option<PathBuf>,
    /// Exponent of `wasserstein`.
    #[arg(long)]
    pub p: Option<f64>,
    /// Any other setting of the divergence, such as kernel.kind=energy or statistic=u; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print JSON with every number in full.
    #[arg(long)]
    pub json: bool,
}

/// What `list` can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listing {
    /// Environments.
    Environments,
    /// Mean-field games.
    Games,
    /// Agents.
    Agents,
    /// Divergences and lifts.
    Divergences,
    /// Claims that `reproduce` measures.
    Claims,
    /// Presets.
    Presets,
}

/// Runs the program with the process's arguments.
///
/// The exit code is 0 if all went well, 1 if something went wrong on the way and 2 if the request itself is wrong (nothing has been written then).
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&Failure::input(usage_error(&error.to_string()))),
    };
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List { what } => commands::list(what),
        Command::ShowConfig(settings) => commands::show_config(&settings),
        Command::Reproduce(args) => commands::reproduce(&args),
        Command::Divergence(args) => commands::divergence(&args),
        Command::Doctor => commands::doctor(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "pushforward", &mut script);
            commands::print(&String::from_utf8_lossy(&script))
        }
        Command::Train(args) => commands::train(&args),
        Command::Resume(args) => commands::resume(&args),
        Command::Eval(args) => commands::eval(&args),
        Command::Export(args) => commands::export(&args),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    eprintln!("error: {failure}");
    ExitCode::from(failure.exit_code())
}

/// Clap's message without its usage paragraph, as one line.
fn usage_error(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().take_while(|line| {
        !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    one_line(&lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line() {
        let error = Cli::try_parse_from(["pushforward", "trian"]).unwrap_err();
        let line = usage_error(&error.to_string());
        assert!(!line.contains('\n') && line.contains("'train'"), "{line}");
    }
}
