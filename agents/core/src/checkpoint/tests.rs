//! Checkpoints round trip, survive kills, and say what is wrong with broken ones.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pushforward_envs::{Discount, DiscountConfig, ObservationKind};
use serde_json::json;

use super::*;
use crate::{ObservationBuffer, ReplayConfig, ReplayShape};

/// Folder in which the child of the kill test saves; only set in that child.
const FOLDER_VARIABLE: &str = "PUSHFORWARD_TEST_CHECKPOINTS";

fn arrays(updates: u64) -> Vec<NamedArray> {
    vec![
        NamedArray::f32("online/weight", vec![2, 3], vec![updates as f32; 6]),
        NamedArray::f32("online/bias", vec![3], vec![0.1, f32::MIN_POSITIVE, -1e30]),
        NamedArray::i64("steps", vec![], vec![updates as i64]),
    ]
}

fn save(store: &CheckpointStore, updates: u64, headline: Option<f64>) {
    let headline = headline.map(|value| Headline {
        name: "ratio_to_floor".into(),
        value,
        lower_is_better: true,
    });
    store
        .save(
            updates,
            &Contents {
                arrays: &arrays(updates),
                state: &json!({ "updates": updates, "epsilon": 0.1 + 0.2 }),
                files: &[("collector.bin", &updates.to_le_bytes())],
                replay: None,
                headline: headline.as_ref(),
            },
        )
        .unwrap();
}

fn store(folder: &Path, keep: usize) -> CheckpointStore {
    CheckpointStore::create(folder, &sha256_hex(b"seed = 1"), keep).unwrap()
}

fn message<T>(result: Result<T, CoreError>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn everything_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 2);
    save(&store, 7, None);
    let (checkpoint, warnings) = store.load_latest().unwrap();
    assert!(warnings.is_empty());
    assert_eq!(checkpoint.updates, 7);
    assert_eq!(checkpoint.state["epsilon"].as_f64(), Some(0.1 + 0.2));
    assert_eq!(
        checkpoint.file("collector.bin").unwrap(),
        7_u64.to_le_bytes()
    );
    let mut expected = arrays(7);
    expected.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(checkpoint.arrays, expected);
    assert!(!checkpoint.has_replay());
}

#[test]
fn arrays_become_tensors_and_back() {
    for array in arrays(5) {
        let tensor = array.to_tensor().unwrap();
        assert_eq!(
            NamedArray::from_tensor(array.name.clone(), &tensor).unwrap(),
            array
        );
    }
    // A transposed tensor is not contiguous: [[1, 2, 3], [4, 5, 6]] becomes rows (1, 4), (2, 5), (3, 6).
    let tensor = NamedArray::f32("x", vec![2, 3], vec![1., 2., 3., 4., 5., 6.])
        .to_tensor()
        .unwrap()
        .transpose(0, 1);
    let array = NamedArray::from_tensor("x", &tensor).unwrap();
    assert_eq!(
        array,
        NamedArray::f32("x", vec![3, 2], vec![1., 4., 2., 5., 3., 6.])
    );
}

#[test]
fn names_count_and_shapes_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 2);
    save(&store, 7, None);
    let (checkpoint, _) = store.load_latest().unwrap();
    let good = [
        ("steps".to_owned(), vec![]),
        ("online/weight".to_owned(), vec![2, 3]),
        ("online/bias".to_owned(), vec![3]),
    ];
    let found = checkpoint.matching(&good).unwrap();
    assert_eq!(found[1].as_f32().unwrap(), [7.0; 6]);
    assert_eq!(found[0].as_i64().unwrap(), [7]);
    let mut other = good.clone();
    other[1].1 = vec![3, 2];
    assert!(
        message(checkpoint.matching(&other))
            .ends_with("array online/weight has shape [2, 3], expected [3, 2]")
    );
    other[1].0 = "online/wait".into();
    assert!(
        message(checkpoint.matching(&other))
            .ends_with("array online/wait is missing, expected shape [3, 2]")
    );
    assert!(
        message(checkpoint.matching(&good[..2]))
            .ends_with("array online/bias of shape [3] is not expected (3 arrays, expected 2)")
    );
    let wrong = NamedArray::f32("x", vec![2, 2], vec![0.0; 3]);
    let contents = Contents {
        arrays: &[wrong],
        state: &json!(null),
        files: &[],
        replay: None,
        headline: None,
    };
    assert!(
        message(store.save(8, &contents))
            .ends_with("array x has 3 elements, expected 4 for shape [2, 2]")
    );
    let twice = [arrays(1), arrays(2)].concat();
    let contents = Contents {
        arrays: &twice,
        ..contents
    };
    assert!(message(store.save(8, &contents)).ends_with("two arrays are named online/weight"));
    assert_eq!(store.steps().unwrap(), [7]);
}

