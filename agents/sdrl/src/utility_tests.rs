use proptest::prelude::*;
use pushforward_envs::{DiscountConfig, ObservationKind, ObservationSpec};

use super::*;

fn env(constraints: Vec<Constraint>) -> EnvSpec {
    EnvSpec {
        name: "test".into(),
        observation: ObservationSpec {
            shape: vec![1],
            kind: ObservationKind::F32,
            low: 0.0,
            high: 1.0,
        },
        action_names: vec!["left".into(), "right".into()],
        reward_dim: 2,
        max_steps: None,
        constraints,
    }
}

fn build(
    config: UtilityConfig,
    discount: DiscountConfig,
    dim: usize,
) -> Result<Utility, UtilityError> {
    let discount = Discount::new(&discount, dim).unwrap();
    Utility::new(&config, dim, &discount, &env(Vec::new()))
}

fn scalar(config: UtilityConfig) -> Result<Utility, UtilityError> {
    build(config, DiscountConfig::Scalar(0.9), 2)
}

fn values(utility: &mut Utility, particles: &[f32], actions: usize, n: usize) -> Vec<f64> {
    let mut values = vec![0.0; actions];
    utility.values(particles, n, &[], &mut values);
    values
}

/// Two actions of three particles each in the plane.
const CLOUDS: [f32; 12] = [
    0.0, 0.0, 1.0, 2.0, 5.0, 4.0, // action 0: mean (2, 2)
    3.0, 0.0, 0.0, 3.0, 3.0, 3.0, // action 1: mean (2, 2)
];

#[test]
fn linear_is_the_weighted_mean() {
    let weights = vec![2.0, -1.0];
    let mut utility = scalar(UtilityConfig::Linear { weights }).unwrap();
    // 2·2 - 1·2 = 2 for both: the tie goes to the lowest index.
    assert_eq!(values(&mut utility, &CLOUDS, 2, 3), [2.0, 2.0]);
    assert_eq!(utility.greedy(&CLOUDS, 2, 3, &[]), 0);
    let mut better = CLOUDS;
    better[6] = 6.0; // action 1 has mean (3, 2): 2·3 - 2 = 4.
    assert_eq!(values(&mut utility, &better, 2, 3), [2.0, 4.0]);
    assert_eq!(utility.greedy(&better, 2, 3, &[]), 1);
    assert!(!utility.needs_extra() && utility.extra_length() == 0);
}

#[test]
fn chebyshev_is_the_mean_worst_weighted_distance() {
    let config = UtilityConfig::Chebyshev {
        weights: vec![1.0, 2.0],
        reference: vec![3.0, 3.0],
    };
    let mut utility = scalar(config).unwrap();
    // Action 0: max(3,6) = 6, max(2,2) = 2, max(2,2) = 2: -10/3. Action 1: max(0,6) = 6, max(3,0) = 3, 0: -9/3.
    let got = values(&mut utility, &CLOUDS, 2, 3);
    assert!((got[0] + 10.0 / 3.0).abs() < 1e-12 && (got[1] + 3.0).abs() < 1e-12);
    assert_eq!(utility.greedy(&CLOUDS, 2, 3, &[]), 1);
}

#[test]
fn cvar_takes_the_last_particle_in_part() {
    let cvar = |alpha| {
        scalar(UtilityConfig::Cvar {
            weights: Vec::new(),
            alpha,
        })
    };
    // w·Z of action 0: 0, 3, 9; of action 1: 3, 3, 6. alpha = .5 is 1.5 particles: (0 + .5·3)/1.5 = 1 and (3 + .5·3)/1.5 = 3.
    let mut utility = cvar(0.5).unwrap();
    assert_eq!(values(&mut utility, &CLOUDS, 2, 3), [1.0, 3.0]);
    assert_eq!(utility.greedy(&CLOUDS, 2, 3, &[]), 1);
    // alpha = .1 is .3 of the worst particle: the worst. alpha = 1 is the mean, 4 for both.
    assert_eq!(values(&mut cvar(0.1).unwrap(), &CLOUDS, 2, 3), [0.0, 3.0]);
    assert_eq!(values(&mut cvar(1.0).unwrap(), &CLOUDS, 2, 3), [4.0, 4.0]);
    assert!(cvar(0.0).is_err() && cvar(1.5).is_err() && cvar(f64::NAN).is_err());
}

#[test]
fn hyperbolic_is_a_weighted_mean_on_the_grid() {
    let config = UtilityConfig::Hyperbolic { k: 0.1 };
    let mut utility = build(config.clone(), hyperbolic_discount(8), 8).unwrap();
    assert!(utility.hyperbolic_error().unwrap() < 0.05);
    // A reward of 1 at t = 10, repeated in all coordinates, has Z_i = γ_i^10: worth about 1/(1 + .1·10) = .5.
    let fit = HyperbolicFit::new(8, 0.1);
    let particle: Vec<f32> = fit
        .discounts
        .iter()
        .map(|gamma| gamma.powi(10) as f32)
        .collect();
    let got = values(&mut utility, &particle, 1, 1)[0];
    assert!((got - 0.5).abs() < fit.error + 1e-6, "{got}");
    let message = build(config, DiscountConfig::Scalar(0.9), 8)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("hyperbolic needs the diagonal discount of 8"),
        "{message}"
    );
}

