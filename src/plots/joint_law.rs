//! Learned joint laws beside the true ones.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use pushforward_core::trainer::LawPair;

use super::Plot;
use super::frame::{CENTRED, Canvas, Frame};
use super::style::{INK, SOFT, span};

/// Coordinates shown by a [`PairGrid`]; further ones are left out.
const MOST_COORDINATES: usize = 6;

/// Joint laws in two dimensions, one panel each: the density of the truth, the learned points over it, and the marginals beside them.
#[derive(Clone, Debug)]
pub struct JointLaws<'a> {
    /// Title above the panels.
    pub title: &'a str,
    /// The laws, each with d = 2.
    pub laws: &'a [LawPair],
}

const LABELS: f64 = 62.0;
const MAIN: f64 = 360.0;
const SIDE: f64 = 62.0;
const GAP: f64 = 8.0;
const PAD: f64 = 22.0;
const HEADER: f64 = 58.0;
const CAPTION: f64 = 34.0;
const BELOW: f64 = 56.0;
const CELL_WIDTH: f64 = LABELS + MAIN + GAP + SIDE + PAD;
const CELL_HEIGHT: f64 = CAPTION + SIDE + GAP + MAIN + BELOW;

impl JointLaws<'_> {
    fn columns(&self) -> usize {
        match self.laws.len() {
            count @ 1..=3 => count,
            count => (count as f64).sqrt().ceil() as usize,
        }
    }
}

impl Plot for JointLaws<'_> {
    fn size(&self) -> (u32, u32) {
        let columns = self.columns().max(1);
        let rows = self.laws.len().div_ceil(columns);
        (
            (CELL_WIDTH * columns as f64 + PAD) as u32,
            (HEADER + CELL_HEIGHT * rows as f64) as u32,
        )
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: f64,
    ) -> Result<(), String> {
        let canvas = Canvas { area, scale };
        area.fill(&WHITE).map_err(|e| e.to_string())?;
        header(&canvas, self.title, self.laws, self.size().0)?;
        let columns = self.columns().max(1);
        for (index, law) in self.laws.iter().enumerate() {
            let left = CELL_WIDTH * (index % columns) as f64;
            let top = HEADER + CELL_HEIGHT * (index / columns) as f64;
            panel(&canvas, law, left, top)?;
        }
        Ok(())
    }
}

/// Title on the left, legend on the right, on one line if there is room for both, else on two.
fn header<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    title: &str,
    laws: &[LawPair],
    width: u32,
) -> Result<(), String> {
    let two_lines = width < 900;
    let (title_row, legend_row) = if two_lines {
        (20.0, 46.0)
    } else {
        (32.0, 32.0)
    };
    let at = (canvas.px(PAD), canvas.px(title_row));
    canvas.text(title, at, 21.0, &INK, Pos::new(HPos::Left, VPos::Center))?;
    let points = |count: usize| laws.first().map_or(0, |law| count / law.dim.max(1));
    let truth = points(laws.first().map_or(0, |law| law.truth.len()));
    let learned = points(laws.first().map_or(0, |law| law.learned.len()));
    canvas.legend(
        canvas.px(f64::from(width) - PAD),
        canvas.px(legend_row),
        &format!("truth ({truth} samples)"),
        &format!("learned ({learned} points)"),
    )
}

fn panel<B: DrawingBackend>(
    canvas: &Canvas<'_, B>,
    law: &LawPair,
    left: f64,
    top: f64,
) -> Result<(), String> {
    let px = |units: f64| canvas.px(units);
    let (truth, learned) = (
        pairs(&law.truth, law.dim, 0, 1),
        pairs(&law.learned, law.dim, 0, 1),
    );
    let (x, y) = alike(view(law, 0), view(law, 1));
    let main = Frame {
        left: px(left + LABELS),
        top: px(top + CAPTION + SIDE + GAP),
        width: px(MAIN),
        height: px(MAIN),
        x: x.clone(),
        y: y.clone(),
    };
    canvas.grid(&main, 6, true, true)?;
    canvas.density(&main, &truth)?;
    canvas.discs(&main, &learned, radius(learned.len()))?;
    canvas.border(&main)?;
    let above = Frame {
        top: px(top + CAPTION),
        height: px(SIDE),
        ..main.clone()
    };
    let first = |points: &[(f64, f64)]| points.iter().map(|p| p.0).collect::<Vec<_>>();
    let second = |points: &[(f64, f64)]| points.iter().map(|p| p.1).collect::<Vec<_>>();
    canvas.marginal(&above, &first(&truth), &first(&learned), false)?;
    let beside = Frame {
        left: px(left + LABELS + MAIN + GAP),
        width: px(SIDE),
        ..main.clone()
    };
    canvas.marginal(&beside, &second(&truth), &second(&learned), true)?;
    let centre = main.left + main.width / 2;
    let caption = (centre, px(top + CAPTION * 0.45));
    canvas.text(&law.name, caption, 17.0, &INK, CENTRED)?;
    let below = (centre, main.top + main.height + px(38.0));
    canvas.text("return, coordinate 0", below, 15.0, &INK, CENTRED)?;
    let middle = (px(left + 14.0), main.top + main.height / 2);
    canvas.upright("return, coordinate 1", middle, 15.0)
}

