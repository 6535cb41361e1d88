//! Checkpoints on a real disk: whole, cut up, damaged, hostile.

use super::manifest::FILE;
use super::*;
use crate::state::State;
use planaria_store::hash::{hex, sha256};
use proptest::prelude::*;
use std::fs;

/// A checkpoint of some steps; `cuts` are where one part ends and the next begins.
pub(super) fn write(
    checkpoint_folder: &CheckpointFolder,
    step: u64,
    weights: &Weights,
    cuts: &[usize],
    is_best: bool,
) -> PathBuf {
    let folder = checkpoint_folder.begin(step).unwrap();
    let all = weights.parameters.len();
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([all]);
    let parts = (0..).zip(starts.zip(ends)).map(|(index, (start, end))| {
        let slots: Vec<&[f32]> = weights.optimizer.iter().map(|s| &s[start..end]).collect();
        let view = PartView {
            step,
            start: start as u64,
            parameters: &weights.parameters[start..end],
            slots: &slots,
            state: if index == 0 { &weights.state } else { &[] },
        };
        let info = write_part(&folder, index, &view).unwrap();
        Part { info, start: start as u64, end: end as u64 }
    });
    let manifest = manifest(step, weights, parts.collect());
    checkpoint_folder.finish(&folder, &manifest, is_best).unwrap();
    folder
}

pub(super) fn manifest(step: u64, weights: &Weights, parts: Vec<Part>) -> Manifest {
    Manifest {
        format: FORMAT,
        planaria: "0.1.0".into(),
        build: "test".into(),
        generation: 2,
        step,
        recipe_sha256: "ab".repeat(32),
        recipe: "name: \"ü\"\n".into(),
        data: vec![Mark { name: "a/train-images".into(), content: "01".repeat(16) }],
        state: State { step, epoch: 2, batch: 7, seconds_total: 0.1 + 0.2, ..State::default() },
        parameters: weights.parameters.len() as u64,
        state_values: weights.state.len() as u64,
        slots: weights.optimizer.len() as u32,
        parts,
    }
}

pub(super) fn sample(step: u64) -> Weights {
    Weights {
        parameters: vec![1.5, -0.0, f32::MIN_POSITIVE / 2.0, step as f32],
        state: vec![0.25],
        optimizer: vec![vec![1e-20; 4], vec![2.0, 3.0, 4.0, 5.0]],
    }
}

pub(super) fn add(checkpoint_folder: &CheckpointFolder, step: u64, is_best: bool) -> PathBuf {
    write(checkpoint_folder, step, &sample(step), &[], is_best)
}

pub(super) fn place(keep: usize) -> (tempfile::TempDir, CheckpointFolder) {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint_folder = CheckpointFolder::new(dir.path().into(), keep);
    (dir, checkpoint_folder)
}

pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(super) fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_cuts_read_back_the_same_whole_and_by_range(
        step: u32,
        values in proptest::collection::vec(any::<[u32; 3]>(), 0..60),
        state in proptest::collection::vec(any::<u32>(), 0..10),
        mut cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        range: (prop::sample::Index, prop::sample::Index),
    ) {
        let column = |n: usize| values.iter().map(|v| f32::from_bits(v[n])).collect::<Vec<f32>>();
        let weights = Weights {
            parameters: column(0),
            state: state.iter().map(|b| f32::from_bits(*b)).collect(),
            optimizer: vec![column(1), column(2)],
        };
        let all = values.len();
        cuts.sort_by_key(|cut| cut.index(all + 1));
        let cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(all + 1)).collect();
        let (_dir, checkpoint_folder) = place(2);
        let folder = write(&checkpoint_folder, u64::from(step), &weights, &cuts, false);

        let back = read(&folder).unwrap();
        // Bits are compared because NaN is unequal to itself.
        prop_assert_eq!(bits(&back.weights.parameters), bits(&weights.parameters));
        prop_assert_eq!(bits(&back.weights.state), bits(&weights.state));
        prop_assert_eq!(bits(&back.weights.optimizer.concat()), bits(&weights.optimizer.concat()));
        prop_assert_eq!(&back.manifest, &verify(&folder).unwrap());
        prop_assert_eq!(back.manifest.state.seconds_total, 0.1 + 0.2);

        let (a, b) = (range.0.index(all + 1), range.1.index(all + 1));
        let range = a.min(b)..a.max(b);
        let part = read_range(&folder, range.start as u64..range.end as u64).unwrap().weights;
        prop_assert_eq!(bits(&part.parameters), bits(&weights.parameters[range.clone()]));
        prop_assert_eq!(bits(&part.optimizer[1]), bits(&weights.optimizer[1][range.clone()]));
        let state: &[f32] = if range.start == 0 { &weights.state } else { &[] };
        prop_assert_eq!(bits(&part.state), bits(state));
    }

    #[test]
    fn a_flipped_bit_or_a_cut_is_always_seen(at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let (_dir, checkpoint_folder) = place(2);
        let folder = write(&checkpoint_folder, 9, &sample(9), &[3], false);
        for file in ["part-0", "part-1", FILE] {
            let path = folder.join(file);
            let whole = fs::read(&path).unwrap();
            let at = at.index(whole.len());
            change(&path, |bytes| bytes[at] ^= 1 << bit);
            prop_assert!(read(&folder).is_err(), "bit {} of byte {} of {}", bit, at, file);
            fs::write(&path, &whole[..at]).unwrap();
            prop_assert!(verify(&folder).is_err(), "{} cut at {}", file, at);
            fs::write(&path, &whole).unwrap();
        }
        prop_assert!(read(&folder).is_ok());
    }

    #[test]
    fn hostile_bytes_never_panic(
        numbers: (u64, u64, u64, u32, u64),
        body in proptest::collection::vec(any::<u8>(), 0..200),
        header_bytes: u32,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (start, end, parameters, slots, state_values) = numbers;
        let part = [MAGIC.as_slice(), &FORMAT.to_le_bytes(), &header_bytes.to_le_bytes(), &body];
        let part = part.concat();
        let info = PartInfo {
            file: "part-0".into(),
            sha256: hex(&sha256(&part)),
            bytes: part.len() as u64,
        };
        fs::write(dir.path().join("part-0"), part).unwrap();
        let mut hostile = manifest(1, &sample(1), vec![Part { info, start: 0, end: 4 }]);
        (hostile.slots, hostile.state_values) = (2, 1);
        hostile.write(dir.path()).unwrap_or_default();
        prop_assert!(read(dir.path()).is_err());
        hostile.parts[0].start = start;
        hostile.parts[0].end = end;
        (hostile.parameters, hostile.slots, hostile.state_values) =
            (parameters, slots, state_values);
        prop_assert!(hostile.write(dir.path()).is_err() || read(dir.path()).is_err());
        fs::write(dir.path().join(FILE), &body).unwrap();
        prop_assert!(read(dir.path()).is_err());
    }
}