#[test]
fn the_last_and_the_best_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 2);
    let scores = [Some(0.9), Some(0.4), None, Some(f64::NAN), Some(0.6), None];
    for (index, score) in scores.into_iter().enumerate() {
        save(&store, 10 * (index as u64 + 1), score);
    }
    // The lowest ratio, 0.4, was at update 20; 50 and 60 are the last two.
    assert_eq!(store.steps().unwrap(), [20, 50, 60]);
    assert_eq!(store.load_best().unwrap().0.updates, 20);
    assert_eq!(store.load_latest().unwrap().0.updates, 60);
    assert_eq!(store.load_at(50).unwrap().updates, 50);
    let gone = store.load_at(30).unwrap_err().to_string();
    assert!(
        gone.ends_with("none of update 30, found [20, 50, 60]"),
        "{gone}"
    );
    save(&store, 70, Some(0.4));
    // Of equals the newer one is kept.
    assert_eq!(store.steps().unwrap(), [60, 70]);
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "nothing temporary is left: {names:?}");
}

#[test]
fn broken_checkpoints_are_named_and_skipped() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 7] = [
        ("manifest.json", |folder| {
            std::fs::write(folder.join("manifest.json"), "").unwrap();
        }),
        ("manifest.json", |folder| {
            std::fs::remove_file(folder.join("manifest.json")).unwrap();
        }),
        ("tensors.safetensors has 4 bytes", |folder| {
            std::fs::write(folder.join("tensors.safetensors"), "text").unwrap();
        }),
        ("tensors.safetensors has 0 bytes", |folder| {
            std::fs::write(folder.join("tensors.safetensors"), "").unwrap();
        }),
        ("state.json does not have the hash", |folder| {
            let path = folder.join("state.json");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[3] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }),
        ("collector.bin", |folder| {
            std::fs::remove_file(folder.join("collector.bin")).unwrap();
        }),
        ("format 99, expected 1", |folder| {
            let path = folder.join("manifest.json");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(path, text.replace("\"format\": 1", "\"format\": 99")).unwrap();
        }),
    ];
    for (expected, damage) in damages {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 3);
        save(&store, 1, None);
        save(&store, 2, None);
        damage(&folder.path().join("step-000000000002"));
        let (checkpoint, warnings) = store.load_latest().unwrap();
        assert_eq!(checkpoint.updates, 1);
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].contains(expected) && warnings[0].contains("step-000000000002"),
            "{expected}: {warnings:?}"
        );
        damage(&folder.path().join("step-000000000001"));
        assert!(message(store.load_latest()).contains("none is whole"));
    }
}

#[test]
fn another_configuration_and_an_empty_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = store(folder.path(), 2);
    assert!(
        message(first.load_latest()).ends_with("no checkpoint here, expected folders named step-…")
    );
    save(&first, 3, None);
    let other = CheckpointStore::open(folder.path(), &sha256_hex(b"seed = 2"));
    let message = message(other.load_latest());
    assert!(
        message.contains("step-000000000003: from another configuration (hash "),
        "{message}"
    );
}

#[test]
fn leftovers_of_a_kill_are_cleared_and_a_half_replacement_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let first = store(folder.path(), 2);
    save(&first, 4, None);
    save(&first, 5, None);
    let path = |name: &str| folder.path().join(name);
    std::fs::rename(
        path("step-000000000005"),
        path(".replaced-step-000000000005"),
    )
    .unwrap();
    for name in [".writing-step-000000000005", ".removed-step-000000000001"] {
        std::fs::create_dir(path(name)).unwrap();
        std::fs::write(path(name).join("state.json"), "{").unwrap();
    }
    let again = store(folder.path(), 2);
    assert_eq!(again.load_latest().unwrap().0.updates, 5);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    // Saving a step that exists replaces it.
    save(&again, 5, Some(0.5));
    assert_eq!(again.steps().unwrap(), [4, 5]);
    assert_eq!(again.load_best().unwrap().0.updates, 5);
}

