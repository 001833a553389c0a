//! Bad input: one clear line, exit code 2, nothing written.

use crate::common::{SMALL, Workplace};

#[test]
fn unknown_words_get_the_nearest_match() {
    let place = Workplace::new();
    place.refuse(&["trian"], &["'train'"]);
    place.refuse(&["train", "maze-exclusiv"], &["`maze-exclusive`"]);
    place.refuse(
        &[
            "train",
            "chain-exclusive",
            "--set",
            "env.name=maze/exclusiv",
        ],
        &["maze/exclusive"],
    );
    place.refuse(
        &["train", "chain-exclusive", "--set", "agnet.discount=0.9"],
        &["`agnet`", "`agent`"],
    );
    place.refuse(
        &["train", "chain-exclusive", "--set", "agent.dicsount=0.9"],
        &["[agent]", "`dicsount`", "`discount`"],
    );
    place.refuse(
        &["train", "chain-exclusive", "--set", "env.lenght=4"],
        &["[env]", "`lenght`", "`length`"],
    );
    place.refuse(
        &[
            "train",
            "chain-exclusive",
            "--set",
            "agent.divergence.kind=cramr",
        ],
        &["[agent.divergence]", "`cramr`", "`cramer`"],
    );
    place.refuse(&["list", "preset"], &["presets"]);
    place.refuse(&["train", "chain-exclusive", "--sed", "3"], &["--seed"]);
}

#[test]
fn files_are_named_with_their_line() {
    let place = Workplace::new();
    let file = place.file("broken.toml", "seed = 3\n[agent\n");
    place.refuse(&["train", &file], &["broken.toml line 2", "not valid TOML"]);
    let file = place.file("typed.toml", "[train]\nupdates = \"many\"\n");
    place.refuse(
        &["train", &file],
        &[
            "[train] updates",
            "\"many\"",
            "integer",
            "typed.toml line 2",
        ],
    );
    let file = place.file("section.toml", "replay = 7\n");
    place.refuse(
        &["train", "chain-exclusive", "--config", &file],
        &["replay", "section.toml line 1"],
    );
    place.refuse(
        &["train", "chain-exclusive", "--config", "absent.toml"],
        &["absent.toml"],
    );
}

#[test]
fn settings_out_of_range_are_named() {
    let place = Workplace::new();
    for (setting, words) in [
        ("agent.discount=1.0", &["discount"][..]),
        ("agent.discount=[[0.9,0.9],[0.9,0.9]]", &["norm"]),
        ("agent.discount=[0.9,0.9,0.9]", &["d = 2"]),
        ("agent.representation.particles=0", &["particles"]),
        ("agent.divergence.lift.directions=0", &["directions"]),
        ("agent.batch_size=0", &["batch_size"]),
        ("agent.batch_size=-1", &["[agent] batch_size", "-1"]),
        ("train.updates=0", &["train.updates"]),
        ("log.interval=7", &["log.interval"]),
        ("rollout.environments=0", &["environments"]),
        ("checkpoint.keep=0", &["checkpoint.keep"]),
        ("env.slip=1.5", &["slip"]),
        ("env.dim=0", &["dim"]),
        ("agent.objective.policy.action=sideways", &["sideways"]),
        ("replay.capacity=100000000000000", &["GiB"]),
        ("name=../x", &["name"]),
    ] {
        place.refuse(&["train", "chain-exclusive", "--set", setting], words);
    }
    place.refuse(
        &[
            "train",
            "chain-exclusive",
            "--set=agent.divergence.kind=wasserstein",
            "--set=agent.divergence.lift.kind=exact",
        ],
        &["exact"],
    );
    place.refuse(
        &[
            "train",
            "maze-constraint-d",
            "--set=agent.objective.utility={kind=\"linear\",weights=[1.0,2.0]}",
        ],
        &["weights", "expected 3"],
    );
    place.refuse(
        &["train", "maze-exclusive-image", "--set", "env.size=0"],
        &["size"],
    );
    place.refuse(
        &[
            "train",
            "chain-exclusive",
            "--set=env.reward={kind=\"deterministic\",value=[nan,1.0]}",
        ],
        &["value"],
    );
}

