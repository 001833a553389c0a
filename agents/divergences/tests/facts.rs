//! What the theory says of these divergences: constants, contraction, unbiased sample gradients, what marginals miss.

use pushforward_divergences::{
    Directions, DivergenceConfig, Draw, Evaluation, KernelConfig, LiftConfig, MedianOf, Points,
    Statistic, mean_coordinate_power,
};
use pushforward_envs::StreamRng;
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};
use statrs::distribution::{ContinuousCDF, Normal};

fn gaussian(count: usize, rng: &mut StreamRng) -> Vec<f64> {
    (0..count).map(|_| StandardNormal.sample(rng)).collect()
}

fn half_circle(count: usize) -> Vec<f64> {
    (0..count)
        .flat_map(|k| {
            let angle = k as f64 * std::f64::consts::PI / count as f64;
            [angle.cos(), angle.sin()]
        })
        .collect()
}

fn cramer(lift: LiftConfig) -> DivergenceConfig {
    DivergenceConfig::Cramer {
        statistic: None,
        lift,
    }
}

fn wasserstein(p: f64, lift: LiftConfig) -> DivergenceConfig {
    DivergenceConfig::Wasserstein { p, lift }
}

fn mmd(kernel: KernelConfig, lift: LiftConfig) -> DivergenceConfig {
    DivergenceConfig::Mmd {
        kernel,
        statistic: None,
        lift,
    }
}

fn max_grid(angles: usize) -> LiftConfig {
    LiftConfig::Max {
        search: pushforward_divergences::SearchConfig::Grid { angles },
    }
}

/// A weighted cloud that owns its points.
#[derive(Clone)]
struct Law {
    points: Vec<f64>,
    weights: Vec<f64>,
}

fn distance(
    config: &DivergenceConfig,
    d: usize,
    x: &Law,
    y: &Law,
    directions: &[f64],
) -> Evaluation {
    fn points(law: &Law) -> Points<'_> {
        Points {
            points: &law.points,
            weights: Some(&law.weights),
        }
    }
    config
        .build(d)
        .expect("valid")
        .evaluate(&points(x), &points(y), directions)
        .expect("finite")
}

/// c_d = 2/E|θ_1|: energy distance = c_d x sliced Cramér; the mean over random directions lies within 5 standard errors of it.
#[test]
fn energy_distance_is_a_multiple_of_sliced_cramer() {
    let mut rng = StreamRng::new(1, "fact", 1);
    for d in [1, 2, 3, 8] {
        let (n, m) = (7, 9);
        let law = |count: usize, rng: &mut StreamRng| Law {
            points: gaussian(count * d, rng),
            weights: vec![1.0 / count as f64; count],
        };
        let (x, y) = (law(n, &mut rng), law(m, &mut rng));
        let energy = distance(
            &mmd(KernelConfig::Energy { alpha: 1.0 }, LiftConfig::None),
            d,
            &x,
            &y,
            &[],
        )
        .value;
        let expected = energy * mean_coordinate_power(d, 1.0) / 2.0;
        let exact = distance(&cramer(LiftConfig::Exact), d, &x, &y, &[]).value;
        assert!((exact - expected).abs() < 1e-13 * expected, "d={d}");
        let directions: Vec<f64> = Directions::draw(Draw::Iid, 20_000, d, None, &mut rng)
            .values()
            .iter()
            .map(|&v| v.into())
            .collect();
        let sliced = distance(&cramer(LiftConfig::default()), d, &x, &y, &directions);
        let error = 5.0 * sliced.standard_error.unwrap_or(0.0) + 1e-12;
        assert!(
            (sliced.value - expected).abs() < error,
            "d={d}: {} {expected}",
            sliced.value
        );
    }
}

/// One application of the exact Bellman operator to the laws of a small process: state s goes to successor k with probability 1/2 each.
fn bellman(
    laws: &[Law],
    successors: &[[usize; 2]],
    rewards: &[[[f64; 2]; 2]],
    discount: &[[f64; 2]; 2],
) -> Vec<Law> {
    (0..laws.len())
        .map(|s| {
            let mut out = Law {
                points: Vec::new(),
                weights: Vec::new(),
            };
            for k in 0..2 {
                let next = &laws[successors[s][k]];
                for (z, w) in next.points.chunks_exact(2).zip(&next.weights) {
                    for c in 0..2 {
                        out.points
                            .push(rewards[s][k][c] + discount[c][0] * z[0] + discount[c][1] * z[1]);
                    }
                    out.weights.push(0.5 * w);
                }
            }
            out
        })
        .collect()
}

