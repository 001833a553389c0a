//! MMD with a Gaussian kernel whose bandwidth is the median of the distances of the points at hand.

use std::cell::RefCell;

use super::line::{Line, LineScratch};
use super::mmd::mmd;
use super::radial::Radial;
use super::{Base, SampleBuffers};
use crate::ambient::{Ambient, Room};
use crate::config::{MedianOf, Statistic};

/// E k(X,X') - 2 E k(X,Y) + E k(Y,Y') with k = exp(-s/h), s = ‖x - x'‖² and h from the median over all pairs of the pooled points.
///
/// Pairs within x, within y and between them all count, equal points and all, whatever the weights; for an even count the mean of the two in the
/// middle. Sliced, every direction has its own h. The gradient holds h constant. As h depends on the target, gradients from single
/// transitions are biased. Source: Gretton et al. (JMLR 2012), section 8; for agents MMD-DQN (AAAI 2021).
#[derive(Debug, Clone)]
pub(crate) struct MedianMmd {
    pub of: MedianOf,
    pub statistic: Statistic,
}

thread_local! {
    /// Distances of all pairs, and the kernel.
    static ROOM: RefCell<(Vec<f64>, Radial)> =
        const { RefCell::new((Vec::new(), Radial::Gaussian { bandwidths: Vec::new() })) };
}

impl MedianMmd {
    fn value(
        &self,
        samples: &Line<'_>,
        dimension: usize,
        gradient: &mut [f64],
        gradient_y: Option<&mut [f64]>,
    ) -> f64 {
        ROOM.with_borrow_mut(|(distances, kernel)| {
            let h = self.bandwidth(samples, dimension, distances);
            if let Radial::Gaussian { bandwidths } = kernel {
                bandwidths.clear();
                bandwidths.push(h);
            }
            mmd(
                samples,
                dimension,
                kernel,
                self.statistic,
                gradient,
                gradient_y,
            )
        })
    }

    fn bandwidth(&self, samples: &Line<'_>, dimension: usize, distances: &mut Vec<f64>) -> f64 {
        let x = samples.x.chunks_exact(dimension);
        let pooled = x.chain(samples.y.chunks_exact(dimension));
        distances.clear();
        for (index, point) in pooled.clone().enumerate() {
            distances.extend(pooled.clone().skip(index + 1).map(|other| {
                let squares = point.iter().zip(other).map(|(p, q)| (p - q) * (p - q));
                squares.sum::<f64>()
            }));
        }
        if self.of == MedianOf::Distances {
            distances.iter_mut().for_each(|s| *s = s.sqrt());
        }
        let middle = distances.len() / 2;
        let even = distances.len().is_multiple_of(2);
        let (below, upper, _) = distances.select_nth_unstable_by(middle, f64::total_cmp);
        let median = match below.iter().copied().reduce(f64::max) {
            Some(lower) if even => 0.5 * (lower + *upper),
            _ => *upper,
        };
        let h = match self.of {
            MedianOf::Squares => median,
            MedianOf::Distances => 2.0 * median * median,
        };
        // Where most points coincide: 1 for equal points, 0 for others, and 1/h far from overflow.
        h.max(1e-280)
    }
}

impl Base for MedianMmd {
    fn exponent(&self) -> f64 {
        2.0
    }

    fn statistic(&self) -> Statistic {
        self.statistic
    }

    fn line(
        &self,
        line: &Line<'_>,
        _scratch: &mut LineScratch,
        gradient: &mut [f64],
        gradient_y: Option<&mut [f64]>,
    ) -> f64 {
        self.value(line, 1, gradient, gradient_y)
    }

    #[cfg(feature = "tensor")]
    fn tensor_line(
        &self,
        x: &crate::tensor::Samples,
        y: &crate::tensor::Samples,
    ) -> Result<tch::Tensor, tch::TchError> {
        let pooled = tch::Tensor::f_cat(&[x.points.f_detach()?, y.points.f_detach()?], 2)?;
        let count = pooled.size()[2];
        // [B, L, pairs]
        let pairs =
            tch::Tensor::f_triu_indices(count, count, 1, (tch::Kind::Int64, pooled.device()))?;
        let side = |row: i64| pooled.f_index_select(2, &pairs.f_select(0, row)?);
        let distances = side(0)?.f_sub(&side(1)?)?.f_abs()?;
        let sorted = match self.of {
            MedianOf::Squares => distances.f_square()?,
            MedianOf::Distances => distances,
        }
        .f_sort(2, false)?
        .0;
        let number = sorted.size()[2];
        let at = |place: i64| sorted.f_select(2, place);
        let median = at((number - 1) / 2)?
            .f_add(&at(number / 2)?)?
            .f_mul_scalar(0.5)?;
        let h = match self.of {
            MedianOf::Squares => median,
            MedianOf::Distances => median.f_square()?.f_mul_scalar(2.0)?,
        }
        .f_clamp_min(f64::from(f32::MIN_POSITIVE))?;
        // exp(-(x/√h)²): the points in units of the bandwidth.
        let unit = h.f_sqrt()?.f_unsqueeze(2)?;
        let scaled = |samples: &crate::tensor::Samples| -> Result<_, tch::TchError> {
            Ok(crate::tensor::Samples {
                points: samples.points.f_div(&unit)?.f_unsqueeze(3)?,
                weights: samples.weights.as_ref().map(tch::Tensor::shallow_clone),
            })
        };
        let kernel = Radial::Gaussian {
            bandwidths: vec![1.0],
        };
        kernel.tensor_mmd(&scaled(x)?, &scaled(y)?, self.statistic)
    }
}

impl Ambient for MedianMmd {
    fn exponent(&self) -> f64 {
        2.0
    }

    fn statistic(&self) -> Statistic {
        self.statistic
    }

    fn value_and_gradient(
        &self,
        points: &SampleBuffers,
        dimension: usize,
        _room: &mut Room,
        gradient: &mut [f64],
    ) -> f64 {
        self.value(&points.line(), dimension, gradient, None)
    }
}
