//! Golden values of `tests/oracle/*.json`: independent references, most of them in exact or 60-digit arithmetic.
//!
//! Tolerances are those stated with the references: rounding of the projections (delta), and a few units of the last place.

use pushforward_divergences::{
    Clouds, Directions, DivergenceConfig, KernelConfig, LiftConfig, MedianOf, Points, Shape,
    Statistic, mean_coordinate_power,
};
use serde_json::Value;

const EPS: f64 = 2.220_446_049_250_313e-16;

fn cases(text: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(text).expect("JSON");
    file["cases"].as_array().expect("cases").clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(rows) => rows.iter().flat_map(numbers).collect(),
        Value::Null => Vec::new(),
        number => vec![number.as_f64().expect("number")],
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("number")
}

/// One case: clouds, weights, directions.
struct Case {
    name: String,
    d: usize,
    x: Vec<f64>,
    y: Vec<f64>,
    wx: Vec<f64>,
    wy: Vec<f64>,
    directions: Vec<f64>,
    delta: f64,
}

impl Case {
    fn new(case: &Value) -> Self {
        Self {
            name: case["name"].as_str().expect("name").into(),
            d: case["d"].as_u64().expect("d") as usize,
            x: numbers(&case["x"]),
            y: numbers(&case["y"]),
            wx: numbers(&case["wx"]),
            wy: numbers(&case["wy"]),
            directions: numbers(&case["directions"]),
            delta: case["projection_roundoff"].as_f64().unwrap_or(0.0),
        }
    }

    fn clouds(&self) -> (Points<'_>, Points<'_>) {
        fn weights(w: &[f64]) -> Option<&[f64]> {
            (!w.is_empty()).then_some(w)
        }
        (
            Points {
                points: &self.x,
                weights: weights(&self.wx),
            },
            Points {
                points: &self.y,
                weights: weights(&self.wy),
            },
        )
    }

    fn evaluate(&self, config: &DivergenceConfig) -> pushforward_divergences::Evaluation {
        let divergence = config.build(self.d).expect("valid");
        let (x, y) = self.clouds();
        divergence
            .evaluate(&x, &y, &self.directions)
            .unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// The same through the f32 kernels.
    fn single_precision(&self, config: &DivergenceConfig) -> (f64, Vec<f64>) {
        let single = |v: &[f64]| v.iter().map(|&a| a as f32).collect::<Vec<f32>>();
        let (x, y) = (single(&self.x), single(&self.y));
        let (wx, wy) = (single(&self.wx), single(&self.wy));
        let clouds = Clouds {
            shape: Shape {
                batch: 1,
                predicted: x.len() / self.d,
                target: y.len() / self.d,
                dimension: self.d,
            },
            predicted: &x,
            target: &y,
            predicted_weights: (!wx.is_empty()).then_some(&wx[..]),
            target_weights: (!wy.is_empty()).then_some(&wy[..]),
        };
        let directions = Directions::new(single(&self.directions), self.d, None).expect("shape");
        let mut values = [0.0];
        let mut gradient = vec![0.0; x.len()];
        config
            .build(self.d)
            .expect("valid")
            .value_and_gradient(&clouds, &directions, None, &mut values, &mut gradient, None)
            .unwrap_or_else(|e| panic!("{}: {e}", self.name));
        (
            values[0].into(),
            gradient.iter().map(|&g| g.into()).collect(),
        )
    }
}

fn close(got: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (got - expected).abs() <= tolerance,
        "{what}: got {got}, expected {expected}, off by {:e}, tolerance {tolerance:e}",
        (got - expected).abs()
    );
}

fn all_close(got: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&g, &e)) in got.iter().zip(expected).enumerate() {
        close(g, e, tolerance, &format!("{what}[{i}]"));
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |a, v| v.abs().max(a))
}

fn wasserstein(p: f64) -> DivergenceConfig {
    DivergenceConfig::Wasserstein {
        p,
        lift: LiftConfig::default(),
    }
}

fn cramer(lift: LiftConfig) -> DivergenceConfig {
    DivergenceConfig::Cramer {
        statistic: None,
        lift,
    }
}