#[test]
fn the_operator_contracts_as_far_as_the_theory_says() {
    let mut rng = StreamRng::new(2, "fact", 2);
    let directions = half_circle(90);
    let uniform = LiftConfig::default;
    for _ in 0..20 {
        let states = 3;
        let draw_laws = |rng: &mut StreamRng| -> Vec<Law> {
            (0..states)
                .map(|_| Law {
                    points: gaussian(4 * 2, rng),
                    weights: vec![0.25; 4],
                })
                .collect()
        };
        let (first, second) = (draw_laws(&mut rng), draw_laws(&mut rng));
        let successors: Vec<[usize; 2]> = (0..states)
            .map(|_| [rng.random_range(0..states), rng.random_range(0..states)])
            .collect();
        let rewards: Vec<[[f64; 2]; 2]> = (0..states)
            .map(|_| {
                let r = gaussian(4, &mut rng);
                [[r[0], r[1]], [r[2], r[3]]]
            })
            .collect();
        let ratio = |config: &DivergenceConfig, discount: &[[f64; 2]; 2], root: bool| {
            let supremum = |a: &[Law], b: &[Law]| {
                a.iter()
                    .zip(b)
                    .map(|(x, y)| {
                        let e = distance(config, 2, x, y, &directions);
                        if root {
                            e.root.expect("not negative")
                        } else {
                            e.value
                        }
                    })
                    .fold(0.0, f64::max)
            };
            let after = supremum(
                &bellman(&first, &successors, &rewards, discount),
                &bellman(&second, &successors, &rewards, discount),
            );
            after / supremum(&first, &second)
        };
        let scalar = [[0.9, 0.0], [0.0, 0.9]];
        let slack = 1.0 + 1e-12;
        for p in [1.0, 2.0, 3.0] {
            assert!(ratio(&wasserstein(p, uniform()), &scalar, true) <= 0.9 * slack);
        }
        assert!(ratio(&cramer(uniform()), &scalar, true) <= 0.9_f64.sqrt() * slack);
        assert!(ratio(&cramer(uniform()), &scalar, false) <= 0.9 * slack);
        let energy = mmd(KernelConfig::Energy { alpha: 1.5 }, uniform());
        assert!(ratio(&energy, &scalar, false) <= 0.9_f64.powf(1.5) * slack);
        // ‖Γ‖ = 0.9 (a rotation by 30° of diag(.9, .4)); 720 angles miss a maximum of W_p by less than 0.3 %.
        let (sin, cos) = std::f64::consts::FRAC_PI_6.sin_cos();
        let dense = [[0.9 * cos, -0.4 * sin], [0.9 * sin, 0.4 * cos]];
        for p in [1.0, 2.0] {
            assert!(ratio(&wasserstein(p, max_grid(720)), &dense, true) <= 0.9 * 1.003);
        }
    }
}

/// Uniform slicing with a diagonal, non-scalar discount can expand: Thue-Morse sets share three moments.
#[test]
fn uniform_slicing_can_expand_under_a_diagonal_discount() {
    let normal = Normal::new(0.0, 60.0).expect("valid");
    let law = |support: [f64; 4], discount: [f64; 2]| {
        let points: Vec<f64> = support
            .iter()
            .flat_map(|&x| {
                let normal = &normal;
                (0..400).flat_map(move |k| {
                    let y = normal.inverse_cdf((f64::from(k) + 0.5) / 400.0);
                    [discount[0] * x, discount[1] * y]
                })
            })
            .collect();
        Law {
            weights: vec![1.0 / 1600.0; 1600],
            points,
        }
    };
    let directions = half_circle(4000);
    let pair = |discount| {
        (
            law([0.0, 3.0, 5.0, 6.0], discount),
            law([1.0, 2.0, 4.0, 7.0], discount),
        )
    };
    for (p, expected) in [(1.0, 3.05), (2.0, 2.54)] {
        let root = |(x, y): (Law, Law)| {
            distance(
                &wasserstein(p, LiftConfig::default()),
                2,
                &x,
                &y,
                &directions,
            )
            .root
            .expect("not negative")
        };
        let growth = root(pair([0.95, 0.05])) / root(pair([1.0, 1.0]));
        assert!((growth - expected).abs() < 0.01, "p={p}: {growth}");
    }
    // Max slicing shrinks by at most the operator norm .95.
    let config = wasserstein(1.0, max_grid(180));
    let value = |(x, y): (Law, Law)| distance(&config, 2, &x, &y, &[]).value;
    assert!(value(pair([0.95, 0.05])) <= 0.95 * value(pair([1.0, 1.0])) * 1.0001);
}

