use std::path::Path;

use pushforward_core::{
    CheckpointStore, ReplayConfig, checkpoint::Contents, schedule::Schedule, trainer::Experiment,
};
use pushforward_envs::{
    Discount, DiscountConfig, EnvConfig,
    ground_truth::{ReturnLaw, ground_truth},
};

use super::*;
use crate::{
    COLLECTOR_FILE, EvalConfig, RepresentationConfig, RolloutConfig, SdrlExperiment, Setup,
    TargetConfig, UtilityConfig,
};

/// A small control agent on a chain that can be walked back.
fn control(cache: &Path) -> Setup {
    let settings = "length = 4\nback = true\nreward = { kind = \"exclusive\" }";
    let mut agent = SdrlConfig {
        discount: DiscountConfig::Scalar(0.8),
        objective: ObjectiveConfig::Control {
            utility: UtilityConfig::default(),
            epsilon: Schedule::constant(0.5),
            double: true,
        },
        representation: RepresentationConfig::Particles {
            particles: 16,
            spread: 0.5,
        },
        batch_size: 16,
        target: TargetConfig::Polyak { rate: 0.05 },
        ..SdrlConfig::default()
    };
    agent.torso.hidden = vec![24];
    agent.optimiser.learning_rate = Schedule::constant(3e-3);
    Setup {
        seed: 3,
        env: EnvConfig::new("chain", toml::from_str(settings).unwrap()).unwrap(),
        agent,
        saved: None,
        replay: ReplayConfig {
            capacity: 2000,
            ..ReplayConfig::default()
        },
        rollout: RolloutConfig {
            environments: 4,
            warmup: 200,
            ..RolloutConfig::default()
        },
        eval: EvalConfig {
            reference_samples: 8192,
            probe: false,
            cache: cache.join("truth"),
            ..EvalConfig::default()
        },
    }
}

fn advance(experiment: &mut SdrlExperiment, updates: u64) {
    for update in 0..updates {
        experiment.advance(update as f64 / updates as f64).unwrap();
    }
}

/// The checkpoint of a run of a few updates.
fn checkpoint(setup: &Setup, folder: &Path) -> Checkpoint {
    let mut experiment = SdrlExperiment::new(setup.clone(), Device::Cpu).unwrap();
    advance(&mut experiment, 20);
    let store = CheckpointStore::create(&folder.join("checkpoints"), "settings", 1).unwrap();
    let contents = Contents {
        arrays: &experiment.arrays().unwrap(),
        state: &experiment.state().unwrap(),
        files: &[(COLLECTOR_FILE, &experiment.collector_bytes())],
        replay: None,
        headline: None,
    };
    store.save(20, &contents).unwrap();
    store.load_latest().unwrap().0
}

fn saved(setup: &Setup, checkpoint: &Checkpoint, epsilon: f64) -> Result<SavedAgent, CoreError> {
    let env = setup.build_env().unwrap();
    SavedAgent::new(&setup.agent, env.as_ref(), checkpoint, epsilon, Device::Cpu)
}

/// Returns of a policy from the start of the chain, `[n, 2]`.
fn returns(setup: &Setup, policy: &dyn RolloutPolicy, n: usize) -> Vec<f32> {
    let mut env = setup.build_env().unwrap();
    let mut rng = StreamRng::new(0, "test", 0);
    env.reset(&mut rng, pushforward_envs::ObservationMut::Skip);
    let mut state = Vec::new();
    env.save(&mut state);
    let law = ReturnLaw {
        state: &state,
        policy,
        first_action: 1,
        discount: &Discount::new(&DiscountConfig::Scalar(0.8), 2).unwrap(),
    };
    ground_truth(&|| setup.build_env(), &law, n, 7).unwrap()
}

/// Mean and squared standard error of coordinate `k`.
fn mean(values: &[f32], k: usize) -> (f64, f64) {
    let own = || values.iter().skip(k).step_by(2).map(|x| f64::from(*x));
    let n = own().count() as f64;
    let mean = own().sum::<f64>() / n;
    (mean, own().map(|x| (x - mean).powi(2)).sum::<f64>() / n / n)
}

#[test]
fn with_epsilon_one_the_law_is_that_of_the_uniform_policy() {
    let folder = tempfile::tempdir().unwrap();
    for representation in [
        control(folder.path()).agent.representation,
        RepresentationConfig::Implicit {
            particles: 9,
            noise: 2,
            frequencies: 2,
            width: 16,
        },
    ] {
        let mut setup = control(folder.path());
        setup.agent.representation = representation;
        let checkpoint = checkpoint(&setup, folder.path());
        let agent = saved(&setup, &checkpoint, 1.0).unwrap();
        let env = setup.build_env().unwrap();
        let uniform = Policy::new(&PolicyConfig::Uniform, env.as_ref()).unwrap();
        let (ours, theirs) = (
            returns(&setup, &agent, 20_000),
            returns(&setup, &uniform, 20_000),
        );
        for k in 0..2 {
            let ((a, va), (b, vb)) = (mean(&ours, k), mean(&theirs, k));
            assert!((a - b).abs() < 5.0 * (va + vb).sqrt(), "{k}: {a} {b}");
        }
        // The greedy policy is another one, with another key.
        let greedy = saved(&setup, &checkpoint, 0.0).unwrap();
        assert_ne!(agent.key(), greedy.key());
        assert_eq!(agent.hash(), greedy.hash());
    }
}