#[test]
fn sliced_wasserstein() {
    let cases = cases(include_str!("oracle/sliced_wasserstein.json"));
    assert_eq!(cases.len(), 17);
    for value in &cases {
        let case = Case::new(value);
        let expected = &value["expected"];
        let range = largest(&case.x).max(largest(&case.y)) * 2.0 * case.d as f64;
        let accumulates = value["tags"].as_array().expect("tags").iter().any(|t| {
            t == "shared_far_outlier" || t == "identical_measures" || t == "float_weights"
        });
        for (p, per_direction, mean, gradient) in [
            (1.0, "per_direction_w1", "sw1", "grad_x_sw1"),
            (2.0, "per_direction_w2_pow2", "sw2_pow2", "grad_x_sw2_pow2"),
        ] {
            let tolerance = |v: f64| {
                let masses = if accumulates {
                    4.0 * EPS * range.powf(p)
                } else {
                    0.0
                };
                masses
                    + 8.0 * EPS * v
                    + if p == 1.0 {
                        2.0 * case.delta
                    } else {
                        4.0 * case.delta * v.sqrt() + 4.0 * case.delta * case.delta
                    }
            };
            let got = case.evaluate(&wasserstein(p));
            for (&g, e) in got
                .per_direction
                .iter()
                .zip(numbers(&expected[per_direction]))
            {
                close(g, e, tolerance(e), &format!("{} p={p}", case.name));
            }
            let mean = number(&expected[mean]);
            close(
                got.value,
                mean,
                tolerance(mean),
                &format!("{} p={p} mean", case.name),
            );
            let gradient = numbers(&expected[gradient]);
            if !gradient.is_empty() {
                // Slopes are 1 or 2 |x - y|, the latter with the rounding of a projection.
                let tolerance = if p == 1.0 { 1e-15 } else { 4.0 * case.delta };
                all_close(
                    &got.gradient,
                    &gradient,
                    tolerance + 8.0 * EPS * largest(&gradient),
                    &format!("{} p={p} gradient", case.name),
                );
                let (value, single) = case.single_precision(&wasserstein(p));
                single_close(&case, value, mean, &single, &gradient, p);
            }
        }
        let root = number(&expected["sw2"]);
        let got = case.evaluate(&wasserstein(2.0)).root.expect("not negative");
        let slack = (4.0 * case.delta * root + 4.0 * case.delta * case.delta).sqrt();
        close(got, root, slack.min(1e-6 + 1e-9 * root), &case.name);
    }
}

/// The f32 kernels against f64 references: rounding of the inputs and projections, 2^-24 of the largest coordinate.
fn single_close(case: &Case, value: f64, mean: f64, gradient: &[f64], expected: &[f64], p: f64) {
    if case.name.contains("1e6") {
        return;
    }
    let scale = largest(&case.x).max(largest(&case.y));
    close(
        value,
        mean,
        1e-5 * mean + 4e-7 * scale.powf(p),
        &format!("{} f32", case.name),
    );
    all_close(
        gradient,
        expected,
        1e-5 * largest(expected) + 4e-7 * scale.powf(p - 1.0),
        &format!("{} f32 gradient", case.name),
    );
}

#[test]
fn sliced_cramer() {
    let cases = cases(include_str!("oracle/sliced_cramer.json"));
    assert_eq!(cases.len(), 17);
    for value in &cases {
        let case = Case::new(value);
        let expected = &value["expected"];
        let tolerance = |v: f64| 4.0 * case.delta + 8.0 * EPS * v;
        let got = case.evaluate(&cramer(LiftConfig::default()));
        for (&g, e) in got
            .per_direction
            .iter()
            .zip(numbers(&expected["per_direction_cramer"]))
        {
            close(g, e, tolerance(e), &case.name);
        }
        let mean = number(&expected["sliced_cramer"]);
        close(got.value, mean, tolerance(mean), &case.name);
        close(
            got.root.expect("not negative"),
            number(&expected["sliced_cramer_root"]),
            (tolerance(mean)).sqrt().min(1e-7),
            &case.name,
        );
        let gradient = numbers(&expected["grad_x_sliced_cramer"]);
        all_close(
            &got.gradient,
            &gradient,
            2e-15,
            &format!("{} gradient", case.name),
        );
        // An energy kernel with α = 1 is twice the Cramér distance.
        let energy = case.evaluate(&DivergenceConfig::Mmd {
            kernel: KernelConfig::Energy { alpha: 1.0 },
            statistic: None,
            lift: LiftConfig::default(),
        });
        let expected_energy = number(&expected["sliced_energy"]);
        close(
            energy.value,
            expected_energy,
            2.0 * tolerance(mean),
            &case.name,
        );
        let (value, single) = case.single_precision(&cramer(LiftConfig::default()));
        single_close(&case, value, mean, &single, &gradient, 1.0);
    }
}

