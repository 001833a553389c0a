//! A grid of numbers as colours.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Plot;
use super::style::{INK, SOFT, font, pixels, shade, tick};

/// Values >= 0 on a grid, columns at x = 0, 1, ...; deeper is more.
#[derive(Clone, Debug)]
pub struct HeatMap<'a> {
    /// Title above the plot.
    pub title: &'a str,
    /// What the columns are.
    pub x_label: &'a str,
    /// What the rows are.
    pub y_label: &'a str,
    /// Number of columns.
    pub columns: usize,
    /// Values `[rows, columns]`, the first row at the bottom.
    pub values: &'a [f32],
    /// y at the lower edge of the first row and at the upper edge of the last.
    pub y: Range<f64>,
}

/// The power that a value's share of the largest is shown with, so that thin parts of a crowd are seen beside thick ones.
const POWER: f64 = 0.4;

impl Plot for HeatMap<'_> {
    fn size(&self) -> (u32, u32) {
        (860, 520)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: f64,
    ) -> Result<(), String> {
        area.fill(&WHITE).map_err(|e| e.to_string())?;
        let unit = |units: f64| pixels(units, scale);
        let columns = self.columns.max(1);
        let rows = self.values.len() / columns;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, font(21.0, scale, &INK))
            .margin(unit(16.0))
            .x_label_area_size(unit(48.0))
            .y_label_area_size(unit(64.0))
            .build_cartesian_2d(-0.5..columns as f64 - 0.5, self.y.clone())
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(SOFT.stroke_width(unit(1.0) as u32))
            .label_style(font(14.0, scale, &INK))
            .axis_desc_style(font(15.0, scale, &INK))
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_label_formatter(&|value| tick(*value))
            .y_label_formatter(&|value| tick(*value))
            .x_labels(8)
            .y_labels(7)
            .set_all_tick_mark_size(unit(4.0))
            .draw()
            .map_err(|e| e.to_string())?;
        let largest = self.values.iter().copied().fold(0.0, f32::max);
        let height = (self.y.end - self.y.start) / rows.max(1) as f64;
        let cells = self.values.iter().enumerate().filter(|(_, v)| **v > 0.0);
        let rectangles = cells.map(|(index, value)| {
            let (row, column) = (index / columns, (index % columns) as f64);
            let bottom = self.y.start + row as f64 * height;
            let level = f64::from(value / largest).powf(POWER);
            Rectangle::new(
                [(column - 0.5, bottom), (column + 0.5, bottom + height)],
                shade(level).filled(),
            )
        });
        chart
            .draw_series(rectangles)
            .map(drop)
            .map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::picture;

    /// Two rows of three columns with one full cell, bottom right: the lower right of the plot is deep, the upper left white.
    #[test]
    fn the_first_row_is_at_the_bottom() {
        let plot = HeatMap {
            title: "population",
            x_label: "step",
            y_label: "state",
            columns: 3,
            values: &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
            y: 0.0..2.0,
        };
        let drawn = picture(&plot).unwrap();
        let at = |x: usize, y: usize| &drawn.rgb[(y * drawn.width + x) * 3..][..3];
        assert_eq!(at(760, 400), [16, 78, 139]);
        assert_eq!(at(200, 120), [255, 255, 255]);
        assert_eq!(at(760, 120), [255, 255, 255]);
    }
}
