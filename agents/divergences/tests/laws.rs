//! Laws of every divergence on the f32 path: agreement with the f64 path, invariances, awkward inputs, clear errors.

use proptest::prelude::*;
use pushforward_divergences::{
    Clouds, DIVERGENCES, Directions, Divergence, DivergenceConfig, LIFTS, LiftConfig, Points, Shape,
};
use pushforward_envs::StreamRng;
use rand_distr::{Distribution, StandardNormal};

const BASES: [&str; 16] = [
    r#""kind": "wasserstein", "p": 1"#,
    r#""kind": "wasserstein", "p": 2"#,
    r#""kind": "wasserstein", "p": 2.5"#,
    r#""kind": "cramer""#,
    r#""kind": "cramer", "statistic": "u""#,
    r#""kind": "mmd""#,
    r#""kind": "mmd", "kernel": {"kind": "multiquadric", "h": 2}"#,
    r#""kind": "mmd", "kernel": {"kind": "energy", "alpha": 1}, "statistic": "u""#,
    r#""kind": "mmd", "kernel": {"kind": "energy", "alpha": 1.3}"#,
    r#""kind": "mmd", "kernel": {"kind": "laplace", "h": 2.5}"#,
    r#""kind": "mmd", "kernel": {"kind": "median"}"#,
    r#""kind": "energy""#,
    r#""kind": "energy", "alpha": 1.5, "statistic": "u""#,
    r#""kind": "sinkhorn", "epsilon": 0.5"#,
    r#""kind": "magnitude", "t": 0.3"#,
    r#""kind": "magnitude", "t": 2"#,
];
const LIFT_TEXTS: [&str; 6] = [
    r#"{"kind": "uniform", "directions": 11}"#,
    r#"{"kind": "uniform", "directions": 64, "draw": "quasi", "per_element": true}"#,
    r#"{"kind": "max", "search": {"kind": "ascent", "starts": 2, "steps": 5}}"#,
    r#"{"kind": "exact"}"#,
    r#"{"kind": "marginal"}"#,
    r#"{"kind": "none"}"#,
];

fn config(text: &str) -> DivergenceConfig {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Every combination that builds on R^d.
fn every(d: usize) -> Vec<(String, Box<dyn Divergence>)> {
    let mut out = Vec::new();
    for base in BASES {
        for lift in LIFT_TEXTS {
            let text = format!("{{{base}, \"lift\": {lift}}}");
            // Kinds of R^d itself know no lift.
            let Ok(config) = serde_json::from_str::<DivergenceConfig>(&text) else {
                continue;
            };
            if let Ok(divergence) = config.build(d) {
                out.push((text, divergence));
            }
        }
        let text = format!("{{{base}}}");
        if *config(&text).lift() == LiftConfig::None {
            out.push((text.clone(), config(&text).build(d).expect("valid")));
        }
    }
    out
}

fn gaussian(count: usize, scale: f32, rng: &mut StreamRng) -> Vec<f32> {
    (0..count)
        .map(|_| {
            let z: f32 = StandardNormal.sample(rng);
            scale * z
        })
        .collect()
}

fn run(
    divergence: &dyn Divergence,
    shape: Shape,
    x: &[f32],
    y: &[f32],
    directions: &Directions,
) -> (Vec<f32>, Vec<f32>) {
    let clouds = Clouds {
        shape,
        predicted: x,
        target: y,
        predicted_weights: None,
        target_weights: None,
    };
    let mut values = vec![f32::NAN; shape.batch];
    let mut gradient = vec![f32::NAN; x.len()];
    divergence
        .value_and_gradient(&clouds, directions, None, &mut values, &mut gradient, None)
        .unwrap_or_else(|e| panic!("{divergence:?}: {e}"));
    (values, gradient)
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |a, v| a.max(v.abs()))
}

fn rows(flat: &[f32], d: usize) -> Vec<&[f32]> {
    flat.chunks_exact(d).collect()
}

