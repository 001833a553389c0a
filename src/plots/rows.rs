//! Named rows of estimates along one axis.

use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Plot;
use super::style::{CURVES, GRID, INK, SOFT, font, pixels, span, tick};

/// A number with an interval around it and a bound that it is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Lower and upper end of its interval, where there is one.
    pub interval: Option<(f64, f64)>,
    /// What it should not exceed, where there is such a number.
    pub bound: Option<f64>,
}

/// One estimate for each row that has one.
#[derive(Clone, Debug)]
pub struct RowSeries<'a> {
    /// Its name in the legend.
    pub name: &'a str,
    /// Estimates, one for each row.
    pub estimates: Vec<Option<Estimate>>,
}

/// Rows from top to bottom, each with a disc per series, a bar for its interval and a tick for its bound.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// Title above the plot.
    pub title: &'a str,
    /// What the axis measures, with unit or direction.
    pub x_label: &'a str,
    /// Whether the axis is logarithmic.
    pub logarithmic: bool,
    /// A level worth a line of its own, and its name.
    pub reference: Option<(f64, &'a str)>,
    /// Names of the rows.
    pub names: &'a [String],
    /// The series.
    pub series: Vec<RowSeries<'a>>,
}

impl Rows<'_> {
    /// Height of a row in units: series of one row stand below each other.
    fn height(&self) -> f64 {
        18.0 + 6.0 * self.series.len() as f64
    }

    fn usable(&self, x: f64) -> bool {
        x.is_finite() && (!self.logarithmic || x > 0.0)
    }

    fn legend(&self) -> Vec<(&str, RGBColor)> {
        let names = self.series.iter().map(|series| series.name);
        let mut entries: Vec<_> = names.zip(CURVES.into_iter().cycle()).collect();
        if entries.len() == 1 {
            entries.clear();
        }
        entries.extend(self.reference.map(|(_, name)| (name, SOFT)));
        entries
    }
}