#[test]
fn maps_are_checked() {
    let place = Workplace::new();
    let shipped: serde_json::Value =
        serde_json::from_str(include_str!("../../envs/src/maps/exclusive.json")).unwrap();
    let refuse = |key: &str, value: serde_json::Value, words: &[&str]| {
        let mut map = shipped.clone();
        map[key] = value;
        let file = place.file("map.json", &map.to_string());
        let set = format!("--set=env.map=\"{file}\"");
        place.refuse(
            &["train", "maze-exclusive", "--set=env.name=maze", &set],
            words,
        );
    };
    use serde_json::json;
    refuse("vertical_edges", json!([]), &["vertical_edges"]);
    refuse(
        "horizontal_edges",
        json!([[0], [0, 0]]),
        &["horizontal_edges"],
    );
    let mut edges = shipped["vertical_edges"].clone();
    edges[1][2] = json!(7);
    refuse("vertical_edges", edges, &["7"]);
    refuse("start", json!([9, 0]), &["start"]);
    refuse("start", json!([0, 2]), &["start", "blocked"]);
    refuse("items", json!([{"dim": 0, "cell": [0, 5]}]), &["item"]);
    refuse(
        "reward_uniform",
        json!([{"low": 0.7, "high": 0.6}, {"low": 0.4, "high": 0.9}]),
        &["low"],
    );
    refuse(
        "forced_action_probs",
        json!([{"cell": [0, 0], "probs": [0.5, 0.5, 0.5, 0.0]}]),
        &["1"],
    );
    place.file("map.json", "not a map");
    place.refuse(
        &[
            "train",
            "maze-exclusive",
            "--set=env.name=maze",
            "--set=env.map=map.json",
        ],
        &["map.json"],
    );
    place.refuse(
        &[
            "train",
            "maze-exclusive",
            "--set=env.name=maze",
            "--set=env.map=none.json",
        ],
        &["none.json"],
    );
}

#[test]
fn devices_threads_and_seeds_are_checked() {
    let place = Workplace::new();
    if !tch::Cuda::is_available() {
        place.refuse(&["train", "chain-exclusive", "--device", "cuda"], &["cuda"]);
    }
    place.refuse(&["train", "chain-exclusive", "--device", "gpu"], &["gpu"]);
    place.refuse(
        &["train", "chain-exclusive", "--threads", "0"],
        &["threads"],
    );
    place.refuse(&["train", "chain-exclusive", "--seed", "-1"], &["--seed"]);
    place.refuse(
        &["train", "chain-exclusive", "--seeds", "4..2"],
        &["--seeds"],
    );
}

#[test]
fn output_folders_are_checked_before_training() {
    let place = Workplace::new();
    place.file("file", "x");
    let mut arguments = vec!["train", "chain-exclusive"];
    arguments.extend(SMALL);
    arguments.push("--out");
    let mut with = |out: &'static str, words: &[&str]| {
        arguments.push(out);
        place.refuse(&arguments, words);
        arguments.pop();
    };
    with("file/run", &["file/run"]);
    with("file", &["file"]);
    with("/proc/run", &["/proc/run"]);
    std::fs::create_dir(place.path().join("thesis")).unwrap();
    place.file("thesis/chapter.tex", "x");
    with("thesis", &["not empty"]);
    arguments.push("thesis");
    arguments.push("--force");
    place.refuse(&arguments, &["no run"]);
}

#[test]
fn runs_that_are_none_are_told() {
    let place = Workplace::new();
    for command in ["resume", "eval", "export"] {
        place.refuse(&[command, "nowhere"], &["nowhere", "no run"]);
    }
}

#[test]
fn clouds_are_checked() {
    let place = Workplace::new();
    let good = place.file("good.csv", "x,y\n0,1\n2,3\n");
    for (name, text, words) in [
        (
            "ragged.csv",
            "0,1\n2\n",
            &["ragged.csv line 2", "1 columns"][..],
        ),
        (
            "word.csv",
            "0,1\n2,three\n",
            &["word.csv line 2", "`three`"],
        ),
        ("nan.csv", "0,nan\n", &["nan.csv line 1", "finite"]),
        ("empty.csv", "", &["empty.csv", "no points"]),
        ("wide.csv", "1,2,3\n", &["3 columns", "2"]),
    ] {
        let file = place.file(name, text);
        place.refuse(&["divergence", &good, &file], words);
    }
    place.refuse(&["divergence", &good, "absent.csv"], &["absent.csv"]);
    place.refuse(
        &["divergence", &good, &good, "--kind", "cramr"],
        &["`cramer`"],
    );
    place.refuse(&["divergence", &good, &good, "--p", "2"], &["`p`"]);
    place.refuse(
        &["divergence", &good, &good, "--directions", "0"],
        &["directions"],
    );
    let weights = place.file("weights.csv", "1\n-1\n");
    place.refuse(
        &["divergence", &good, &good, "--weights-x", &weights],
        &["negative"],
    );
}
