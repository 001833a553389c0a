//! Runs of mean-field agents through the command line.

use crate::common::Workplace;

const SMALL: [&str; 7] = [
    "--set=train.updates=4",
    "--set=eval.interval=2",
    "--set=eval.paths=2",
    "--set=checkpoint.interval=2",
    "--set=rollout.paths=2",
    "--set=game.horizon=4",
    "--set=agent.hidden=16",
];

#[test]
fn every_preset_trains_resumes_and_leaves_its_pictures() {
    let place = Workplace::new();
    for (preset, picture) in [
        ("lq-spg", "mean"),
        ("lq-rspg", "mean"),
        ("beach-bar-spg", "share-next-to-the-bar"),
        ("beach-bar-rspg", "share-next-to-the-bar"),
        ("macro-spg", "wage"),
        ("macro-rspg", "interest"),
    ] {
        let mut arguments = vec!["train", preset, "--quiet", "--out", preset];
        arguments.extend(SMALL);
        place.succeed(&arguments);
        let run = place.path().join(preset);
        for file in [
            "plots/population-0.png",
            "plots/exploitability.svg",
            "plots/exploitability-over-time.png",
            &format!("plots/{picture}.png"),
            "eval/step-000000000004.json",
            "checkpoints/step-000000000004/manifest.json",
        ] {
            assert!(run.join(file).exists(), "{preset}: {file}");
        }
        // As if killed after the checkpoint at update 2 and a few rows more.
        let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
        assert!(metrics.contains("evaluate/exploitability"), "{metrics}");
        std::fs::remove_dir_all(run.join("checkpoints/step-000000000004")).unwrap();
        place.succeed(&["resume", preset, "--quiet"]);
        let again = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
        assert_eq!(metrics, again, "{preset}");
        place.succeed(&["eval", preset, "--quiet"]);
    }
    place.refuse(&["export", "lq-spg"], &["no return law"]);
}

#[test]
fn wrong_words_get_the_nearest_match() {
    let place = Workplace::new();
    for (setting, words) in [
        ("--set=agent.kind=rspgg", ["`rspgg`", "`rspg`"]),
        ("--set=game.action_csot=1.0", ["action_csot", "action_cost"]),
        ("--set=game.horizn=3", ["horizn", "horizon"]),
        ("--set=rollout.path=3", ["path", "paths"]),
        ("--set=game.name=marco", ["marco", "macro"]),
    ] {
        place.refuse(&["train", "lq-rspg", setting], &words);
    }
    place.refuse(
        &["train", "lq-rspg", "--set=train.updates=0"],
        &["train.updates"],
    );
}
