//! Scalars as JSON lines: one row per step count, `{"env_steps": .., "updates": .., "area/name": number, ..}`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use pushforward_core::CoreError;
use pushforward_core::metrics::{Sink, StepCount, Value};
use serde_json::Number;

use super::FlushTimer;

/// Tags under this area are wall-clock figures, which differ between two runs of the same seed and so have a file of their own.
const TIME_AREA: &str = "time/";

/// Writes scalars to `metrics.jsonl`, and those under `time/` to `timing.jsonl`; numbers are in their shortest form that reads back as the
/// same f64, and `null` stands for what is not finite.
pub struct JsonLines {
    metrics: Rows,
    timing: Rows,
    timer: FlushTimer,
}

impl JsonLines {
    /// Opens both files in the run folder `folder`, and drops the rows after `resume` if they are there already.
    ///
    /// # Errors
    /// [`CoreError::Io`] if a file cannot be read or written.
    pub fn open(folder: &Path, resume: StepCount) -> Result<Self, CoreError> {
        Ok(Self {
            metrics: Rows::open(folder.join("metrics.jsonl"), resume)?,
            timing: Rows::open(folder.join("timing.jsonl"), resume)?,
            timer: FlushTimer::new(),
        })
    }
}

impl Sink for JsonLines {
    fn record(&mut self, step: StepCount, tag: &str, value: &Value) -> Result<(), CoreError> {
        if let Value::Scalar(number) = value {
            let rows = if tag.starts_with(TIME_AREA) {
                &mut self.timing
            } else {
                &mut self.metrics
            };
            rows.add(step, tag, *number)?;
        }
        if self.timer.due() {
            self.metrics.file.flush().map_err(|e| self.metrics.io(e))?;
            self.timing.file.flush().map_err(|e| self.timing.io(e))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CoreError> {
        self.metrics.finish()?;
        self.timing.finish()
    }
}

/// One file and the row that is being filled.
struct Rows {
    path: PathBuf,
    file: BufWriter<File>,
    step: StepCount,
    row: BTreeMap<String, serde_json::Value>,
}

impl Rows {
    fn open(path: PathBuf, resume: StepCount) -> Result<Self, CoreError> {
        let kept = if path.exists() {
            let text = std::fs::read_to_string(&path).map_err(|e| CoreError::io(&path, e))?;
            keep_until(&text, resume)
        } else {
            0
        };
        let open = || -> std::io::Result<File> {
            let file = File::options().create(true).append(true).open(&path)?;
            file.set_len(kept as u64)?;
            Ok(file)
        };
        let file = BufWriter::new(open().map_err(|e| CoreError::io(&path, e))?);
        Ok(Self {
            path,
            file,
            step: StepCount::default(),
            row: BTreeMap::new(),
        })
    }

    fn io(&self, source: std::io::Error) -> CoreError {
        CoreError::io(&self.path, source)
    }

    fn add(&mut self, step: StepCount, tag: &str, number: f64) -> Result<(), CoreError> {
        if step != self.step {
            self.end_row()?;
            self.step = step;
        }
        let number =
            Number::from_f64(number).map_or(serde_json::Value::Null, serde_json::Value::Number);
        self.row.insert(tag.to_owned(), number);
        Ok(())
    }

    fn end_row(&mut self) -> Result<(), CoreError> {
        if self.row.is_empty() {
            return Ok(());
        }
        let mut line = format!(
            "{{\"env_steps\":{},\"updates\":{}",
            self.step.env_steps, self.step.updates
        );
        for (tag, number) in &self.row {
            line.push_str(&format!(",{}:{number}", serde_json::Value::from(&**tag)));
        }
        line.push_str("}\n");
        self.row.clear();
        self.file
            .write_all(line.as_bytes())
            .map_err(|e| CoreError::io(&self.path, e))
    }

    fn finish(&mut self) -> Result<(), CoreError> {
        self.end_row()?;
        self.file.flush().map_err(|e| CoreError::io(&self.path, e))
    }
}

/// Length in bytes of the leading whole rows of `text` whose step count is not after `last`.
fn keep_until(text: &str, last: StepCount) -> usize {
    let whole = text.split_inclusive('\n').take_while(|line| {
        let Ok(row) = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(line) else {
            return false;
        };
        let count = |key: &str| row.get(key).and_then(serde_json::Value::as_u64);
        let in_time = |value: Option<u64>, limit: u64| value.is_some_and(|value| value <= limit);
        line.ends_with('\n')
            && in_time(count("env_steps"), last.env_steps)
            && in_time(count("updates"), last.updates)
    });
    whole.map(str::len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(env_steps: u64, updates: u64) -> StepCount {
        StepCount { env_steps, updates }
    }

    fn read(folder: &Path, name: &str) -> String {
        std::fs::read_to_string(folder.join(name)).unwrap()
    }

    #[test]
    fn one_row_per_step_and_wall_clock_apart() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = JsonLines::open(folder.path(), step(0, 0)).unwrap();
        for (at, tag, number) in [
            (step(8, 1), "train/loss", 0.1),
            (step(8, 1), "time/elapsed_seconds", 2.5),
            (step(8, 1), "train/gradient_norm", f64::NAN),
            (step(16, 2), "train/loss", 1.0 / 3.0),
        ] {
            sink.record(at, tag, &Value::Scalar(number)).unwrap();
        }
        sink.record(step(16, 2), "run/config", &Value::Text("x".into()))
            .unwrap();
        sink.flush().unwrap();
        assert_eq!(
            read(folder.path(), "metrics.jsonl"),
            "{\"env_steps\":8,\"updates\":1,\"train/gradient_norm\":null,\"train/loss\":0.1}\n\
             {\"env_steps\":16,\"updates\":2,\"train/loss\":0.3333333333333333}\n"
        );
        assert_eq!(
            read(folder.path(), "timing.jsonl"),
            "{\"env_steps\":8,\"updates\":1,\"time/elapsed_seconds\":2.5}\n"
        );
    }

    #[test]
    fn resuming_drops_later_and_broken_rows_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let rows = "{\"env_steps\":8,\"updates\":1,\"a/b\":1.0}\n\
                    {\"env_steps\":16,\"updates\":2,\"a/b\":2.0}\n\
                    {\"env_steps\":24,\"updates\":3,\"a/b\":3.0}\n{\"env_st";
        std::fs::write(folder.path().join("metrics.jsonl"), rows).unwrap();
        let mut sink = JsonLines::open(folder.path(), step(16, 2)).unwrap();
        sink.record(step(24, 3), "a/b", &Value::Scalar(4.0))
            .unwrap();
        sink.flush().unwrap();
        assert_eq!(
            read(folder.path(), "metrics.jsonl"),
            "{\"env_steps\":8,\"updates\":1,\"a/b\":1.0}\n\
             {\"env_steps\":16,\"updates\":2,\"a/b\":2.0}\n\
             {\"env_steps\":24,\"updates\":3,\"a/b\":4.0}\n"
        );
    }
}
