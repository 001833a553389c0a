//! Laws that every registered game keeps, the structural gradient against finite differences, and solvers against numbers by hand.

use proptest::prelude::*;
use pushforward_envs::mean_field::solve::{
    Information, best_response, exploitability, policy_value,
};
use pushforward_envs::mean_field::tabular::{fictitious_play, online_mirror_descent};
use pushforward_envs::mean_field::{
    ActionKind, Baseline, GameConfig, GameSpec, MeanFieldGame, Moment, Moves, NoiseLaw, NoisePaths,
    Policies, PushForward, Real, Rollout, Sampled, Transitions, registry, structural_gradient,
};
use pushforward_envs::{EnvError, StreamRng};
use rand::Rng;

fn game<R: Real>(name: &str, settings: &str) -> Box<dyn MeanFieldGame<R>> {
    GameConfig::new(name, settings.parse().unwrap())
        .unwrap()
        .build()
        .unwrap()
}

/// Settings that make a game small, with everything switched on.
fn small(name: &str) -> &'static str {
    match name {
        "linear-quadratic" => {
            "states = 15\nhorizon = 12\nearly_until = 3\nlate_after = 8\nshock = 4.0"
        }
        "beach-bar" => {
            "states = 21\nhorizon = 8\nbar_low = 5\nbar_high = 15\ncongestion = 0.5\nlargest_action = 2"
        }
        "macro" => {
            "wealth_points = 12\nincome_points = 3\nshares = 4\nhorizon = 9\nnoise_scale = 0.2"
        }
        other => panic!("{other} needs small settings here"),
    }
}

/// Random policies, `[T, E, S, A]`.
fn random_policies<R: Real>(spec: &GameSpec, paths: usize, seed: u64) -> Vec<R> {
    let mut rng = StreamRng::new(seed, "policies", 0);
    let rows = spec.horizon * paths * spec.states;
    (0..rows)
        .flat_map(|_| {
            let scores: Vec<f64> = (0..spec.actions())
                .map(|_| rng.random::<f64>().powi(3) + 1e-3)
                .collect();
            let total: f64 = scores.iter().sum();
            scores
                .into_iter()
                .map(move |score| R::from_f64(score / total))
        })
        .collect()
}

fn on_threads<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(run)
}

fn total<R: Real>(values: &[R]) -> f64 {
    values.iter().map(|value| value.to_f64()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mass_bounds_and_seeds(seed in 0..1000_u64, paths in 1..5_usize) {
        for name in registry_names() {
            let game = game::<f32>(name, small(name));
            let game = &*game;
            let spec = game.spec();
            let table = random_policies::<f32>(spec, paths, seed);
            let policies = Policies::from_array(spec, paths, &table).unwrap();
            let noise = NoisePaths::sample(game, paths, seed).unwrap();
            prop_assert_eq!(&noise, &NoisePaths::sample(game, paths, seed).unwrap());
            // More paths extend fewer, and evaluation never sees a training path.
            let more = NoisePaths::sample(game, paths + 2, seed).unwrap();
            for path in 0..paths {
                prop_assert!((0..=spec.horizon).all(|t| more.at(t, path) == noise.at(t, path)));
            }
            let rollout = PushForward::new(game).unwrap().run(noise.clone(), &policies).unwrap();
            for time in 0..=spec.horizon {
                for mu in rollout.mu(time).chunks_exact(spec.states) {
                    prop_assert!((total(mu) - 1.0).abs() < 1e-6);
                    prop_assert!(mu.iter().all(|mass| (0.0..=1.0).contains(mass)));
                }
                prop_assert!(rollout.inputs(time).iter().all(|o| o.is_finite()));
            }
            // A path alone is the same path.
            let last = paths - 1;
            let pairs = spec.states * spec.actions();
            let alone_table: Vec<f32> = table
                .chunks_exact(pairs)
                .skip(last)
                .step_by(paths)
                .flatten()
                .copied()
                .collect();
            let values = (0..=spec.horizon).flat_map(|t| noise.at(t, last).to_vec()).collect();
            let alone = NoisePaths::from_values(game, values, vec![1.0]).unwrap();
            let policies_alone = Policies::from_array(spec, 1, &alone_table).unwrap();
            let alone = PushForward::new(game).unwrap().run(alone, &policies_alone).unwrap();
            for time in 0..=spec.horizon {
                prop_assert_eq!(alone.mu(time), &rollout.mu(time)[last * spec.states..]);
            }
            let gap = exploitability(game, &rollout, &policies, Information::Clairvoyant).unwrap();
            prop_assert!(gap.paths.iter().all(|gap| *gap >= -1e-5 * gap_scale(&rollout)));
        }
    }
}

fn registry_names() -> Vec<&'static str> {
    registry::names().collect()
}

