//! Runs of the structural policy gradients as the trainer drives them.

use pushforward_core::{
    CheckpointStore, CoreError,
    run::RunSettings,
    trainer::{Evaluation, Experiment, Headline, Intervals, Observer, train},
};
use pushforward_mean_field::StructuralRun;
use tch::Device;

fn settings(text: &str) -> StructuralRun {
    toml::from_str(text).unwrap()
}

fn build(run: &StructuralRun) -> Box<dyn Experiment> {
    let mut warn = |warning| panic!("{warning}");
    run.clone().build(Device::Cpu, &mut warn).unwrap()
}

/// Small games of both kinds of actions.
const SMALL: [&str; 3] = [
    "seed = 3\ntrain.updates = 6\nagent = { kind = \"rspg\", embedding = 5, hidden = 7 }\nrollout.paths = 3\ngame = { name = \"linear-quadratic\", horizon = 4 }",
    "seed = 3\ntrain.updates = 6\nagent = { kind = \"spg\", embedding = 5, hidden = 7, baseline = false, entropy = 2.0 }\nrollout = { paths = 3, merge_equal = false }\ngame = { name = \"beach-bar\", horizon = 4 }",
    "seed = 3\ntrain.updates = 6\nagent = { kind = \"rspg\", embedding = 5, hidden = 7 }\nrollout.paths = 3\neval.paths = 2\ngame = { name = \"macro\", horizon = 4, wealth_points = 30 }",
];

/// Every scalar of an evaluation and a report, and the bytes of the weights.
fn state(experiment: &mut Box<dyn Experiment>) -> (Vec<(String, f64)>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path(), "hash", 1).unwrap();
    experiment.save(&store, None).unwrap();
    let tensors = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path().join("tensors.safetensors"))
        .find(|path| path.exists())
        .expect("a checkpoint");
    let evaluation = experiment.evaluate(true).unwrap();
    (evaluation.scalars, std::fs::read(tensors).unwrap())
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for text in SMALL {
        let run = settings(text);
        let results = [1, 2, 5].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                let mut experiment = build(&run);
                for step in 0..3 {
                    experiment.advance(f64::from(step) / 6.0).unwrap();
                }
                state(&mut experiment)
            })
        });
        assert_eq!(results[0], results[1], "{text}");
        assert_eq!(results[0], results[2], "{text}");
    }
}

#[test]
fn resuming_equals_never_having_stopped() {
    for text in SMALL {
        let run = settings(text);
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::create(folder.path(), "hash", 1).unwrap();
        let mut whole = build(&run);
        for step in 0..6 {
            whole.advance(f64::from(step) / 6.0).unwrap();
            if step == 2 {
                // Judging on the way changes nothing.
                whole.evaluate(false).unwrap();
                whole.save(&store, None).unwrap();
            }
        }
        let mut resumed = build(&run);
        resumed.load(&store.load_latest().unwrap().0).unwrap();
        assert_eq!(resumed.steps().updates, 3);
        for step in 3..6 {
            resumed.advance(f64::from(step) / 6.0).unwrap();
        }
        assert_eq!(resumed.steps(), whole.steps());
        assert_eq!(state(&mut resumed), state(&mut whole), "{text}");
    }
}

/// The same episode computed path by path or with equal paths merged gives the same gradient, so the same weights up to rounding.
#[test]
fn merging_equal_paths_changes_nothing_but_rounding() {
    let text = |merge: bool| {
        format!(
            "train.updates = 3\nagent = {{ embedding = 5, hidden = 7 }}\nrollout = {{ paths = 5, merge_equal = {merge} }}\ngame = {{ name = \"linear-quadratic\", horizon = 4 }}"
        )
    };
    let figures = [true, false].map(|merge| {
        let mut experiment = build(&settings(&text(merge)));
        for step in 0..3 {
            experiment.advance(f64::from(step) / 3.0).unwrap();
        }
        state(&mut experiment).0
    });
    for ((name, a), (_, b)) in figures[0].iter().zip(&figures[1]) {
        assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{name}: {a} {b}");
    }
}

struct Silent(Vec<f64>);

impl Observer<dyn Experiment> for Silent {
    fn reported(&mut self, _: &dyn Experiment, _: &[(String, f64)]) -> Result<(), CoreError> {
        Ok(())
    }

    fn evaluated(
        &mut self,
        _: &dyn Experiment,
        evaluation: &Evaluation,
        _: bool,
    ) -> Result<(), CoreError> {
        self.0.extend(evaluation.headline.as_ref().map(|h| h.value));
        Ok(())
    }

    fn checkpoint(&mut self, _: &dyn Experiment, _: Option<&Headline>) -> Result<(), CoreError> {
        Ok(())
    }
}

/// A bar that stays open at a known place on a short line: walking towards it is optimal, and the policy finds it.
#[test]
fn both_agents_learn_to_walk_to_an_open_bar() {
    for kind in ["spg", "rspg"] {
        let run = settings(&format!(
            "agent = {{ kind = \"{kind}\", optimiser.learning_rate = 1e-2, embedding = 16, hidden = 16 }}\nrollout.complete = true\ngame = {{ name = \"beach-bar\", states = 11, horizon = 6, largest_action = 2, common_noise = false }}"
        ));
        let mut experiment = build(&run);
        let start = experiment.evaluate(false).unwrap().headline.unwrap().value;
        let mut seen = Silent(Vec::new());
        let intervals = Intervals {
            updates: 150,
            log: 50,
            evaluate: 0,
            checkpoint: 0,
        };
        train(experiment.as_mut(), intervals, &mut seen).unwrap();
        let end = seen.0[0];
        assert!(start > 3.0, "{kind}: starts at {start}");
        assert!(
            (0.0..0.1 * start).contains(&end),
            "{kind}: {start} to {end}"
        );
    }
}

#[test]
fn settings_that_do_not_fit_are_refused_in_one_line() {
    for (text, expected) in [
        (
            "rollout.paths = 0",
            "rollout.paths: got 0, expected at least 1",
        ),
        ("eval.paths = 0", "eval.paths: got 0, expected at least 1"),
        (
            "agent.hidden = 0",
            "agent.hidden: got 0, expected at least 1",
        ),
        (
            "rollout.complete = true\ngame.name = \"macro\"",
            "rollout.complete: macro has too many common-noise paths",
        ),
    ] {
        let mut warn = |warning: String| panic!("{warning}");
        let error = settings(text).build(Device::Cpu, &mut warn).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut warn = |warning: String| panic!("{warning}");
    let error = settings("")
        .build(Device::Cuda(0), &mut warn)
        .err()
        .unwrap();
    assert!(error.to_string().contains("expected cpu"), "{error}");
}

#[test]
fn the_last_evaluation_has_pictures_of_the_population() {
    let mut experiment = build(&settings(SMALL[1]));
    let charts = experiment.evaluate(true).unwrap().charts;
    let files: Vec<&str> = charts.iter().map(|chart| chart.file.as_str()).collect();
    assert!(files.contains(&"population-0"), "{files:?}");
    assert!(files.contains(&"share-next-to-the-bar"), "{files:?}");
    assert!(experiment.evaluate(false).unwrap().charts.is_empty());
}
