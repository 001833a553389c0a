//! Fonts, colours and scales that all plots share.

use std::ops::Range;
use std::sync::Once;

use plotters::prelude::*;
use plotters::style::register_font as register;

/// The colour of the truth.
pub const TRUTH: RGBColor = RGBColor(38, 97, 156);
/// The colour of what was learned.
pub const LEARNED: RGBColor = RGBColor(226, 88, 34);
/// Text and axes.
pub const INK: RGBColor = RGBColor(52, 58, 64);
/// Secondary text.
pub const SOFT: RGBColor = RGBColor(108, 117, 125);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(233, 236, 239);
/// Colours of several curves in one plot.
pub const CURVES: [RGBColor; 6] = [
    RGBColor(38, 97, 156),
    RGBColor(226, 88, 34),
    RGBColor(46, 139, 87),
    RGBColor(142, 68, 173),
    RGBColor(193, 154, 31),
    RGBColor(90, 90, 90),
];

/// Makes the built-in font known to plotters, once.
pub fn register_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The font is a constant of a crate that exists for it; a plot without it fails and says so.
        let _ = register(
            "sans-serif",
            FontStyle::Normal,
            epaint_default_fonts::UBUNTU_LIGHT,
        );
    });
}

/// Text of `size` units at `scale`.
pub fn font(size: f64, scale: f64, colour: &RGBColor) -> TextStyle<'_> {
    ("sans-serif", size * scale)
        .into_font()
        .into_text_style(&(1, 1))
        .color(colour)
}

/// Lengths in units as pixels at `scale`.
pub fn pixels(units: f64, scale: f64) -> i32 {
    (units * scale).round() as i32
}

/// White to deep blue as `level` goes from 0 to 1.
pub fn shade(level: f64) -> RGBColor {
    const STOPS: [(f64, [f64; 3]); 5] = [
        (0.0, [255.0, 255.0, 255.0]),
        (0.2, [222.0, 235.0, 247.0]),
        (0.5, [158.0, 202.0, 225.0]),
        (0.8, [66.0, 146.0, 198.0]),
        (1.0, [16.0, 78.0, 139.0]),
    ];
    let level = level.clamp(0.0, 1.0);
    let upper = STOPS.iter().position(|stop| level <= stop.0).unwrap_or(4);
    let (high, above) = STOPS[upper.max(1)];
    let (low, below) = STOPS[upper.max(1) - 1];
    let t = (level - low) / (high - low);
    let channel = |i: usize| (below[i] + t * (above[i] - below[i])).round() as u8;
    RGBColor(channel(0), channel(1), channel(2))
}

/// A range that holds all finite values with a margin; a point gets one unit.
pub fn span(values: impl Iterator<Item = f64>, margin: f64) -> Range<f64> {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    if low > high {
        return 0.0..1.0;
    }
    let width = high - low;
    if width <= low.abs().max(1e-9) * 1e-6 {
        return low - 0.5..high + 0.5;
    }
    low - margin * width..high + margin * width
}

/// A number with as few digits as tell it apart at the scale of a tick.
pub fn tick(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || size < 1e-12 {
        "0".to_owned()
    } else if size >= 1e6 {
        trimmed(format!("{:.2}", value / 1e6)) + "M"
    } else if size >= 1e4 {
        trimmed(format!("{:.1}", value / 1e3)) + "k"
    } else if size >= 1e-3 {
        trimmed(format!("{value:.3}"))
    } else {
        format!("{value:.0e}")
    }
}

/// Without trailing zeros after the point.
fn trimmed(number: String) -> String {
    if number.contains('.') {
        number
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (-2.0, "-2"),
            (25_000.0, "25k"),
            (2_500_000.0, "2.5M"),
            (0.0001, "1e-4"),
        ] {
            assert_eq!(tick(value), expected);
        }
    }

    #[test]
    fn spans_hold_points_and_nothing() {
        // 1 to 3 is 2 wide, a tenth of which on each side is 0.2.
        assert_eq!(span([3.0, 1.0, f64::NAN].into_iter(), 0.1), 0.8..3.2);
        assert_eq!(span([2.0].into_iter(), 0.1), 1.5..2.5);
        assert_eq!(span(std::iter::empty(), 0.1), 0.0..1.0);
    }

    #[test]
    fn shades_run_from_white_to_blue() {
        assert_eq!(shade(0.0), RGBColor(255, 255, 255));
        assert_eq!(shade(1.0), RGBColor(16, 78, 139));
        // Halfway from the stop at 0.5 to that at 0.8: (158 + 66)/2, (202 + 146)/2, (225 + 198)/2 rounded.
        assert_eq!(shade(0.65), RGBColor(112, 174, 212));
    }
}
