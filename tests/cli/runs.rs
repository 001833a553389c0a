//! Whole runs through the command line.

use crate::common::{SMALL, Workplace};
use std::path::Path;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn a_run_leaves_everything_and_its_config_repeats_it() {
    let place = Workplace::new();
    place.train(
        "chain-exclusive",
        "first",
        &["--seed", "3", "--threads", "1"],
    );
    let first = place.path().join("first");
    for file in [
        "config.toml",
        "metrics.jsonl",
        "timing.jsonl",
        "events.out.tfevents.pushforward",
        "checkpoints/step-000000000008/manifest.json",
        "eval/step-000000000008.json",
        "plots/joint-law.png",
        "plots/joint-law.svg",
        "plots/error.png",
        "plots/loss.svg",
    ] {
        assert!(first.join(file).exists(), "{file}");
    }
    place.succeed(&[
        "train",
        "first/config.toml",
        "--out",
        "second",
        "--quiet",
        "--threads",
        "2",
    ]);
    let second = place.path().join("second");
    assert_eq!(
        read(&first.join("config.toml")),
        read(&second.join("config.toml"))
    );
    assert_eq!(
        read(&first.join("metrics.jsonl")),
        read(&second.join("metrics.jsonl"))
    );
    for file in [
        "tensors.safetensors",
        "state.json",
        "replay.bin",
        "manifest.json",
    ] {
        let bytes =
            |run: &Path| std::fs::read(run.join("checkpoints/step-000000000008").join(file));
        assert!(
            bytes(&first).unwrap() == bytes(&second).unwrap(),
            "{file} differs"
        );
    }
}

#[test]
fn a_resumed_run_equals_an_unbroken_one() {
    let place = Workplace::new();
    place.train("chain-exclusive", "whole", &[]);
    place.train("chain-exclusive", "broken", &[]);
    let broken = place.path().join("broken");
    // As if killed after the checkpoint at update 4 and a few rows more.
    std::fs::remove_dir_all(broken.join("checkpoints/step-000000000008")).unwrap();
    place.succeed(&["resume", "broken", "--quiet"]);
    let whole = place.path().join("whole");
    for file in ["metrics.jsonl", "eval/step-000000000008.json"] {
        assert_eq!(read(&whole.join(file)), read(&broken.join(file)), "{file}");
    }
    for file in ["tensors.safetensors", "state.json", "replay.bin"] {
        let bytes =
            |run: &Path| std::fs::read(run.join("checkpoints/step-000000000008").join(file));
        assert!(
            bytes(&whole).unwrap() == bytes(&broken).unwrap(),
            "{file} differs"
        );
    }
}

#[test]
fn evaluating_again_gives_the_same_figures_and_export_the_same_laws() {
    let place = Workplace::new();
    place.train("chain-exclusive", "run", &[]);
    let file = place.path().join("run/eval/step-000000000008.json");
    let figures = read(&file);
    std::fs::remove_file(&file).unwrap();
    let told = place.succeed(&["eval", "run"]);
    assert!(told.contains("ratio_to_floor"), "{told}");
    assert_eq!(read(&file), figures);
    place.succeed(&["export", "run", "--out", "exported", "--quiet"]);
    let csv = read(&place.path().join("exported/truth_0.csv"));
    // A header and 512 samples.
    assert_eq!(csv.lines().count(), 513);
    assert!(place.path().join("exported/laws.npz").exists());
}

#[test]
fn a_damaged_checkpoint_is_skipped_and_another_configuration_refused() {
    let place = Workplace::new();
    place.train("chain-exclusive", "run", &[]);
    let newest = place.path().join("run/checkpoints/step-000000000008");
    for text in ["", "text"] {
        std::fs::write(newest.join("tensors.safetensors"), text).unwrap();
        let output = place.run(&["eval", "run"]);
        let warning = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{warning}");
        assert!(
            warning.contains("step-000000000008") && warning.contains("skipped"),
            "{warning}"
        );
    }
    let config = place.path().join("run/config.toml");
    let changed = read(&config).replace("updates = 8", "updates = 12");
    std::fs::write(&config, changed).unwrap();
    place.refuse(&["resume", "run"], &["another configuration"]);
}

#[test]
fn a_run_is_not_overwritten_unless_told() {
    let place = Workplace::new();
    place.train("chain-exclusive", "run", &[]);
    let mut arguments = vec!["train", "chain-exclusive", "--out", "run"];
    arguments.extend(SMALL);
    place.refuse(&arguments, &["not empty", "--force", "resume"]);
    place.train("chain-exclusive", "run", &["--force"]);
}

