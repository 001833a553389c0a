//! Eight lanes at once: one set of operations, in AVX2 where the processor has it and in plain Rust elsewhere, with the same results bit for bit.
//!
//! No fused multiply-add is used, so both give the same rounding.
#![allow(unsafe_code)] // The AVX2 operations are intrinsics; a value of `Avx2` is proof that the processor has them.

/// Columns computed together: the 32-bit lanes of one 256-bit register.
pub(crate) const LANES: usize = 8;

/// One row of eight lanes, aligned as vector loads like it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, align(32))]
pub(crate) struct Row<T>(pub [T; LANES]);

/// Operations on eight f32 (`F`) or eight 32-bit integers (`I`); comparisons give all ones or all zeros per lane.
pub(crate) trait Simd: Copy {
    type F: Copy;
    type I: Copy;

    fn splat(self, value: f32) -> Self::F;
    fn splat_int(self, value: u32) -> Self::I;
    fn load(self, row: &Row<f32>) -> Self::F;
    fn store(self, value: Self::F, row: &mut Row<f32>);
    fn load_int(self, row: &Row<u32>) -> Self::I;
    fn store_int(self, value: Self::I, row: &mut Row<u32>);

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    /// The smaller, or `b` where one of them is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// The larger, or `b` where one of them is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// All lanes of `a` where the mask is set, else of `b`.
    fn select(self, mask: Self::I, a: Self::F, b: Self::F) -> Self::F;

    fn add_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    fn min_unsigned(self, a: Self::I, b: Self::I) -> Self::I;
    fn max_unsigned(self, a: Self::I, b: Self::I) -> Self::I;
    fn shift_right(self, a: Self::I, bits: u32) -> Self::I;
    fn shift_left(self, a: Self::I, bits: u32) -> Self::I;
    fn equal(self, a: Self::I, b: Self::I) -> Self::I;
    /// a > b as signed integers.
    fn greater(self, a: Self::I, b: Self::I) -> Self::I;
    /// From signed integers.
    fn to_float(self, a: Self::I) -> Self::F;
    /// Towards zero; |a| must be below 2^31.
    fn to_int(self, a: Self::F) -> Self::I;
    /// The same bits.
    fn bits(self, a: Self::F) -> Self::I;
    /// The same bits.
    fn float_of_bits(self, a: Self::I) -> Self::F;
}

/// Plain Rust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

macro_rules! lanewise {
    ($a:expr, $b:expr, |$x:ident, $y:ident| $result:expr) => {{
        let (a, b) = ($a, $b);
        std::array::from_fn(|lane| {
            let ($x, $y) = (a[lane], b[lane]);
            $result
        })
    }};
}

fn mask(set: bool) -> u32 {
    if set { u32::MAX } else { 0 }
}

impl Simd for Portable {
    type F = [f32; LANES];
    type I = [u32; LANES];