/// The f32 kernels against the f64 ones, element by element of a batch, for sizes around the blocks of the sorting network and beyond its limit.
#[test]
fn single_precision_agrees_with_double() {
    let mut rng = StreamRng::new(1, "laws", 0);
    for (n, m, d, batch) in [
        (7, 9, 3, 5),
        (64, 64, 2, 2),
        (1, 1, 2, 3),
        (33, 40, 1, 1),
        (200, 150, 2, 1),
        (300, 300, 2, 1),
    ] {
        let shape = Shape {
            batch,
            predicted: n,
            target: m,
            dimension: d,
        };
        let x = gaussian(batch * n * d, 1.0, &mut rng);
        let y: Vec<f32> = gaussian(batch * m * d, 1.0, &mut rng)
            .iter()
            .map(|v| v * 1.5 + 0.5)
            .collect();
        for (text, divergence) in every(d) {
            if divergence.check_sizes(n, m).is_err() || (n > 100 && !text.contains("uniform")) {
                continue;
            }
            let directions = divergence.draw(batch, &mut rng);
            let (values, gradient) = run(divergence.as_ref(), shape, &x, &y, &directions);
            for element in 0..batch {
                let double = |v: &[f32]| v.iter().map(|&a| f64::from(a)).collect::<Vec<f64>>();
                let px = double(&x[element * n * d..(element + 1) * n * d]);
                let py = double(&y[element * m * d..(element + 1) * m * d]);
                let [px, py] = [&px, &py].map(|points| Points {
                    points,
                    weights: None,
                });
                let theta = double(directions.of(element));
                let expected = divergence.evaluate(&px, &py, &theta).expect("finite");
                let what = format!("{text} n={n} m={m} d={d}");
                let error = (f64::from(values[element]) - expected.value).abs();
                // Self terms of the size of the spread cancel in the U-statistic.
                assert!(
                    error <= 2e-6 * expected.value.abs() + 1e-6,
                    "{what}: {error}"
                );
                let scale = expected
                    .gradient
                    .iter()
                    .fold(0.0_f64, |a, v| a.max(v.abs()));
                // Two points closer than the rounding of a projection may change places along a direction or two: 2 w_x w_y / L each.
                let swaps = 4.0 / (n * m * directions.count().max(1)) as f64;
                let rows = &gradient[element * n * d..(element + 1) * n * d];
                for (got, e) in rows.iter().zip(&expected.gradient) {
                    assert!(
                        (f64::from(*got) - e).abs() <= 2e-5 * scale + swaps,
                        "{what}: {got} {e}"
                    );
                }
            }
        }
    }
}

/// Same bits from one thread, from the pool, from a shard of the batch, and from inside a worker.
#[test]
fn results_do_not_depend_on_threads_or_shards() {
    let mut rng = StreamRng::new(2, "laws", 0);
    let (batch, n, m, d) = (6, 7, 9, 3);
    let shape = Shape {
        batch,
        predicted: n,
        target: m,
        dimension: d,
    };
    let x = gaussian(batch * n * d, 1.0, &mut rng);
    let y = gaussian(batch * m * d, 1.0, &mut rng);
    for (text, divergence) in every(d) {
        let directions = divergence.draw(batch, &mut rng);
        let whole = run(divergence.as_ref(), shape, &x, &y, &directions);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(3)
            .build()
            .expect("pool");
        let inside = pool.install(|| run(divergence.as_ref(), shape, &x, &y, &directions));
        assert_eq!(whole, inside, "{text}");
        let shard = Clouds {
            shape: Shape { batch: 2, ..shape },
            predicted: &x[2 * n * d..4 * n * d],
            target: &y[2 * m * d..4 * m * d],
            predicted_weights: None,
            target_weights: None,
        };
        let mut values = vec![0.0; 2];
        let mut gradient = vec![0.0; 2 * n * d];
        divergence
            .value_and_gradient(
                &shard,
                &directions.slice(2..4),
                None,
                &mut values,
                &mut gradient,
                None,
            )
            .expect("finite");
        assert_eq!(values, whole.0[2..4], "{text}");
        assert_eq!(gradient, whole.1[2 * n * d..4 * n * d], "{text}");
    }
}