/// One joint law in any dimension: marginals on the diagonal, pairs below it, correlations above it.
#[derive(Clone, Debug)]
pub struct PairGrid<'a> {
    /// Title above the grid.
    pub title: &'a str,
    /// The law.
    pub law: &'a LawPair,
}

impl PairGrid<'_> {
    fn shown(&self) -> usize {
        self.law.dim.min(MOST_COORDINATES)
    }

    /// Side of a cell in units.
    fn side(&self) -> f64 {
        (760.0 / self.shown() as f64).clamp(130.0, 420.0)
    }
}

impl Plot for PairGrid<'_> {
    fn size(&self) -> (u32, u32) {
        let side = self.side() * self.shown() as f64;
        (
            (LABELS + side + PAD) as u32,
            (HEADER + CAPTION + side + BELOW) as u32,
        )
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: f64,
    ) -> Result<(), String> {
        let canvas = Canvas { area, scale };
        area.fill(&WHITE).map_err(|e| e.to_string())?;
        let (law, shown) = (self.law, self.shown());
        let laws = std::slice::from_ref(law);
        header(&canvas, self.title, laws, self.size().0)?;
        let (side, top) = (self.side(), HEADER + CAPTION);
        let name = match law.dim - shown {
            0 => law.name.clone(),
            more => format!("{} (the first {shown} coordinates; {more} more)", law.name),
        };
        let centre = canvas.px(LABELS + side * shown as f64 / 2.0);
        let caption = (centre, canvas.px(HEADER + CAPTION * 0.4));
        canvas.text(&name, caption, 17.0, &INK, CENTRED)?;
        let ticks = if shown > 4 { 3 } else { 4 };
        for row in 0..shown {
            for column in 0..shown {
                let frame = Frame {
                    left: canvas.px(LABELS + side * column as f64 + GAP / 2.0),
                    top: canvas.px(top + side * row as f64 + GAP / 2.0),
                    width: canvas.px(side - GAP),
                    height: canvas.px(side - GAP),
                    x: view(law, column),
                    y: if row == column {
                        0.0..1.0
                    } else {
                        view(law, row)
                    },
                };
                let last = row + 1 == shown;
                if row == column {
                    let only_x = Frame {
                        y: 2.0..3.0,
                        ..frame.clone()
                    };
                    canvas.grid(&only_x, ticks, last, false)?;
                    let truth = coordinate(&law.truth, law.dim, row);
                    let learned = coordinate(&law.learned, law.dim, row);
                    canvas.marginal(&frame, &truth, &learned, false)?;
                } else if row > column {
                    canvas.grid(&frame, ticks, last, column == 0)?;
                    let learned = pairs(&law.learned, law.dim, column, row);
                    canvas.density(&frame, &pairs(&law.truth, law.dim, column, row))?;
                    canvas.discs(&frame, &learned, radius(learned.len()) * 0.75)?;
                } else {
                    let middle = (frame.left + frame.width / 2, frame.top + frame.height / 2);
                    let line =
                        |points: &[f32]| match correlation(&pairs(points, law.dim, column, row)) {
                            Some(value) => format!("{value:+.2}"),
                            None => "none".to_owned(),
                        };
                    let up = canvas.px(16.0);
                    let (x, y) = middle;
                    canvas.text("correlation", (x, y - 2 * up), 13.0, &SOFT, CENTRED)?;
                    let truth = format!("truth {}", line(&law.truth));
                    canvas.text(&truth, (x, y - up / 2), 15.0, &super::style::TRUTH, CENTRED)?;
                    let learned = format!("learned {}", line(&law.learned));
                    canvas.text(&learned, (x, y + up), 15.0, &super::style::LEARNED, CENTRED)?;
                }
                canvas.border(&frame)?;
                if last {
                    let at = (
                        frame.left + frame.width / 2,
                        frame.top + frame.height + canvas.px(36.0),
                    );
                    canvas.text(&format!("coordinate {column}"), at, 14.0, &INK, CENTRED)?;
                }
                if column == 0 {
                    let at = (canvas.px(14.0), frame.top + frame.height / 2);
                    let label = if row == 0 && shown == 1 {
                        "share".to_owned()
                    } else {
                        format!("coordinate {row}")
                    };
                    canvas.upright(&label, at, 14.0)?;
                }
            }
        }
        Ok(())
    }
}

/// What one axis shows: truth and learned points with a margin, but no further than the truth's width beyond the truth.
fn view(law: &LawPair, index: usize) -> Range<f64> {
    let truth = coordinate(&law.truth, law.dim, index);
    let learned = coordinate(&law.learned, law.dim, index);
    let core = span(truth.iter().copied(), 0.06);
    let all = span(truth.into_iter().chain(learned), 0.06);
    let width = core.end - core.start;
    all.start.max(core.start - width)..all.end.min(core.end + width)
}