/// A size of returns, for rounding.
fn gap_scale<R: Real>(rollout: &Rollout<R>) -> f64 {
    (0..rollout.horizon())
        .flat_map(|time| rollout.rewards(time))
        .map(|reward| reward.abs())
        .sum()
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for name in registry_names() {
        // The default sizes, so that the work is large enough to be shared, but short episodes.
        let game = game::<f32>(name, "horizon = 6");
        let game = &*game;
        let spec = game.spec();
        let paths = 24;
        let table = random_policies::<f32>(spec, paths, 3);
        let policies = Policies::from_array(spec, paths, &table).unwrap();
        let noise = NoisePaths::sample(game, paths, 5).unwrap();
        let all = |threads| {
            on_threads(threads, || {
                let mut simulator = PushForward::new(game).unwrap();
                let rollout = simulator.run(noise.clone(), &policies).unwrap();
                let mut steps = table.chunks_exact(table.len() / spec.horizon);
                let (stepped, given) = simulator
                    .rollout(noise.clone(), |_, out| {
                        out.copy_from_slice(steps.next().unwrap());
                        Ok::<(), EnvError>(())
                    })
                    .unwrap();
                assert_eq!(rollout, stepped);
                assert_eq!(given, table);
                let mut gradient = vec![0.0; table.len()];
                let objective =
                    structural_gradient(game, &rollout, &policies, Baseline::None, &mut gradient);
                let gap = exploitability(game, &rollout, &policies, Information::Clairvoyant);
                let mut steps = table.chunks_exact(table.len() / spec.horizon);
                let crowd = Sampled::new(game, 50, 9)
                    .unwrap()
                    .rollout(noise.clone(), |_, out| {
                        out.copy_from_slice(steps.next().unwrap());
                        Ok::<(), EnvError>(())
                    });
                (
                    rollout,
                    gradient,
                    objective.unwrap(),
                    gap.unwrap(),
                    crowd.unwrap(),
                )
            })
        };
        let one = all(1);
        assert_eq!(one, all(2), "{name}");
        assert_eq!(one, all(5), "{name}");
    }
}

#[test]
fn mass_stays_over_ten_thousand_steps() {
    for name in registry_names() {
        let settings = format!(
            "{}\nhorizon = 10000",
            small(name)
                .lines()
                .filter(|line| !line.starts_with("horizon"))
                .collect::<Vec<_>>()
                .join("\n")
        );
        let game = game::<f32>(name, &settings);
        let spec = game.spec();
        // Rows that miss 1 by rounding and more, always in the same direction.
        let mut table = random_policies::<f32>(spec, 1, 1);
        table.truncate(spec.states * spec.actions());
        table.iter_mut().for_each(|p| *p *= 1.0 + 3e-6);
        let policies = Policies::new(spec, 1, vec![&table]).unwrap();
        let noise = NoisePaths::sample(&*game, 1, 2).unwrap();
        let rollout = PushForward::new(&*game)
            .unwrap()
            .run(noise, &policies)
            .unwrap();
        let mass = total(rollout.mu(10_000));
        assert!((mass - 1.0).abs() < 1e-6, "{name}: {mass}");
    }
}

