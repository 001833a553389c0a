//! Sorting the points of a shadow by their places on a fixed-point line.

/// Bits of one pass of the radix sort.
const DIGIT: u32 = 11;

/// Number of values of a digit.
pub(super) const DIGITS: usize = 1 << DIGIT;

/// A fixed-point line that covers a shadow: a place is a whole multiple of 2^-31 of the power of two above the largest magnitude.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// A power of two, so that scaling is exact.
    scale: f64,
    inverse: f32,
}

/// First and last place of a line, as signed numbers.
const FIRST: f64 = -2147483648.0;
const LAST: f64 = 2147483647.0;

/// 1.5 · 2^52: a number of this size has no bits behind the point.
const WHOLE: f64 = 6_755_399_441_055_744.0;

impl Line {
    /// The line for these numbers.
    pub(super) fn covering(values: &[f32]) -> Self {
        // Magnitudes are ordered as their bits.
        let largest = values
            .iter()
            .fold(0, |largest: u32, x| largest.max(x.to_bits() & !(1 << 31)));
        // 2^(30 - e) for a largest magnitude in [2^e, 2^(e+1)); for the smallest ones the largest power of two with an inverse.
        let exponent = (284 - (largest >> 23)).min(252);
        let scale = f32::from_bits(exponent << 23);
        Self {
            scale: f64::from(scale),
            inverse: 1.0 / scale,
        }
    }

    /// The place of a number as an unsigned integer of the same order; numbers beyond the line are put at its ends.
    #[inline]
    pub(super) fn place(self, x: f32) -> u32 {
        let place = f64::from(x) * self.scale;
        let place = if place > LAST { LAST } else { place };
        let place = if place < FIRST { FIRST } else { place };
        // The lowest bits of the sum are the whole number; unlike a cast that checks its range, this is done for many at once.
        (place + WHOLE).to_bits() as u32 ^ (1 << 31)
    }

    /// The number at a place.
    #[inline]
    pub(super) fn value(self, place: u32) -> f32 {
        ((place ^ (1 << 31)) as i32) as f32 * self.inverse
    }
}

/// The bucket of a place: its leading digit.
#[inline]
pub(super) fn bucket(place: u32) -> usize {
    (place >> (32 - DIGIT)) as usize
}

/// Sorts by two passes over the leading 22 bits of the places, and the few that agree in these by insertion; `ends` becomes the end of every
/// bucket in the sorted order.
///
/// `place` must not decrease in the order of `T`.
pub(super) fn sort<T: Copy + Default + Ord>(
    values: &mut [T],
    scratch: &mut Vec<T>,
    ends: &mut [u32; DIGITS],
    place: impl Fn(T) -> u32,
) {
    scratch.resize(values.len(), T::default());
    let scratch = &mut scratch[..];
    let low = |value: T| (place(value) >> (32 - 2 * DIGIT)) as usize % DIGITS;
    let high = |value: T| bucket(place(value));
    let mut starts = [0_u32; DIGITS];
    ends.fill(0);
    for value in values.iter() {
        starts[low(*value)] += 1;
        ends[high(*value)] += 1;
    }
    for counts in [&mut starts, &mut *ends] {
        let mut sum = 0;
        for count in counts {
            (*count, sum) = (sum, sum + *count);
        }
    }
    for value in values.iter() {
        let slot = &mut starts[low(*value)];
        scratch[*slot as usize] = *value;
        *slot += 1;
    }
    for value in scratch.iter() {
        let slot = &mut ends[high(*value)];
        values[*slot as usize] = *value;
        *slot += 1;
    }
    // Almost nothing is left to move, unless the points crowd on a stretch that is tiny beside the largest magnitude.
    let mut patience = 4 * values.len();
    for i in 1..values.len() {
        let value = values[i];
        let mut j = i;
        while j > 0 && values[j - 1] > value {
            values[j] = values[j - 1];
            j -= 1;
        }
        values[j] = value;
        if i - j > patience {
            return values.sort_unstable();
        }
        patience -= i - j;
    }
}

