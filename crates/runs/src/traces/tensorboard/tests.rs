//! Event files, read back byte by byte.

use super::bytes::tests::{Field, message, records};
use super::*;
use crate::run_dir::metrics::tests::line;
use planaria_protocol::message::{HeldOut, Outcome};
use planaria_recipe::Source;
use std::collections::BTreeMap;

const RECIPE: &str = "
name: x
data: {train: digits}
model: {layers: [Flatten, Dense: {units: 10}]}
train: {epochs: 3, batch: 64, shards: 4, optimizer: {adam: {learning_rate: 0.1}}}
";

fn hparams() -> Hparams {
    let source = Source::parse("x.yaml", RECIPE.as_bytes(), &[]).unwrap();
    Hparams::of("x-1", source.recipe())
}

fn create(folder: &Path, lines: &[Line]) -> EventFiles {
    EventFiles::create(folder, 1e9, hparams(), lines).unwrap()
}

/// The events of a folder's only file, without the first, which tells the version.
fn events(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    let [file] = &files[..] else { panic!("one file, not {files:?}") };
    let mut events = records(&fs::read(file).unwrap());
    assert_eq!(text(&message(&events.remove(0))[&3][0]), "brain.Event:2");
    events
}

fn bytes(field: &Field) -> &[u8] {
    match field {
        Field::Bytes(bytes) => bytes,
        Field::Number(number) => panic!("{number} in place of a message"),
    }
}

fn text(field: &Field) -> String {
    String::from_utf8(bytes(field).to_vec()).unwrap()
}

fn double(field: &Field) -> f64 {
    match field {
        Field::Number(bits) => f64::from_bits(*bits),
        Field::Bytes(_) => panic!("bytes in place of a number"),
    }
}

/// Step, tag and value of each scalar.
fn scalars(folder: &Path) -> Vec<(u64, String, f32)> {
    let mut scalars = Vec::new();
    for event in events(folder).iter().map(|event| message(event)) {
        let Field::Number(step) = event[&2][0] else { panic!("a step is a number") };
        for value in &message(bytes(&event[&5][0]))[&1] {
            let value = message(bytes(value));
            if let Some(Field::Number(bits)) = value.get(&2).map(|all| &all[0]) {
                scalars.push((step, text(&value[&1][0]), f32::from_bits(*bits as u32)));
            }
        }
    }
    scalars
}

/// What the plugin is told, by its tag: the message in its `HParamsPluginData`.
fn plugin(folder: &Path) -> BTreeMap<String, BTreeMap<u64, Vec<Field>>> {
    let mut told = BTreeMap::new();
    for event in events(folder).iter().map(|event| message(event)) {
        for value in &message(bytes(&event[&5][0]))[&1] {
            let value = message(bytes(value));
            let Some(metadata) = value.get(&9) else { continue };
            let plugin = message(bytes(&message(bytes(&metadata[0]))[&1][0]));
            assert_eq!(text(&plugin[&1][0]), "hparams");
            let (_, data) = message(bytes(&plugin[&2][0])).pop_first().unwrap();
            told.insert(text(&value[&1][0]), message(bytes(&data[0])));
        }
    }
    told
}

fn ended(what: What) -> Event {
    Event { seconds: 3.0, unix_seconds: 1e9 + 9.0, generation: 1, what }
}

fn outcome(outcome: Outcome) -> What {
    What::Ended {
        outcome,
        reason: None,
        step: 300,
        weights_sha256: None,
        trouble: None,
        state: None,
    }
}