#[test]
fn the_structural_gradient_is_that_of_the_frozen_objective() {
    for name in registry_names() {
        let game = game::<f64>(name, small(name));
        let game = &*game;
        let spec = game.spec();
        let paths = 3;
        let table = random_policies::<f64>(spec, paths, 8);
        let policies = Policies::from_array(spec, paths, &table).unwrap();
        let noise = NoisePaths::sample(game, paths, 4).unwrap();
        let rollout = PushForward::new(game)
            .unwrap()
            .run(noise, &policies)
            .unwrap();
        let mut gradient = vec![0.0; table.len()];
        let mut centred = gradient.clone();
        structural_gradient(game, &rollout, &policies, Baseline::None, &mut gradient).unwrap();
        structural_gradient(game, &rollout, &policies, Baseline::Value, &mut centred).unwrap();
        // Values along the recorded rollout: μ, P and r stay what they were.
        let objective = |table: &[f64]| {
            let policies = Policies::from_array(spec, paths, table).unwrap();
            policy_value(game, &rollout, &policies).unwrap().mean
        };
        let largest = gradient.iter().fold(0.0, |m: f64, g| m.max(g.abs()));
        let step = 1e-3;
        let mut rng = StreamRng::new(0, "entries", 0);
        for _ in 0..60 {
            let entry = rng.random_range(0..table.len());
            // J is affine in each single probability, so central differences have no truncation error.
            let mut moved = table.clone();
            moved[entry] += step;
            let above = objective(&moved);
            moved[entry] -= 2.0 * step;
            let difference = (above - objective(&moved)) / (2.0 * step);
            assert!(
                (difference - gradient[entry]).abs()
                    < 1e-6 * gradient[entry].abs() + 1e-9 * largest,
                "{name}: {difference} and {}",
                gradient[entry]
            );
        }
        // Along a change of policy whose rows sum to 0 the baseline makes no difference.
        let actions = spec.actions();
        for (row, centred) in gradient
            .chunks_exact(actions)
            .zip(centred.chunks_exact(actions))
        {
            for a in 1..actions {
                let (plain, based) = (row[a] - row[0], centred[a] - centred[0]);
                assert!((plain - based).abs() < 1e-12 * largest, "{name}");
            }
        }
    }
}

#[test]
fn a_sampled_population_tends_to_the_exact_one() {
    for name in registry_names() {
        let game = game::<f64>(name, small(name));
        let game = &*game;
        let spec = game.spec();
        let paths = 6;
        let table = random_policies::<f64>(spec, 1, 2);
        let noise = NoisePaths::sample(game, paths, 7).unwrap();
        let policies = Policies::from_array(spec, paths, &table).unwrap();
        let exact = PushForward::new(game)
            .unwrap()
            .run(noise.clone(), &policies)
            .unwrap();
        // Root mean square of the distance of the laws at the end, over paths and keys.
        let error = |individuals: usize| -> f64 {
            let keys = 8;
            let mut squares = 0.0;
            for key in 0..keys {
                let mut simulator = Sampled::new(game, individuals, key).unwrap();
                let mut crowd = simulator.start(noise.clone()).unwrap();
                for step in table.chunks_exact(table.len() / spec.horizon) {
                    simulator.step(&mut crowd, step).unwrap();
                    let mean: f64 =
                        crowd.rewards().iter().sum::<f64>() / crowd.rewards().len() as f64;
                    let time = crowd.rollout().time();
                    let recorded: f64 = crowd.rollout().rewards(time - 1).iter().sum::<f64>();
                    assert!((mean - recorded / paths as f64).abs() < 1e-9 * mean.abs().max(1.0));
                }
                assert_eq!(crowd.states().len(), paths * individuals);
                let pairs = crowd
                    .rollout()
                    .mu(spec.horizon)
                    .iter()
                    .zip(exact.mu(spec.horizon));
                squares += pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>();
            }
            (squares / (keys * paths as u64) as f64).sqrt()
        };
        let errors = [200, 3200].map(error);
        // 16 times as many individuals: a quarter of the error, give or take that of a mean over 48 paths.
        let ratio = errors[0] / errors[1];
        assert!((2.6..6.2).contains(&ratio), "{name}: {errors:?}");
        // For one law of S states the error is sqrt((1 - Σ μ²) / M) <= 1/sqrt(M); feedback through prices and means adds to it.
        assert!(errors[1] < 3.0 / 3200_f64.sqrt(), "{name}: {errors:?}");
    }
}