fn constraint(dim: usize, op: ConstraintOp, value: f64) -> Constraint {
    Constraint { dim, op, value }
}

/// Z_0 > 1/2 and Z_1 > 1/2.
fn both(criterion: Criterion) -> UtilityConfig {
    let above = |dim| constraint(dim, ConstraintOp::Greater, 0.5);
    UtilityConfig::JointConstraint {
        criterion,
        constraints: Some(vec![above(0), above(1)]),
    }
}

#[test]
fn joint_and_marginal_differ_on_correlated_particles() {
    // Action 0: (1,0), (1,0), (0,1), (0,1): joint 0, marginal ½·½ = ¼. Action 1: (1,1), three times (0,0): joint ¼, marginal ¹⁄₁₆.
    let particles = [
        1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, //
        1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    ];
    let start = [0.0, 0.0, 1.0];
    for (criterion, expected, action) in [
        (Criterion::Joint, [0.0, 0.25], 1),
        (Criterion::Marginal, [0.25, 0.0625], 0),
    ] {
        let mut utility = scalar(both(criterion)).unwrap();
        assert!(utility.needs_extra() && utility.extra_length() == 3);
        let mut got = [0.0; 2];
        utility.values(&particles, 4, &start, &mut got);
        assert_eq!(got, expected);
        assert_eq!(utility.greedy(&particles, 2, 4, &start), action);
    }
}

#[test]
fn the_past_counts_through_c_t_and_the_power() {
    // One particle (1, 2). Scalar: C = (.2, -.4), Γ^t = .5: (.7, .6), both above ½; with Γ^t = .25: (.45, .1), neither.
    let mut utility = scalar(both(Criterion::Joint)).unwrap();
    let mut got = [0.0];
    utility.values(&[1.0, 2.0], 1, &[0.2, -0.4, 0.5], &mut got);
    assert_eq!(got, [1.0]);
    utility.values(&[1.0, 2.0], 1, &[0.2, -0.4, 0.25], &mut got);
    assert_eq!(got, [0.0]);
    // Diagonal: Γ^t = diag(.5, .25): (.7, .1).
    let mut utility = build(
        both(Criterion::Marginal),
        DiscountConfig::Diagonal(vec![0.9, 0.8]),
        2,
    )
    .unwrap();
    assert_eq!(utility.extra_length(), 4);
    utility.values(&[1.0, 2.0], 1, &[0.2, -0.4, 0.5, 0.25], &mut got);
    assert_eq!(got, [0.0]);
    // Dense: Γ^t = [[.1, .2], [.5, .3]]: (.1 + .4, .5 + .6) + C = (.7, .7); transposed it would be (1.3, .4).
    let dense = DiscountConfig::Dense(vec![vec![0.5, 0.1], vec![0.0, 0.5]]);
    let mut utility = build(both(Criterion::Joint), dense, 2).unwrap();
    assert_eq!(utility.extra_length(), 6);
    utility.values(&[1.0, 2.0], 1, &[0.2, -0.4, 0.1, 0.2, 0.5, 0.3], &mut got);
    assert_eq!(got, [1.0]);
}

#[test]
fn ties_go_to_probabilities_then_slack_then_index() {
    let start = [0.0, 0.0, 1.0];
    let mut utility = scalar(both(Criterion::Joint)).unwrap();
    // No joint success anywhere. Held constraints of two particles: 1, 2, 2.
    let particles = [
        1.0, 0.0, 0.0, 0.0, //
        1.0, 0.0, 0.0, 0.6, // slack .5 - .5 - .5 + .1 = -.4
        0.7, 0.0, 0.7, 0.0, // slack .2 - .5 + .2 - .5 = -.6
    ];
    assert_eq!(utility.greedy(&particles, 3, 2, &start), 1);
    // Action 2 with larger slack: 1.2 in place of .7 gives -.1, and it wins.
    let mut larger = particles;
    larger[8] = 1.2;
    assert_eq!(utility.greedy(&larger, 3, 2, &start), 2);
    // Equal in everything: the lowest index.
    let equal = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0];
    assert_eq!(utility.greedy(&equal, 2, 2, &start), 0);
    // Strict: exactly at the threshold holds nowhere.
    let mut got = [1.0];
    utility.values(&[0.5, 0.5], 1, &start, &mut got);
    assert_eq!(got, [0.0]);
}

