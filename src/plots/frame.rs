//! Rectangles with two axes, and the marks that are drawn into them, in pixels.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::element::{Drawable, PointCollection};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::style::{GRID, INK, LEARNED, SOFT, TRUTH, font, pixels, shade, tick};

/// Where a text stands relative to its point.
pub const CENTRED: Pos = Pos {
    h_pos: HPos::Center,
    v_pos: VPos::Center,
};

/// A rectangle in pixels with the ranges of its axes.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Left edge.
    pub left: i32,
    /// Top edge.
    pub top: i32,
    /// Width.
    pub width: i32,
    /// Height.
    pub height: i32,
    /// Range from left to right.
    pub x: Range<f64>,
    /// Range from bottom to top.
    pub y: Range<f64>,
}

/// An area to draw on, with its scale.
pub struct Canvas<'a, B: DrawingBackend> {
    /// The area.
    pub area: &'a DrawingArea<B, Shift>,
    /// Pixels per unit.
    pub scale: f64,
}

impl Frame {
    fn column(&self, x: f64) -> i32 {
        let t = (x - self.x.start) / (self.x.end - self.x.start);
        self.left + (t * f64::from(self.width)).round() as i32
    }

    fn row(&self, y: f64) -> i32 {
        let t = (y - self.y.start) / (self.y.end - self.y.start);
        self.top + self.height - (t * f64::from(self.height)).round() as i32
    }

    fn holds(&self, x: f64, y: f64) -> bool {
        self.x.contains(&x) && self.y.contains(&y)
    }
}