/// The mean of the gradients against each of several targets, and the gradient against their mixture.
fn gradients(config: &DivergenceConfig, directions: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut rng = StreamRng::new(4, "fact", 3);
    let (n, m, outcomes) = (5, 4, 3);
    let x = Law {
        points: gaussian(2 * n, &mut rng),
        weights: vec![0.2; n],
    };
    let targets: Vec<Law> = (0..outcomes)
        .map(|k| Law {
            points: gaussian(2 * m, &mut rng)
                .iter()
                .map(|z| z * 0.5 + 1.5 * f64::from(k) - 1.5)
                .collect(),
            weights: vec![0.25; m],
        })
        .collect();
    let mut mean = vec![0.0; 2 * n];
    for target in &targets {
        let gradient = distance(config, 2, &x, target, directions).gradient;
        for (sum, g) in mean.iter_mut().zip(gradient) {
            *sum += g / f64::from(outcomes);
        }
    }
    let mixture = Law {
        points: targets.iter().flat_map(|t| t.points.clone()).collect(),
        weights: vec![1.0 / (m as f64 * f64::from(outcomes)); m * outcomes as usize],
    };
    (mean, distance(config, 2, &x, &mixture, directions).gradient)
}

/// The expectation over single sampled transitions is a finite sum here, so there is no Monte Carlo error beside rounding.
#[test]
fn sample_gradients_are_unbiased_for_cramer_and_mmd_of_fixed_kernels_only() {
    let directions = half_circle(37);
    let gap = |config: &DivergenceConfig| {
        let (mean, full) = gradients(config, &directions);
        let norm = |v: &[f64]| v.iter().map(|a| a * a).sum::<f64>().sqrt();
        let difference: Vec<f64> = mean.iter().zip(&full).map(|(a, b)| a - b).collect();
        norm(&difference) / norm(&full)
    };
    let uniform = LiftConfig::default;
    for config in [
        cramer(uniform()),
        cramer(LiftConfig::Exact),
        cramer(LiftConfig::Marginal),
        mmd(KernelConfig::default(), uniform()),
        mmd(KernelConfig::Energy { alpha: 1.5 }, uniform()),
        mmd(KernelConfig::Multiquadric { h: 1.0 }, LiftConfig::None),
    ] {
        assert!(gap(&config) < 1e-12, "{config:?}: {}", gap(&config));
    }
    for config in [
        wasserstein(1.0, uniform()),
        wasserstein(2.0, uniform()),
        cramer(max_grid(360)),
        wasserstein(2.0, max_grid(360)),
        mmd(KernelConfig::default(), max_grid(360)),
        mmd(
            KernelConfig::Median {
                of: MedianOf::Squares,
            },
            uniform(),
        ),
        mmd(
            KernelConfig::Median {
                of: MedianOf::Squares,
            },
            LiftConfig::None,
        ),
        DivergenceConfig::Sinkhorn { epsilon: 0.5 },
    ] {
        assert!(gap(&config) > 0.05, "{config:?}: {}", gap(&config));
    }
}

