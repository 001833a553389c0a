//! An episode as an animated GIF.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use gif::{Encoder, Frame, Repeat};
use pushforward_envs::Picture;

use crate::failure::Failure;

/// How long a frame stays, in hundredths of a second.
const FRAME_DELAY: u16 = 18;
/// How long the last frame stays.
const LAST_DELAY: u16 = 150;

/// Writes the frames, which share one size, as a GIF that repeats for ever.
///
/// # Errors
/// [`Failure::Run`] if the frames differ in size or the file cannot be written.
pub fn write_gif(frames: &[Picture], path: &Path) -> Result<(), Failure> {
    let fail = |error: &dyn std::fmt::Display| {
        Failure::run(format!("cannot write {}: {error}", path.display()))
    };
    let Some(first) = frames.first() else {
        return Ok(());
    };
    let (width, height) = (first.width, first.height);
    if frames
        .iter()
        .any(|frame| (frame.width, frame.height) != (width, height))
    {
        return Err(fail(&"frames of different sizes"));
    }
    // Small pictures are enlarged by whole pixels, so that a person can see them.
    let factor = (336 / width.max(height).max(1)).max(1);
    let size = |length: usize| u16::try_from(length * factor).map_err(|e| fail(&e));
    let (wide, high) = (size(width)?, size(height)?);
    let file = BufWriter::new(File::create(path).map_err(|e| fail(&e))?);
    let mut encoder = Encoder::new(file, wide, high, &[]).map_err(|e| fail(&e))?;
    encoder.set_repeat(Repeat::Infinite).map_err(|e| fail(&e))?;
    for (index, picture) in frames.iter().enumerate() {
        let mut rgb = Vec::with_capacity(usize::from(wide) * usize::from(high) * 3);
        for y in 0..height * factor {
            for x in 0..width * factor {
                let pixel = ((y / factor) * width + x / factor) * 3;
                rgb.extend_from_slice(&picture.rgb[pixel..pixel + 3]);
            }
        }
        let mut frame = Frame::from_rgb_speed(wide, high, &rgb, 10);
        frame.delay = if index + 1 == frames.len() {
            LAST_DELAY
        } else {
            FRAME_DELAY
        };
        encoder.write_frame(&frame).map_err(|e| fail(&e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gif_has_every_frame_enlarged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("episode.gif");
        let frame = |level: u8| Picture {
            width: 84,
            height: 42,
            rgb: vec![level; 84 * 42 * 3],
        };
        write_gif(&[frame(0), frame(128), frame(255)], &path).unwrap();
        let mut decoder = gif::DecodeOptions::new()
            .read_info(File::open(&path).unwrap())
            .unwrap();
        // 336 / 84 = 4 times as large.
        assert_eq!((decoder.width(), decoder.height()), (336, 168));
        let mut delays = Vec::new();
        while let Some(frame) = decoder.read_next_frame().unwrap() {
            delays.push(frame.delay);
        }
        assert_eq!(delays, [18, 18, 150]);
    }
}