#[test]
fn the_optimum_of_beach_bar_without_noise_cannot_be_exploited() {
    // Nothing depends on the population, so the best response to any population is optimal, in its own population too.
    let game = game::<f64>("beach-bar", "common_noise = false");
    let spec = game.spec();
    let noise = NoisePaths::complete(&*game).unwrap();
    assert_eq!(noise.weights(), [1.0]);
    let mut simulator = PushForward::new(&*game).unwrap();
    let uniform = vec![1.0 / 11.0; 101 * 11];
    let policies = Policies::new(spec, 1, vec![&uniform]).unwrap();
    let rollout = simulator.run(noise.clone(), &policies).unwrap();
    for information in [Information::Clairvoyant, Information::Adapted] {
        let gap = exploitability(&*game, &rollout, &policies, information).unwrap();
        assert!(gap.mean > 100.0, "{gap:?}");
        let best = best_response(&*game, &rollout, information).unwrap();
        let table = best.policy::<f64>(11);
        let policies = Policies::from_array(spec, 1, &table).unwrap();
        let rollout = simulator.run(noise.clone(), &policies).unwrap();
        let gap = exploitability(&*game, &rollout, &policies, information).unwrap();
        assert!(
            gap.mean.abs() < 1e-11 * gap.policy.mean.abs(),
            "{}",
            gap.mean
        );
        assert!((gap.policy.mean - best.value.mean).abs() < 1e-11 * best.value.mean.abs());
    }
}

#[test]
fn knowing_the_future_is_worth_something() {
    for (name, settings) in [
        ("linear-quadratic", ""),
        ("beach-bar", ""),
        ("beach-bar", "congestion = 0.3"),
    ] {
        let game = game::<f64>(name, settings);
        let game = &*game;
        let spec = game.spec();
        let noise = NoisePaths::complete(game).unwrap();
        let paths = noise.paths();
        assert_eq!(paths, if name == "beach-bar" { 102 } else { 2 });
        let mut table = random_policies::<f64>(spec, 1, 6);
        table.truncate(spec.states * spec.actions());
        let policies = Policies::new(spec, paths, vec![&table]).unwrap();
        let rollout = PushForward::new(game)
            .unwrap()
            .run(noise, &policies)
            .unwrap();
        let gap = |information| exploitability(game, &rollout, &policies, information).unwrap();
        let clairvoyant = gap(Information::Clairvoyant);
        let adapted = gap(Information::Adapted);
        assert_eq!(
            (clairvoyant.standard_error, adapted.standard_error),
            (0.0, 0.0)
        );
        assert_eq!(clairvoyant.policy, adapted.policy);
        assert!(adapted.mean > 0.0);
        assert!(
            clairvoyant.mean > adapted.mean + 1e-6 * clairvoyant.mean,
            "{name}"
        );
        // The adapted best response is a policy that observations allow, and is worth what it says.
        let best = best_response(game, &rollout, Information::Adapted).unwrap();
        assert_eq!(best.value, adapted.best_response);
        let table = best.policy::<f64>(spec.actions());
        let value = policy_value(
            game,
            &rollout,
            &Policies::from_array(spec, paths, &table).unwrap(),
        );
        assert!((value.unwrap().mean - best.value.mean).abs() < 1e-10 * best.value.mean.abs());
        let step = table.len() / spec.horizon / paths;
        assert_eq!(
            table[..step],
            table[step..2 * step],
            "{name}: paths 0 and 1 part later"
        );
    }
}