    fn splat(self, value: f32) -> Self::F {
        [value; LANES]
    }
    fn splat_int(self, value: u32) -> Self::I {
        [value; LANES]
    }
    fn load(self, row: &Row<f32>) -> Self::F {
        row.0
    }
    fn store(self, value: Self::F, row: &mut Row<f32>) {
        row.0 = value;
    }
    fn load_int(self, row: &Row<u32>) -> Self::I {
        row.0
    }
    fn store_int(self, value: Self::I, row: &mut Row<u32>) {
        row.0 = value;
    }
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        lanewise!(a, b, |x, y| x + y)
    }
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        lanewise!(a, b, |x, y| x - y)
    }
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        lanewise!(a, b, |x, y| x * y)
    }
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        lanewise!(a, b, |x, y| x / y)
    }
    fn sqrt(self, a: Self::F) -> Self::F {
        a.map(f32::sqrt)
    }
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        lanewise!(a, b, |x, y| if x < y { x } else { y })
    }
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        lanewise!(a, b, |x, y| if x > y { x } else { y })
    }
    fn select(self, mask: Self::I, a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|lane| if mask[lane] != 0 { a[lane] } else { b[lane] })
    }
    fn add_int(self, a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b, |x, y| x.wrapping_add(y))
    }
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b, |x, y| x.wrapping_sub(y))
    }
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b, |x, y| x & y)
    }
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b, |x, y| x | y)
    }
    fn min_unsigned(self, a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b, |x, y| x.min(y))
    }
    fn max_unsigned(self, a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b, |x, y| x.max(y))
    }
    fn shift_right(self, a: Self::I, bits: u32) -> Self::I {
        a.map(|x| x >> bits)
    }
    fn shift_left(self, a: Self::I, bits: u32) -> Self::I {
        a.map(|x| x << bits)
    }
    fn equal(self, a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b, |x, y| mask(x == y))
    }
    fn greater(self, a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b, |x, y| mask(x as i32 > y as i32))
    }
    fn to_float(self, a: Self::I) -> Self::F {
        a.map(|x| x as i32 as f32)
    }
    fn to_int(self, a: Self::F) -> Self::I {
        a.map(|x| x as i32 as u32)
    }
    fn bits(self, a: Self::F) -> Self::I {
        a.map(f32::to_bits)
    }
    fn float_of_bits(self, a: Self::I) -> Self::F {
        a.map(f32::from_bits)
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Row, Simd};

    /// Proof that the processor has AVX2.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Avx2(());

    impl Avx2 {
        /// The proof, where it holds.
        #[inline]
        pub fn detect() -> Option<Self> {
            std::arch::is_x86_feature_detected!("avx2").then_some(Self(()))
        }
    }

    /// Defines methods that are one intrinsic each.
    macro_rules! intrinsics {
        ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {
            $(
                #[inline(always)]
                fn $name(self, $($argument: $type),*) -> $result {
                    // SAFETY: `self` proves that the processor has AVX2; loads and stores go through references to aligned rows.
                    unsafe { $body }
                }
            )*
        };
    }

    impl Simd for Avx2 {
        type F = __m256;
        type I = __m256i;

        intrinsics! {
            splat(value: f32) -> __m256 = _mm256_set1_ps(value);
            splat_int(value: u32) -> __m256i = _mm256_set1_epi32(value as i32);
            load(row: &Row<f32>) -> __m256 = _mm256_load_ps(row.0.as_ptr());
            store(value: __m256, row: &mut Row<f32>) -> () = _mm256_store_ps(row.0.as_mut_ptr(), value);
            load_int(row: &Row<u32>) -> __m256i = _mm256_load_si256(row.0.as_ptr().cast());
            store_int(value: __m256i, row: &mut Row<u32>) -> () = _mm256_store_si256(row.0.as_mut_ptr().cast(), value);
            add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
            sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
            mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
            div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
            sqrt(a: __m256) -> __m256 = _mm256_sqrt_ps(a);
            min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
            max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
            select(mask: __m256i, a: __m256, b: __m256) -> __m256 = _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask));
            add_int(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
            sub_int(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32(a, b);
            and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
            or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
            min_unsigned(a: __m256i, b: __m256i) -> __m256i = _mm256_min_epu32(a, b);
            max_unsigned(a: __m256i, b: __m256i) -> __m256i = _mm256_max_epu32(a, b);
            shift_right(a: __m256i, bits: u32) -> __m256i = _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits as i32));
            shift_left(a: __m256i, bits: u32) -> __m256i = _mm256_sll_epi32(a, _mm_cvtsi32_si128(bits as i32));
            equal(a: __m256i, b: __m256i) -> __m256i = _mm256_cmpeq_epi32(a, b);
            greater(a: __m256i, b: __m256i) -> __m256i = _mm256_cmpgt_epi32(a, b);
            to_float(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(a);
            to_int(a: __m256) -> __m256i = _mm256_cvttps_epi32(a);
            bits(a: __m256) -> __m256i = _mm256_castps_si256(a);
            float_of_bits(a: __m256i) -> __m256 = _mm256_castsi256_ps(a);
        }
    }
}
