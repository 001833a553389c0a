//! The three games against reference values that were computed independently in double precision; `golden_mean_field/README.md` says how.

use std::path::Path;

use pushforward_envs::mean_field::games::macro_economy::{MacroConfig, MacroEconomy};
use pushforward_envs::mean_field::solve::{
    Information, best_response, exploitability, policy_value,
};
use pushforward_envs::mean_field::{
    Baseline, GameConfig, MeanFieldGame, NoisePaths, Policies, PushForward, Real, Rollout,
    structural_gradient,
};
use serde_json::Value;

const CASES: [(&str, &str); 4] = [
    ("linear_quadratic_zp1", "linear-quadratic"),
    ("beach_bar_1d_loc30_open", "beach-bar"),
    ("beach_bar_1d_loc30_closes", "beach-bar"),
    ("endogenous", "macro"),
];

fn read(case: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_mean_field");
    let text = std::fs::read_to_string(folder.join(format!("{case}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// All numbers of a value, arrays flattened in row-major order.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Bool(truth) => vec![f64::from(u8::from(*truth))],
        other => vec![other.as_f64().unwrap()],
    }
}

/// The noise path of a case, `[T + 1, noise dimension]`.
fn noise(golden: &Value, horizon: usize) -> Vec<f64> {
    match (&golden["z"], &golden["bar_loc"]) {
        (Value::Array(z), Value::Null) => z.iter().flat_map(numbers).collect(),
        (Value::Array(z), bar) => {
            let bar = bar.as_f64().unwrap();
            z.iter().flat_map(|z| [z.as_f64().unwrap(), bar]).collect()
        }
        (z, _) => vec![z.as_f64().unwrap(); horizon + 1],
    }
}

/// prob(s, a) = softmax over a of sin(0.37 s + 0.91 a).
fn policy(states: usize, actions: usize) -> Vec<f64> {
    (0..states)
        .flat_map(|s| {
            let logits = (0..actions).map(|a| (0.37 * s as f64 + 0.91 * a as f64).sin().exp());
            let weights: Vec<f64> = logits.collect();
            let total: f64 = weights.iter().sum();
            weights.into_iter().map(move |weight| weight / total)
        })
        .collect()
}

struct Check {
    case: &'static str,
    /// Largest difference, relative to the largest entry of the reference.
    tolerance: f64,
    checked: Vec<String>,
}

impl Check {
    fn close(&mut self, what: &str, got: &[f64], expected: &Value) {
        let expected = numbers(expected);
        assert_eq!(got.len(), expected.len(), "{}: {what}", self.case);
        let scale = expected.iter().fold(1e-300, |m: f64, x| m.max(x.abs()));
        for (index, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert!(
                (got - expected).abs() <= self.tolerance * scale,
                "{}: {what}[{index}] = {got}, expected {expected} (largest {scale})",
                self.case
            );
        }
        self.checked
            .push(what.split('[').next().unwrap().to_owned());
    }

    /// The fields `sum`, `abs_sum`, `weighted_sum`, `min`, `max` and `entries` of a matrix `[S, A]`, with their own scales.
    fn summary(&mut self, what: &str, matrix: &[f64], actions: usize, expected: &Value) {
        let weighted = |index: usize| {
            ((0.1 * (index / actions) as f64) + 0.2 * (index % actions) as f64).sin()
        };
        let abs_sum: f64 = matrix.iter().map(|x| x.abs()).sum();
        let fields = [
            ("sum", matrix.iter().sum(), abs_sum),
            ("abs_sum", abs_sum, abs_sum),
            (
                "weighted_sum",
                matrix
                    .iter()
                    .enumerate()
                    .map(|(i, x)| x * weighted(i))
                    .sum(),
                abs_sum,
            ),
            (
                "min",
                matrix.iter().fold(f64::MAX, |m, x| m.min(*x)),
                f64::NAN,
            ),
            (
                "max",
                matrix.iter().fold(f64::MIN, |m, x| m.max(*x)),
                f64::NAN,
            ),
            (
                "norm",
                matrix.iter().map(|x| x * x).sum::<f64>().sqrt(),
                f64::NAN,
            ),
        ];
        let largest = matrix.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        for (field, got, scale) in fields {
            let Some(expected) = expected.get(field).and_then(Value::as_f64) else {
                continue;
            };
            // Sums over many entries may differ by their rounding, extremes by that of an entry.
            let scale = if scale.is_nan() { largest } else { scale };
            assert!(
                (got - expected).abs() <= self.tolerance * scale,
                "{}: {what} {field} = {got}, expected {expected}",
                self.case
            );
        }
        for entry in expected["entries"].as_array().unwrap() {
            let [s, a, value] = numbers(entry)[..] else {
                panic!("three numbers")
            };
            let got = matrix[s as usize * actions + a as usize];
            assert!(
                (got - value).abs() <= self.tolerance * largest,
                "{}: {what} ({s}, {a})",
                self.case
            );
        }
    }
}

fn widened<R: Real>(values: &[R]) -> Vec<f64> {
    values.iter().map(|value| value.to_f64()).collect()
}

struct Run<R> {
    game: Box<dyn MeanFieldGame<R>>,
    policy: Vec<R>,
    rollout: Rollout<R>,
}

fn run<R: Real>(name: &str, golden: &Value, settings: &str) -> Run<R> {
    let config = GameConfig::new(name, settings.parse().unwrap()).unwrap();
    let game = config.build::<R>().unwrap();
    let spec = game.spec();
    let exact = policy(spec.states, spec.actions());
    let policy: Vec<R> = exact.into_iter().map(R::from_f64).collect();
    let paths = NoisePaths::from_values(&*game, noise(golden, spec.horizon), vec![1.0]).unwrap();
    let mut simulator = PushForward::new(&*game).unwrap();
    let mut rollout = simulator.start(paths.clone()).unwrap();
    while !rollout.done() {
        simulator.step(&mut rollout, &policy).unwrap();
    }
    // Running all steps at once is the same, bit for bit.
    let policies = Policies::new(spec, 1, vec![&policy]).unwrap();
    assert_eq!(simulator.run(paths, &policies).unwrap(), rollout);
    Run {
        game,
        policy,
        rollout,
    }
}

fn compare<R: Real>(case: &'static str, name: &str, tolerance: f64) -> Vec<String> {
    let golden = read(case);
    let mut check = Check {
        case,
        tolerance,
        checked: Vec::new(),
    };
    let Run {
        game,
        policy,
        rollout,
    } = run::<R>(name, &golden, "");
    let game = &*game;
    let spec = game.spec();
    let (states, actions, horizon) = (spec.states, spec.actions(), spec.horizon);
    for (key, got) in [
        ("n_states", states),
        ("n_actions", actions),
        ("horizon", horizon),
    ] {
        check.close(key, &[got as f64], &golden[key]);
    }
    check.close("gamma", &[spec.discount], &golden["gamma"]);
    let values = if name == "macro" {
        "action_grid"
    } else {
        "actions"
    };
    check.close(values, &spec.action_values, &golden[values]);

    for (time, expected) in golden["mu"].as_object().unwrap() {
        let mu = widened(rollout.mu(time.parse().unwrap()));
        check.close(&format!("mu[{time}]"), &mu, expected);
    }
    let over_time = |f: &dyn Fn(usize) -> f64| (0..=horizon).map(f).collect::<Vec<f64>>();
    let mean = |time: usize, of: &dyn Fn(usize) -> f64| -> f64 {
        let mu = rollout.mu(time).iter().enumerate();
        mu.map(|(s, mass)| mass.to_f64() * of(s)).sum()
    };
    check.close(
        "mu_sum",
        &over_time(&|time| mean(time, &|_| 1.0)),
        &golden["mu_sum"],
    );
    let observed = |index: usize| over_time(&|time| rollout.observations(time)[index]);
    if name == "macro" {
        let economy = MacroEconomy::<f64>::new(name, &MacroConfig::default()).unwrap();
        check.close("wealth_grid", economy.wealth_grid(), &golden["wealth_grid"]);
        check.close("income_grid", economy.income_grid(), &golden["income_grid"]);
        let (wealth, income) = (economy.wealth_grid(), economy.income_grid());
        check.close(
            "mean_wealth",
            &over_time(&|t| mean(t, &|s| wealth[s / 5])),
            &golden["mean_wealth"],
        );
        check.close(
            "mean_income",
            &over_time(&|t| mean(t, &|s| income[s % 5])),
            &golden["mean_income"],
        );
        check.close("interest_rate", &observed(0), &golden["interest_rate"]);
        check.close("wage", &observed(1), &golden["wage"]);
        // Network inputs are f32 in either precision.
        check.tolerance = 1e-6;
        let features = widened(&spec.state_features.as_ref().unwrap().values);
        let last = &features[features.len() - 20..];
        check.close(
            "normalized_states_first10",
            &features[..20],
            &golden["normalized_states_first10"],
        );
        check.close(
            "normalized_states_last10",
            last,
            &golden["normalized_states_last10"],
        );
        check.tolerance = tolerance;
    } else {
        check.close("mu_mean", &observed(0), &golden["mu_mean"]);
        let all: Vec<f64> = (0..=horizon)
            .flat_map(|t| rollout.observations(t).to_vec())
            .collect();
        check.close("obs", &all, &golden["obs"]);
    }

    for (time, expected) in golden["mat_r_checks"].as_object().unwrap() {
        let t: usize = time.parse().unwrap();
        let mut matrix = vec![R::ZERO; states * actions];
        let (now, next) = (rollout.moment(t, 0), rollout.moment(t + 1, 0));
        if t + 1 == horizon {
            game.terminal_rewards(&now, &next, &mut matrix);
        } else {
            game.rewards(&now, &next, &mut matrix);
        }
        let matrix = widened(&matrix);
        check.summary(&format!("mat_r[{t}]"), &matrix, actions, expected);
        check.checked.push("mat_r_checks".to_owned());
        if let Some(expected) = golden["mat_r"].get(time) {
            check.close(&format!("mat_r[{t}]"), &matrix, expected);
        }
    }
    let mean_rewards: Vec<f64> = (0..horizon)
        .flat_map(|t| rollout.rewards(t).to_vec())
        .collect();
    check.close("mean_reward", &mean_rewards, &golden["mean_reward"]);

    let policies = Policies::new(spec, 1, vec![&policy]).unwrap();
    let gap = exploitability(game, &rollout, &policies, Information::Clairvoyant).unwrap();
    check.close(
        "policy_disc_return_t0",
        &gap.policy.states,
        &golden["policy_disc_return_t0"],
    );
    check.close(
        "br_disc_return_t0",
        &gap.best_response.states,
        &golden["br_disc_return_t0"],
    );
    check.close(
        "mean_policy_return",
        &[gap.policy.mean],
        &golden["mean_policy_return"],
    );
    check.close(
        "mean_br_return",
        &[gap.best_response.mean],
        &golden["mean_br_return"],
    );
    check.close("exploitability", &[gap.mean], &golden["exploitability"]);

    // Without discounting: the same game with γ = 1, and there the policy that is greedy for the discounted game.
    let plain = run::<R>(name, &golden, "discount = 1.0");
    let value = policy_value(&*plain.game, &plain.rollout, &policies).unwrap();
    check.close(
        "policy_undisc_return_t0",
        &value.states,
        &golden["policy_undisc_return_t0"],
    );
    let best = best_response(game, &rollout, Information::Clairvoyant).unwrap();
    assert_eq!(best.value, gap.best_response);
    let greedy = best.policy::<R>(actions);
    let greedy = Policies::from_array(spec, 1, &greedy).unwrap();
    let value = policy_value(&*plain.game, &plain.rollout, &greedy).unwrap();
    if tolerance < 1e-6 {
        // Near-ties may go another way in single precision, which moves these by more than rounding.
        check.close(
            "br_undisc_return_t0",
            &value.states,
            &golden["br_undisc_return_t0"],
        );
        for (key, time) in [
            ("br_action_t0", 0),
            ("br_action_tmid", horizon / 2),
            ("br_action_tlast", horizon - 1),
        ] {
            let chosen = &best.actions[time * states..(time + 1) * states];
            let chosen: Vec<f64> = chosen.iter().map(|a| f64::from(*a)).collect();
            check.close(key, &chosen, &golden[key]);
        }
    }

    // dJ/dL(s, a) = Σ_t π(a|s) (g_t(s, a) - Σ_b π(b|s) g_t(s, b)) for logits L shared by all steps.
    for baseline in [Baseline::None, Baseline::Value] {
        let mut gradient = vec![R::ZERO; horizon * states * actions];
        let objective =
            structural_gradient(game, &rollout, &policies, baseline, &mut gradient).unwrap();
        check.close("spg_objective", &objective, &golden["spg_objective"]);
        let mut logits = vec![0.0; states * actions];
        for step in gradient.chunks_exact(states * actions) {
            let rows = step.chunks_exact(actions).zip(policy.chunks_exact(actions));
            for (logits, (g, p)) in logits.chunks_exact_mut(actions).zip(rows) {
                let mean: f64 = g.iter().zip(p).map(|(g, p)| g.to_f64() * p.to_f64()).sum();
                for ((logit, g), p) in logits.iter_mut().zip(g).zip(p) {
                    *logit += p.to_f64() * (g.to_f64() - mean);
                }
            }
        }
        if golden.get("spg_grad").is_some() {
            check.close("spg_grad", &logits, &golden["spg_grad"]);
        }
        let summary = serde_json::json!({
            "norm": golden["spg_grad_norm"], "abs_sum": golden["spg_grad_abs_sum"],
            "weighted_sum": golden["spg_grad_weighted_sum"], "entries": golden["spg_grad_entries"],
        });
        check.summary("spg_grad", &logits, actions, &summary);
    }
    check
        .checked
        .extend(["norm", "abs_sum", "weighted_sum", "entries"].map(|s| format!("spg_grad_{s}")));
    check.checked
}

/// Fields that are labels, inputs, or facts of the model that the populations depend on.
const INPUTS: [&str; 9] = [
    "name",
    "mode",
    "policy",
    "idio_atoms",
    "idio_atoms_probs",
    "z",
    "z_read_back",
    "bar_loc",
    "nan_or_inf",
];

#[test]
fn every_quantity_agrees_in_double_precision() {
    for (case, name) in CASES {
        let checked = compare::<f64>(case, name, 1e-10);
        for key in read(case).as_object().unwrap().keys() {
            assert!(
                INPUTS.contains(&key.as_str()) || checked.contains(key),
                "{case}: {key} is not checked"
            );
        }
    }
}

#[test]
fn every_quantity_agrees_in_single_precision() {
    for (case, name) in CASES {
        compare::<f32>(case, name, 1e-5);
    }
}
