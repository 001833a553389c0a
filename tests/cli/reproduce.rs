//! Claims measured through the command line, at sizes that take seconds.

use crate::common::Workplace;

/// Rows of a table as cells, without comments and heads.
fn measure(place: &Workplace, claim: &str) -> Vec<Vec<String>> {
    let text = place.succeed(&["reproduce", claim, "--quick", "--out", "found"]);
    let folder = place.path().join("found");
    for head in [
        "command: pushforward reproduce",
        "seeds: 0",
        "commit: ",
        "time: ",
    ] {
        assert!(text.contains(head), "{head}");
    }
    for file in ["table.csv", "table.md", "figure.png", "figure.svg"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .from_path(folder.join("table.csv"))
        .unwrap();
    let rows = reader.records().map(|record| {
        let record = record.unwrap();
        record.iter().map(str::to_owned).collect()
    });
    rows.collect()
}

#[test]
fn contraction_finds_the_expansion_of_uniform_slicing() {
    let place = Workplace::new();
    let rows = measure(&place, "contraction");
    let mut expansions = 0;
    for row in &rows {
        let factor: f64 = row[4].parse().unwrap();
        assert_ne!(row[6], "above the bound", "{row:?}");
        if row[0].starts_with("Thue-Morse") && row[3] == "uniform" {
            let expected = if row[2] == "wasserstein 1" {
                3.05
            } else {
                2.54
            };
            assert!((factor / expected - 1.0).abs() < 0.02, "{row:?}");
            expansions += 1;
        }
    }
    assert_eq!(expansions, 4);
}

#[test]
fn unknown_claims_get_the_nearest_match() {
    let place = Workplace::new();
    place.refuse(&["reproduce", "contractoin"], &["`contraction`"]);
    place.refuse(&["reproduce", "contraction", "--seeds", "x"], &["--seeds"]);
}
