//! Runs the program in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A small run of a preset, so that a test takes seconds.
pub const SMALL: [&str; 12] = [
    "--set=train.updates=8",
    "--set=rollout.warmup=64",
    "--set=rollout.environments=4",
    "--set=log.interval=2",
    "--set=eval.interval=4",
    "--set=checkpoint.interval=4",
    "--set=eval.reference_samples=512",
    "--set=eval.floor_draws=2",
    "--set=eval.probe=false",
    "--set=eval.episodes=4",
    "--set=replay.capacity=2000",
    "--set=agent.torso.hidden=[16]",
];

/// A folder in which the program runs.
pub struct Workplace {
    folder: TempDir,
}

impl Workplace {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file into the folder and gives its name.
    pub fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path().join(name), text).unwrap();
        name.to_owned()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pushforward"));
        command.current_dir(self.path()).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the program, which must succeed, and gives its standard output.
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Trains a small run of a preset into `out`.
    pub fn train(&self, preset: &str, out: &str, more: &[&str]) {
        let mut arguments = vec!["train", preset, "--out", out, "--quiet"];
        arguments.extend(SMALL);
        arguments.extend(more);
        self.succeed(&arguments);
    }

    /// Everything in the folder, but the cache of ground truth.
    pub fn contents(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.file_name().is_some_and(|name| name == ".cache") {
                    continue;
                }
                if path.is_dir() {
                    walk(&path, found);
                }
                found.push(path);
            }
        }
        let mut found = Vec::new();
        walk(self.path(), &mut found);
        found.sort();
        found
    }

    /// Runs the program, which must refuse with exit code 2 and one line that has all of `words`, and write nothing; gives the line.
    pub fn refuse(&self, arguments: &[&str], words: &[&str]) -> String {
        let before = self.contents();
        let output = self.run(arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
        for word in words {
            assert!(line.contains(word), "{arguments:?}: no `{word}` in {line}");
        }
        assert_eq!(self.contents(), before, "{arguments:?} wrote something");
        line
    }
}
