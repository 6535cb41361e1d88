//! Numbers to predict: how they are scaled to be learned, and labels that only look like classes.

mod support;

use planaria_data::{DataSet, Targets, open, peek};
use planaria_numerics::regression::TargetScale;
use planaria_recipe::sections::{Data, Format};
use planaria_recipe::table::{Column, LabelKind, Table};
use support::{data, folder};

fn numbers() -> Table {
    let label = Some(Column::Name("y".into()));
    Table { label, target: LabelKind::Number, ..Table::default() }
}

fn section(folder: &tempfile::TempDir, table: Table) -> Data {
    Data { format: Format::Csv, table: Some(table), ..data(folder.path().join("t.csv")) }
}

/// What networks are told to predict for the examples of a part.
fn targets(part: &planaria_data::Part) -> Vec<f32> {
    let ids: Vec<u64> = (0..part.len()).collect();
    let mut targets = Targets::Values(Vec::new());
    part.source().targets(&ids, &mut Vec::new(), &mut targets).unwrap();
    let Targets::Values(values) = targets else { panic!("classes") };
    values
}

fn opened(text: &str, table: Table) -> Result<DataSet, String> {
    let folder = folder(&[("t.csv", text.as_bytes())]);
    open(&section(&folder, table), 1).map_err(|e| e.to_string())
}

#[test]
fn numbers_are_standardised_by_the_training_rows_alone() {
    let folder =
        folder(&[("t.csv", b"a,y\n1,100000\n2,300000\n"), ("held.csv", b"a,y\n1,700000\n")]);
    let mut section = section(&folder, numbers());
    section.test = support::path(folder.path().join("held.csv"));
    let set = open(&section, 1).unwrap();
    assert_eq!(set.target_scale(), Some(TargetScale { mean: 200_000.0, std: 100_000.0 }));
    assert_eq!(targets(&set.train), [-1.0, 1.0]);
    assert_eq!(targets(set.test.as_ref().unwrap()), [5.0]);
    section.table = Some(Table { standardize_target: false, ..numbers() });
    let plain = open(&section, 1).unwrap();
    assert_eq!(plain.target_scale(), Some(TargetScale::default()));
    assert_eq!(targets(&plain.train), [100_000.0, 300_000.0]);
}

#[test]
fn labels_that_are_all_the_same_become_zero() {
    let set = opened("a,y\n1,0.1\n2,0.1\n3,0.1\n", numbers()).unwrap();
    assert_eq!(set.target_scale(), Some(TargetScale { mean: 0.1, std: 1.0 }));
    assert_eq!(targets(&set.train), [0.0; 3]);
}

#[test]
fn labels_beyond_all_measure_are_refused_with_what_to_do() {
    let error = opened("a,y\n1,1e300\n2,-1e300\n", numbers()).unwrap_err();
    assert!(error.contains("t.csv: its labels are numbers too large"), "{error}");
    assert!(error.contains("write `data.table.standardize_target: false`"), "{error}");
}

#[test]
fn what_was_learned_is_stored_with_the_encoding() {
    let set = opened("a,y\n1,0.1\n2,0.7\n3,0.2\n", numbers()).unwrap();
    let encoder = set.encoder.unwrap();
    let stored = serde_json::to_string(&*encoder).unwrap();
    let back: planaria_data::table::Encoder = serde_json::from_str(&stored).unwrap();
    assert_eq!(back.target_scale(), encoder.target_scale(), "{stored}");
    // As it was stored before numbers were scaled.
    let start = stored.find("\"target\":").unwrap();
    let before = format!("{}\"target\":\"Numbers\"}}", &stored[..start]);
    let back: planaria_data::table::Encoder = serde_json::from_str(&before).unwrap();
    assert_eq!(back.target_scale(), Some(TargetScale::default()));
}

#[test]
fn classes_that_look_like_numbers_to_predict_are_counted() {
    let table = || Table { target: LabelKind::Class, ..numbers() };
    let seen = |label: &dyn Fn(u64) -> String, rows: u64| {
        let rows: String = (0..rows).map(|i| format!("{i},{}\n", label(i))).collect();
        let folder = folder(&[("t.csv", format!("a,y\n{rows}").as_bytes())]);
        peek(&section(&folder, table()), 1).unwrap().numeric_classes
    };
    assert_eq!(seen(&|i| (50_000 + 100 * (i % 150)).to_string(), 300), Some(150));
    // A hundred or fewer, few beside the rows, and names are classes.
    assert_eq!(seen(&|i| (i % 100).to_string(), 300), None);
    assert_eq!(seen(&|i| (1900 + i % 120).to_string(), 1200), None);
    assert_eq!(seen(&|i| format!("user {}", i % 150), 300), None);
    let rows: String = (0..300).map(|i| format!("{i},{i}\n")).collect();
    let number = opened(&format!("a,y\n{rows}"), numbers()).unwrap();
    assert_eq!(number.facts.numeric_classes, None);
}

#[test]
fn a_price_that_only_held_out_rows_have_is_no_new_class() {
    let rows: String = (0..300).map(|i| format!("{i},{i}.5\n")).collect();
    let folder = folder(&[("t.csv", format!("a,y\n{rows}").as_bytes()), ("u.csv", b"a,y\n1,7\n")]);
    let mut section = section(&folder, Table { target: LabelKind::Class, ..numbers() });
    section.test = support::path(folder.path().join("u.csv"));
    let error = open(&section, 1).unwrap_err().to_string();
    assert!(error.contains("row 1 has the label `7`, which no training row has"), "{error}");
    assert!(error.ends_with("write `data.table.target: number` if labels are numbers to predict"));
}