fn rotate(points: &[f32], angle: f32) -> Vec<f32> {
    let (sin, cos) = angle.sin_cos();
    points
        .chunks_exact(2)
        .flat_map(|p| [cos * p[0] - sin * p[1], sin * p[0] + cos * p[1]])
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Permuting particles permutes the gradient; translating both clouds and rotating both with the directions changes nothing; swapping them keeps
    /// the value; a cloud against itself gives 0.
    #[test]
    fn invariances(seed in 0_u64..1_000_000, exponent in -6_i32..=6, shift in -3.0_f32..3.0, angle in 0.0_f32..6.0) {
        let mut rng = StreamRng::new(seed, "laws", 1);
        let scale = 10.0_f32.powi(exponent);
        let (n, m, d) = (7, 9, 2);
        let shape = Shape { batch: 1, predicted: n, target: m, dimension: d };
        let x = gaussian(n * d, scale, &mut rng);
        let y = gaussian(m * d, scale, &mut rng);
        for (text, divergence) in every(d) {
            // A search may end elsewhere after rounding; kernels of fixed bandwidth see only their own scale.
            let fixed_scale = text.contains("gauss") || text.contains("mmd\",") || text.contains("mmd\"}")
                || text.contains("sinkhorn") || text.contains("magnitude");
            if text.contains("max") || (fixed_scale && exponent.abs() > 1 && !text.contains("energy")) {
                continue;
            }
            let directions = divergence.draw(1, &mut rng);
            let (value, gradient) = run(divergence.as_ref(), shape, &x, &y, &directions);
            prop_assert!(value[0].is_finite() && gradient.iter().all(|g| g.is_finite()));
            // Self terms of the order of the scale may cancel in the value.
            let size = value[0].abs().max(largest(&gradient) * scale);
            // The terms of these kernels are sums of up to ten numbers near 1, rounded in single precision however small their difference.
            let rounding = if fixed_scale { 3e-6 } else { 0.0 };
            let close = |a: f32, b: f32| (a - b).abs() <= 3e-5 * size + rounding;
            let slope = largest(&gradient);
            let same_gradient = |a: &[f32], b: &[f32]| {
                a.iter().zip(b).all(|(p, q)| (p - q).abs() <= 3e-5 * slope + rounding)
            };

            let reversed: Vec<f32> = rows(&x, d).into_iter().rev().flatten().copied().collect();
            let (permuted, permuted_gradient) = run(divergence.as_ref(), shape, &reversed, &y, &directions);
            prop_assert!(close(permuted[0], value[0]), "{text} permuted {} {}", permuted[0], value[0]);
            let back: Vec<f32> = rows(&permuted_gradient, d).into_iter().rev().flatten().copied().collect();
            prop_assert!(same_gradient(&back, &gradient), "{text} permuted gradient");

            let moved = |points: &[f32]| points.iter().map(|p| p + shift * scale).collect::<Vec<f32>>();
            let (translated, _) = run(divergence.as_ref(), shape, &moved(&x), &moved(&y), &directions);
            prop_assert!(close(translated[0], value[0]), "{text} translated {} {}", translated[0], value[0]);

            if !text.contains("marginal") {
                let turned = Directions::new(rotate(directions.values(), angle), d, directions.batch()).expect("shape");
                let (rotated, _) = run(divergence.as_ref(), shape, &rotate(&x, angle), &rotate(&y, angle), &turned);
                prop_assert!(close(rotated[0], value[0]), "{text} rotated {} {}", rotated[0], value[0]);
            }

            let swapped_shape = Shape { predicted: m, target: n, ..shape };
            let (swapped, _) = run(divergence.as_ref(), swapped_shape, &y, &x, &directions);
            prop_assert!(close(swapped[0], value[0]), "{text} swapped {} {}", swapped[0], value[0]);

            if !text.contains("\"u\"") {
                let square = Shape { target: n, ..shape };
                let (zero, zero_gradient) = run(divergence.as_ref(), square, &x, &reversed, &directions);
                prop_assert!(zero[0].abs() <= 1e-6 * size + rounding, "{text} identical {}", zero[0]);
                prop_assert!(largest(&zero_gradient) <= 1e-5 * slope + rounding, "{text} identical gradient");
            }
        }
    }

    /// The fused Cramér kernel with many ties and duplicates agrees with the f64 kernel, for any sizes.
    #[test]
    fn ties_agree_with_double_precision(seed in 0_u64..1_000_000, n in 1_usize..40, m in 1_usize..40, levels in 1_i32..6) {
        let mut rng = StreamRng::new(seed, "laws", 2);
        let level = |rng: &mut StreamRng| rand::Rng::random_range(rng, 0..levels) as f32 * 0.25;
        let x: Vec<f32> = (0..2 * n).map(|_| level(&mut rng)).collect();
        let y: Vec<f32> = (0..2 * m).map(|_| level(&mut rng)).collect();
        let shape = Shape { batch: 1, predicted: n, target: m, dimension: 2 };
        let double = |v: &[f32]| v.iter().map(|&a| f64::from(a)).collect::<Vec<f64>>();
        let directions = Directions::new(vec![1.0, 0.0, 0.0, -1.0, 0.6, 0.8], 2, None).expect("shape");
        for text in [r#"{"kind": "cramer"}"#, r#"{"kind": "cramer", "statistic": "u"}"#] {
            let divergence = config(text).build(2).expect("valid");
            if divergence.check_sizes(n, m).is_err() {
                continue;
            }
            let (value, gradient) = run(divergence.as_ref(), shape, &x, &y, &directions);
            let (px, py) = (double(&x), double(&y));
            // Two axes only, whose projections are exact: with 0.6, 0.8 ties are rounded differently in f32 and f64.
            let axes = Directions::new(vec![1.0, 0.0, 0.0, -1.0], 2, None).expect("shape");
            let (axis_value, axis_gradient) = run(divergence.as_ref(), shape, &x, &y, &axes);
            let [px, py] = [&px, &py].map(|points| Points { points, weights: None });
            let expected = divergence.evaluate(&px, &py, &double(axes.values())).expect("finite");
            prop_assert!((f64::from(axis_value[0]) - expected.value).abs() < 1e-6);
            for (g, e) in axis_gradient.iter().zip(&expected.gradient) {
                prop_assert!((f64::from(*g) - e).abs() < 1e-6, "{text} {g} {e}");
            }
            prop_assert!(value[0].is_finite() && gradient.iter().all(|g| g.is_finite()));
        }
    }
}