fn kernels() -> Vec<(&'static str, KernelConfig)> {
    vec![
        ("gauss_mix_1_10", KernelConfig::default()),
        ("multiquadric_h1", KernelConfig::Multiquadric { h: 1.0 }),
        ("multiquadric_h100", KernelConfig::Multiquadric { h: 100.0 }),
        ("laplace_h1", KernelConfig::Laplace { h: 1.0 }),
        ("laplace_h2.5", KernelConfig::Laplace { h: 2.5 }),
        (
            "gauss_median_sq",
            KernelConfig::Median {
                of: MedianOf::Squares,
            },
        ),
        (
            "gauss_median_sigma",
            KernelConfig::Median {
                of: MedianOf::Distances,
            },
        ),
        ("energy_a1", KernelConfig::Energy { alpha: 1.0 }),
        ("energy_a1.5", KernelConfig::Energy { alpha: 1.5 }),
    ]
}

/// The largest |k| over all pairs, the scale of rounding in MMD².
fn largest_kernel(kernel: &KernelConfig, case: &Case) -> f64 {
    let all: Vec<&[f64]> = case
        .x
        .chunks_exact(case.d)
        .chain(case.y.chunks_exact(case.d))
        .collect();
    let mut s = 0.0_f64;
    for a in &all {
        for b in &all {
            s = s.max(a.iter().zip(*b).map(|(p, q)| (p - q) * (p - q)).sum());
        }
    }
    match kernel {
        KernelConfig::Gaussian { bandwidths, .. } => bandwidths.len() as f64,
        KernelConfig::Laplace { .. } | KernelConfig::Median { .. } => 1.0,
        KernelConfig::Multiquadric { h } => (1.0 + h * h * s).sqrt(),
        KernelConfig::Energy { alpha } => s.powf(alpha / 2.0),
    }
}

#[test]
fn mmd() {
    let cases = cases(include_str!("oracle/mmd.json"));
    assert_eq!(cases.len(), 17);
    for value in &cases {
        let case = Case::new(value);
        for (id, kernel) in kernels() {
            let expected = &value["expected"][id];
            let scale = largest_kernel(&kernel, &case);
            // Cancelling sums, and for the sliced values the slope of the kernel times the rounding of a projection.
            let slope = match &kernel {
                KernelConfig::Gaussian { .. } => 3.0,
                KernelConfig::Multiquadric { h } => *h,
                KernelConfig::Energy { alpha } => 2.0 * scale.powf((alpha - 1.0) / alpha).max(1.0),
                KernelConfig::Laplace { h } => 1.0 / h,
                KernelConfig::Median { .. } => {
                    let bandwidths = numbers(&expected["per_direction_bandwidth"]);
                    1.0 / bandwidths.iter().fold(1.0_f64, |a, h| a.min(*h)).sqrt()
                }
            };
            for (statistic, lift, key, gradient_key) in [
                (Statistic::V, LiftConfig::None, "mmd2_v", "grad_x_mmd2_v"),
                (Statistic::U, LiftConfig::None, "mmd2_u", ""),
                (
                    Statistic::V,
                    LiftConfig::default(),
                    "sliced_v",
                    "grad_x_sliced_v",
                ),
                (Statistic::U, LiftConfig::default(), "sliced_u", ""),
            ] {
                let Some(reference) = expected[key].as_f64() else {
                    continue;
                };
                let sliced = lift != LiftConfig::None;
                let tolerance = 2e-15 * scale
                    + if sliced {
                        4.0 * case.delta * slope
                    } else {
                        0.0
                    };
                let config = DivergenceConfig::Mmd {
                    kernel: kernel.clone(),
                    statistic: Some(statistic),
                    lift,
                };
                let what = format!("{} {id} {key}", case.name);
                let got = case.evaluate(&config);
                close(got.value, reference, tolerance, &what);
                if sliced {
                    let per = if statistic == Statistic::V {
                        "per_direction_v"
                    } else {
                        "per_direction_u"
                    };
                    all_close(
                        &got.per_direction,
                        &numbers(&expected[per]),
                        tolerance,
                        &what,
                    );
                }
                let gradient = numbers(&expected[gradient_key]);
                if !gradient.is_empty() {
                    // Relative to the largest entry; the curvature of the kernel times the rounding of a projection where it is sliced.
                    let curvature = match &kernel {
                        KernelConfig::Multiquadric { h } => h * h,
                        _ => 10.0,
                    };
                    let rounding = if sliced {
                        curvature * 4.0 * case.delta
                    } else {
                        0.0
                    };
                    all_close(
                        &got.gradient,
                        &gradient,
                        4e-15 * slope.max(1.0) + rounding,
                        &format!("{what} gradient"),
                    );
                }
            }
        }
    }
}

