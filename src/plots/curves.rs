//! Curves over the course of training.

use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use super::Plot;
use super::style::{CURVES, GRID, INK, SOFT, font, pixels, span, tick};

/// One curve.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// Its name in the legend.
    pub name: &'a str,
    /// Points (x, y) with x ascending; points that are not finite, or not positive on a logarithmic axis, are left out.
    pub points: &'a [(f64, f64)],
    /// An interval around the curve, if there is one.
    pub band: Option<Band<'a>>,
}

/// An interval at each point of a curve.
#[derive(Clone, Copy, Debug)]
pub struct Band<'a> {
    /// Lower ends.
    pub low: &'a [f64],
    /// Upper ends.
    pub high: &'a [f64],
}

/// Several curves on shared axes.
#[derive(Clone, Debug)]
pub struct Curves<'a> {
    /// Title above the plot.
    pub title: &'a str,
    /// What the x axis counts.
    pub x_label: &'a str,
    /// What the y axis measures, with unit or direction.
    pub y_label: &'a str,
    /// Whether the y axis is logarithmic.
    pub logarithmic: bool,
    /// A level worth a line of its own, and its name.
    pub reference: Option<(f64, &'a str)>,
    /// The curves.
    pub series: Vec<Series<'a>>,
}

impl Curves<'_> {
    fn usable(&self, y: f64) -> bool {
        y.is_finite() && (!self.logarithmic || y > 0.0)
    }
}

impl Plot for Curves<'_> {
    fn size(&self) -> (u32, u32) {
        (860, 480)
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: f64,
    ) -> Result<(), String> {
        area.fill(&WHITE).map_err(|e| e.to_string())?;
        let points = || self.series.iter().flat_map(|series| series.points);
        let x = span(points().map(|point| point.0), 0.0);
        let ys = points()
            .map(|point| point.1)
            .chain(self.reference.map(|reference| reference.0))
            .chain(self.series.iter().flat_map(|series| {
                let ends = series.band.map(|band| band.low.iter().chain(band.high));
                ends.into_iter().flatten().copied()
            }))
            .filter(|y| self.usable(*y));
        let y = if self.logarithmic {
            let logarithms = span(ys.map(f64::ln), 0.08);
            logarithms.start.exp()..logarithms.end.exp()
        } else {
            span(ys, 0.08)
        };
        let unit = |units: f64| pixels(units, scale);
        let mut builder = ChartBuilder::on(area);
        builder
            .caption(self.title, font(21.0, scale, &INK))
            .margin(unit(16.0))
            .x_label_area_size(unit(48.0))
            .y_label_area_size(unit(64.0));
        // The two axis types differ, so that the rest is written once, as a macro over the chart.
        macro_rules! finish {
            ($chart:expr) => {{
                let mut chart = $chart.map_err(|e| e.to_string())?;
                chart
                    .configure_mesh()
                    .light_line_style(TRANSPARENT)
                    .bold_line_style(GRID.stroke_width(unit(1.0) as u32))
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
                if let Some((level, name)) = self.reference {
                    let dash = unit(6.0);
                    chart
                        .draw_series(DashedLineSeries::new(
                            [(x.start, level), (x.end, level)],
                            dash,
                            dash,
                            SOFT.stroke_width(unit(1.2) as u32),
                        ))
                        .map_err(|e| e.to_string())?
                        .label(name)
                        .legend(move |(x, y)| {
                            PathElement::new(
                                [(x, y), (x + unit(20.0), y)],
                                SOFT.stroke_width(unit(1.2) as u32),
                            )
                        });
                }
                for (index, series) in self.series.iter().enumerate() {
                    let colour = CURVES[index % CURVES.len()];
                    if let Some(band) = series.band {
                        let ends = series.points.iter().zip(band.low.iter().zip(band.high));
                        let ends: Vec<_> = ends
                            .filter(|(_, (low, high))| self.usable(**low) && self.usable(**high))
                            .collect();
                        let outline = ends.iter().map(|(point, (low, _))| (point.0, **low)).chain(
                            ends.iter()
                                .rev()
                                .map(|(point, (_, high))| (point.0, **high)),
                        );
                        chart
                            .draw_series(std::iter::once(Polygon::new(
                                outline.collect::<Vec<_>>(),
                                colour.mix(0.16),
                            )))
                            .map_err(|e| e.to_string())?;
                    }
                    let usable = series.points.iter().copied().filter(|p| self.usable(p.1));
                    chart
                        .draw_series(LineSeries::new(
                            usable,
                            colour.stroke_width(unit(1.8) as u32),
                        ))
                        .map_err(|e| e.to_string())?
                        .label(series.name)
                        .legend(move |(x, y)| {
                            PathElement::new(
                                [(x, y), (x + unit(20.0), y)],
                                colour.stroke_width(unit(2.0) as u32),
                            )
                        });
                }
                if self.series.len() > 1 || self.reference.is_some() {
                    chart
                        .configure_series_labels()
                        .position(SeriesLabelPosition::UpperRight)
                        .margin(unit(10.0))
                        .legend_area_size(unit(26.0))
                        .background_style(WHITE.mix(0.85))
                        .border_style(GRID)
                        .label_font(font(14.0, scale, &INK))
                        .draw()
                        .map_err(|e| e.to_string())?;
                }
            }};
        }
        if self.logarithmic {
            finish!(builder.build_cartesian_2d(x.clone(), y.log_scale()));
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
    fn curves_draw_whatever_the_numbers() {
        let falling: Vec<(f64, f64)> = (1..50)
            .map(|i| (f64::from(i) * 100.0, 8.0 / f64::from(i)))
            .collect();
        let odd = [(0.0, f64::NAN), (10.0, 0.0), (20.0, -1.0)];
        for points in [&falling[..], &odd, &[]] {
            for logarithmic in [true, false] {
                let plot = Curves {
                    title: "Error of the learned law",
                    x_label: "updates",
                    y_label: "ratio to floor",
                    logarithmic,
                    reference: Some((1.0, "64 true samples")),
                    series: vec![Series {
                        name: "learned",
                        points,
                        band: None,
                    }],
                };
                let drawn = picture(&plot).unwrap();
                assert_eq!((drawn.width, drawn.height), (860, 480));
                assert!(svg(&plot).unwrap().contains("ratio to floor"));
            }
        }
    }
}