#[test]
fn what_the_parts_leave_out_is_named() {
    let (_dir, checkpoint_folder) = place(2);
    let folder = write(&checkpoint_folder, 3, &sample(3), &[2], false);
    let good = Manifest::read(&folder).unwrap();
    let check = |spoil: &dyn Fn(&mut Manifest), expect: &str| {
        let mut bad = good.clone();
        spoil(&mut bad);
        let why = bad.check().unwrap_err();
        assert!(why.contains(expect), "{why}");
    };
    check(&|m| m.parts[1].start = 3, "`part-1` begins at parameter 3 instead of 2");
    check(&|m| m.parts.truncate(1), "hold 2 parameters and 2 slots, of 4 parameters");
    check(&|m| m.parts.clear(), "hold 0 parameters");
    check(&|m| m.parts[0].info.file = "part-../x".into(), "is not the name of a part");
    check(&|m| m.state.step = 4, "manifest is of step 3, its state of step 4");
    check(&|m| m.slots = u32::MAX, "too short");

    // Parts of two checkpoints in one folder.
    let other = write(&checkpoint_folder, 4, &sample(4), &[2], false);
    fs::copy(other.join("part-1"), folder.join("part-1")).unwrap();
    let why = read(&folder).unwrap_err().to_string();
    assert!(why.contains("`part-1` holds Header { step: 4"), "{why}");
    fs::remove_file(folder.join("part-1")).unwrap();
    let why = read(&folder).unwrap_err().to_string();
    assert!(why.contains("`part-1` is missing"), "{why}");
    assert!(read_range(&folder, 0..2).is_ok(), "the other range does not need it");
    assert!(read_range(&folder, 0..9).is_err());
}

