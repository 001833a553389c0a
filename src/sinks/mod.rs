//! Where a run's metrics go: JSON lines, TensorBoard and the terminal.

mod json_lines;
mod progress;
mod tensorboard;

pub use json_lines::JsonLines;
pub use progress::Progress;
pub use tensorboard::TensorBoard;

use std::time::{Duration, Instant};

use pushforward_core::CoreError;
use pushforward_core::metrics::{Sink, StepCount, Value};

/// Several sinks as one.
#[derive(Default)]
pub struct Fanout {
    sinks: Vec<Box<dyn Sink>>,
}

impl Fanout {
    /// Adds a sink.
    pub fn push(&mut self, sink: impl Sink + 'static) {
        self.sinks.push(Box::new(sink));
    }
}

impl Sink for Fanout {
    fn record(&mut self, step: StepCount, tag: &str, value: &Value) -> Result<(), CoreError> {
        self.sinks
            .iter_mut()
            .try_for_each(|sink| sink.record(step, tag, value))
    }

    fn flush(&mut self) -> Result<(), CoreError> {
        self.sinks.iter_mut().try_for_each(|sink| sink.flush())
    }
}

/// Says when buffered output is due to be written: every few seconds, so that a reader sees a running run.
struct FlushTimer {
    last: Instant,
}

impl FlushTimer {
    const INTERVAL: Duration = Duration::from_secs(3);

    fn new() -> Self {
        Self {
            last: Instant::now(),
        }
    }

    fn due(&mut self) -> bool {
        let due = self.last.elapsed() >= Self::INTERVAL;
        if due {
            self.last = Instant::now();
        }
        due
    }
}