#[test]
fn merging_equal_paths_changes_no_mean() {
    let game = game::<f64>("linear-quadratic", "");
    let game = &*game;
    let mut table = random_policies::<f64>(game.spec(), 1, 6);
    table.truncate(99 * 7);
    let drawn = NoisePaths::sample(game, 8, 3).unwrap();
    let (distinct, index) = drawn.distinct();
    assert_eq!(distinct.paths(), 2);
    let gap = |noise: &NoisePaths| {
        let policies = Policies::new(game.spec(), noise.paths(), vec![&table]).unwrap();
        let rollout = PushForward::new(game)
            .unwrap()
            .run(noise.clone(), &policies)
            .unwrap();
        exploitability(game, &rollout, &policies, Information::Clairvoyant).unwrap()
    };
    let (each, merged) = (gap(&drawn), gap(&distinct));
    assert!((each.mean - merged.mean).abs() < 1e-12 * each.mean);
    assert!((each.standard_error - merged.standard_error).abs() < 1e-12 * each.mean);
    assert!(each.standard_error > 0.0);
    for (path, distinct) in index.iter().enumerate() {
        assert_eq!(each.paths[path], merged.paths[*distinct]);
    }
    // Equal paths are few, but not known to be all.
    let policies = Policies::new(game.spec(), 8, vec![&table]).unwrap();
    let rollout = PushForward::new(game)
        .unwrap()
        .run(drawn, &policies)
        .unwrap();
    let refused = exploitability(game, &rollout, &policies, Information::Adapted);
    let message = refused.unwrap_err().to_string();
    assert!(
        message.contains("expected a rollout on all noise paths"),
        "{message}"
    );
}

#[test]
fn the_error_of_a_mean_by_hand() {
    let game = game::<f64>("macro", small("macro"));
    let noise = NoisePaths::sample(&*game, 4, 0).unwrap();
    // Mean 4, squared deviations 9 + 1 + 1 + 9 = 20, so the variance is 20/3 and the error of the mean sqrt(20/3/4) = 1.290994.
    let (mean, error) = noise.mean(&[1.0, 3.0, 5.0, 7.0]);
    assert!((mean - 4.0).abs() < 1e-15 && (error - 1.290_994).abs() < 1e-6);
    assert!(NoisePaths::complete(&*game).is_none());
    assert_ne!(NoisePaths::evaluation(&*game, 4, 0).unwrap(), noise);
}

#[test]
fn tabular_solvers_lower_exploitability() {
    for (name, settings, rate) in [
        (
            "linear-quadratic",
            "common_noise = false\nhorizon = 12\nstates = 31",
            0.01,
        ),
        (
            "beach-bar",
            "common_noise = false\ncongestion = 1.0\nhorizon = 10\nstates = 41",
            0.1,
        ),
    ] {
        let game = game::<f64>(name, settings);
        for (solver, solution) in [
            ("fictitious play", fictitious_play(&*game, 150)),
            (
                "online mirror descent",
                online_mirror_descent(&*game, 150, rate),
            ),
        ] {
            let curve = solution.unwrap().exploitability;
            assert_eq!(curve.len(), 151);
            assert!(curve.iter().all(|gap| *gap >= -1e-9), "{name}, {solver}");
            let (first, last) = (curve[0], curve[150]);
            println!("{name}, {solver}: {first} to {last}");
            assert!(last < 0.03 * first, "{name}, {solver}: {first} to {last}");
        }
    }
    let noisy = game::<f64>("linear-quadratic", "");
    let message = fictitious_play(&*noisy, 1).unwrap_err().to_string();
    assert!(message.contains("common_noise = false"), "{message}");
    assert!(online_mirror_descent(&*noisy, 1, 0.0).is_err());
}

/// What to break in [`Guess`].
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Leaks,
    Leaves,
    NoActions,
    NoSteps,
}

/// Two states that do not matter, two steps, γ = ½. Action 0 pays 1; action 1 pays 3 if z = +1 and -2 if z = -1. z shows from t = 1 on.
struct Guess {
    spec: GameSpec,
    fault: Fault,
}

impl Guess {
    fn new(fault: Fault) -> Self {
        let actions = if fault == Fault::NoActions { 0 } else { 2 };
        Self {
            spec: GameSpec {
                name: "guess".to_owned(),
                states: 2,
                action_values: (0..actions).map(f64::from).collect(),
                action_kind: ActionKind::Discrete,
                horizon: if fault == Fault::NoSteps { 0 } else { 2 },
                discount: 0.5,
                noise_names: vec!["z".to_owned()],
                observation_names: vec!["seen".to_owned()],
                state_features: None,
            },
            fault,
        }
    }
}

impl MeanFieldGame<f64> for Guess {
    fn spec(&self) -> &GameSpec {
        &self.spec
    }

    fn initial_noise(&self, rng: &mut StreamRng, noise: &mut [f64]) {
        noise[0] = if rng.random() { 1.0 } else { -1.0 };
    }

