use super::*;
use crate::walk::Walk;
use crate::{DiscountConfig, EnvConfig, PolicyConfig};

fn discount(config: DiscountConfig) -> Discount {
    Discount::new(&config, 2).unwrap()
}

fn policy(env: &dyn Env, action: &str) -> Policy {
    let action = action.to_owned();
    Policy::new(&PolicyConfig::Action { action }, env).unwrap()
}

/// Samples of a walk of three states from its start.
fn walk(
    slip: f64,
    policy: &Policy,
    first_action: usize,
    discount: &Discount,
    samples: usize,
) -> Vec<f32> {
    let make = || -> Result<Box<dyn Env>, EnvError> { Ok(Box::new(Walk::new(3, slip))) };
    let law = ReturnLaw {
        state: &[0, 0],
        policy,
        first_action,
        discount,
    };
    ground_truth(&make, &law, samples, 11).unwrap()
}

#[test]
fn deterministic_returns_are_the_discounted_sums() {
    let forward = policy(&Walk::new(3, 0.0), "forward");
    // Rewards (1,0), (1,1), (1,2), then terminated; γ = ½: 1 + ½ + ¼ = 1.75 and 0 + ½ + 2/4 = 1.
    let half = discount(DiscountConfig::Scalar(0.5));
    assert_eq!(
        walk(0.0, &forward, 0, &half, 3),
        [1.75, 1.0, 1.75, 1.0, 1.75, 1.0]
    );
    // First action `stay`: (1,0), (1,0), (1,1), (1,2): 1.875 and ¼ + 2/8 = ½.
    assert_eq!(walk(0.0, &forward, 1, &half, 1), [1.875, 0.5]);
    // Γ = diag(½, ¼): second coordinate 1/4 + 2/16 = .375.
    let diagonal = discount(DiscountConfig::Diagonal(vec![0.5, 0.25]));
    assert_eq!(walk(0.0, &forward, 0, &diagonal, 1), [1.75, 0.375]);
    // Γ = [[½, ¼], [0, ½]]: Γ(1,1) = (¾, ½); Γ² = [[¼, ¼], [0, ¼]], Γ²(1,2) = (¾, ½): (1 + ¾ + ¾, ½ + ½).
    let dense = discount(DiscountConfig::Dense(vec![vec![0.5, 0.25], vec![0.0, 0.5]]));
    assert_eq!(walk(0.0, &forward, 0, &dense, 1), [2.5, 1.0]);
}

#[test]
fn episodes_go_on_through_truncation_until_the_discount_is_negligible() {
    // `stay` for ever: truncated from step 4 on, yet Σ γ^t = (1 - γ^T)/(1 - γ) with T = 132, as .9^131 = 1.01e-6 and .9^132 = 9.1e-7.
    let stay = policy(&Walk::new(3, 0.0), "stay");
    let discount = discount(DiscountConfig::Scalar(0.9));
    assert_eq!(horizon(&discount), 132);
    let got = walk(0.0, &stay, 1, &discount, 1)[0];
    assert!((f64::from(got) - 10.0 * (1.0 - 0.9_f64.powi(132))).abs() < 1e-6);
}

#[test]
fn horizons_come_from_norms() {
    let scalar = |gamma| horizon(&discount(DiscountConfig::Scalar(gamma)));
    // ½^19 = 1.9e-6, ½^20 = 9.5e-7; ln 1e-6 / ln .99 = 1374.6.
    assert_eq!(scalar(0.5), 20);
    assert_eq!(scalar(0.99), 1375);
    // Γ^0 is the identity, of norm 1, and Γ^1 is already 0 or small: one step counts.
    assert_eq!(scalar(0.0), 1);
    assert_eq!(scalar(1e-7), 1);
    // sqrt(.7325) times a rotation: ln 1e-6 / ln sqrt(.7325) = 88.76.
    let dense = DiscountConfig::Dense(vec![vec![0.85, 0.1], vec![-0.1, 0.85]]);
    assert_eq!(horizon(&discount(dense)), 89);
    // Nilpotent: Γ² = 0.
    let nilpotent = DiscountConfig::Dense(vec![vec![0.0, 0.9], vec![0.0, 0.0]]);
    assert_eq!(horizon(&discount(nilpotent)), 2);
}

#[test]
fn samples_do_not_depend_on_the_number_of_threads() {
    let forward = policy(&Walk::new(3, 0.0), "forward");
    let discount = discount(DiscountConfig::Scalar(0.9));
    let samples = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| walk(0.3, &forward, 0, &discount, 5 * BLOCK + 7))
    };
    let one = samples(1);
    assert_eq!(one, samples(3));
    // And fewer are the first of more.
    assert_eq!(one[..2 * 1500], walk(0.3, &forward, 0, &discount, 1500));
}

