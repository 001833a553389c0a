//! TensorBoard event files: scalars, histograms, pictures and texts.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use protobuf::{Message, RepeatedField};
use pushforward_core::CoreError;
use pushforward_core::metrics::{Sink, StepCount, Value};
use pushforward_envs::Picture;
use tensorboard_proto::event::Event;
use tensorboard_proto::summary::{
    Summary, Summary_Image, Summary_Value, SummaryMetadata, SummaryMetadata_PluginData,
};
use tensorboard_proto::tensor::TensorProto;
use tensorboard_proto::tensor_shape::{TensorShapeProto, TensorShapeProto_Dim};
use tensorboard_proto::types::DataType;
use tensorboard_rs::masked_crc32c::masked_crc32c;
use tensorboard_rs::record_writer::RecordWriter;
use tensorboard_rs::summary;

use super::FlushTimer;
use crate::plots::encode_png;

/// TensorBoard takes any file whose name has `tfevents` in it; a fixed name lets a resumed run go on in the same file.
const FILE_NAME: &str = "events.out.tfevents.pushforward";

/// Buckets of a histogram, of equal width.
const BUCKETS: usize = 40;

/// Writes an event file whose steps are environment steps.
pub struct TensorBoard {
    path: PathBuf,
    writer: RecordWriter<BufWriter<File>>,
    timer: FlushTimer,
}

impl TensorBoard {
    /// Opens the event file in the run folder `folder`; of a file that is there already, events after `resume` and a torn tail are dropped.
    ///
    /// # Errors
    /// [`CoreError::Io`] if it cannot be read or written.
    pub fn open(folder: &Path, resume: StepCount) -> Result<Self, CoreError> {
        let path = folder.join(FILE_NAME);
        let io = |e| CoreError::io(&path, e);
        let kept = if path.exists() {
            let mut bytes = std::fs::read(&path).map_err(io)?;
            keep_until(&mut bytes, resume);
            bytes
        } else {
            Vec::new()
        };
        let mut file = BufWriter::new(File::create(&path).map_err(io)?);
        file.write_all(&kept).map_err(io)?;
        let mut sink = Self {
            path,
            writer: RecordWriter::new(file),
            timer: FlushTimer::new(),
        };
        if kept.is_empty() {
            let mut event = Event::new();
            event.set_file_version("brain.Event:2".to_owned());
            sink.write(event)?;
        }
        sink.flush()?;
        Ok(sink)
    }

    fn write(&mut self, mut event: Event) -> Result<(), CoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        event.set_wall_time(now.map_or(0.0, |elapsed| elapsed.as_secs_f64()));
        let written = event
            .write_to_bytes()
            .map_err(std::io::Error::other)
            .and_then(|bytes| self.writer.write(&bytes));
        written.map_err(|e| CoreError::io(&self.path, e))
    }
}