impl<B: DrawingBackend> Canvas<'_, B> {
    /// Units as pixels.
    pub fn px(&self, units: f64) -> i32 {
        pixels(units, self.scale)
    }

    /// Draws one element.
    pub fn draw<'e, E>(&self, element: &'e E) -> Result<(), String>
    where
        &'e E: PointCollection<'e, (i32, i32)>,
        E: Drawable<B>,
    {
        self.area.draw(element).map_err(|e| e.to_string())
    }

    /// Writes a text of `size` units, anchored at `at`.
    pub fn text(
        &self,
        text: &str,
        at: (i32, i32),
        size: f64,
        colour: &RGBColor,
        anchor: Pos,
    ) -> Result<(), String> {
        let style = font(size, self.scale, colour).pos(anchor);
        self.draw(&Text::new(text, at, style))
    }

    /// Writes a text of `size` units that reads upwards, centred at `at`.
    pub fn upright(&self, text: &str, at: (i32, i32), size: f64) -> Result<(), String> {
        let style = ("sans-serif", size * self.scale)
            .into_font()
            .transform(FontTransform::Rotate270)
            .into_text_style(&(1, 1))
            .color(&INK)
            .pos(CENTRED);
        self.draw(&Text::new(text, at, style))
    }

    fn line(&self, from: (i32, i32), to: (i32, i32), style: ShapeStyle) -> Result<(), String> {
        self.draw(&PathElement::new(vec![from, to], style))
    }

    /// The frame's border.
    pub fn border(&self, frame: &Frame) -> Result<(), String> {
        let corners = [
            (frame.left, frame.top),
            (frame.left + frame.width, frame.top + frame.height),
        ];
        self.draw(&Rectangle::new(
            corners,
            SOFT.mix(0.7).stroke_width(self.px(1.0) as u32),
        ))
    }

    /// Grid lines with, where asked, tick labels below and to the left.
    pub fn grid(
        &self,
        frame: &Frame,
        ticks: usize,
        label_x: bool,
        label_y: bool,
    ) -> Result<(), String> {
        let thin = GRID.stroke_width(self.px(1.0) as u32);
        let keys =
            |range: &Range<f64>| RangedCoordf64::from(range.clone()).key_points(LightPoints(ticks));
        let (bottom, right) = (frame.top + frame.height, frame.left + frame.width);
        for x in keys(&frame.x) {
            let column = frame.column(x);
            self.line((column, frame.top), (column, bottom), thin)?;
            if label_x {
                let at = (column, bottom + self.px(6.0));
                self.text(&tick(x), at, 13.0, &INK, Pos::new(HPos::Center, VPos::Top))?;
            }
        }
        for y in keys(&frame.y) {
            let row = frame.row(y);
            self.line((frame.left, row), (right, row), thin)?;
            if label_y {
                let at = (frame.left - self.px(7.0), row);
                self.text(
                    &tick(y),
                    at,
                    13.0,
                    &INK,
                    Pos::new(HPos::Right, VPos::Center),
                )?;
            }
        }
        Ok(())
    }

    /// The density of a cloud as shades, on cells of about 3 units.
    pub fn density(&self, frame: &Frame, points: &[(f64, f64)]) -> Result<(), String> {
        let cells = (frame.width / self.px(3.0)).max(8) as usize;
        let cell = |value: f64, range: &Range<f64>| {
            let t = (value - range.start) / (range.end - range.start);
            ((t * cells as f64) as usize).min(cells - 1)
        };
        let mut counts = vec![0.0; cells * cells];
        for &(x, y) in points.iter().filter(|point| frame.holds(point.0, point.1)) {
            counts[cell(y, &frame.y) * cells + cell(x, &frame.x)] += 1.0;
        }
        // Passes of a binomial blur with a standard deviation of √(6/2) cells, so that atoms are blobs one can see.
        for _ in 0..6 {
            counts = blurred(&counts, cells);
        }
        let top = counts.iter().copied().fold(0.0, f64::max);
        let edge = |index: usize, length: i32| (index as i32 * length) / cells as i32;
        for (index, count) in counts.iter().enumerate() {
            // A root, so that rare outcomes show beside common ones.
            let level = (count / top).powf(0.4);
            if level > 0.06 {
                let (row, column) = (index / cells, index % cells);
                let bottom = frame.top + frame.height;
                let corners = [
                    (
                        frame.left + edge(column, frame.width),
                        bottom - edge(row + 1, frame.height),
                    ),
                    (
                        frame.left + edge(column + 1, frame.width),
                        bottom - edge(row, frame.height),
                    ),
                ];
                self.draw(&Rectangle::new(corners, shade(level).filled()))?;
            }
        }
        Ok(())
    }

    /// A cloud as discs with a white rim.
    pub fn discs(&self, frame: &Frame, points: &[(f64, f64)], radius: f64) -> Result<(), String> {
        for &(x, y) in points.iter().filter(|point| frame.holds(point.0, point.1)) {
            let at = (frame.column(x), frame.row(y));
            let rim = self.px(radius + 0.9);
            self.draw(&Circle::new(at, rim, WHITE.mix(0.8).filled()))?;
            self.draw(&Circle::new(at, self.px(radius), LEARNED.mix(0.9).filled()))?;
        }
        Ok(())
    }

    /// Histograms of one coordinate: the truth filled, the learned law as an outline. `sideways` puts the axis of values upright.
    pub fn marginal(
        &self,
        frame: &Frame,
        truth: &[f64],
        learned: &[f64],
        sideways: bool,
    ) -> Result<(), String> {
        let (values, length) = if sideways {
            (&frame.y, frame.height)
        } else {
            (&frame.x, frame.width)
        };
        let bins = (length / self.px(7.0)).max(8) as usize;
        let truth = shares(truth, values, bins);
        let learned = shares(learned, values, bins);
        let top = truth.iter().chain(&learned).copied().fold(0.0, f64::max);
        if top <= 0.0 {
            return Ok(());
        }
        let along = |bin: usize| (bin as i32 * length) / bins as i32;
        let height = |share: f64| {
            let room = if sideways { frame.width } else { frame.height };
            (share / top * f64::from(room) * 0.94).round() as i32
        };
        let bottom = frame.top + frame.height;
        let place = |bin: usize, share: f64| {
            if sideways {
                (frame.left + height(share), bottom - along(bin))
            } else {
                (frame.left + along(bin), bottom - height(share))
            }
        };
        for (bin, share) in truth.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let corners = [place(bin, 0.0), place(bin + 1, *share)];
            self.draw(&Rectangle::new(corners, TRUTH.mix(0.45).filled()))?;
        }
        let mut outline = vec![place(0, 0.0)];
        for (bin, share) in learned.iter().enumerate() {
            outline.push(place(bin, *share));
            outline.push(place(bin + 1, *share));
        }
        outline.push(place(bins, 0.0));
        let width = self.px(1.6) as u32;
        self.draw(&PathElement::new(outline, LEARNED.stroke_width(width)))
    }

    /// A swatch of the truth and one of the learned law with their names, ending at the right edge `right`.
    pub fn legend(
        &self,
        right: i32,
        middle: i32,
        truth: &str,
        learned: &str,
    ) -> Result<(), String> {
        let anchor = Pos::new(HPos::Left, VPos::Center);
        let width = |text: &str| -> Result<i32, String> {
            let style = font(15.0, self.scale, &INK);
            let (width, _) = self
                .area
                .estimate_text_size(text, &style)
                .map_err(|e| e.to_string())?;
            Ok(width as i32)
        };
        let mut x = right - width(learned)?;
        self.text(learned, (x, middle), 15.0, &INK, anchor)?;
        x -= self.px(13.0);
        let disc = Circle::new((x, middle), self.px(5.0), LEARNED.filled());
        self.draw(&disc)?;
        x -= self.px(24.0) + width(truth)?;
        self.text(truth, (x, middle), 15.0, &INK, anchor)?;
        x -= self.px(20.0);
        let half = self.px(6.0);
        self.draw(&Rectangle::new(
            [(x, middle - half), (x + 2 * half, middle + half)],
            shade(0.8).filled(),
        ))
    }
}

