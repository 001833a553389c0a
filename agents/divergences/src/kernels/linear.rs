//! Small dense linear systems, solved in the caller's memory.

/// Solves A z = b by elimination with partial pivoting, z in place of b; A `[n, n]`, row-major, is overwritten.
///
/// False if a pivot is 0 or not finite; then neither holds anything of use. The kernels solve thousands of such systems of n ≈ 64 inside a
/// parallel loop, hence without an allocation.
pub(crate) fn solve(matrix: &mut [f64], right: &mut [f64]) -> bool {
    let n = right.len();
    for column in 0..n {
        let size = |row: usize| matrix[row * n + column].abs();
        let pivot = (column + 1..n).fold(
            column,
            |best, row| {
                if size(row) > size(best) { row } else { best }
            },
        );
        let value = matrix[pivot * n + column];
        if value == 0.0 || !value.is_finite() {
            return false;
        }
        if pivot != column {
            let (above, below) = matrix.split_at_mut(pivot * n);
            above[column * n..column * n + n].swap_with_slice(&mut below[..n]);
            right.swap(column, pivot);
        }
        let (above, below) = matrix.split_at_mut((column + 1) * n);
        let row = &above[column * n + column + 1..];
        for (offset, other) in below.chunks_exact_mut(n).enumerate() {
            let factor = other[column] / value;
            if factor != 0.0 {
                for (out, v) in other[column + 1..].iter_mut().zip(row) {
                    *out -= factor * v;
                }
                right[column + 1 + offset] -= factor * right[column];
            }
        }
    }
    for row in (0..n).rev() {
        let tail: f64 = matrix[row * n + row + 1..(row + 1) * n]
            .iter()
            .zip(&right[row + 1..])
            .map(|(a, z)| a * z)
            .sum();
        right[row] = (right[row] - tail) / matrix[row * n + row];
    }
    right.iter().all(|z| z.is_finite())
}

#[cfg(test)]
mod tests {
    use super::solve;

    /// 0·x + 2y = 4 and 3x + y = 5: y = 2, x = 1; the first pivot is 0, so that rows must change places.
    #[test]
    fn two_equations_by_hand() {
        let (mut matrix, mut right) = ([0.0, 2.0, 3.0, 1.0], [4.0, 5.0]);
        assert!(solve(&mut matrix, &mut right));
        assert_eq!(right, [1.0, 2.0]);
    }

    #[test]
    fn a_singular_system_is_told() {
        assert!(!solve(&mut [1.0, 2.0, 2.0, 4.0], &mut [1.0, 1.0]));
    }
}
