//! Pictures of laws and curves, as PNG and SVG. Every function takes plain slices.

mod curves;
mod episode;
mod frame;
mod heat_map;
mod joint_law;
mod rows;
mod style;

pub use curves::{Band, Curves, Series};
pub use episode::write_gif;
pub use heat_map::HeatMap;
pub use joint_law::{JointLaws, PairGrid};
pub use rows::{Estimate, RowSeries, Rows};

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use pushforward_envs::Picture;

use crate::failure::Failure;

/// Pixels of a picture per unit of a plot: a picture is drawn this much larger and averaged down, which smooths its edges.
const SUPERSAMPLING: u32 = 2;

/// Something that can be drawn to any plotters backend.
pub trait Plot {
    /// Width and height in units (pixels of the finished picture).
    fn size(&self) -> (u32, u32);

    /// Draws to an area of `scale` times the size.
    ///
    /// # Errors
    /// What the backend reports, in words.
    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: f64,
    ) -> Result<(), String>;
}

/// Draws a plot as an RGB picture.
///
/// # Errors
/// [`Failure::Run`] with what the backend reports.
pub fn picture(plot: &impl Plot) -> Result<Picture, Failure> {
    style::register_font();
    let (width, height) = plot.size();
    let (wide, high) = (width * SUPERSAMPLING, height * SUPERSAMPLING);
    let mut fine = vec![255; (wide * high * 3) as usize];
    {
        let area = BitMapBackend::with_buffer(&mut fine, (wide, high)).into_drawing_area();
        plot.draw(&area, f64::from(SUPERSAMPLING))
            .and_then(|()| area.present().map_err(|e| e.to_string()))
            .map_err(|error| Failure::run(format!("plot: {error}")))?;
    }
    Ok(Picture {
        width: width as usize,
        height: height as usize,
        rgb: average_down(&fine, width as usize, height as usize),
    })
}

/// Draws a plot as SVG text.
///
/// # Errors
/// [`Failure::Run`] with what the backend reports.
pub fn svg(plot: &impl Plot) -> Result<String, Failure> {
    style::register_font();
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, plot.size()).into_drawing_area();
        plot.draw(&area, 1.0)
            .and_then(|()| area.present().map_err(|e| e.to_string()))
            .map_err(|error| Failure::run(format!("plot: {error}")))?;
    }
    Ok(text)
}

/// Writes a plot to `folder/name.png` and `folder/name.svg`.
///
/// # Errors
/// [`Failure::Run`] if it cannot be drawn or written.
pub fn write(plot: &impl Plot, folder: &Path, name: &str) -> Result<(), Failure> {
    let png = encode_png(&picture(plot)?).map_err(|e| Failure::run(format!("plot: {e}")))?;
    let files = [("png", png), ("svg", svg(plot)?.into_bytes())];
    for (extension, bytes) in files {
        let path = folder.join(format!("{name}.{extension}"));
        std::fs::write(&path, bytes)
            .map_err(|e| Failure::run(format!("cannot write {}: {e}", path.display())))?;
    }
    Ok(())
}

/// A picture as PNG bytes.
///
/// # Errors
/// If the picture's size does not match its bytes.
pub fn encode_png(picture: &Picture) -> std::io::Result<Vec<u8>> {
    use image::ImageEncoder;
    let mut bytes = Vec::new();
    image::codecs::png::PngEncoder::new(&mut bytes)
        .write_image(
            &picture.rgb,
            picture.width as u32,
            picture.height as u32,
            image::ExtendedColorType::Rgb8,
        )
        .map_err(std::io::Error::other)?;
    Ok(bytes)
}

/// Means over blocks of `SUPERSAMPLING` x `SUPERSAMPLING` pixels.
fn average_down(fine: &[u8], width: usize, height: usize) -> Vec<u8> {
    let block = SUPERSAMPLING as usize;
    let mut rgb = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let mut sum = 0;
                for row in y * block..(y + 1) * block {
                    for column in x * block..(x + 1) * block {
                        sum += usize::from(fine[(row * width * block + column) * 3 + channel]);
                    }
                }
                rgb.push((sum / (block * block)) as u8);
            }
        }
    }
    rgb
}
