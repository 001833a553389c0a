//! Whole runs of the agent in small: exact repetition, exact resumption, learning of known laws.

use std::path::Path;

use pushforward_core::{
    CheckpointStore, CoreError, ReplayConfig,
    checkpoint::Contents,
    schedule::{Schedule, ScheduleShape},
    trainer::Experiment,
};
use pushforward_envs::{DiscountConfig, EnvConfig};
use pushforward_sdrl::{
    COLLECTOR_FILE, EvalConfig, ObjectiveConfig, RepresentationConfig, RolloutConfig, SdrlConfig,
    SdrlExperiment, Setup, TargetConfig, UtilityConfig,
};

fn env(name: &str, settings: &str) -> EnvConfig {
    EnvConfig::new(name, toml::from_str(settings).unwrap()).unwrap()
}

fn small(cache: &Path) -> Setup {
    let mut agent = SdrlConfig {
        discount: DiscountConfig::Scalar(0.9),
        batch_size: 13,
        shards: 3,
        target: TargetConfig::Polyak { rate: 0.05 },
        representation: RepresentationConfig::Particles {
            particles: 17,
            spread: 0.5,
        },
        ..SdrlConfig::default()
    };
    agent.torso.hidden = vec![24];
    agent.optimiser.learning_rate = Schedule::constant(3e-3);
    Setup {
        seed: 5,
        env: env("chain", "length = 4"),
        agent,
        saved: None,
        replay: ReplayConfig {
            capacity: 1000,
            ..ReplayConfig::default()
        },
        rollout: RolloutConfig {
            environments: 3,
            warmup: 100,
            ..RolloutConfig::default()
        },
        eval: EvalConfig {
            reference_samples: 4096,
            probe: false,
            cache: cache.join("truth"),
            ..EvalConfig::default()
        },
    }
}

/// Runs updates `from..to` of a run of 60.
fn advance(experiment: &mut SdrlExperiment, from: u64, to: u64) {
    for update in from..to {
        experiment.advance(update as f64 / 60.0).unwrap();
    }
}

fn save(experiment: &SdrlExperiment, folder: &Path) -> CheckpointStore {
    let store = CheckpointStore::create(folder, "same settings", 1).unwrap();
    let contents = Contents {
        arrays: &experiment.arrays().unwrap(),
        state: &experiment.state().unwrap(),
        files: &[(COLLECTOR_FILE, &experiment.collector_bytes())],
        replay: Some(experiment.replay()),
        headline: None,
    };
    store.save(experiment.steps().updates, &contents).unwrap();
    store
}

fn controls() -> ObjectiveConfig {
    ObjectiveConfig::Control {
        utility: UtilityConfig::Linear {
            weights: vec![1.0, 0.25],
        },
        epsilon: Schedule::constant(0.3),
        double: true,
    }
}

/// Two runs from one seed agree bit for bit, and so does one that was saved and loaded half-way, for both objectives and
/// representations and with prioritised n-step replay.
#[test]
fn resuming_equals_never_having_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for (index, setup) in variants(folder.path()).into_iter().enumerate() {
        let fresh = || SdrlExperiment::new(setup.clone(), tch::Device::Cpu).unwrap();
        let mut whole = fresh();
        advance(&mut whole, 0, 30);
        whole.report(0.5);
        advance(&mut whole, 30, 60);
        let mut half = fresh();
        advance(&mut half, 0, 30);
        half.report(0.5);
        let store = save(&half, &folder.path().join(format!("half-{index}")));
        let (checkpoint, warnings) = store.load_latest().unwrap();
        assert!(warnings.is_empty());
        let mut resumed = fresh();
        resumed.load(&checkpoint).unwrap();
        // An evaluation in between must not change what comes.
        resumed.evaluate(false).unwrap();
        advance(&mut resumed, 30, 60);
        assert_eq!(whole.steps(), resumed.steps());
        assert_eq!(
            whole.arrays().unwrap(),
            resumed.arrays().unwrap(),
            "variant {index}"
        );
        assert_eq!(whole.state().unwrap(), resumed.state().unwrap());
        assert!(
            whole.collector_bytes() == resumed.collector_bytes(),
            "variant {index}"
        );
    }
}

fn variants(cache: &Path) -> Vec<Setup> {
    let evaluation = small(cache);
    let mut implicit = small(cache);
    implicit.agent.representation = RepresentationConfig::Implicit {
        particles: 11,
        noise: 2,
        frequencies: 3,
        width: 19,
    };
    implicit.agent.divergence =
        toml::from_str("kind = \"wasserstein\"\np = 2\nlift = { kind = \"max\" }").unwrap();
    let mut control = small(cache);
    control.env = env("chain", "length = 4\nback = true");
    control.agent.objective = controls();
    control.agent.target = TargetConfig::Hard { interval: 7 };
    control.replay.prioritised = true;
    control.replay.n_step = 3;
    vec![evaluation, implicit, control]
}

/// The same settings on pools of one and of three threads.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    for setup in variants(folder.path()) {
        let arrays = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .start_handler(|_| pushforward_core::tensor::single_threaded())
                .build()
                .unwrap();
            pool.install(|| {
                let mut experiment = SdrlExperiment::new(setup.clone(), tch::Device::Cpu).unwrap();
                advance(&mut experiment, 0, 20);
                experiment.arrays().unwrap()
            })
        });
        assert_eq!(arrays[0], arrays[1]);
    }
}