#[test]
fn training_and_validation_have_the_same_tags_in_folders_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let lines = [line(Span::Steps, 300, 1), line(Span::Epoch, 300, 1)];
    let mut first = create(dir.path(), &[]);
    assert!(!dir.path().join("validation").exists(), "nothing was validated yet");
    for n in 1..=lines.len() {
        first.push(&lines[..n]).unwrap();
    }
    let read = |folder| scalars(&dir.path().join(folder));
    let (train, validation) = (read("train"), read("validation"));
    let loss = (1.0_f64 / 303.0) as f32;
    for expect in [(300, "loss", loss), (300, "accuracy", 0.5), (300, "epoch_loss", loss)] {
        let (step, tag, value) = expect;
        assert!(train.contains(&(step, tag.to_owned(), value)), "{expect:?} in {train:?}");
    }
    for expect in [(300, "loss", 0.3), (300, "accuracy", 0.9), (300, "epoch_loss", 0.3)] {
        let (step, tag, value) = expect;
        assert!(validation.contains(&(step, tag.to_owned(), value)), "{expect:?}: {validation:?}");
    }
    assert_eq!((train.len(), validation.len()), (6, 4));
    create(dir.path(), &lines);
    assert_eq!((read("train"), read("validation")), (train, validation), "a session later");
    create(dir.path(), &lines[..1]);
    assert!(fs::read_dir(dir.path().join("validation")).unwrap().next().is_none());
}

#[test]
fn settings_final_figures_and_the_end_are_told_to_the_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = create(dir.path(), &[]);
    let told = plugin(dir.path());
    let settings: BTreeMap<String, BTreeMap<u64, Vec<Field>>> =
        told["_hparams_/session_start_info"][&1]
            .iter()
            .map(|entry| message(bytes(entry)))
            .map(|entry| (text(&entry[&1][0]), message(bytes(&entry[&2][0]))))
            .collect();
    for (name, number) in
        [("learning_rate", 0.1), ("batch", 64.0), ("shards", 4.0), ("epochs", 3.0)]
    {
        assert_eq!(double(&settings[name][&2][0]), number, "{name}");
    }
    assert_eq!(text(&settings["optimizer"][&3][0]), "adam");
    let columns = &told["_hparams_/experiment"];
    assert_eq!(columns[&4].len(), settings.len(), "a column for each setting");
    assert!(!told.contains_key("_hparams_/session_end_info"), "it has not ended");
    let scored = What::Scored {
        part: HeldOut::Test,
        examples: 10,
        loss: Some(0.25),
        accuracy: Some(0.5),
        errors: None,
        scores: serde_json::Value::Null,
    };
    files.end(&ended(scored), 300).unwrap();
    files.end(&ended(outcome(Outcome::Completed)), 300).unwrap();
    let told = plugin(dir.path());
    assert_eq!(told["_hparams_/session_end_info"][&1], [Field::Number(1)], "success");
    let figures: Vec<(u64, String, f32)> = scalars(dir.path());
    let expect = [(300, "final_loss".to_owned(), 0.25), (300, "final_accuracy".to_owned(), 0.5)];
    assert_eq!(figures, expect);
    let named: Vec<String> = columns[&5]
        .iter()
        .map(|info| message(bytes(&message(bytes(info))[&1][0])))
        .map(|name| text(&name[&2][0]))
        .collect();
    let all = ["final_loss", "final_accuracy", "final_rmse", "final_r2"];
    assert_eq!(named, all, "the same columns for every run");
}

#[test]
fn files_that_were_spoilt_are_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<Line> = (1..5).map(|n| line(Span::Steps, n, 1)).collect();
    let mut files = create(dir.path(), &lines[..1]);
    fs::remove_dir_all(dir.path()).unwrap();
    files.push(&lines[..2]).unwrap();
    let train = dir.path().join("train");
    assert_eq!(events(&train).len(), 2);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    files.train.file = Some(full);
    assert!(files.push(&lines[..3]).is_err());
    files.push(&lines).unwrap();
    assert_eq!(events(&train).len(), 4);
    files.end(&ended(outcome(Outcome::Failed)), 4).unwrap();
    let told = plugin(dir.path());
    assert_eq!(told["_hparams_/session_end_info"][&1], [Field::Number(2)], "failure");
    assert!(told.contains_key("_hparams_/session_start_info"), "also what it began with");
}
