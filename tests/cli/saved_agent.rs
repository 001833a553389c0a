//! Evaluating the policy of a saved agent.

use crate::common::Workplace;

const CONTROL: &str = "--set=agent.objective={kind=\"control\",utility={kind=\"linear\"}}";
const SAVED: &str = "--set=agent.objective={kind=\"evaluation\",policy={kind=\"agent\",run=\"control\",epsilon=0.2}}";
const BACK: &str = "--set=env.back=true";

#[test]
fn the_policy_of_a_saved_agent_is_evaluated_and_the_run_goes_on_with_it() {
    let place = Workplace::new();
    place.train("chain-exclusive", "control", &[BACK, CONTROL]);
    place.train("chain-exclusive", "whole", &[BACK, SAVED, "--threads=1"]);
    place.train("chain-exclusive", "broken", &[BACK, SAVED, "--threads=2"]);
    let path = |file: &str| place.path().join(file);
    let read = |file: &str| std::fs::read(path(file)).unwrap();
    let config = String::from_utf8(read("whole/config.toml")).unwrap();
    assert!(config.contains("updates = 8\nhash = \""), "{config}");
    std::fs::remove_dir_all(path("broken/checkpoints/step-000000000008")).unwrap();
    place.succeed(&["resume", "broken", "--quiet"]);
    for file in [
        "config.toml",
        "metrics.jsonl",
        "eval/step-000000000008.json",
        "checkpoints/step-000000000008/tensors.safetensors",
        "checkpoints/step-000000000008/state.json",
        "checkpoints/step-000000000008/collector.bin",
    ] {
        let (whole, broken) = (format!("whole/{file}"), format!("broken/{file}"));
        assert!(read(&whole) == read(&broken), "{file} differs");
    }
    // Another agent in the same place is not taken for the one that the run began with.
    std::fs::remove_dir_all(path("broken/checkpoints/step-000000000008")).unwrap();
    place.train(
        "chain-exclusive",
        "control",
        &[BACK, CONTROL, "--force", "--seed=9"],
    );
    place.refuse(&["resume", "broken"], &["control", "another agent"]);
    std::fs::remove_dir_all(path("control/checkpoints/step-000000000008")).unwrap();
    place.refuse(&["resume", "broken"], &["control", "update 8"]);
}

#[test]
fn runs_without_a_usable_policy_are_refused() {
    let place = Workplace::new();
    place.refuse(
        &["train", "chain-exclusive", SAVED],
        &["agent.objective.policy.run", "control", "no run"],
    );
    std::fs::create_dir(place.path().join("control")).unwrap();
    place.refuse(&["train", "chain-exclusive", SAVED], &["no config.toml"]);
    std::fs::remove_dir(place.path().join("control")).unwrap();
    place.train("chain-exclusive", "control", &[]);
    place.refuse(
        &["train", "chain-exclusive", SAVED],
        &["control", "evaluates a policy"],
    );
    place.refuse(
        &["train", "maze-exclusive", SAVED],
        &["control", "chain", "expected maze/exclusive"],
    );
    place.refuse(
        &["train", "chain-exclusive", BACK, SAVED],
        &["control", "other settings"],
    );
    let constrained = |out: &str| SAVED.replace("\"control\"", &format!("\"{out}\""));
    place.train("maze-constraint-d", "constrained", &[]);
    place.refuse(
        &["train", "maze-constraint-d", &constrained("constrained")],
        &["constrained", "return so far"],
    );
    place.train("chain-exclusive", "second", &[BACK, CONTROL]);
    let wild = constrained("second").replace("0.2", "1.2");
    place.refuse(
        &["train", "chain-exclusive", BACK, &wild],
        &["epsilon", "1.2"],
    );
    std::fs::remove_dir_all(place.path().join("second/checkpoints")).unwrap();
    std::fs::create_dir(place.path().join("second/checkpoints")).unwrap();
    place.refuse(
        &["train", "chain-exclusive", BACK, &constrained("second")],
        &["second", "no checkpoint"],
    );
    let misspelt = SAVED.replace("agent\"", "agnet\"");
    place.refuse(
        &["train", "chain-exclusive", &misspelt],
        &["`agnet`", "`agent`"],
    );
}