/// Asks plotters for about this many labelled ticks.
struct LightPoints(usize);

impl KeyPointHint for LightPoints {
    fn max_num_points(&self) -> usize {
        self.0
    }

    fn weight(&self) -> plotters::coord::ranged1d::KeyPointWeight {
        plotters::coord::ranged1d::KeyPointWeight::Bold
    }

    fn bold_points(&self) -> usize {
        self.0
    }
}

/// Share of the values in each bin over `range`.
fn shares(values: &[f64], range: &Range<f64>, bins: usize) -> Vec<f64> {
    let mut shares = vec![0.0; bins];
    let inside = values.iter().filter(|value| range.contains(value));
    for value in inside {
        let t = (value - range.start) / (range.end - range.start);
        shares[((t * bins as f64) as usize).min(bins - 1)] += 1.0 / values.len() as f64;
    }
    shares
}

/// A binomial (1, 2, 1)/4 blur along both axes of a square grid.
fn blurred(grid: &[f64], side: usize) -> Vec<f64> {
    let mut result = grid.to_vec();
    for stride in [1, side] {
        let before = result.clone();
        for (index, value) in result.iter_mut().enumerate() {
            let position = (index / stride) % side;
            let left = if position > 0 {
                before[index - stride]
            } else {
                0.0
            };
            let right = if position + 1 < side {
                before[index + stride]
            } else {
                0.0
            };
            *value = 0.25 * left + 0.5 * before[index] + 0.25 * right;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_count_what_is_inside() {
        // 0.1 and 0.4 in [0, 0.5), 0.6 in [0.5, 1), 2 outside: 2/4 and 1/4.
        assert_eq!(shares(&[0.1, 0.6, 0.4, 2.0], &(0.0..1.0), 2), [0.5, 0.25]);
    }

    #[test]
    fn a_blur_spreads_one_cell_over_nine() {
        let mut grid = vec![0.0; 25];
        grid[12] = 16.0;
        let blurred = blurred(&grid, 5);
        assert_eq!(blurred[6..9], [1.0, 2.0, 1.0]);
        assert_eq!(blurred[11..14], [2.0, 4.0, 2.0]);
        assert_eq!(blurred[16..19], [1.0, 2.0, 1.0]);
    }
}