/// A divergence that waits for its lift.
type WithLift = Box<dyn Fn(LiftConfig) -> DivergenceConfig>;

#[test]
fn max_sliced() {
    let ascent: LiftConfig = serde_json::from_str(
        r#"{"kind": "max", "search": {"kind": "ascent", "starts": 256, "steps": 60}}"#,
    )
    .expect("valid");
    let grid: LiftConfig =
        serde_json::from_str(r#"{"kind": "max", "search": {"kind": "grid", "angles": 4000}}"#)
            .expect("valid");
    for value in &cases(include_str!("oracle/max_sliced.json")) {
        let mut case = Case::new(value);
        let mut rng = pushforward_envs::StreamRng::new(5, "starts", 0);
        let starts = Directions::draw(Default::default(), 256, case.d, None, &mut rng);
        case.directions = starts.values().iter().map(|&v| v.into()).collect();
        let expected = &value["expected"];
        let checks: Vec<(&Value, WithLift)> = vec![
            (
                &expected["w1"]["max_value"],
                Box::new(|lift| DivergenceConfig::Wasserstein { p: 1.0, lift }),
            ),
            (
                &expected["w2_pow2"]["max_value"],
                Box::new(|lift| DivergenceConfig::Wasserstein { p: 2.0, lift }),
            ),
            (&expected["cramer"]["max_value"], Box::new(cramer)),
            (
                &expected["mmd"]["gauss_mix_1_10"]["max_mmd2_v"],
                Box::new(|lift| DivergenceConfig::Mmd {
                    kernel: KernelConfig::default(),
                    statistic: None,
                    lift,
                }),
            ),
            (
                &expected["mmd"]["multiquadric_h1"]["max_mmd2_v"],
                Box::new(|lift| DivergenceConfig::Mmd {
                    kernel: KernelConfig::Multiquadric { h: 1.0 },
                    statistic: None,
                    lift,
                }),
            ),
        ];
        for (reference, config) in checks {
            let reference = number(reference);
            let lifts = if case.d == 2 {
                vec![&ascent, &grid]
            } else {
                vec![&ascent]
            };
            for lift in lifts {
                let got = case.evaluate(&config(lift.clone()));
                let what = format!("{} {:?}", case.name, config(lift.clone()));
                // With a far outlier the maximum of a Gaussian kernel is a needle that no search from afar finds.
                let needle = case.name.contains("far_outlier") && what.contains("Gaussian");
                // A lower bound that is close: maxima often sit on kinks.
                assert!(
                    got.value <= reference * (1.0 + 1e-12) + 1e-14,
                    "{what}: {} above {reference}",
                    got.value
                );
                assert!(
                    needle || got.value >= reference * (1.0 - 2e-3) - 1e-14,
                    "{what}: {} below {reference}",
                    got.value
                );
            }
        }
    }
}

#[test]
fn closed_forms() {
    for value in &cases(include_str!("oracle/closed_form.json")) {
        let expected = &value["expected"];
        let mut case = Case::new(value);
        match value["kind"].as_str().expect("kind") {
            "c_d" => {
                let kappa = mean_coordinate_power(case.d, 1.0);
                close(2.0 / kappa, number(&expected["c_d"]), 1e-12, &case.name);
                close(
                    mean_coordinate_power(case.d, 1.5),
                    number(&expected["mean_abs_first_coordinate_pow_1.5"]),
                    1e-13,
                    &case.name,
                );
            }
            "translation" => {
                case.directions = numbers(&value["orthonormal_directions"]);
                let got = case.evaluate(&wasserstein(2.0));
                let mean = number(&expected["orthonormal_mean_w2_pow2"]);
                close(got.value, mean, 1e-14 * mean.max(1.0), &case.name);
                close(
                    mean,
                    number(&expected["sw2_pow2_uniform"]),
                    1e-13 * mean,
                    &case.name,
                );
            }
            "energy_vs_sliced_cramer" => {
                let exact = case.evaluate(&cramer(LiftConfig::Exact));
                let reference = number(&expected["sliced_cramer_uniform"]);
                close(
                    exact.value,
                    reference,
                    1e-13 * reference.max(1.0),
                    &case.name,
                );
                for (alpha, lift, key) in [
                    (1.0, LiftConfig::None, "energy_distance"),
                    (1.5, LiftConfig::None, "energy_distance_a1.5"),
                    (1.5, LiftConfig::Exact, "sliced_energy_a1.5_uniform"),
                ] {
                    let got = case.evaluate(&DivergenceConfig::Mmd {
                        kernel: KernelConfig::Energy { alpha },
                        statistic: None,
                        lift,
                    });
                    let reference = number(&expected[key]);
                    close(got.value, reference, 1e-13 * reference.max(1.0), &case.name);
                }
            }
            "uniform_sliced_d2" => {
                let exact = case.evaluate(&cramer(LiftConfig::Exact));
                let reference = number(&expected["sliced_cramer_uniform"]);
                close(
                    exact.value,
                    reference,
                    1e-13 * reference.max(1.0),
                    &case.name,
                );
                // 4000 equally spaced angles: the error of a trapezoid over kinks.
                case.directions = (0..4000)
                    .flat_map(|k| {
                        let angle = (f64::from(k) + 0.5) * std::f64::consts::PI / 4000.0;
                        [angle.cos(), angle.sin()]
                    })
                    .collect();
                for (p, key) in [(1.0, "sw1_uniform"), (2.0, "sw2_pow2_uniform")] {
                    let reference = number(&expected[key]);
                    close(
                        case.evaluate(&wasserstein(p)).value,
                        reference,
                        1e-6 * reference,
                        &case.name,
                    );
                }
            }
            _ => {}
        }
    }
}

/// Debiased Sinkhorn against 60-digit Newton solutions (a marginal error of 1e-12 and rounding of the costs), and exact transport.
#[test]
fn transport() {
    let cases = cases(include_str!("oracle/sinkhorn.json"));
    assert_eq!(cases.len(), 11);
    for value in &cases {
        let case = Case::new(value);
        for row in value["expected"]["sinkhorn"].as_array().expect("rows") {
            let config = DivergenceConfig::Sinkhorn {
                epsilon: number(&row["epsilon"]),
            };
            let got = case.evaluate(&config);
            let what = format!("{} epsilon {}", case.name, row["epsilon"]);
            let scale = number(&row["ot_reg_xy"]).abs() + number(&row["ot_reg_xx"]).abs();
            close(got.value, number(&row["divergence"]), 1e-12 * scale, &what);
            let gradient = numbers(&row["grad_x_divergence"]);
            let scale = largest(&case.x).max(largest(&case.y));
            all_close(&got.gradient, &gradient, 1e-10 * scale, &what);
        }
        // Exact transport by network simplex in float64, 2.2e-16 from an assignment solver.
        let exact = |p, key: &str| {
            let got = case.evaluate(&DivergenceConfig::Ot { p });
            let expected = number(&value["expected"][key]);
            close(
                got.value,
                expected,
                1e-14 * expected + 1e-15,
                &format!("{} {key}", case.name),
            );
        };
        exact(1.0, "w1_exact");
        exact(2.0, "w2_pow2_exact");
    }
}

/// Magnitude against 60-digit solutions: 1.2e-14 absolute per value and rounding of the sums, and 5e-10 relative per gradient with near duplicates.
#[test]
fn magnitude() {
    let cases = cases(include_str!("oracle/magnitude.json"));
    assert_eq!(cases.len(), 16);
    for value in &cases {
        let case = Case::new(value);
        let at = |t: f64| case.evaluate(&DivergenceConfig::Magnitude { t });
        for row in value["expected"]["sweep"].as_array().expect("rows") {
            let t = number(&row["t"]);
            let what = format!("{} t {t}", case.name);
            // Sums of up to 32 weights round by a few units of their last place on top.
            let tolerance = 1.2e-14 + 4.0 * EPS * number(&row["mag_union"]);
            close(at(t).value, number(&row["distance"]), tolerance, &what);
        }
        for row in value["expected"]["gradients"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let t = number(&row["t"]);
            let gradient = numbers(&row["grad_x_distance"]);
            let relative = if case.name.contains("near") {
                1e-9
            } else {
                1e-13
            };
            let what = format!("{} t {t} gradient", case.name);
            all_close(
                &at(t).gradient,
                &gradient,
                relative * largest(&gradient) + 1e-15,
                &what,
            );
        }
    }
}