    fn noise_law(&self) -> Option<NoiseLaw> {
        Some(vec![(0.5, vec![1.0; 3]), (0.5, vec![-1.0; 3])])
    }

    fn initial_population(&self, _noise: &[f64], mu: &mut [f64]) {
        mu.copy_from_slice(&[0.25, 0.75]);
    }

    fn observe(&self, time: usize, noise: &[f64], _mu: &[f64], observation: &mut [f64]) {
        observation[0] = if time == 0 { 0.0 } else { noise[0] };
    }

    fn transitions<'a>(
        &'a self,
        _now: &Moment<'_, f64>,
        scratch: &'a mut Moves<f64>,
    ) -> Transitions<'a, f64> {
        let (targets, weights) = scratch.weighted_mut(4, 2);
        targets.copy_from_slice(&[0, 1, 0, 1, 0, 1, 0, 1]);
        weights.copy_from_slice(&[0.5, 0.5, 0.1, 0.9, 0.5, 0.5, 1.0, 0.0]);
        match self.fault {
            Fault::Leaks => weights[6] = 0.9,
            Fault::Leaves => targets[4] = 2,
            _ => {}
        }
        Transitions {
            moves: scratch,
            noise: None,
        }
    }

    fn rewards(&self, now: &Moment<'_, f64>, _next: &Moment<'_, f64>, rewards: &mut [f64]) {
        let guess = if now.noise[0] > 0.0 { 3.0 } else { -2.0 };
        rewards.copy_from_slice(&[1.0, guess, 1.0, guess]);
    }
}

#[test]
fn values_of_a_guess_by_hand() {
    let game = Guess::new(Fault::None);
    let noise = NoisePaths::complete(&game).unwrap();
    let uniform = [0.5; 4];
    let policies = Policies::new(&game.spec, 2, vec![&uniform]).unwrap();
    let mut simulator = PushForward::new(&game).unwrap();
    let rollout = simulator.run(noise, &policies).unwrap();
    // From state 0: ½(½ + .1) = .3 stay in 0; from state 1: ½(½ + 1) = .75 go to 0. So .25·.3 + .75·.75 = .6375.
    assert!((rollout.mu(1)[0] - 0.6375).abs() < 1e-15);
    let gap = |information| exploitability(&game, &rollout, &policies, information).unwrap();
    // The uniform policy gets (1 + 3)/2 = 2 or (1 - 2)/2 = -½ a step, times 1 + ½: 3 or -.75.
    // Knowing z: 3·1.5 = 4.5 or 1·1.5 = 1.5. The gaps are 1.5 and 2.25, on average 1.875.
    let clairvoyant = gap(Information::Clairvoyant);
    assert_eq!(clairvoyant.policy.paths, [3.0, -0.75]);
    assert_eq!(clairvoyant.best_response.paths, [4.5, 1.5]);
    assert_eq!(clairvoyant.best_response.states, [4.5, 4.5, 1.5, 1.5]);
    assert_eq!(
        (clairvoyant.paths.as_slice(), clairvoyant.mean),
        (&[1.5, 2.25][..], 1.875)
    );
    // Not knowing z at t = 0, action 0 pays 1 and action 1 pays ½ on average: 1 + ½·3 = 2.5 or 1 + ½·1 = 1.5, less 3 or -.75.
    let adapted = gap(Information::Adapted);
    assert_eq!(adapted.best_response.paths, [2.5, 1.5]);
    assert_eq!(
        (adapted.paths.as_slice(), adapted.mean),
        (&[-0.5, 2.25][..], 0.875)
    );
    // ∂J/∂π_1(1|s) on path z = +1 is w γ μ_1(s) Q_1(s, 1) = ½·½·μ_1(s)·3.
    let mut gradient = vec![0.0; 2 * 2 * 4];
    structural_gradient(&game, &rollout, &policies, Baseline::None, &mut gradient).unwrap();
    assert!((gradient[8 + 1] - 0.75 * 0.6375).abs() < 1e-15);
    assert!((gradient[8 + 3] - 0.75 * 0.3625).abs() < 1e-15);
    // ∂J/∂π_0(0|1) on path z = -1 is ½·.75·Q_0(1, 0) with Q_0 = 1 + ½·(-½) = .75.
    assert!((gradient[4 + 2] - 0.5 * 0.75 * 0.75).abs() < 1e-15);
}