/// The order of a shadow, and the room that finding it takes.
#[derive(Default)]
pub(super) struct Order {
    /// Places and, in the lower half, indices.
    packed: Vec<u64>,
    scratch: Vec<u64>,
}

/// Up to this many points a comparison sort is faster.
const FEW: usize = 1024;

impl Order {
    /// Sorts the numbers; ties keep their order.
    pub(super) fn set(&mut self, values: &[f32]) {
        let line = Line::covering(values);
        let pack = |(x, index): (&f32, u64)| u64::from(line.place(*x)) << 32 | index;
        self.packed.clear();
        self.packed.extend(values.iter().zip(0..).map(pack));
        if values.len() <= FEW {
            self.packed.sort_unstable();
        } else {
            let place = |packed: u64| (packed >> 32) as u32;
            sort(&mut self.packed, &mut self.scratch, &mut [0; DIGITS], place);
        }
    }

    /// Index of the point of a rank.
    #[inline]
    pub(super) fn index(&self, rank: usize) -> usize {
        self.packed[rank] as u32 as usize
    }

    /// Indices of all points by rank.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        self.packed.iter().map(|packed| *packed as u32 as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(values: &[f32]) -> (Vec<f32>, [u32; DIGITS]) {
        let line = Line::covering(values);
        let mut places: Vec<u32> = values.iter().map(|x| line.place(*x)).collect();
        let mut ends = [0; DIGITS];
        sort(&mut places, &mut Vec::new(), &mut ends, |place| place);
        for (rank, place) in places.iter().enumerate() {
            let start = bucket(*place).checked_sub(1).map_or(0, |b| ends[b]);
            assert!((start..ends[bucket(*place)]).contains(&(rank as u32)));
        }
        (
            places.iter().map(|place| line.value(*place)).collect(),
            ends,
        )
    }

    #[test]
    fn numbers_of_one_magnitude_are_sorted_exactly() {
        let values = [0.75, -1.5, 0.0, 1.999, -0.0, 1e-3, 1.5, 0.75];
        let expected = [-1.5, 0.0, 0.0, 1e-3, 0.75, 0.75, 1.5, 1.999];
        for (got, expected) in sorted(&values).0.iter().zip(expected) {
            assert!(
                (got - expected).abs() <= 2.0_f32.powi(-30),
                "{got} {expected}"
            );
        }
        assert_eq!(sorted(&[0.0, 0.0]).0, [0.0, 0.0]);
        assert_eq!(sorted(&[1e-20, -1e-20]).0, [-1e-20, 1e-20]);
        assert_eq!(sorted(&[3e38, -3e38, 1.0]).0, [-3e38, 0.0, 3e38]);
    }

    #[test]
    fn crowded_points_beside_a_far_one_are_sorted() {
        // Neighbours are 2^-26 of the line apart.
        let mut values: Vec<f32> = (0..40_000).map(|i| ((i * 7919) % 40_000) as f32).collect();
        values.push(6e7);
        let (got, _) = sorted(&values);
        assert!(got.is_sorted());
        let mut order = Order::default();
        order.set(&values);
        let ranked: Vec<f32> = order.indices().map(|index| values[index]).collect();
        assert!(ranked.is_sorted() && ranked.len() == values.len());
    }

    proptest! {
        #[test]
        fn order_and_sort_agree_with_the_standard_sort(
            values in prop::collection::vec(prop_oneof![-3.0_f32..3.0, Just(0.0), Just(1.5)], 1..3000),
        ) {
            let mut expected = values.clone();
            expected.sort_by(f32::total_cmp);
            let (got, _) = sorted(&values);
            let mut order = Order::default();
            order.set(&values);
            for ((got, index), expected) in got.iter().zip(order.indices()).zip(&expected) {
                prop_assert!((got - expected).abs() <= 2.0_f32.powi(-29));
                prop_assert!((values[index] - expected).abs() <= 2.0_f32.powi(-29));
            }
        }
    }
}