#[test]
fn replay_is_kept_beside() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 2);
    let shape = ReplayShape {
        kind: ObservationKind::U8,
        length: 3,
        reward_dim: 1,
        extra: 0,
        environments: 1,
    };
    let discount = Discount::new(&DiscountConfig::Scalar(0.9), 1).unwrap();
    let make = || Replay::new(&ReplayConfig::default(), shape, &discount).unwrap();
    let mut replay = make();
    replay
        .start(&ObservationBuffer::U8(vec![1, 2, 3]), &[], &[0])
        .unwrap();
    let contents = Contents {
        arrays: &[],
        state: &json!({}),
        files: &[],
        replay: Some(&replay),
        headline: None,
    };
    store.save(1, &contents).unwrap();
    let (checkpoint, _) = store.load_latest().unwrap();
    assert!(checkpoint.has_replay());
    let mut other = make();
    checkpoint.load_replay(&mut other).unwrap();
    let bytes = |replay: &Replay| {
        let mut bytes = Vec::new();
        replay.save(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(bytes(&replay), bytes(&other));
    let reserved = Contents {
        files: &[("state.json", b"x")],
        ..contents
    };
    assert!(
        message(store.save(2, &reserved))
            .ends_with("file name `state.json` is reserved or not plain")
    );
}

#[test]
fn an_unusable_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(message(CheckpointStore::create(&file, "", 1)).contains("file"));
    assert!(message(CheckpointStore::open(&file, "").load_latest()).contains("file"));
    let gone = store(&folder.path().join("gone"), 1);
    std::fs::remove_dir(folder.path().join("gone")).unwrap();
    let contents = Contents {
        arrays: &[],
        state: &json!(null),
        files: &[],
        replay: None,
        headline: None,
    };
    assert!(message(gone.save(1, &contents)).contains("gone"));
}

/// Runs one test of this program in a shell that first runs `before`, with checkpoints in `folder`.
fn child(before: &str, test: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!("{before}exec \"$0\" --exact --nocapture {test}"),
        ])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER_VARIABLE, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn child_that_saves_for_ever() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE) else {
        return;
    };
    let store = store(Path::new(&folder), 2);
    let mut updates = match store.load_latest() {
        Ok((checkpoint, _)) => checkpoint.updates,
        Err(_) => 0,
    };
    loop {
        updates += 1;
        save(
            &store,
            updates,
            (updates % 5 == 0).then_some(1.0 / updates as f64),
        );
        // The same step again, as when a run is stopped on a checkpoint.
        save(&store, updates, None);
    }
}

#[test]
fn a_kill_at_any_moment_leaves_a_checkpoint_that_loads() {
    let folder = tempfile::tempdir().unwrap();
    let mut newest = 0;
    for round in 0..12_u64 {
        let test = "checkpoint::tests::child_that_saves_for_ever";
        let mut process = child("", test, folder.path()).spawn().unwrap();
        let reader = CheckpointStore::open(folder.path(), &sha256_hex(b"seed = 1"));
        // Wait until this child has saved, then for a while that differs from round to round.
        for _ in 0..60_000 {
            if reader
                .steps()
                .is_ok_and(|steps| steps.last() > Some(&newest))
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(round * 1357 % 16_000));
        process.kill().unwrap();
        process.wait().unwrap();
        let store = store(folder.path(), 2);
        let (checkpoint, warnings) = store.load_latest().unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(
            checkpoint.updates > newest,
            "{} {newest}",
            checkpoint.updates
        );
        newest = checkpoint.updates;
        let mut expected = arrays(newest);
        expected.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(checkpoint.arrays, expected);
    }
}

/// Not a test of its own: saves where files may not grow beyond a few kilobytes.
#[test]
fn child_on_a_full_disk() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE) else {
        return;
    };
    let store = store(Path::new(&folder), 2);
    save(&store, 1, None);
    let large = [NamedArray::f32("large", vec![1 << 16], vec![0.0; 1 << 16])];
    let contents = Contents {
        arrays: &large,
        state: &json!(null),
        files: &[],
        replay: None,
        headline: None,
    };
    let refused = message(store.save(2, &contents)).contains("tensors.safetensors");
    let whole = store.load_latest().unwrap().0.updates == 1;
    let clean = std::fs::read_dir(&folder).unwrap().count() == 1;
    std::process::exit(if refused && whole && clean { 42 } else { 1 });
}

#[test]
fn a_full_disk_is_an_error_and_the_old_checkpoint_stays() {
    let folder = tempfile::tempdir().unwrap();
    // A limit on file sizes stands in for a full disk: writes beyond it fail the same way once its signal is ignored.
    let status = child(
        "trap '' XFSZ; ulimit -f 64; ",
        "checkpoint::tests::child_on_a_full_disk",
        folder.path(),
    )
    .status()
    .unwrap();
    assert_eq!(status.code(), Some(42));
}