impl Sink for TensorBoard {
    fn record(&mut self, step: StepCount, tag: &str, value: &Value) -> Result<(), CoreError> {
        let summary = match value {
            Value::Scalar(number) => summary::scalar(tag, *number as f32),
            Value::Histogram(samples) => match histogram(tag, samples) {
                Some(summary) => summary,
                None => return Ok(()),
            },
            Value::Picture(picture) => {
                image(tag, picture).map_err(|e| CoreError::io(&self.path, e))?
            }
            Value::Text(text) => words(tag, text),
        };
        let mut event = Event::new();
        event.set_step(step.env_steps as i64);
        event.set_summary(summary);
        self.write(event)?;
        if self.timer.due() {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CoreError> {
        self.writer
            .flush()
            .map_err(|e| CoreError::io(&self.path, e))
    }
}

/// A histogram of the finite samples, `None` if there are none.
fn histogram(tag: &str, samples: &[f32]) -> Option<Summary> {
    let finite: Vec<f64> = samples
        .iter()
        .filter(|sample| sample.is_finite())
        .map(|sample| f64::from(*sample))
        .collect();
    let low = finite.iter().copied().reduce(f64::min)?;
    let high = finite.iter().copied().reduce(f64::max)?;
    // A point mass gets a bucket of its own.
    let width = ((high - low) / BUCKETS as f64).max(f64::MIN_POSITIVE.max(low.abs() * 1e-9));
    let limits: Vec<f64> = (1..=BUCKETS).map(|i| low + width * i as f64).collect();
    let mut counts = vec![0.0; BUCKETS];
    for sample in &finite {
        let bucket = ((sample - low) / width) as usize;
        counts[bucket.min(BUCKETS - 1)] += 1.0;
    }
    let sum = finite.iter().sum();
    let squares = finite.iter().map(|sample| sample * sample).sum();
    let count = finite.len() as f64;
    Some(summary::histogram_raw(
        tag, low, high, count, sum, squares, &limits, &counts,
    ))
}

fn image(tag: &str, picture: &Picture) -> std::io::Result<Summary> {
    let mut encoded = Summary_Image::new();
    encoded.set_height(picture.height as i32);
    encoded.set_width(picture.width as i32);
    encoded.set_colorspace(3);
    encoded.set_encoded_image_string(encode_png(picture)?);
    let mut value = Summary_Value::new();
    value.set_image(encoded);
    Ok(single(tag, value))
}

/// A text, which TensorBoard knows by the plugin name in its metadata.
fn words(tag: &str, text: &str) -> Summary {
    let mut plugin = SummaryMetadata_PluginData::new();
    plugin.set_plugin_name("text".to_owned());
    let mut metadata = SummaryMetadata::new();
    metadata.set_plugin_data(plugin);
    let mut length = TensorShapeProto_Dim::new();
    length.set_size(1);
    let mut shape = TensorShapeProto::new();
    shape.set_dim(RepeatedField::from_vec(vec![length]));
    let mut tensor = TensorProto::new();
    tensor.set_dtype(DataType::DT_STRING);
    tensor.set_tensor_shape(shape);
    tensor.set_string_val(RepeatedField::from_vec(vec![text.as_bytes().to_vec()]));
    let mut value = Summary_Value::new();
    value.set_metadata(metadata);
    value.set_tensor(tensor);
    single(tag, value)
}

fn single(tag: &str, mut value: Summary_Value) -> Summary {
    value.set_tag(tag.to_owned());
    let mut summary = Summary::new();
    summary.set_value(RepeatedField::from_vec(vec![value]));
    summary
}

/// Keeps the records of events up to `last`, and drops everything from the first torn record on.
fn keep_until(bytes: &mut Vec<u8>, last: StepCount) {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = &bytes[..];
    while let Some((record, event, tail)) = split_record(rest) {
        if event.step <= last.env_steps as i64 {
            kept.extend_from_slice(record);
        }
        rest = tail;
    }
    *bytes = kept;
}

/// The first whole record of `bytes` (length u64, its checksum u32, event, its checksum u32), its event, and what follows.
fn split_record(bytes: &[u8]) -> Option<(&[u8], Event, &[u8])> {
    let length = u64::from_le_bytes(*bytes.first_chunk()?);
    let length = usize::try_from(length).ok()?;
    let data = bytes.get(12..)?.get(..length)?;
    let checksum = bytes.get(12 + length..)?.first_chunk()?;
    if u32::from_le_bytes(*checksum) != masked_crc32c(data) {
        return None;
    }
    let event = Event::parse_from_bytes(data).ok()?;
    let (record, tail) = bytes.split_at(16 + length);
    Some((record, event, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(path: &Path) -> Vec<Event> {
        let bytes = std::fs::read(path).unwrap();
        let mut rest = &bytes[..];
        let mut events = Vec::new();
        while let Some((_, event, tail)) = split_record(rest) {
            events.push(event);
            rest = tail;
        }
        assert!(rest.is_empty());
        events
    }

    fn at(env_steps: u64) -> StepCount {
        StepCount {
            env_steps,
            updates: 0,
        }
    }

    #[test]
    fn every_kind_of_value_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = TensorBoard::open(folder.path(), at(0)).unwrap();
        let picture = Picture {
            width: 3,
            height: 2,
            rgb: vec![7; 18],
        };
        for (step, value) in [
            (1, Value::Scalar(0.25)),
            (2, Value::Histogram(vec![0.0, 1.0, 1.0, f32::NAN])),
            (3, Value::Picture(picture)),
            (4, Value::Text("seed = 3".into())),
        ] {
            sink.record(at(step), "area/name", &value).unwrap();
        }
        sink.flush().unwrap();
        let events = events(&folder.path().join(FILE_NAME));
        assert_eq!(events[0].get_file_version(), "brain.Event:2");
        let value = |index: usize| &events[index].get_summary().get_value()[0];
        assert_eq!(value(1).get_simple_value(), 0.25);
        assert_eq!(value(2).get_histo().get_num(), 3.0);
        assert_eq!(value(2).get_histo().get_sum(), 2.0);
        assert_eq!(value(2).get_histo().get_bucket()[BUCKETS - 1], 2.0);
        assert_eq!(value(3).get_image().get_width(), 3);
        assert_eq!(value(4).get_tensor().get_string_val()[0], b"seed = 3");
        let steps: Vec<i64> = events.iter().map(|event| event.step).collect();
        assert_eq!(steps, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn resuming_drops_later_events_and_a_torn_tail() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let mut sink = TensorBoard::open(folder.path(), at(0)).unwrap();
        for step in [8, 16, 24] {
            sink.record(at(step), "a/b", &Value::Scalar(1.0)).unwrap();
        }
        drop(sink);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend_from_slice(&[40, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        std::fs::write(&path, bytes).unwrap();
        let mut sink = TensorBoard::open(folder.path(), at(16)).unwrap();
        sink.record(at(24), "a/b", &Value::Scalar(2.0)).unwrap();
        drop(sink);
        let steps: Vec<i64> = events(&path).iter().map(|event| event.step).collect();
        assert_eq!(steps, [0, 8, 16, 24]);
    }
}