#[test]
fn several_seeds_are_put_together() {
    let place = Workplace::new();
    place.train("chain-exclusive", "many", &["--seeds", "1..3"]);
    let text = read(&place.path().join("many/aggregate.json"));
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["seeds"], serde_json::json!([1, 2]));
    let values = &read["figures"]["evaluate/ratio_to_floor"]["values"];
    assert_eq!(values.as_array().map(Vec::len), Some(2), "{text}");
    assert!(place.path().join("many/plots/loss.png").exists());
    assert!(place.path().join("many/seed-2/config.toml").exists());
}

#[test]
fn every_preset_runs_for_a_few_updates() {
    let place = Workplace::new();
    let presets = place.succeed(&["list", "presets"]);
    let names: Vec<&str> = presets
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() >= 10);
    for name in names {
        // Runs of games have settings of their own and a test of their own.
        if place.succeed(&["show-config", name]).contains("[game]") {
            continue;
        }
        place.train(name, name, &["--set=agent.batch_size=8"]);
        let control =
            read(&place.path().join(name).join("config.toml")).contains("kind = \"control\"");
        let gif = place.path().join(name).join("plots/episode.gif");
        let drawn = name.starts_with("maze") || name.starts_with("cartpole");
        assert_eq!(gif.exists(), control && drawn, "{name}");
    }
}

#[test]
fn the_listing_and_the_resolved_configuration_are_printed() {
    let place = Workplace::new();
    let listing = place.succeed(&["list"]);
    for word in [
        "chain",
        "maze/exclusive",
        "sdrl",
        "cramer",
        "uniform",
        "maze-exclusive",
    ] {
        assert!(listing.contains(word), "{word}");
    }
    let shown = place.succeed(&["show-config", "chain-exclusive", "--seed", "9"]);
    assert!(shown.contains("seed = 9"));
    let file = place.file("shown.toml", &shown);
    assert_eq!(place.succeed(&["show-config", &file]), shown);
    assert!(
        place
            .succeed(&["completions", "bash"])
            .contains("pushforward")
    );
    let doctor = place.succeed(&["doctor"]);
    assert!(doctor.contains("needed 2.13.0, found 2.13.0"), "{doctor}");
}

#[test]
fn divergences_of_two_clouds_are_printed() {
    let place = Workplace::new();
    let x = place.file("x.csv", "0\n1\n");
    let y = place.file("y.csv", "0\n3\n");
    // Sorted pairs (0, 0) and (1, 3): mean square (0 + 4)/2 = 2.
    let text = place.succeed(&[
        "divergence",
        &x,
        &y,
        "--kind",
        "wasserstein",
        "--p",
        "2",
        "--json",
    ]);
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["value"], 2.0);
    assert_eq!(read["root"], 2.0_f64.sqrt());
    // F - G is 1/2 on [1, 3) and 0 elsewhere: 2 · 1/4.
    let text = place.succeed(&["divergence", &x, &y]);
    assert!(text.contains("0.5"), "{text}");
    // In the plane, along given axes: the mean of both coordinates' values.
    let x = place.file("x2.csv", "0,0\n1,0\n");
    let y = place.file("y2.csv", "0,0\n3,0\n");
    let axes = place.file("axes.csv", "1,0\n0,2\n");
    let text = place.succeed(&["divergence", &x, &y, "--directions-file", &axes, "--json"]);
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["value"], 0.25);
    assert_eq!(read["per_direction"], serde_json::json!([0.5, 0.0]));
    assert_eq!(
        [&read["kind"], &read["lift"]],
        [&serde_json::json!("cramer"), &serde_json::json!("uniform")]
    );
}

#[test]
fn divergences_of_the_plane_sweep_and_fill_a_table() {
    let place = Workplace::new();
    let x = place.file("x.csv", "0,0\n");
    let y = place.file("y.csv", "3,4\n");
    let rows = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let text = place.succeed(&[&["divergence", &x, &y, "--json"], arguments].concat());
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    };
    let value = |row: &serde_json::Value| row["value"].as_f64().unwrap();
    // Two points at distance 5: 2 tanh(5t/2).
    let sweep = rows(&["--kind", "magnitude", "--t", "0.1,1"]);
    assert_eq!(sweep.len(), 2);
    for (row, t) in sweep.iter().zip([0.1_f64, 1.0]) {
        assert!((value(row) - 2.0 * (2.5 * t).tanh()).abs() < 1e-14, "{row}");
    }
    // All mass moves by 5: W_2² = 25, and no plan but one, whatever ε.
    assert_eq!(value(&rows(&["--kind", "ot", "--p", "2"])[0]), 25.0);
    assert_eq!(
        value(&rows(&["--kind", "sinkhorn", "--epsilon", "3"])[0]),
        25.0
    );
    // 2 · 5.
    assert_eq!(value(&rows(&["--kind", "energy"])[0]), 10.0);
    // Median of the one distance: h = 25, so 2 - 2/e.
    let median = &rows(&["--kind", "mmd", "--kernel", "median", "--lift", "none"])[0];
    assert!((value(median) - (2.0 - 2.0 * (-1.0_f64).exp())).abs() < 1e-15);
    let all = rows(&["--kind", "all"]);
    for (kind, lift) in [
        ("wasserstein", "max"),
        ("cramer", "exact"),
        ("mmd", "none"),
        ("ot", "none"),
    ] {
        let found = all
            .iter()
            .filter(|row| row["kind"] == kind && row["lift"] == lift);
        assert_eq!(found.count(), 1, "{kind} {lift}");
    }
    let table = place.succeed(&["divergence", &x, &y, "--kind", "all"]);
    assert_eq!(table.lines().count(), all.len() + 1, "{table}");
    place.refuse(
        &["divergence", &x, &y, "--kind", "ot", "--t", "1"],
        &["`t`"],
    );
    place.refuse(
        &["divergence", &x, &y, "--kind", "magnitude", "--t", "-1"],
        &["magnitude t", "-1"],
    );
    place.refuse(
        &["divergence", &x, &y, "--kind", "sinkhorn", "--lift", "max"],
        &["lift"],
    );
    place.refuse(
        &["divergence", &x, &y, "--kind", "all", "--p", "2"],
        &["--p"],
    );
}