/// Particles learn the joint law of the default chain closer to the truth than as many fresh samples of it (ratio 1).
#[test]
fn particles_learn_the_chain_below_the_sampling_floor() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = small(folder.path());
    setup.agent.batch_size = 32;
    setup.agent.shards = 2;
    setup.agent.representation = RepresentationConfig::Particles {
        particles: 32,
        spread: 0.5,
    };
    setup.agent.optimiser.learning_rate = Schedule {
        initial: 5e-3,
        last: 1e-4,
        shape: ScheduleShape::Exponential,
        fraction: 1.0,
    };
    setup.eval.reference_samples = 16_384;
    let mut experiment = SdrlExperiment::new(setup, tch::Device::Cpu).unwrap();
    let before = experiment.evaluate(false).unwrap().headline.unwrap().value;
    for update in 0..1500 {
        experiment.advance(f64::from(update) / 1500.0).unwrap();
    }
    let after = experiment.evaluate(false).unwrap().headline.unwrap().value;
    assert!(before > 5.0, "an untrained network is at {before}");
    assert!(after < 0.9, "the ratio to the floor is {after}");
}

/// With `back` the chain can be left or stayed in for ever: with rewards of 1 a step and γ = .9 staying is worth 10, leaving less.
#[test]
fn control_finds_the_better_action() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = small(folder.path());
    setup.env = env(
        "chain",
        "length = 3\nback = true\nslip = 0.0\nmax_steps = 40",
    );
    setup.agent.objective = ObjectiveConfig::Control {
        utility: UtilityConfig::Linear {
            weights: vec![1.0, 1.0],
        },
        epsilon: Schedule {
            initial: 1.0,
            last: 0.1,
            shape: ScheduleShape::Linear,
            fraction: 0.5,
        },
        double: true,
    };
    setup.agent.target = TargetConfig::Hard { interval: 25 };
    setup.eval.episodes = 32;
    let mut experiment = SdrlExperiment::new(setup, tch::Device::Cpu).unwrap();
    for update in 0..1500 {
        experiment.advance(f64::from(update) / 1500.0).unwrap();
    }
    let evaluation = experiment.evaluate(false).unwrap();
    let length = evaluation
        .scalars
        .iter()
        .find(|(name, _)| name == "evaluate/episode_length")
        .map(|(_, value)| *value);
    assert_eq!(
        length,
        Some(40.0),
        "the greedy policy never leaves: every episode runs into its limit"
    );
}

#[test]
fn settings_that_do_not_fit_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |change: &dyn Fn(&mut Setup), expected: &str| {
        let mut setup = small(folder.path());
        change(&mut setup);
        let message = SdrlExperiment::new(setup, tch::Device::Cpu)
            .err()
            .map(|e| e.to_string());
        let message = message.unwrap_or_default();
        assert!(
            message.contains(expected) && !message.contains('\n'),
            "{message:?}"
        );
    };
    refuse(
        &|setup| {
            setup.agent.representation = RepresentationConfig::Particles {
                particles: 0,
                spread: 0.5,
            };
        },
        "agent.representation.particles: got 0",
    );
    refuse(
        &|setup| setup.agent.shards = 14,
        "agent.shards: got 14, expected 1 to batch_size = 13",
    );
    refuse(
        &|setup| setup.agent.discount = DiscountConfig::Scalar(1.0),
        "operator norm 1.000000",
    );
    refuse(
        &|setup| setup.agent.discount = DiscountConfig::Diagonal(vec![0.9; 3]),
        "3 diagonal entries, expected d = 2",
    );
    refuse(
        &|setup| {
            setup.agent.divergence =
                toml::from_str("kind = \"cramer\"\nstatistic = \"u\"").unwrap();
        },
        "drives free particles apart",
    );
    refuse(
        &|setup| {
            setup.agent.objective = ObjectiveConfig::Control {
                utility: UtilityConfig::Linear {
                    weights: vec![1.0; 3],
                },
                epsilon: Schedule::constant(0.1),
                double: false,
            };
        },
        "3",
    );
    refuse(
        &|setup| setup.rollout.environments = 0,
        "rollout: got environments 0",
    );
    refuse(&|setup| setup.eval.episodes = 0, "eval.episodes: got 0");
}

/// A reward that is not finite stops the run and is named.
#[test]
fn an_infinite_reward_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = small(folder.path());
    setup.env = env(
        "chain",
        "dim = 2\nreward = { kind = \"gaussian\", mean = [3e38, 0.0], cov = [[1e76, 0.0], [0.0, 1.0]] }",
    );
    setup.eval.probe = false;
    let mut experiment = match SdrlExperiment::new(setup, tch::Device::Cpu) {
        Ok(experiment) => experiment,
        Err(error) => panic!("{error}"),
    };
    let error = (0..200).find_map(|_| experiment.advance(0.0).err());
    assert!(
        matches!(
            error,
            Some(CoreError::Reward { .. } | CoreError::NonFinite { .. })
        ),
        "{error:?}"
    );
}
