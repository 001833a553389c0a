//! Sorting eight columns at once: a sorting network over rows of eight lanes, without branches.
//!
//! Each row holds one key of each of eight independent columns, so a comparator is one vector minimum and one vector maximum. Blocks of 16 rows are
//! sorted by Green's 60-comparator network; bitonic merges, three or four levels per pass over memory, join them.

use super::simd::{Row, Simd};

/// Comparators by name: puts the lane-wise smaller keys in the first row of each pair, the larger in the second.
///
/// Written out, not looped over, so that the rows stay in registers.
macro_rules! exchange {
    ($s:ident, $rows:ident; $($low:literal $high:literal),*) => {
        $(
            let (a, b) = ($rows[$low], $rows[$high]);
            $rows[$low] = $s.min_unsigned(a, b);
            $rows[$high] = $s.max_unsigned(a, b);
        )*
    };
}

/// Loads N rows, runs comparators, stores them.
macro_rules! in_registers {
    ($s:ident, $block:expr, $count:literal, $at:expr; $($pairs:tt)*) => {{
        let block: &mut [Row<u32>] = $block;
        let at = $at;
        // Plain loops throughout: vector code in a closure would be compiled outside the function that has AVX2 enabled.
        let mut rows = [$s.splat_int(0); $count];
        for k in 0..$count {
            rows[k] = $s.load_int(&block[at(k)]);
        }
        exchange!($s, rows; $($pairs)*);
        for k in 0..$count {
            $s.store_int(rows[k], &mut block[at(k)]);
        }
    }};
}

/// Green's network for 16 rows.
#[inline(always)]
fn sort_16<S: Simd>(s: S, block: &mut [Row<u32>]) {
    in_registers!(s, &mut block[..16], 16, |k: usize| k;
        0 13, 1 12, 2 15, 3 14, 4 8, 5 6, 7 11, 9 10, 0 5, 1 7, 2 9, 3 4, 6 13, 8 14, 10 15, 11 12, 0 1, 2 3, 4 5, 6 8, 7 9, 10 11, 12 13, 14 15, 0 2, 1 3, 4 10, 5 11, 6 7, 8 9, 12 14, 13 15, 1 2, 3 12, 4 6, 5 7, 8 10, 9 11, 13 14, 1 4, 2 6, 5 8, 7 10, 9 13, 11 14, 2 4, 3 6, 9 12, 11 13, 3 5, 6 8, 7 9, 10 12, 3 4, 5 6, 7 8, 9 10, 11 12, 6 7, 8 9
    );
}

/// Half-cleaners with strides 8, 4, 2, 1: sorts 16 rows that are bitonic.
#[inline(always)]
fn clean_16<S: Simd>(s: S, block: &mut [Row<u32>]) {
    in_registers!(s, &mut block[..16], 16, |k: usize| k;
        0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15, 0 4, 1 5, 2 6, 3 7, 8 12, 9 13, 10 14, 11 15, 0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15, 0 1, 2 3, 4 5, 6 7, 8 9, 10 11, 12 13, 14 15
    );
}

/// Half-cleaners with strides 4, 2, 1.
#[inline(always)]
fn clean_8<S: Simd>(s: S, block: &mut [Row<u32>]) {
    in_registers!(s, &mut block[..8], 8, |k: usize| k;
        0 4, 1 5, 2 6, 3 7, 0 2, 1 3, 4 6, 5 7, 0 1, 2 3, 4 5, 6 7
    );
}

/// Half-cleaners with strides 2, 1.
#[inline(always)]
fn clean_4<S: Simd>(s: S, block: &mut [Row<u32>]) {
    in_registers!(s, &mut block[..4], 4, |k: usize| k;
        0 2, 1 3, 0 1, 2 3
    );
}