/// Widens the shorter of two ranges to the length of the other, unless their scales differ by more than a factor of three.
fn alike(first: Range<f64>, second: Range<f64>) -> (Range<f64>, Range<f64>) {
    let length = |range: &Range<f64>| range.end - range.start;
    let (short, long) = (
        length(&first).min(length(&second)),
        length(&first).max(length(&second)),
    );
    if short * 3.0 < long {
        return (first, second);
    }
    let widen = |range: Range<f64>| {
        let extra = (long - length(&range)) / 2.0;
        range.start - extra..range.end + extra
    };
    (widen(first), widen(second))
}

/// Radius of a disc in units, smaller for many points.
fn radius(points: usize) -> f64 {
    (4.2 * (64.0 / points.max(1) as f64).powf(0.25)).clamp(1.5, 5.0)
}

fn coordinate(points: &[f32], dim: usize, index: usize) -> Vec<f64> {
    let rows = points.chunks_exact(dim);
    rows.map(|point| f64::from(point[index])).collect()
}

fn pairs(points: &[f32], dim: usize, first: usize, second: usize) -> Vec<(f64, f64)> {
    let rows = points.chunks_exact(dim);
    rows.map(|point| (f64::from(point[first]), f64::from(point[second])))
        .collect()
}

/// Pearson correlation, `None` where a coordinate does not vary.
fn correlation(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / count;
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in points {
        xx += (x - mean_x).powi(2);
        yy += (y - mean_y).powi(2);
        xy += (x - mean_x) * (y - mean_y);
    }
    let scale = (xx * yy).sqrt();
    (scale > 1e-12).then(|| xy / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::{picture, svg};
    use pushforward_envs::StreamRng;
    use rand::Rng;

    /// Discounted sums of exclusive rewards: d = 2 or more, correlated, with atoms.
    fn law(dim: usize, name: &str, points: usize, truth: usize) -> LawPair {
        let mut rng = StreamRng::new(5, name, 0);
        let mut draw = |count: usize, blur: f32| {
            let mut cloud = Vec::new();
            for _ in 0..count {
                let mut point = vec![0.0_f32; dim];
                let mut discount = 1.0;
                for _ in 0..5 {
                    point[rng.random_range(0..dim)] += discount;
                    discount *= 0.9;
                }
                cloud.extend(point.iter().map(|x| x + blur * (rng.random::<f32>() - 0.5)));
            }
            cloud
        };
        LawPair {
            name: name.to_owned(),
            dim,
            learned: draw(points, 0.3),
            truth: draw(truth, 0.0),
        }
    }

    #[test]
    fn joint_laws_draw_one_panel_each() {
        let laws: Vec<LawPair> = ["up", "left", "down", "right"]
            .map(|action| law(2, &format!("start, {action}"), 64, 4000))
            .into();
        for count in [1, 2, 4] {
            let plot = JointLaws {
                title: "maze/exclusive: joint law of the return at the start",
                laws: &laws[..count],
            };
            let drawn = picture(&plot).unwrap();
            assert_eq!((drawn.width as u32, drawn.height as u32), plot.size());
            assert!(drawn.rgb.iter().any(|byte| *byte < 100));
            assert!(svg(&plot).unwrap().contains("start, up"));
        }
    }

    #[test]
    fn pair_grids_draw_any_dimension() {
        for dim in [1, 3, 8] {
            let law = law(dim, "start, forward", 64, 4000);
            let plot = PairGrid {
                title: "chain",
                law: &law,
            };
            assert!(picture(&plot).is_ok());
            let text = svg(&plot).unwrap();
            assert_eq!(text.contains("2 more"), dim == 8);
        }
    }

    #[test]
    fn degenerate_clouds_draw() {
        for learned in [vec![f32::NAN, 1.0], vec![], vec![1e6, -1e6]] {
            let law = LawPair {
                name: "point".into(),
                dim: 2,
                learned,
                truth: vec![0.5, 0.5, 0.5, 0.5],
            };
            let laws = [law];
            assert!(
                picture(&JointLaws {
                    title: "t",
                    laws: &laws
                })
                .is_ok()
            );
            assert!(
                picture(&PairGrid {
                    title: "t",
                    law: &laws[0]
                })
                .is_ok()
            );
        }
    }

    #[test]
    fn views_are_limited_by_the_truth() {
        let law = LawPair {
            name: "far".into(),
            dim: 2,
            learned: vec![100.0, 0.5],
            truth: vec![0.0, 0.0, 1.0, 1.0],
        };
        // The truth spans -0.06..1.06, 1.12 wide: the view ends at 1.06 + 1.12.
        let view = view(&law, 0);
        assert!(
            (view.end - 2.18).abs() < 1e-9 && view.start > -6.1,
            "{view:?}"
        );
    }

    #[test]
    fn correlation_of_three_points() {
        // x = 0,1,2 and y = 0,2,1: cov sum = (-1)(-1) + 0 + (1)(0) = 1; both variances sum to 2; 1/2.
        let value = correlation(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0)]).unwrap();
        assert!((value - 0.5).abs() < 1e-12);
        assert_eq!(correlation(&[(0.0, 1.0), (0.0, 2.0)]), None);
    }
}
