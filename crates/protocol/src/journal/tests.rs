//! Events on a disk that is torn, full, or taken away.

use super::*;
use std::os::unix::fs::symlink;

fn stopping(reason: &str) -> What {
    What::Stopping { reason: reason.into() }
}

#[test]
fn history_is_added_to_and_a_torn_line_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    assert_eq!(read(&path).unwrap(), []);
    let mut journal = Journal::open(&path, next_generation(&path, 0).unwrap()).unwrap();
    let first = journal.record(0.1 + 0.2, 1e9, stopping("a \"quoted\"\nreason")).unwrap();
    drop(journal);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"sec").unwrap();
    assert_eq!(read(&path).unwrap(), std::slice::from_ref(&first));

    let mut journal = Journal::open(&path, next_generation(&path, 0).unwrap()).unwrap();
    let second = journal.record(0.5, 1e9, stopping("again")).unwrap();
    assert_eq!((first.generation, second.generation), (1, 2));
    assert_eq!(read(&path).unwrap(), [first, second]);
    assert!(fs::read_to_string(&path).unwrap().contains("\n{\"sec\n"), "history stays");
}

#[test]
fn a_file_that_is_cut_short_says_so_and_costs_no_line_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut journal = Journal::open(&path, 1).unwrap();
    for reason in ["one", "two", "three"] {
        journal.record(1.0, 1e9, stopping(reason)).unwrap();
    }
    let text = fs::read(&path).unwrap();
    let line = text.len() / 3;
    let told = || {
        let (events, damage) = read_marking_damage(&path).unwrap();
        let reasons = events.into_iter().map(|event| match event.what {
            What::Stopping { reason } => reason,
            other => panic!("{other:?}"),
        });
        (reasons.collect::<Vec<_>>().join(" "), damage)
    };
    assert_eq!(told(), ("one two three".into(), Vec::new()));
    // In the middle of a line, between two, and all of it.
    let cut = |bytes: u64| {
        File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
    };
    cut(line as u64 + 9);
    journal.record(1.0, 1e9, stopping("four")).unwrap();
    journal.record(1.0, 1e9, stopping("five")).unwrap();
    let (reasons, damage) = told();
    assert_eq!(reasons, "one four five");
    assert_eq!(damage[0], "line 2 of `events.jsonl` cannot be read");
    assert!(
        damage[1].contains("line 3 of `events.jsonl`: ") && damage[1].contains("bytes were cut")
    );
    cut(line as u64);
    journal.record(1.0, 1e9, stopping("six")).unwrap();
    let (reasons, damage) = told();
    assert_eq!((reasons.as_str(), damage.len()), ("one six", 1), "{damage:?}");
    cut(0);
    journal.record(1.0, 1e9, stopping("seven")).unwrap();
    let (reasons, damage) = told();
    assert_eq!((reasons.as_str(), damage.len()), ("seven", 1), "{damage:?}");
    fs::remove_file(&path).unwrap();
    assert_eq!(told(), (String::new(), vec!["`events.jsonl` is not there".into()]));
}

#[test]
fn generations_go_on_where_the_file_was_lost() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(next_generation(&dir.path().join(FILE), 4).unwrap(), 5);
}

/// A journal whose disk is full until `heal` is called.
fn full(dir: &Path) -> (Journal, PathBuf) {
    let path = dir.join(FILE);
    let mut journal = Journal::open(&path, 1).unwrap();
    journal.record(0.0, 1e9, stopping("before")).unwrap();
    fs::rename(&path, dir.join("kept")).unwrap();
    symlink("/dev/full", &path).unwrap();
    (journal, path)
}

fn heal(dir: &Path, path: &Path) {
    fs::remove_file(path).unwrap();
    fs::rename(dir.join("kept"), path).unwrap();
}

#[test]
fn what_a_full_disk_does_not_take_waits_and_comes_first_later() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, path) = full(dir.path());
    for reason in ["one", "two"] {
        journal.record(1.0, 1e9, stopping(reason)).unwrap();
    }
    assert_eq!(journal.pending(), 2);
    assert!(journal.trouble().unwrap().contains("No space left"), "{:?}", journal.trouble());
    assert!(journal.handle().is_err() && journal.sync().is_err(), "a checkpoint would be wrong");
    heal(dir.path(), &path);
    journal.record(2.0, 1e9, stopping("three")).unwrap();
    assert_eq!((journal.pending(), journal.trouble()), (0, None));
    journal.sync().unwrap();
    let told: Vec<What> = read(&path).unwrap().into_iter().map(|e| e.what).collect();
    assert_eq!(told, ["before", "one", "two", "three"].map(stopping));
}

#[test]
fn what_waits_is_bounded_and_the_gap_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, path) = full(dir.path());
    let long = "x".repeat(WAITING_BYTES_MAX / 8);
    for _ in 0..20 {
        journal.record(1.0, 1e9, stopping(&long)).unwrap();
    }
    assert!(journal.pending() <= 8, "{}", journal.pending());
    journal.record(1.0, 1e9, stopping("newest")).unwrap();
    heal(dir.path(), &path);
    journal.sync().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\n{\"gap\":\"1"), "the gap is marked");
    let told = read(&path).unwrap();
    assert_eq!(told.last().unwrap().what, stopping("newest"));
    assert_eq!(told[0].what, stopping("before"));
}

#[test]
fn a_deleted_file_or_folder_is_made_again_with_all_that_was_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("run");
    fs::create_dir(&folder).unwrap();
    let path = folder.join(FILE);
    let mut journal = Journal::open(&path, 1).unwrap();
    let mut all = vec![journal.record(0.0, 1e9, stopping("first")).unwrap()];
    fs::remove_file(&path).unwrap();
    all.push(journal.record(1.0, 1e9, stopping("second")).unwrap());
    assert_eq!(read(&path).unwrap(), all);
    fs::remove_dir_all(&folder).unwrap();
    all.push(journal.record(2.0, 1e9, stopping("third")).unwrap());
    assert_eq!(read(&path).unwrap(), all);
    journal.sync().unwrap();
}

#[test]
fn a_piece_of_a_line_is_ended_before_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut journal = Journal::open(&path, 1).unwrap();
    let first = journal.record(0.0, 1e9, stopping("first")).unwrap();
    // As if the disk had taken only this much.
    journal.file.as_mut().unwrap().write_all(b"{\"seconds\":1").unwrap();
    journal.torn = true;
    let second = journal.record(1.0, 1e9, stopping("second")).unwrap();
    assert!(!journal.torn);
    assert_eq!(read(&path).unwrap(), [first, second]);
}