/// The first three levels of a bitonic merge of two sorted halves, for the eight rows that they connect.
///
/// Level one compares row r with its mirror image, so both halves may be ascending: rows i + k·step of the lower half meet
/// rows (step-1-i) + (7-k)·step of the upper half.
#[inline(always)]
fn merge_top<S: Simd>(s: S, block: &mut [Row<u32>], i: usize, step: usize) {
    let block = &mut block[..8 * step];
    in_registers!(s, block, 8, |k: usize| if k < 4 { i + k * step } else { step - 1 - i + k * step };
        0 7, 1 6, 2 5, 3 4, 0 2, 1 3, 4 6, 5 7, 0 1, 2 3, 4 5, 6 7
    );
}

/// Sorts every lane in ascending order; the number of rows is a power of two and at least 16.
#[inline(always)]
pub(crate) fn sort<S: Simd>(s: S, rows: &mut [Row<u32>]) {
    let count = rows.len();
    debug_assert!(count.is_power_of_two() && count >= 16);
    for block in rows.chunks_exact_mut(16) {
        sort_16(s, block);
    }
    let mut size = 32;
    while size <= count {
        let step = size / 8;
        for block in rows.chunks_exact_mut(size) {
            for i in 0..step {
                merge_top(s, block, i, step);
            }
            let mut stride = step;
            while stride > 16 {
                stride /= 2;
                for sub in block.chunks_exact_mut(2 * stride) {
                    let (low, high) = sub.split_at_mut(stride);
                    for (low, high) in low.iter_mut().zip(high) {
                        let (a, b) = (s.load_int(low), s.load_int(high));
                        s.store_int(s.min_unsigned(a, b), low);
                        s.store_int(s.max_unsigned(a, b), high);
                    }
                }
            }
            match stride {
                4 => {
                    for sub in block.chunks_exact_mut(4) {
                        clean_4(s, sub);
                    }
                }
                8 => {
                    for sub in block.chunks_exact_mut(8) {
                        clean_8(s, sub);
                    }
                }
                _ => {
                    for sub in block.chunks_exact_mut(16) {
                        clean_16(s, sub);
                    }
                }
            }
        }
        size *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::simd::{LANES, Portable};
    use rand::RngCore;

    /// The same network as the AVX2 build, on any machine.
    fn sort(rows: &mut [Row<u32>]) {
        super::sort(Portable, rows);
    }

    /// Zero-one principle: a network that sorts all 2^16 inputs of zeros and ones sorts everything.
    #[test]
    fn sixteen_rows_are_sorted_by_the_zero_one_principle() {
        for block in 0..(1_u32 << 16) / 8 {
            let mut rows = [Row([0; LANES]); 16];
            for lane in 0..LANES as u32 {
                for (bit, row) in rows.iter_mut().enumerate() {
                    row.0[lane as usize] = ((block * 8 + lane) >> bit) & 1;
                }
            }
            sort(&mut rows);
            for pair in rows.windows(2) {
                assert!((0..LANES).all(|lane| pair[0].0[lane] <= pair[1].0[lane]));
            }
        }
    }

    #[test]
    fn every_size_agrees_with_the_standard_sort() {
        let mut rng = pushforward_envs::StreamRng::new(3, "network", 0);
        for count in [16, 32, 64, 128, 256, 512] {
            for bits in [2, 32] {
                let mut rows = vec![Row([0; LANES]); count];
                for row in &mut rows {
                    for key in &mut row.0 {
                        *key = rng.next_u32() >> (32 - bits);
                    }
                }
                let mut expected: Vec<Vec<u32>> = (0..LANES)
                    .map(|lane| rows.iter().map(|row| row.0[lane]).collect())
                    .collect();
                sort(&mut rows);
                for (lane, column) in expected.iter_mut().enumerate() {
                    column.sort_unstable();
                    let got: Vec<u32> = rows.iter().map(|row| row.0[lane]).collect();
                    assert_eq!(&got, column, "{count} rows, lane {lane}");
                }
            }
        }
    }
}