#[test]
fn games_and_inputs_that_are_wrong_are_refused_in_one_line() {
    let check = |fault| {
        PushForward::new(&Guess::new(fault))
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    for (fault, expected) in [
        (
            Fault::Leaks,
            "game guess: step 0, state 1, action 1: successor probabilities sum to 0.9, expected 1",
        ),
        (
            Fault::Leaves,
            "game guess: step 0, state 1, action 0: a successor is 2, expected 0 to 1",
        ),
        (
            Fault::NoActions,
            "game guess: actions = 0, expected at least 1",
        ),
        (
            Fault::NoSteps,
            "game guess: horizon = 0, expected at least 1",
        ),
    ] {
        assert_eq!(check(fault), expected);
    }
    let game = Guess::new(Fault::None);
    let spec = &game.spec;
    let refused = |result: Result<(), EnvError>, expected: &str| {
        let message = result.unwrap_err().to_string();
        assert!(
            message.contains(expected) && !message.contains('\n'),
            "{message}"
        );
    };
    refused(
        NoisePaths::sample(&game, 0, 0).map(drop),
        "0 paths, expected at least 1",
    );
    refused(
        Sampled::new(&game, 0, 0).map(drop),
        "0 individuals, expected 1 to",
    );
    refused(
        NoisePaths::from_values(&game, vec![1.0; 3], vec![0.5]).map(drop),
        "path weights sum to 0.5, expected 1",
    );
    refused(
        NoisePaths::from_values(&game, vec![1.0; 2], vec![1.0]).map(drop),
        "2 noise values, expected (T + 1) x E x 1 = 3",
    );
    refused(
        Policies::new(spec, 2, vec![&[0.5; 3]]).map(drop),
        "step 0: a policy of 3 probabilities, expected S x A = 4 or E x S x A = 8",
    );
    refused(
        Policies::new(spec, 2, vec![&[0.5; 4]; 3]).map(drop),
        "policies for 3 steps, expected 1 or T = 2",
    );
    let mut simulator = PushForward::new(&game).unwrap();
    let mut rollout = simulator
        .start(NoisePaths::sample(&game, 2, 0).unwrap())
        .unwrap();
    refused(
        simulator.step(&mut rollout, &[0.5; 5]),
        "a policy of 5 probabilities",
    );
    refused(
        simulator.step(&mut rollout, &[0.4; 4]),
        "the population has mass 0.8",
    );
    refused(
        simulator.step(&mut rollout, &[f64::NAN; 4]),
        "the population has mass NaN",
    );
    assert_eq!(rollout.time(), 0);
    let policies = Policies::new(spec, 2, vec![&[0.5; 4]]).unwrap();
    refused(
        policy_value(&game, &rollout, &policies).map(drop),
        "a rollout of (states, actions, steps so far) = (2, 2, 0), expected (2, 2, 2)",
    );
    simulator.step(&mut rollout, &[0.5; 4]).unwrap();
    simulator.step(&mut rollout, &[0.5; 8]).unwrap();
    refused(simulator.step(&mut rollout, &[0.5; 4]), "a step at time 2");
    let one = Policies::new(spec, 1, vec![&[0.5; 4]]).unwrap();
    refused(
        policy_value(&game, &rollout, &one).map(drop),
        "policies of 1 paths, expected 2",
    );
    refused(
        structural_gradient(&game, &rollout, &policies, Baseline::None, &mut [0.0; 3]).map(drop),
        "room for 3 results",
    );
    // A rollout of another game.
    let other = self::game::<f64>("linear-quadratic", "");
    refused(
        best_response(&*other, &rollout, Information::Clairvoyant).map(drop),
        "expected (99, 7, 30)",
    );
    refused(
        PushForward::new(&*other)
            .unwrap()
            .start(rollout.noise().clone())
            .map(drop),
        "noise paths of 2 steps and 1 entries, expected 30 and 1",
    );
}
