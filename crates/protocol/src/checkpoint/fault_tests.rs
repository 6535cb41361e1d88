//! Disks that lie, fill up or lose what was on them: the last good checkpoint is the one used.

use super::manifest::FILE;
use super::tests::{add, change, names, place, sample, write};
use super::*;
use std::fs;
use std::process::{Command, Stdio};

/// Something that happens to a file, and its name.
type Damage = (&'static str, fn(&mut Vec<u8>));

fn damages() -> Vec<Damage> {
    vec![
        ("first byte", |b| b[0] ^= 0x80),
        ("version", |b| b[8] ^= 1),
        ("length of the header", |b| b[12] ^= 1),
        ("header", |b| b[20] ^= 1),
        ("a byte in the middle", |b| {
            let at = b.len() / 2;
            b[at] ^= 4;
        }),
        ("last byte", |b| *b.last_mut().unwrap() ^= 1),
        ("cut in half", |b| b.truncate(b.len() / 2)),
        ("cut by one", |b| b.truncate(b.len() - 1)),
        ("emptied", Vec::clear),
        ("one too many", |b| b.push(0)),
        ("zeros", |b| b.fill(0)),
    ]
}

#[test]
fn every_kind_of_damage_is_passed_over_with_one_sentence() {
    for file in ["part-0", "part-1", FILE] {
        for (name, damage) in damages() {
            let (dir, checkpoint_folder) = place(3);
            add(&checkpoint_folder, 1, false);
            write(&checkpoint_folder, 2, &sample(2), &[2], true);
            change(&dir.path().join("step-0000000002").join(file), damage);
            let found = checkpoint_folder.newest().unwrap().unwrap();
            assert_eq!(found.checkpoint.weights, sample(1), "{file}: {name}");
            assert_eq!(found.damaged.len(), 1, "{file}: {name}: {:?}", found.damaged);
            assert!(found.damaged[0].contains("is damaged"), "{:?}", found.damaged);
            let found = checkpoint_folder.newest_manifest().unwrap().unwrap();
            assert_eq!((found.checkpoint.step, found.damaged.len()), (1, 1), "{file}: {name}");
            // And the damaged checkpoint does not prevent the next.
            add(&checkpoint_folder, 3, false);
            assert_eq!(checkpoint_folder.newest().unwrap().unwrap().checkpoint.weights, sample(3));
        }
    }
}

#[test]
fn what_was_deleted_is_passed_over() {
    let check = |delete: &dyn Fn(&Path), step: u64, damaged: usize| {
        let (dir, checkpoint_folder) = place(3);
        for step in 1..=3 {
            add(&checkpoint_folder, step, step == 2);
        }
        delete(dir.path());
        let found = checkpoint_folder.newest().unwrap().unwrap();
        assert_eq!(found.checkpoint.manifest.step, step, "{:?}", found.damaged);
        assert_eq!(found.damaged.len(), damaged, "{:?}", found.damaged);
    };
    let three = "step-0000000003";
    check(&|checkpoint_folder| fs::remove_file(checkpoint_folder.join("last")).unwrap(), 3, 0);
    check(
        &|checkpoint_folder| fs::remove_file(checkpoint_folder.join(three).join("part-0")).unwrap(),
        2,
        1,
    );
    check(
        &|checkpoint_folder| fs::remove_file(checkpoint_folder.join(three).join(FILE)).unwrap(),
        2,
        1,
    );
    check(&|checkpoint_folder| fs::remove_dir_all(checkpoint_folder.join(three)).unwrap(), 2, 1);
}

#[test]
fn a_deleted_folder_is_made_again() {
    let (dir, checkpoint_folder) = place(2);
    add(&checkpoint_folder, 1, true);
    let folder = checkpoint_folder.begin(2).unwrap();
    fs::remove_dir_all(dir.path()).unwrap();
    assert!(checkpoint_folder.newest().unwrap().is_none());
    // The one under way is lost; the next is not.
    let manifest = Manifest { step: 2, ..super::tests::manifest(2, &sample(2), Vec::new()) };
    assert!(checkpoint_folder.finish(&folder, &manifest, false).is_err());
    add(&checkpoint_folder, 3, false);
    assert_eq!(names(dir.path()), ["last", "step-0000000003"]);
    assert_eq!(checkpoint_folder.newest().unwrap().unwrap().checkpoint.weights, sample(3));
}

#[test]
fn a_save_that_fails_leaves_nothing_and_touches_nothing() {
    let (dir, checkpoint_folder) = place(2);
    add(&checkpoint_folder, 1, true);
    let before = names(dir.path());
    // Its links cannot be made: there are folders in their place, with something in them.
    for link in [".best.tmp", ".last.tmp"] {
        fs::create_dir_all(dir.path().join(link).join("x")).unwrap();
        let folder = checkpoint_folder.begin(2).unwrap();
        let weights = sample(2);
        let view =
            PartView { step: 2, start: 0, parameters: &weights.parameters, slots: &[], state: &[] };
        let info = write_part(&folder, 0, &view).unwrap();
        let mut manifest =
            super::tests::manifest(2, &weights, vec![Part { info, start: 0, end: 4 }]);
        (manifest.slots, manifest.state_values) = (0, 0);
        assert!(checkpoint_folder.finish(&folder, &manifest, link == ".best.tmp").is_err());
        fs::remove_dir_all(dir.path().join(link)).unwrap();
        assert_eq!(names(dir.path()), before, "after `{link}`");
    }
    assert_eq!(checkpoint_folder.newest().unwrap().unwrap().checkpoint.weights, sample(1));
    assert_eq!(checkpoint_folder.named("best").unwrap().weights, sample(1));
}

#[test]
fn a_full_or_read_only_disk_keeps_the_last_good_one() {
    let (dir, _) = place(2);
    let Some(disk) = Disk::mount(dir.path(), "size=200k") else { return };
    let checkpoint_folder = CheckpointFolder::new(disk.0.join("checkpoints"), 2);
    add(&checkpoint_folder, 1, true);
    let filler = disk.0.join("filler");
    let fill = |bytes: usize| fs::write(&filler, vec![1; bytes]);
    let free = (0..).find(|n| fill((50 - n) * 4096).is_ok()).unwrap();
    assert!(free < 50);
    let large = Weights { parameters: vec![1.0; 100_000], ..Weights::default() };
    let attempt = |step: u64| {
        let folder = checkpoint_folder.begin(step)?;
        let parameters = &large.parameters;
        let view = PartView { step, start: 0, parameters, slots: &[], state: &[] };
        write_part(&folder, 0, &view).inspect_err(|_| checkpoint_folder.abandon(&folder))
    };
    for step in 2..6 {
        assert!(attempt(step).is_err(), "the disk is full");
    }
    let good = ["best", "last", "step-0000000001"];
    assert_eq!(names(&disk.0.join("checkpoints")), good, "nothing is left of those that failed");
    fs::remove_file(&filler).unwrap();
    add(&checkpoint_folder, 6, false);

    disk.remount("ro");
    assert!(checkpoint_folder.begin(7).is_err());
    assert_eq!(checkpoint_folder.newest().unwrap().unwrap().checkpoint.weights, sample(6));
    disk.remount("rw");
    add(&checkpoint_folder, 8, false);
    assert_eq!(checkpoint_folder.newest().unwrap().unwrap().checkpoint.weights, sample(8));
}

/// A small disk, where only root can have one.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path, options: &str) -> Option<Self> {
        let disk = folder.join("disk");
        fs::create_dir(&disk).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&disk)
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(disk))
    }

    fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        let done = Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