#[test]
fn target_actions_are_epsilon_greedy_in_the_saved_utility() {
    let folder = tempfile::tempdir().unwrap();
    let setup = control(folder.path());
    let checkpoint = checkpoint(&setup, folder.path());
    let agent = saved(&setup, &checkpoint, 0.3).unwrap();
    // What the experiment itself would do, state by state.
    let mut experiment = SdrlExperiment::new(setup.clone(), Device::Cpu).unwrap();
    experiment.load(&checkpoint).unwrap();
    let mut actor = SdrlActor::new(experiment.learner());
    let states: Vec<f32> = (0..16).map(|i| f32::from(u8::from(i % 5 == 0))).collect();
    let mut batch = Batch::new(pushforward_envs::ObservationKind::F32);
    batch.size = 4;
    batch.next_observations = ObservationBuffer::F32(states);
    let mut greedy = [0; 4];
    let mut rng = StreamRng::new(0, "test", 0);
    actor
        .act(&batch.next_observations, &[], 4, &mut rng, &mut greedy)
        .unwrap();
    let policy = EvaluatedPolicy::Saved(Box::new(agent));
    let rows = policy.next_probabilities(&batch).unwrap();
    for (row, action) in rows.chunks_exact(2).zip(greedy) {
        // 1 - ε + ε/2 and ε/2.
        assert!((row[action] - 0.85).abs() < 1e-6 && (row[1 - action] - 0.15).abs() < 1e-6);
    }
}

#[test]
fn the_law_of_a_saved_policy_is_learned() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = control(folder.path());
    let checkpoint = checkpoint(&setup, folder.path());
    setup.saved = Some(saved(&setup, &checkpoint, 0.3).unwrap());
    setup.agent.objective = ObjectiveConfig::Evaluation {
        policy: EvaluatedPolicyConfig::Agent(SavedAgentConfig {
            run: "run".into(),
            checkpoint: SavedCheckpoint::Latest,
            epsilon: 0.3,
            updates: None,
            hash: None,
        }),
        backup: Default::default(),
    };
    for backup in [crate::Backup::Sampled, crate::Backup::Mixture] {
        if let ObjectiveConfig::Evaluation { backup: own, .. } = &mut setup.agent.objective {
            *own = backup;
        }
        let mut experiment = SdrlExperiment::new(setup.clone(), Device::Cpu).unwrap();
        let judge = |experiment: &mut SdrlExperiment| {
            experiment.evaluate(false).unwrap().headline.unwrap().value
        };
        let before = judge(&mut experiment);
        advance(&mut experiment, 800);
        let after = judge(&mut experiment);
        assert!(before > 5.0 && after < 2.0, "{before} {after}");
    }
    setup.saved = None;
    let error = SdrlExperiment::new(setup, Device::Cpu).err().unwrap();
    assert!(error.to_string().contains("not loaded"), "{error}");
}

#[test]
fn agents_without_a_policy_of_the_state_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let setup = control(folder.path());
    let checkpoint = checkpoint(&setup, folder.path());
    let message = |setup: &Setup, epsilon| {
        let refused = saved(setup, &checkpoint, epsilon).err().unwrap();
        refused.to_string()
    };
    assert!(message(&setup, 1.5).contains("epsilon: got 1.5"));
    let mut other = setup.clone();
    other.agent.objective = ObjectiveConfig::default();
    assert!(message(&other, 0.1).contains("evaluates a policy"));
    other.agent.objective = ObjectiveConfig::Control {
        utility: toml::from_str(
            "kind = \"joint-constraint\"\nconstraints = [{ dim = 0, op = \">\", value = 1.0 }]",
        )
        .unwrap(),
        epsilon: Schedule::constant(0.5),
        double: true,
    };
    assert!(message(&other, 0.1).contains("return so far"));
}

#[test]
fn the_written_form_is_checked_and_round_trips() {
    let parse = |text: &str| toml::from_str::<EvaluatedPolicyConfig>(text);
    let named = parse("kind = \"agent\"\nrun = \"runs/a\"").unwrap();
    let EvaluatedPolicyConfig::Agent(config) = &named else {
        panic!("{named:?}");
    };
    assert_eq!(config.epsilon, 0.05);
    for config in [
        named.clone(),
        parse("kind = \"uniform\"").unwrap(),
        parse("kind = \"agent\"\nrun = \"a\"\ncheckpoint = \"best\"\nepsilon = 0.5\nupdates = 3\nhash = \"x\"").unwrap(),
    ] {
        assert_eq!(parse(&toml::to_string(&config).unwrap()).unwrap(), config);
    }
    assert!(parse("kind = \"agent\"").is_err());
    assert!(parse("kind = \"agent\"\nrun = \"a\"\naction = \"b\"").is_err());
}