/// One particle, all particles at one place, far outliers, huge and tiny scales: finite and, for Cramér, as in f64.
#[test]
fn awkward_clouds_give_finite_values() {
    let mut rng = StreamRng::new(9, "laws", 3);
    let clouds: Vec<(Vec<f32>, Vec<f32>)> = vec![
        (vec![1.0, 2.0], vec![1.0, 2.0]),
        (vec![1.0, 2.0], vec![-3.0, 0.5]),
        ([0.5, -0.5].repeat(8), [0.5, -0.5].repeat(5)),
        (
            [gaussian(30, 1.0, &mut rng), vec![1e6, -1e6]].concat(),
            gaussian(32, 1.0, &mut rng),
        ),
        (gaussian(32, 1e-6, &mut rng), gaussian(32, 1e6, &mut rng)),
        (gaussian(16, 1e30, &mut rng), gaussian(16, 1e30, &mut rng)),
        (vec![1e-38; 8], vec![-1e-38; 8]),
        (vec![0.0; 8], vec![-0.0; 8]),
    ];
    for (x, y) in &clouds {
        let (n, m) = (x.len() / 2, y.len() / 2);
        let shape = Shape {
            batch: 1,
            predicted: n,
            target: m,
            dimension: 2,
        };
        for (text, divergence) in every(2) {
            if divergence.check_sizes(n, m).is_err() {
                continue;
            }
            // W_p^p and -s^(α/2) of 1e30 leave f32 for p > 1.
            if largest(x) > 1e20 && !text.contains("cramer") && !text.contains("\"p\": 1") {
                continue;
            }
            let directions = divergence.draw(1, &mut rng);
            let (value, gradient) = run(divergence.as_ref(), shape, x, y, &directions);
            assert!(value[0].is_finite(), "{text} {x:?} {y:?}");
            assert!(gradient.iter().all(|g| g.is_finite()), "{text} {x:?} {y:?}");
            if text.contains("cramer") && text.contains("uniform") {
                let double = |v: &[f32]| v.iter().map(|&a| f64::from(a)).collect::<Vec<f64>>();
                let (px, py) = (double(x), double(y));
                let [px, py] = [&px, &py].map(|points| Points {
                    points,
                    weights: None,
                });
                let expected = divergence
                    .evaluate(&px, &py, &double(directions.of(0)))
                    .expect("finite");
                let error = (f64::from(value[0]) - expected.value).abs();
                assert!(
                    error <= 1e-5 * expected.value.abs() + 1e-37,
                    "{text} {} {}",
                    value[0],
                    expected.value
                );
                // Points closer than 2^-25 of the range of both clouds count as ties.
                if largest(x) < 1e-6 * largest(y) {
                    continue;
                }
                for (g, e) in gradient.iter().zip(&expected.gradient) {
                    assert!(
                        (f64::from(*g) - e).abs() <= 1e-4 / n as f64,
                        "{text} {g} {e}"
                    );
                }
            }
        }
    }
}