impl Plot for Rows<'_> {
    fn size(&self) -> (u32, u32) {
        (860, 140 + (self.height() * self.names.len() as f64) as u32)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: f64,
    ) -> Result<(), String> {
        area.fill(&WHITE).map_err(|e| e.to_string())?;
        let unit = |units: f64| pixels(units, scale);
        let estimates = || {
            self.series
                .iter()
                .flat_map(|s| s.estimates.iter().flatten())
        };
        let xs = estimates()
            .flat_map(|estimate| {
                let ends = estimate.interval.map(|(low, high)| [low, high]);
                [Some(estimate.value), estimate.bound]
                    .into_iter()
                    .chain(ends.into_iter().flatten().map(Some))
                    .flatten()
            })
            .chain(self.reference.map(|reference| reference.0))
            .filter(|x| self.usable(*x));
        let x = if self.logarithmic {
            let logarithms = span(xs.map(f64::ln), 0.05);
            logarithms.start.exp()..logarithms.end.exp()
        } else {
            span(xs, 0.05)
        };
        let longest = self.names.iter().map(|name| name.chars().count()).max();
        let label_width = 24.0 + 7.4 * longest.unwrap_or(0) as f64;
        let (head, body) = area.split_vertically(unit(66.0));
        let style = font(21.0, scale, &INK).pos(Pos::new(HPos::Center, VPos::Top));
        let middle = head.dim_in_pixel().0 as i32 / 2;
        head.draw(&Text::new(self.title, (middle, unit(12.0)), style))
            .map_err(|e| e.to_string())?;
        let mut left = unit(28.0);
        for (name, colour) in self.legend() {
            let style = font(14.0, scale, &INK).pos(Pos::new(HPos::Left, VPos::Center));
            let width = style
                .font
                .box_size(name)
                .map_or(0, |(width, _)| width as i32);
            let at = (left + unit(8.0), unit(52.0));
            if colour == SOFT {
                let line = [(at.0 - unit(8.0), at.1), (at.0 + unit(6.0), at.1)];
                let stroke = SOFT.stroke_width(unit(1.2) as u32);
                head.draw(&PathElement::new(line.to_vec(), stroke))
            } else {
                head.draw(&Circle::new(at, unit(4.5), colour.filled()))
            }
            .and_then(|()| head.draw(&Text::new(name, (at.0 + unit(11.0), at.1), style)))
            .map_err(|e| e.to_string())?;
            left += width + unit(34.0);
        }
        let rows = self.names.len() as f64;
        let mut builder = ChartBuilder::on(&body);
        builder
            .margin_right(unit(24.0))
            .margin_bottom(unit(8.0))
            .x_label_area_size(unit(48.0))
            .y_label_area_size(unit(label_width));
        // The two axis types differ, so that the rest is written once, as a macro over the chart.
        macro_rules! finish {
            ($chart:expr) => {{
                let mut chart = $chart.map_err(|e| e.to_string())?;
                chart
                    .configure_mesh()
                    .disable_y_mesh()
                    .disable_y_axis()
                    .light_line_style(TRANSPARENT)
                    .bold_line_style(GRID.stroke_width(unit(1.0) as u32))
                    .axis_style(SOFT.stroke_width(unit(1.0) as u32))
                    .label_style(font(14.0, scale, &INK))
                    .axis_desc_style(font(15.0, scale, &INK))
                    .x_desc(self.x_label)
                    .x_label_formatter(&|value| tick(*value))
                    .x_labels(8)
                    .set_all_tick_mark_size(unit(4.0))
                    .draw()
                    .map_err(|e| e.to_string())?;
                let at = |x: f64, y: f64| chart.backend_coord(&(x, y));
                let draw_line = |from: (i32, i32), to: (i32, i32), style: ShapeStyle| {
                    area.draw(&PathElement::new(vec![from, to], style))
                        .map_err(|e| e.to_string())
                };
                // Coordinates of the whole area, so that marks and names share them.
                for (row, name) in self.names.iter().enumerate() {
                    let y = row as f64 + 0.5;
                    let left = at(x.start, y);
                    draw_line(left, at(x.end, y), GRID.stroke_width(unit(1.0) as u32))?;
                    let style = font(14.0, scale, &INK).pos(Pos::new(HPos::Right, VPos::Center));
                    area.draw(&Text::new(&name[..], (left.0 - unit(8.0), left.1), style))
                        .map_err(|e| e.to_string())?;
                }
                if let Some((level, _)) = self.reference {
                    let style = SOFT.stroke_width(unit(1.2) as u32);
                    draw_line(at(level, 0.0), at(level, rows), style)?;
                }
                let count = self.series.len() as f64;
                for (index, series) in self.series.iter().enumerate() {
                    let colour = CURVES[index % CURVES.len()];
                    // Series of one row stand a little apart.
                    let shift = (index as f64 - (count - 1.0) / 2.0) * (0.66 / count);
                    for (row, estimate) in series.estimates.iter().enumerate() {
                        let Some(estimate) = estimate.filter(|e| self.usable(e.value)) else {
                            continue;
                        };
                        let y = row as f64 + 0.5 + shift;
                        if let Some((low, high)) = estimate.interval {
                            let low = if self.usable(low) { low } else { x.start };
                            let style = colour.mix(0.55).stroke_width(unit(2.4) as u32);
                            draw_line(at(low, y), at(high, y), style)?;
                        }
                        if let Some(bound) = estimate.bound.filter(|b| self.usable(*b)) {
                            let (column, middle) = at(bound, y);
                            let half = unit(4.0);
                            let style = colour.stroke_width(unit(2.0) as u32);
                            draw_line((column, middle - half), (column, middle + half), style)?;
                        }
                        let disc = Circle::new(
                            at(estimate.value, y),
                            unit(if count > 2.0 { 2.8 } else { 4.2 }),
                            colour.filled(),
                        );
                        area.draw(&disc).map_err(|e| e.to_string())?;
                    }
                }
            }};
        }
        let y = rows..0.0;
        if self.logarithmic {
            // Ticks at powers of two where there are hardly any powers of ten.
            let base = if x.end / x.start < 64.0 { 2.0 } else { 10.0 };
            finish!(builder.build_cartesian_2d(x.clone().log_scale().base(base), y));
        } else {
            finish!(builder.build_cartesian_2d(x.clone(), y));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::{picture, svg};

    #[test]
    fn rows_draw_whatever_the_numbers() {
        let names: Vec<String> = ["cramer, uniform", "cramer, max", "mmd"]
            .map(String::from)
            .into();
        let estimate = |value, interval| {
            Some(Estimate {
                value,
                interval,
                bound: Some(0.9),
            })
        };
        for logarithmic in [true, false] {
            let plot = Rows {
                title: "Ratio to the sampling floor",
                x_label: "ratio",
                logarithmic,
                reference: Some((1.0, "as good as samples")),
                names: &names,
                series: vec![
                    RowSeries {
                        name: "scalar",
                        estimates: vec![
                            estimate(0.5, Some((-0.1, 1.2))),
                            None,
                            estimate(f64::NAN, None),
                        ],
                    },
                    RowSeries {
                        name: "dense",
                        estimates: vec![estimate(0.0, None), estimate(3.0, None), None],
                    },
                ],
            };
            let drawn = picture(&plot).unwrap();
            assert_eq!((drawn.width, drawn.height), (860, 230));
            assert!(svg(&plot).unwrap().contains("cramer, max"));
        }
    }
}