#[test]
fn slipping_returns_have_their_closed_form_mean() {
    // V_3 = 0, V_s = (1, s) + γ(.7 V_{s+1} + .3 V_s) with γ = .9: V_s = ((1, s) + .63 V_{s+1}) / .73.
    let forward = policy(&Walk::new(3, 0.0), "forward");
    let discount = discount(DiscountConfig::Scalar(0.9));
    let n = 200_000;
    let samples = walk(0.3, &forward, 0, &discount, n);
    let mut value = [0.0, 0.0];
    for state in [2.0, 1.0, 0.0] {
        value = [
            (1.0 + 0.63 * value[0]) / 0.73,
            (state + 0.63 * value[1]) / 0.73,
        ];
    }
    for (i, expected) in value.iter().enumerate() {
        let mean = samples
            .iter()
            .skip(i)
            .step_by(2)
            .map(|z| f64::from(*z))
            .sum::<f64>()
            / n as f64;
        // Standard deviations are below 1.5, so 5 standard errors are below .017.
        assert!((mean - expected).abs() < 0.017, "{mean} {expected}");
    }
}

#[test]
fn the_cache_answers_the_same_and_tells_laws_apart() {
    let directory = tempfile::tempdir().unwrap();
    let cache = DiskCache::new(directory.path());
    let env = Walk::new(3, 0.3);
    let forward = policy(&env, "forward");
    let discount = discount(DiscountConfig::Scalar(0.9));
    let make = || -> Result<Box<dyn Env>, EnvError> { Ok(Box::new(Walk::new(3, 0.3))) };
    let law = ReturnLaw {
        state: &[0, 0],
        policy: &forward,
        first_action: 0,
        discount: &discount,
    };
    let fresh = ground_truth(&make, &law, 300, 11).unwrap();
    assert_eq!(
        cached_ground_truth(&cache, "walk", &make, &law, 300, 11).unwrap(),
        fresh
    );
    let never = || -> Result<Box<dyn Env>, EnvError> { Err(EnvError::State("built".into())) };
    assert_eq!(
        cached_ground_truth(&cache, "walk", &never, &law, 300, 11).unwrap(),
        fresh
    );
    let uniform = Policy::new(&PolicyConfig::Uniform, &env).unwrap();
    let others = [
        ReturnLaw {
            state: &[1, 0],
            ..law
        },
        ReturnLaw {
            policy: &uniform,
            ..law
        },
        ReturnLaw {
            first_action: 1,
            ..law
        },
    ];
    for other in others {
        assert!(cached_ground_truth(&cache, "walk", &never, &other, 300, 11).is_err());
    }
    assert!(cached_ground_truth(&cache, "other", &never, &law, 300, 11).is_err());
    assert!(cached_ground_truth(&cache, "walk", &never, &law, 301, 11).is_err());
    assert!(cached_ground_truth(&cache, "walk", &never, &law, 300, 12).is_err());
}

#[test]
fn what_does_not_fit_is_refused() {
    let make = || -> Result<Box<dyn Env>, EnvError> { Ok(Box::new(Walk::new(3, 0.0))) };
    let forward = policy(&Walk::new(3, 0.0), "forward");
    let good = discount(DiscountConfig::Scalar(0.9));
    let law = ReturnLaw {
        state: &[0, 0],
        policy: &forward,
        first_action: 2,
        discount: &good,
    };
    let message = |law: &ReturnLaw<'_>| ground_truth(&make, law, 9, 1).unwrap_err().to_string();
    assert!(message(&law).contains("first action 2, expected 0 to 1"));
    let three = Discount::new(&DiscountConfig::Scalar(0.9), 3).unwrap();
    let wide = ReturnLaw {
        first_action: 0,
        discount: &three,
        ..law
    };
    assert!(message(&wide).contains("3 x 3, expected 2 x 2"));
    let state = ReturnLaw {
        first_action: 0,
        state: &[],
        ..law
    };
    assert!(message(&state).contains("0 bytes"));
}

#[test]
fn maze_returns_lie_where_the_map_says() {
    let config = EnvConfig::new("maze/exclusive", toml::Table::new()).unwrap();
    let make = || config.build();
    let mut env = make().unwrap();
    let mut state = Vec::new();
    env.reset(&mut StreamRng::new(1, "test", 0), ObservationMut::Skip);
    env.save(&mut state);
    let uniform = Policy::new(&PolicyConfig::Uniform, env.as_ref()).unwrap();
    let discount = discount(DiscountConfig::Scalar(0.99));
    let samples = |first_action| {
        let law = ReturnLaw {
            state: &state,
            policy: &uniform,
            first_action,
            discount: &discount,
        };
        ground_truth(&make, &law, 5000, 3).unwrap()
    };
    // Moving right from the start enters (0,1), an item of coordinate 0 worth .2 to .6 at once; moving down one of coordinate 1, .4 to .9.
    assert!(samples(3).chunks_exact(2).all(|z| z[0] >= 0.2));
    assert!(samples(2).chunks_exact(2).all(|z| z[1] >= 0.4));
    // Up is a wall or the way out: no item at once, so some return is 0 or late.
    assert!(samples(0).iter().all(|z| z.is_finite() && *z >= 0.0));
}