#[test]
fn a_reward_that_is_not_finite_is_bad_input() {
    let place = Workplace::new();
    let run = |out: &str, settings: &[&str]| {
        let mut arguments = vec!["train", "chain-exclusive", "--quiet", "--out", out];
        arguments.extend(SMALL);
        arguments.extend(settings);
        let output = place.run(&arguments);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    // Finite as the f64 of the configuration, not as the f32 of a reward.
    assert_eq!(
        run(
            "first",
            &["--set=env.reward={kind=\"gaussian\",mean=[1e39,0.0]}"]
        ),
        "error: chain: environment 0, step 0: reward[0] is inf, expected a finite number\n"
    );
    // Only leaving the chain, after at least 60 steps, pays the bonus: the run is then well under way, and the checkpoint before stays.
    let late = [
        "--set=env.length=60",
        "--set=env.terminal_bonus=[0.0,-1e39]",
        "--set=train.updates=1000",
    ];
    let told = run("late", &[&late[..], &["--set=eval.interval=0"]].concat());
    assert!(
        told.starts_with("error: chain: environment ") && told.contains("reward[1] is -inf"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1);
    let checkpoints = std::fs::read_dir(place.path().join("late/checkpoints")).unwrap();
    assert!(checkpoints.count() > 0);
    place.refuse(&["resume", "late", "--quiet"], &["-inf"]);
    // The truth shows it too.
    let told = run("judged", &late);
    assert_eq!(
        told,
        "error: chain: a true return is -inf, expected finite rewards\n"
    );
}

#[test]
fn a_stopped_run_is_saved_and_goes_on() {
    let place = Workplace::new();
    let mut arguments = vec!["train", "chain-exclusive", "--out", "run"];
    arguments.extend(SMALL);
    arguments.extend([
        "--set=train.updates=1000000",
        "--set=checkpoint.interval=500000",
    ]);
    let mut program = place.command(&arguments).spawn().unwrap();
    let rows = place.path().join("run/metrics.jsonl");
    while !rows.exists() {
        assert_eq!(program.try_wait().unwrap(), None, "ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let id = program.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &id])
        .status();
    assert!(sent.unwrap().success());
    assert_eq!(program.wait().unwrap().code(), Some(1));
    let saved = std::fs::read_dir(place.path().join("run/checkpoints")).unwrap();
    assert_eq!(saved.count(), 1);
}

#[test]
fn a_run_that_is_killed_at_any_moment_can_go_on() {
    let place = Workplace::new();
    let mut arguments = vec!["train", "chain-exclusive", "--out", "run", "--quiet"];
    arguments.extend(SMALL);
    arguments.extend([
        "--set=train.updates=1000000",
        "--set=log.interval=1",
        "--set=checkpoint.interval=1",
        "--set=eval.interval=0",
    ]);
    let checkpoints = place.path().join("run/checkpoints");
    let whole = || {
        std::fs::read_dir(&checkpoints).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().starts_with("step-"))
        })
    };
    for round in 0..4 {
        let mut program = place.command(&arguments).spawn().unwrap();
        while !whole() {
            assert_eq!(program.try_wait().unwrap(), None, "round {round} ended");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // Some further way into a save, differently in each round.
        std::thread::sleep(std::time::Duration::from_millis(400 + 37 * round));
        program.kill().unwrap();
        program.wait().unwrap();
        arguments = vec!["resume", "run", "--quiet"];
    }
    let output = place.run(&["eval", "run", "--quiet"]);
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && warning.is_empty(), "{warning}");
}
