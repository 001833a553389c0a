//! Claims about these methods, each measured by one module: a table, a picture and how they came about.

mod contraction;
mod laws;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub use table::Table;

use crate::failure::{Failure, suggestion};

/// One line of the registry.
#[derive(Debug)]
pub struct Claim {
    /// Its name on the command line and of its folder.
    pub name: &'static str,
    /// What is measured, in one line.
    pub summary: &'static str,
    /// How long it takes on 2 cores.
    pub time: &'static str,
    measure: fn(&Request) -> Result<Report, Failure>,
}

/// Every claim, one line each.
pub const CLAIMS: &[Claim] = &[contraction::CLAIM];

/// What is asked of a claim.
#[derive(Clone, Debug)]
pub struct Request {
    /// Folder for the picture.
    pub out: PathBuf,
    /// Seeds that figures are taken over.
    pub seeds: Vec<u64>,
    /// Sizes that take seconds, to see that everything works.
    pub quick: bool,
}

/// What a claim found; its picture is already drawn.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the file and the table; the first is the main one.
    pub tables: Vec<(&'static str, Table)>,
    /// How to read them: what was measured on what.
    pub notes: Vec<String>,
}

/// The claim of this name.
///
/// # Errors
/// [`Failure::Input`] with the nearest match.
pub fn find(name: &str) -> Result<&'static Claim, Failure> {
    CLAIMS
        .iter()
        .find(|claim| claim.name == name)
        .ok_or_else(|| {
            let advice = suggestion(name, CLAIMS.iter().map(|claim| claim.name));
            Failure::input(format!("no claim `{name}`{advice}"))
        })
}

impl Claim {
    /// Measures, and writes tables as CSV and Markdown with `command`, seeds, commit and time in their heads; gives the Markdown.
    ///
    /// # Errors
    /// [`Failure::Input`] if the folder cannot be used, [`Failure::Run`] if a file cannot be written.
    pub fn reproduce(&self, request: &Request, command: &str) -> Result<String, Failure> {
        let shown = request.out.display();
        std::fs::create_dir_all(&request.out)
            .map_err(|e| Failure::input(format!("cannot write to {shown}: {e}")))?;
        let begin = Instant::now();
        let report = (self.measure)(request)?;
        let seeds: Vec<String> = request.seeds.iter().map(u64::to_string).collect();
        let head = [
            format!("command: {command}"),
            format!("seeds: {}", seeds.join(", ")),
            format!("commit: {}", commit()),
            format!(
                "time: {:.0} s on {} threads",
                begin.elapsed().as_secs_f64(),
                rayon::current_num_threads()
            ),
        ];
        let mut text = format!("# {}: {}\n\n", self.name, self.summary);
        for line in &head {
            text.push_str(&format!("- {line}\n"));
        }
        for note in &report.notes {
            text.push_str(&format!("\n{note}\n"));
        }
        for (name, table) in &report.tables {
            text.push_str(&format!("\n{}", table.markdown()));
            let comments: String = head.iter().map(|line| format!("# {line}\n")).collect();
            write(
                &request.out.join(format!("{name}.csv")),
                &(comments + &table.csv()?),
            )?;
        }
        write(&request.out.join("table.md"), &text)?;
        Ok(text)
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|e| Failure::run(format!("cannot write {}: {e}", path.display())))
}

/// The commit of the checkout that the program is run in, and whether its files differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if !changes.is_empty() => format!("{commit} with local changes"),
        _ => commit,
    }
}