fn chain(text: &str) -> ChainConfig {
    toml::from_str(text).unwrap()
}

#[test]
fn an_exact_law_of_two_steps_by_hand() {
    // Exclusive, d = 2, γ = ½, two steps: e_i + ½ e_j, four atoms of ¼.
    let config = chain("length = 2\nslip = 0.0");
    let half = discount(DiscountConfig::Scalar(0.5));
    let law = exact_chain_law(&config, &half, 0).unwrap();
    assert_eq!(law.atoms, [0.0, 1.5, 0.5, 1.0, 1.0, 0.5, 1.5, 0.0]);
    assert_eq!(law.weights, [0.25; 4]);
    // From the last state one step is left; the bonus comes with it.
    let config = chain("length = 2\nslip = 0.0\nterminal_bonus = [10.0, 20.0]");
    let law = exact_chain_law(&config, &half, 1).unwrap();
    assert_eq!(law.atoms, [10.0, 21.0, 11.0, 20.0]);
    // From the first, Γ(bonus) = (5, 10) is added.
    let law = exact_chain_law(&config, &half, 0).unwrap();
    assert_eq!(law.atoms[..2], [5.0, 11.5]);
}

#[test]
fn equal_atoms_are_merged() {
    // Γ = 0 I: only the first reward counts, so 2^5 paths fall on two atoms.
    let config = chain("length = 5\nslip = 0.0");
    let law = exact_chain_law(&config, &discount(DiscountConfig::Scalar(0.0)), 0).unwrap();
    assert_eq!(
        (law.atoms, law.weights),
        (vec![0.0, 1.0, 1.0, 0.0], vec![0.5, 0.5])
    );
    // Independent, d = 2, one step: four corners of ¼.
    let config = chain("length = 1\nslip = 0.0\nreward = { kind = \"independent\" }");
    let law = exact_chain_law(&config, &discount(DiscountConfig::Scalar(0.5)), 0).unwrap();
    assert_eq!(law.atoms, [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    assert_eq!(law.weights, [0.25; 4]);
}

#[test]
fn samples_agree_with_the_exact_law() {
    let text =
        "length = 3\nslip = 0.0\nreward = { kind = \"independent\" }\nterminal_bonus = [0.5, 0.0]";
    let gamma = discount(DiscountConfig::Dense(vec![
        vec![0.85, 0.1],
        vec![-0.1, 0.85],
    ]));
    let exact = exact_chain_law(&chain(text), &gamma, 0).unwrap();
    let config = EnvConfig::new("chain", toml::from_str(text).unwrap()).unwrap();
    let make = || config.build();
    let mut env = make().unwrap();
    env.reset(&mut StreamRng::new(1, "test", 0), ObservationMut::Skip);
    let mut state = Vec::new();
    env.save(&mut state);
    let forward = policy(env.as_ref(), "forward");
    let law = ReturnLaw {
        state: &state,
        policy: &forward,
        first_action: 0,
        discount: &gamma,
    };
    let n = 64_000;
    let samples = ground_truth(&make, &law, n, 3).unwrap();
    let mut counts = vec![0_u32; exact.weights.len()];
    for sample in samples.chunks_exact(2) {
        let near = |atom: &[f64]| {
            atom.iter()
                .zip(sample)
                .all(|(a, z)| (a - f64::from(*z)).abs() < 1e-5)
        };
        counts[exact.atoms.chunks_exact(2).position(near).unwrap()] += 1;
    }
    assert_eq!(counts.len(), 64);
    // Each atom has probability 1/64: 1000 draws with standard deviation 31.4; 5 of them are 157.
    assert!(counts.iter().all(|count| count.abs_diff(1000) < 157));
}

#[test]
fn enumeration_is_refused_with_the_reason() {
    let message = |text: &str, dim: usize| {
        let gamma = Discount::new(&DiscountConfig::Scalar(0.9), dim).unwrap();
        exact_chain_law(&chain(text), &gamma, 0)
            .unwrap_err()
            .to_string()
    };
    assert!(message("", 2).contains("slip = 0.1"));
    assert!(message("slip = 0.0\nreward = { kind = \"gaussian\" }", 2).contains("continuous"));
    assert!(message("slip = 0.0\ndim = 32", 32).contains("expected at most 2^20"));
    assert!(
        message(
            "slip = 0.0\ndim = 21\nreward = { kind = \"independent\" }",
            21
        )
        .contains("2^21")
    );
    assert!(message("slip = 0.0", 3).contains("3 x 3, expected 2 x 2"));
}
