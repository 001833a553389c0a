//! Copying observations out of memory that no cache holds into a batch that no cache holds.
#![allow(unsafe_code)] // Stores that go around the caches have no safe form.

/// Rows shorter than this are copied the ordinary way.
const STREAMED_BYTES: usize = 4096;

/// An element type of observations.
pub(super) trait Element: Copy + Send + Sync {
    /// Copies a row; the lengths are equal.
    fn copy(to: &mut [Self], from: &[Self]);
}

impl Element for f32 {
    fn copy(to: &mut [Self], from: &[Self]) {
        to.copy_from_slice(from);
    }
}

impl Element for u8 {
    fn copy(to: &mut [Self], from: &[Self]) {
        if to.len() < STREAMED_BYTES {
            to.copy_from_slice(from);
        } else {
            stream(to, from);
        }
    }
}

/// Copies with stores that do not first read the lines they overwrite, which saves a third of the memory traffic.
#[cfg(target_arch = "x86_64")]
fn stream(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{
        __m128i, _MM_HINT_NTA, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128,
    };
    assert_eq!(to.len(), from.len(), "rows of one length");
    let head = to.as_ptr().align_offset(64).min(to.len());
    let (to_head, to) = to.split_at_mut(head);
    let (from_head, from) = from.split_at(head);
    to_head.copy_from_slice(from_head);
    let (to_lines, to_tail) = to.as_chunks_mut::<64>();
    let (from_lines, from_tail) = from.as_chunks::<64>();
    for (to, from) in to_lines.iter_mut().zip(from_lines) {
        let to = to.as_mut_ptr().cast::<__m128i>();
        let from = from.as_ptr().cast::<__m128i>();
        // SAFETY: both pointers lead to 64 bytes, that is four vectors; `to` is aligned to 64 bytes because the head was split off;
        // loads need no alignment; prefetching touches no memory that matters wherever it points; SSE2 belongs to every x86-64.
        unsafe {
            _mm_prefetch::<_MM_HINT_NTA>(from.cast::<i8>().wrapping_add(512));
            let vectors = [
                _mm_loadu_si128(from),
                _mm_loadu_si128(from.add(1)),
                _mm_loadu_si128(from.add(2)),
                _mm_loadu_si128(from.add(3)),
            ];
            for (index, vector) in vectors.into_iter().enumerate() {
                _mm_stream_si128(to.add(index), vector);
            }
        }
    }
    // Streamed stores are not ordered with others: they must be done before another thread is told that the row is there.
    // SAFETY: a fence touches no memory, and SSE belongs to every x86-64.
    unsafe { _mm_sfence() };
    to_tail.copy_from_slice(from_tail);
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_copied_at_any_alignment_and_length() {
        let from: Vec<u8> = (0..40_000_u32).map(|i| (i * i % 251) as u8).collect();
        for offset in [0, 1, 17, 63] {
            for length in [0, 5, 63, 64, 4096, 21_168, 30_001] {
                let mut to = vec![0; 40_000];
                stream(&mut to[offset..offset + length], &from[3..3 + length]);
                assert_eq!(to[offset..offset + length], from[3..3 + length]);
                assert!(
                    to[..offset]
                        .iter()
                        .chain(&to[offset + length..])
                        .all(|&byte| byte == 0)
                );
            }
        }
    }
}