/// The largest value over directions is at least that of each start, and a start that is kept is used.
#[test]
fn a_search_never_falls_below_its_starts() {
    let mut rng = StreamRng::new(11, "laws", 4);
    let (batch, n, m, d) = (5, 7, 9, 3);
    let shape = Shape {
        batch,
        predicted: n,
        target: m,
        dimension: d,
    };
    let x = gaussian(batch * n * d, 1.0, &mut rng);
    let y = gaussian(batch * m * d, 2.0, &mut rng);
    let clouds = Clouds {
        shape,
        predicted: &x,
        target: &y,
        predicted_weights: None,
        target_weights: None,
    };
    let search = config(
        r#"{"kind": "wasserstein", "lift": {"kind": "max", "search": {"kind": "ascent", "starts": 3, "steps": 4}}}"#,
    )
    .build(d)
    .expect("valid");
    let uniform = config(r#"{"kind": "wasserstein"}"#)
        .build(d)
        .expect("valid");
    let starts = search.draw(batch, &mut rng);
    assert_eq!(starts.values().len(), batch * 3 * d);
    let (mut values, mut gradient) = (vec![0.0; batch], vec![0.0; x.len()]);
    let mut found = vec![0.0; batch * d];
    search
        .value_and_gradient(
            &clouds,
            &starts,
            None,
            &mut values,
            &mut gradient,
            Some(&mut found),
        )
        .expect("finite");
    let kept = search
        .shared_start(&clouds, &found)
        .expect("a start for the next call");
    for (element, value) in values.iter().enumerate() {
        for start in starts.of(element).chunks_exact(d) {
            let single = Directions::new(start.to_vec(), d, None).expect("shape");
            let (at_start, _) = run(uniform.as_ref(), shape, &x, &y, &single);
            assert!(*value >= at_start[element] * (1.0 - 1e-6));
        }
    }
    let first = values.clone();
    search
        .value_and_gradient(
            &clouds,
            &starts,
            Some(&kept),
            &mut values,
            &mut gradient,
            None,
        )
        .expect("finite");
    assert!(values.iter().zip(&first).all(|(again, once)| again >= once));
    let at_kept = Directions::new(kept, d, None).expect("shape");
    let (floor, _) = run(uniform.as_ref(), shape, &x, &y, &at_kept);
    assert!(
        values
            .iter()
            .zip(&floor)
            .all(|(v, f)| *v >= f * (1.0 - 1e-6))
    );
}

#[test]
fn bad_settings_are_one_clear_line() {
    let message = |text: &str, d: usize| config(text).build(d).unwrap_err().to_string();
    assert_eq!(
        message(
            r#"{"kind": "cramer", "lift": {"kind": "uniform", "directions": 0}}"#,
            2
        ),
        "divergence: uniform directions is 0, expected at least 1"
    );
    assert_eq!(
        message(r#"{"kind": "wasserstein", "p": 0.5}"#, 2),
        "divergence: wasserstein p is 0.5, expected a finite number >= 1"
    );
    assert!(
        message(r#"{"kind": "wasserstein", "lift": {"kind": "exact"}}"#, 2)
            .contains("no known closed form for wasserstein")
    );
    assert!(
        message(
            r#"{"kind": "mmd", "kernel": {"kind": "laplace"}, "lift": {"kind": "exact"}}"#,
            2
        )
        .contains("a laplace kernel")
    );
    assert!(
        message(r#"{"kind": "cramer", "lift": {"kind": "none"}}"#, 2)
            .contains("got cramer, expected mmd")
    );
    let grid = r#"{"kind": "cramer", "lift": {"kind": "max", "search": {"kind": "grid"}}}"#;
    assert!(message(grid, 3).contains("grid needs d = 2, got d = 3"));
    assert!(config(grid).build(2).is_ok());
    assert!(
        message(
            r#"{"kind": "mmd", "kernel": {"kind": "energy", "alpha": 2}}"#,
            2
        )
        .contains("energy alpha is 2")
    );
    assert!(
        message(
            r#"{"kind": "mmd", "kernel": {"kind": "gaussian", "bandwidths": []}}"#,
            2
        )
        .contains("bandwidths is empty")
    );
    assert!(message(r#"{"kind": "cramer"}"#, 0).contains("dimension is 0"));
    let unknown = serde_json::from_str::<DivergenceConfig>(r#"{"kind": "cramer", "lif": 1}"#);
    assert!(
        unknown
            .unwrap_err()
            .to_string()
            .contains("unknown field `lif`")
    );
}

#[test]
fn bad_inputs_are_one_clear_line() {
    let divergence = config(r#"{"kind": "cramer", "statistic": "u"}"#)
        .build(2)
        .expect("valid");
    assert_eq!(
        divergence.check_sizes(1, 5).unwrap_err().to_string(),
        "divergence: predicted points: got 1 per cloud, expected at least 2 for statistic u"
    );
    let divergence = config(r#"{"kind": "cramer"}"#).build(2).expect("valid");
    let directions = Directions::axes(2);
    let check = |x: &[f32], weights: Option<&[f32]>| {
        let clouds = Clouds {
            shape: Shape {
                batch: 1,
                predicted: 2,
                target: 1,
                dimension: 2,
            },
            predicted: x,
            target: &[0.0, 1.0],
            predicted_weights: weights,
            target_weights: None,
        };
        divergence
            .value_and_gradient(&clouds, &directions, None, &mut [0.0], &mut [0.0; 4], None)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        check(&[0.0, 1.0, f32::INFINITY, 0.0], None),
        "divergence: predicted points[2] is inf, expected a finite number"
    );
    assert!(check(&[0.0; 3], None).contains("predicted points: got 3, expected 4"));
    assert!(check(&[0.0; 4], Some(&[0.5, 0.25])).contains("the sum is 0.75, expected 1"));
    assert!(check(&[0.0; 4], Some(&[1.5, -0.5])).contains("negative"));
}

#[test]
fn every_registered_kind_parses_and_reads_back() {
    for entry in DIVERGENCES {
        let parsed = config(&format!("{{\"kind\": \"{}\"}}", entry.kind));
        let text = toml::to_string(&parsed).expect("TOML");
        assert_eq!(
            toml::from_str::<DivergenceConfig>(&text).expect("TOML"),
            parsed
        );
        assert!(parsed.build(3).is_ok(), "{}", entry.kind);
    }
    for entry in LIFTS {
        let parsed = config(&format!(
            "{{\"kind\": \"mmd\", \"lift\": {{\"kind\": \"{}\"}}}}",
            entry.kind
        ));
        assert!(parsed.build(3).is_ok(), "{}", entry.kind);
    }
    assert_eq!(DivergenceConfig::default(), config(r#"{"kind": "cramer"}"#));
}