#[test]
fn constraints_default_to_the_environment() {
    let discount = Discount::new(&DiscountConfig::Scalar(0.9), 2).unwrap();
    let config = UtilityConfig::JointConstraint {
        criterion: Criterion::Joint,
        constraints: None,
    };
    let message = Utility::new(&config, 2, &discount, &env(Vec::new())).unwrap_err();
    assert!(message.to_string().contains("test has none"));
    let below = vec![constraint(1, ConstraintOp::Less, 1.0)];
    let mut utility = Utility::new(&config, 2, &discount, &env(below)).unwrap();
    let mut got = [0.0; 2];
    utility.values(&[0.0, 2.0, 0.0, 0.5], 1, &[0.0, 0.0, 1.0], &mut got);
    assert_eq!(got, [0.0, 1.0]);
    let far = env(vec![constraint(2, ConstraintOp::Less, 1.0)]);
    let message = Utility::new(&config, 2, &discount, &far).unwrap_err();
    assert!(message.to_string().contains("dim 2, expected 0..2"));
}

#[test]
fn an_action_that_is_not_a_number_is_not_preferred() {
    let mut utility = scalar(UtilityConfig::default()).unwrap();
    let nan = f32::NAN;
    assert_eq!(utility.greedy(&[nan, 0.0, -5.0, -5.0], 2, 1, &[]), 1);
    assert_eq!(utility.greedy(&[-5.0, -5.0, nan, 0.0], 2, 1, &[]), 0);
}

#[test]
fn wrong_lengths_are_one_line() {
    let message = |config| scalar(config).unwrap_err().to_string();
    let weights = vec![1.0; 3];
    let expected = "utility: 3 weights, expected 2 (one per return coordinate)";
    assert_eq!(
        message(UtilityConfig::Linear {
            weights: weights.clone()
        }),
        expected
    );
    assert_eq!(
        message(UtilityConfig::Cvar {
            weights,
            alpha: 0.5
        }),
        expected
    );
    let chebyshev = UtilityConfig::Chebyshev {
        weights: Vec::new(),
        reference: Vec::new(),
    };
    assert!(message(chebyshev).contains("0 reference, expected 2"));
    let infinite = UtilityConfig::Linear {
        weights: vec![1.0, f64::INFINITY],
    };
    assert!(message(infinite).contains("weights hold inf"));
    assert!(message(UtilityConfig::Hyperbolic { k: 0.0 }).contains("k = 0"));
}

#[test]
fn the_written_form_names_the_field_terms() {
    let parse = |text: &str| serde_json::from_str::<UtilityConfig>(text);
    let joint = parse(r#"{"kind": "joint-constraint", "criterion": "marginal"}"#).unwrap();
    let expected = UtilityConfig::JointConstraint {
        criterion: Criterion::Marginal,
        constraints: None,
    };
    assert_eq!(joint, expected);
    assert_eq!(
        parse(r#"{"kind": "hyperbolic", "k": 0.1}"#).unwrap(),
        UtilityConfig::Hyperbolic { k: 0.1 }
    );
    assert!(parse(r#"{"kind": "cvar", "alpha": 0.1, "weight": [1]}"#).is_err());
}

proptest! {
    /// Three actions of five particles on a coarse grid, so that ties happen.
    #[test]
    fn the_order_of_particles_does_not_matter(cells in prop::collection::vec(0_u8..4, 30), turn in 0_usize..5) {
        let particles: Vec<f32> = cells.iter().map(|cell| f32::from(*cell) * 0.25).collect();
        let mut turned = particles.clone();
        turned.chunks_exact_mut(10).for_each(|cloud| cloud.rotate_left(2 * turn));
        let extra = [0.0, 0.25, 0.5];
        let configs = [
            UtilityConfig::default(),
            UtilityConfig::Chebyshev { weights: vec![1.0, 0.5], reference: vec![1.0, 1.0] },
            UtilityConfig::Cvar { weights: Vec::new(), alpha: 0.3 },
            both(Criterion::Joint),
            both(Criterion::Marginal),
        ];
        for config in configs {
            let mut utility = scalar(config).unwrap();
            let action = utility.greedy(&particles, 3, 5, &extra);
            prop_assert_eq!(action, utility.greedy(&turned, 3, 5, &extra));
            // The greedy action has the largest value.
            let mut got = [0.0; 3];
            utility.values(&particles, 5, &extra, &mut got);
            prop_assert!(got.iter().all(|value| *value <= got[action]));
        }
    }

    #[test]
    fn special_cases_coincide(points in prop::collection::vec(-2.0_f32..2.0, 14)) {
        // CVaR of everything is the mean; with one constraint joint and marginal are the same.
        let weights = vec![0.5, -1.5];
        let mut mean = scalar(UtilityConfig::Linear { weights: weights.clone() }).unwrap();
        let mut tail = scalar(UtilityConfig::Cvar { weights, alpha: 1.0 }).unwrap();
        let (a, b) = (values(&mut mean, &points, 1, 7)[0], values(&mut tail, &points, 1, 7)[0]);
        prop_assert!((a - b).abs() < 1e-12);
        let one = |criterion| {
            let constraints = Some(vec![constraint(1, ConstraintOp::Less, 0.2)]);
            let mut got = [0.0];
            let mut utility = scalar(UtilityConfig::JointConstraint { criterion, constraints }).unwrap();
            utility.values(&points, 7, &[0.0, 0.0, 1.0], &mut got);
            got[0]
        };
        prop_assert_eq!(one(Criterion::Joint), one(Criterion::Marginal));
    }
}