#[test]
fn the_manifest_is_json_with_a_seal() {
    let (_dir, checkpoint_folder) = place(2);
    let folder = add(&checkpoint_folder, 3, false);
    let text = fs::read_to_string(folder.join(FILE)).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["step"], &value["format"]), (&3.into(), &FORMAT.into()));
    let part = fs::read(folder.join("part-0")).unwrap();
    assert_eq!(value["parts"][0]["sha256"], hex(&sha256(part)), "as sha256sum prints it");
    assert_eq!(value["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn keeps_the_newest_and_the_best() {
    let (dir, checkpoint_folder) = place(2);
    for step in 1..=5 {
        add(&checkpoint_folder, step, step == 2);
    }
    let expect = ["best", "last", "step-0000000002", "step-0000000004", "step-0000000005"];
    assert_eq!(names(dir.path()), expect);
    assert_eq!(checkpoint_folder.named("best").unwrap().weights, sample(2));
    assert_eq!(checkpoint_folder.newest().unwrap().unwrap().checkpoint.weights, sample(5));
    assert_eq!(checkpoint_folder.newest_manifest().unwrap().unwrap().checkpoint.step, 5);
    assert_eq!(checkpoint_folder.newest_manifest_alone().unwrap().unwrap().checkpoint.step, 5);
    for is_proven in [false, true] {
        let until =
            |steps| checkpoint_folder.newest_manifest_until(steps, is_proven).unwrap().unwrap();
        assert_eq!(until(9).checkpoint.step, 5);
        assert_eq!(until(4).checkpoint.step, 4);
        assert_eq!(until(3).checkpoint.step, 2);
    }
    // The old best goes when there is a better one.
    add(&checkpoint_folder, 6, true);
    assert_eq!(names(dir.path()), ["best", "last", "step-0000000005", "step-0000000006"]);
}

#[test]
fn a_later_step_from_before_a_resume_stays_until_it_is_reached() {
    let (dir, checkpoint_folder) = place(1);
    add(&checkpoint_folder, 9, true);
    let nine = dir.path().join("step-0000000009");
    add(&checkpoint_folder, 4, false);
    add(&checkpoint_folder, 6, false);
    assert!(nine.is_dir() && !dir.path().join("step-0000000004").exists());
    assert_eq!(
        checkpoint_folder.newest().unwrap().unwrap().checkpoint.weights,
        sample(6),
        "`last` counts"
    );
    // Reached again and not the best any more: what `best` leads to is not touched.
    add(&checkpoint_folder, 9, false);
    assert_eq!(
        names(dir.path()),
        ["best", "last", "step-0000000009", "step-0000000009-2"],
        "the other folder of the step"
    );
    assert!(checkpoint_folder.named("best").is_ok());
    add(&checkpoint_folder, 9, true);
    assert_eq!(names(dir.path()), ["best", "last", "step-0000000009-3"]);
}

#[test]
fn an_unfinished_checkpoint_is_none() {
    let (dir, checkpoint_folder) = place(2);
    add(&checkpoint_folder, 1, false);
    let folder = checkpoint_folder.begin(2).unwrap();
    fs::write(folder.join("part-0"), b"half").unwrap();
    let found = checkpoint_folder.newest().unwrap().unwrap();
    assert_eq!((found.checkpoint.manifest.step, found.damaged.len()), (1, 0));
    assert_eq!(checkpoint_folder.begin(2).unwrap(), folder);
    assert!(names(&folder).is_empty(), "what was left is gone");
    add(&checkpoint_folder, 3, false);
    assert!(!folder.exists(), "and so is an unfinished folder");
    assert_eq!(names(dir.path()).len(), 3);
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_is_used() {
    for file in ["part-0", FILE] {
        let (dir, checkpoint_folder) = place(2);
        add(&checkpoint_folder, 1, false);
        add(&checkpoint_folder, 2, false);
        change(&dir.path().join("last").join(file), |bytes| bytes[40] ^= 1);
        let found = checkpoint_folder.newest().unwrap().unwrap();
        assert_eq!(found.checkpoint.weights, sample(1));
        assert_eq!(found.damaged.len(), 1, "{:?}", found.damaged);
        assert!(found.damaged[0].contains("last` is damaged"), "{:?}", found.damaged);
        fs::remove_dir_all(dir.path().join("step-0000000002")).unwrap();
        let found = checkpoint_folder.newest().unwrap().unwrap();
        assert!(found.damaged[0].contains("last` leads nowhere"), "{:?}", found.damaged);
        assert!(matches!(checkpoint_folder.named("last"), Err(Unreadable::Missing(_))));
    }
}

#[test]
fn an_empty_folder_is_not_a_damaged_one() {
    let (dir, checkpoint_folder) = place(2);
    assert!(checkpoint_folder.newest().unwrap().is_none());
    fs::write(dir.path().join("last"), b"PLAN").unwrap();
    let why = checkpoint_folder.newest().unwrap_err().to_string();
    assert!(why.contains("no checkpoint is whole") && why.contains("a file, not"), "{why}");
}

#[test]
fn a_file_can_stand_in_for_a_link() {
    let (dir, checkpoint_folder) = place(2);
    add(&checkpoint_folder, 1, false);
    let last = dir.path().join("last");
    fs::remove_file(&last).unwrap();
    fs::write(&last, "step-0000000001").unwrap();
    assert_eq!(checkpoint_folder.named("last").unwrap().weights, sample(1));
    assert_eq!(checkpoint_folder.newest().unwrap().unwrap().path, last);
}

#[test]
fn another_format_is_refused_by_its_number() {
    let (dir, checkpoint_folder) = place(2);
    add(&checkpoint_folder, 1, false);
    let last = dir.path().join("last");
    fs::remove_file(&last).unwrap();
    let old = [MAGIC.as_slice(), &2u32.to_le_bytes(), &[0; 300]].concat();
    fs::write(&last, old).unwrap();
    let why = checkpoint_folder.newest().unwrap_err().to_string();
    assert!(why.contains("has format version 2, written by planaria of an earlier"), "{why}");
    assert!(why.ends_with("this planaria reads version 3"), "{why}");

    let folder = add(&checkpoint_folder, 2, false);
    let mut later = Manifest::read(&folder).unwrap();
    later.format = 4;
    later.write(&folder).unwrap();
    let why = checkpoint_folder.newest().unwrap_err().to_string();
    assert!(why.contains("last` has format version 4, written by planaria 0.1.0;"), "{why}");
}
