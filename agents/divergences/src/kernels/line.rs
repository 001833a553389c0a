//! Two weighted samples on a line.

/// Two samples on a line; point i of x has weight `mass_x[i] / total`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub x: &'a [f64],
    pub y: &'a [f64],
    pub mass_x: &'a [f64],
    pub mass_y: &'a [f64],
    pub total: f64,
}

/// Working memory of the kernels on the line.
#[derive(Debug, Default)]
pub(crate) struct LineScratch {
    /// Sorted (value, index) pairs; indices from N on are points of y.
    pub pooled: Vec<(f64, u32)>,
    /// Sorted (value, index) pairs of y alone.
    pub second: Vec<(f64, u32)>,
}

/// Fills `out` with the values of `points` and their indices counted from `first`, then sorts by value and index.
pub(crate) fn sort_into(out: &mut Vec<(f64, u32)>, points: &[f64], first: usize) {
    out.clear();
    append(out, points, first);
    sort(out);
}

/// Appends values with their indices counted from `first`.
pub(crate) fn append(out: &mut Vec<(f64, u32)>, points: &[f64], first: usize) {
    out.extend(
        points
            .iter()
            .enumerate()
            .map(|(i, &v)| (v, (first + i) as u32)),
    );
}

/// Sorts by value, ties by index, so that the order never depends on the sorting method.
pub(crate) fn sort(pairs: &mut [(f64, u32)]) {
    pairs.sort_unstable_by(|a, b| {
        a.0.partial_cmp(&b.0)
            .unwrap_or(std::cmp::Ordering::Equal)
            .then(a.1.cmp(&b.1))
    });
}