/// Drawing one transition at a time: the mean sample gradient comes within five standard errors of the full one, coordinate by coordinate.
#[test]
fn drawn_sample_gradients_average_to_the_full_gradient() {
    let mut rng = StreamRng::new(6, "fact", 6);
    let config = cramer(LiftConfig::default());
    let x = Law {
        points: gaussian(10, &mut rng),
        weights: vec![0.2; 5],
    };
    let targets: Vec<Law> = (0..2)
        .map(|_| Law {
            points: gaussian(6, &mut rng),
            weights: vec![1.0 / 3.0; 3],
        })
        .collect();
    let mixture = Law {
        points: targets.iter().flat_map(|t| t.points.clone()).collect(),
        weights: vec![1.0 / 6.0; 6],
    };
    let fixed = half_circle(256);
    let full = distance(&config, 2, &x, &mixture, &fixed).gradient;
    let draws = 4000;
    let (mut sum, mut squares) = (vec![0.0; 10], vec![0.0; 10]);
    for _ in 0..draws {
        let directions: Vec<f64> = Directions::draw(Draw::Quasi, 4, 2, None, &mut rng)
            .values()
            .iter()
            .map(|&v| v.into())
            .collect();
        let target = &targets[rng.random_range(0..2)];
        let gradient = distance(&config, 2, &x, target, &directions).gradient;
        for (i, g) in gradient.into_iter().enumerate() {
            sum[i] += g;
            squares[i] += g * g;
        }
    }
    for i in 0..10 {
        let mean = sum[i] / f64::from(draws);
        let deviation = (squares[i] / f64::from(draws) - mean * mean).sqrt();
        let error = 5.0 * deviation / f64::from(draws).sqrt() + 1e-4;
        assert!((mean - full[i]).abs() < error, "{i}: {mean} {}", full[i]);
    }
}

/// Rewards (1,0) or (0,1), against independent fair coins: equal marginals.
///
/// Along θ = (1,1)/√2 the first law sits at 1/√2, the second at 0, 1/√2, √2 with weights ¼, ½, ¼: ∫ (F-G)² = 2 · (¼)² / √2 = .0884.
#[test]
fn marginals_do_not_see_correlation() {
    let exclusive = Law {
        points: vec![1.0, 0.0, 0.0, 1.0],
        weights: vec![0.5; 2],
    };
    let independent = Law {
        points: vec![0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        weights: vec![0.25; 4],
    };
    let axes = [1.0, 0.0, 0.0, 1.0];
    let marginal = cramer(LiftConfig::Marginal);
    assert!(
        distance(&marginal, 2, &exclusive, &independent, &axes)
            .value
            .abs()
            < 1e-15
    );
    let root = 0.5_f64.sqrt();
    let config = cramer(LiftConfig::default());
    let diagonal = distance(&config, 2, &exclusive, &independent, &[root, root]).value;
    assert!(
        (diagonal - 2.0 / 16.0 / 2.0_f64.sqrt()).abs() < 1e-15,
        "{diagonal}"
    );
    assert!(distance(&config, 2, &exclusive, &independent, &half_circle(64)).value > 0.02);
}

/// E over samples of the U-statistic is the divergence of the laws; that of the V-statistic is larger.
#[test]
fn the_u_statistic_is_unbiased() {
    let mut rng = StreamRng::new(8, "fact", 8);
    let statistic = |statistic, x: &[f64], y: &[f64]| {
        DivergenceConfig::Cramer {
            statistic: Some(statistic),
            lift: LiftConfig::default(),
        }
        .build(1)
        .expect("valid")
        .evaluate(
            &Points {
                points: x,
                weights: None,
            },
            &Points {
                points: y,
                weights: None,
            },
            &[1.0],
        )
        .expect("finite")
        .value
    };
    let draws = 4000;
    let (mut u, mut u_squares, mut v) = (0.0, 0.0, 0.0);
    for _ in 0..draws {
        let (x, y) = (gaussian(5, &mut rng), gaussian(7, &mut rng));
        let value = statistic(Statistic::U, &x, &y);
        u += value;
        u_squares += value * value;
        v += statistic(Statistic::V, &x, &y);
    }
    let n = f64::from(draws);
    // Same law on both sides: the truth is 0, and E V = ½ E|X-X'| (1/5 + 1/7) = .5642 · 12/35 = .1934.
    let error = (u_squares / n).sqrt() / n.sqrt();
    assert!((u / n).abs() < 5.0 * error, "{} {error}", u / n);
    assert!((v / n - 0.1934).abs() < 5.0 * error, "{}", v / n);
}
