//! Disks that fill up, forbid, forget and lie, under a run in one process: it goes on where it can,
//! says so, and an audit finds every example read exactly once.

use crate::binary::Place;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A run that goes on until it is stopped, or for as long as anyone would wait.
const ENDLESS: [&str; 6] = [
    "--set",
    "train.epochs=2000",
    "--set",
    "data.examples=1500",
    "--set",
    "output={checkpoint_steps: 5, dir: disk/runs}",
];

/// A run under way, whose talk goes to a file.
struct Live<'a> {
    place: &'a Place,
    child: Child,
    run: PathBuf,
}

impl<'a> Live<'a> {
    fn start(place: &'a Place, more: &[&str]) -> Self {
        let said = File::create(place.path().join("said")).unwrap();
        let base = ["train", "tiny.yaml", "--threads", "1"];
        let child = place
            .command(&[&base[..], &ENDLESS, more].concat())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap();
        let mut live = Self { place, child, run: PathBuf::new() };
        let runs = place.path().join("disk/runs");
        live.wait("a step", |_| {
            let run = fs::read_dir(&runs).ok().and_then(|mut runs| runs.next());
            run.is_some_and(|run| !events(&run.unwrap().path(), "saved").is_empty())
        });
        live.run = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
        live
    }

    fn said(&self) -> String {
        fs::read_to_string(self.place.path().join("said")).unwrap()
    }

    /// Waits until something has come about, while the run goes on.
    #[track_caller]
    fn wait(&mut self, what: &str, come: impl Fn(&Self) -> bool) {
        for _ in 0..3000 {
            if come(self) {
                return;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "it ended: {}", self.said());
            std::thread::park_timeout(Duration::from_millis(10));
        }
        panic!("waited for {what} in vain: {}", self.said());
    }

    /// Waits for so many more checkpoints.
    #[track_caller]
    fn saves(&mut self, more: usize) {
        let before = events(&self.run, "saved").len();
        self.wait("a checkpoint", |live| events(&live.run, "saved").len() >= before + more);
    }

    /// Asks it to stop, and gives its exit code.
    fn stop(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }

    /// Stops it, and finds that nothing was lost.
    #[track_caller]
    fn stop_and_audit(mut self) -> PathBuf {
        assert_eq!(self.stop(), Some(130), "{}", self.said());
        let run = self.run.to_str().unwrap();
        let audit = self.place.json(&["audit", run, "--json"], 0);
        assert_eq!(audit["exactly_once"], true, "{audit}");
        assert_eq!(audit["weights_match"], true, "{audit}");
        let report: Value =
            serde_json::from_slice(&fs::read(self.run.join("report.json")).unwrap()).unwrap();
        assert_eq!((&report["exactly_once"], &report["efficiency"]), (&true.into(), &Value::Null));
        let metrics = fs::read_to_string(self.run.join("metrics.jsonl")).unwrap();
        let lines = events(&self.run, "steps").len() + events(&self.run, "epoch").len();
        assert_eq!(metrics.lines().count(), lines, "metrics follow from events");
        self.run.clone()
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        // A test has failed; nothing of it may stay.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Events of one kind so far.
fn events(run: &Path, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|event| event["event"] == kind).collect()
}

/// A disk of its own, where only root can have one.
struct Disk(PathBuf);

impl Disk {
    fn mount(place: &Place, size: &str) -> Option<Self> {
        let disk = place.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let options = format!("size={size}");
        mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], &disk).then_some(Self(disk))
    }

    /// Leaves no byte free.
    fn fill(&self) {
        let filler = self.0.join("filler");
        let mut file = File::options().create(true).append(true).open(filler).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while std::io::Write::write_all(&mut file, &vec![0; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

/// A disk that can fail to write, where only root can have one: its blocks are in a file of a smaller
/// disk, and a loop device whose file cannot grow gives an I/O error.
struct FailingDisk {
    blocks: Disk,
    mounted: Disk,
}

impl FailingDisk {
    fn mount(place: &Place) -> Option<Self> {
        let (blocks, disk) = (place.path().join("blocks"), place.path().join("disk"));
        fs::create_dir(&blocks).unwrap();
        fs::create_dir(&disk).unwrap();
        if !mount(&["-t", "tmpfs", "-o", "size=16m", "tmpfs"], &blocks) {
            return None;
        }
        let image = blocks.join("image");
        let failing = Self { blocks: Disk(blocks), mounted: Disk(disk) };
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let image = image.to_str().unwrap();
        let is_made = runs("mkfs.ext4", &["-q", "-F", image]);
        (is_made && mount(&["-o", "loop", image], &failing.mounted.0)).then_some(failing)
    }

    /// From now on it writes nothing to where it has written nothing yet.
    fn fail(&self) {
        self.blocks.fill();
    }

    /// It writes again, once it was repaired.
    fn repair(&self) {
        self.blocks.empty();
        assert!(runs("umount", &[self.mounted.0.to_str().unwrap()]), "nothing holds a file there");
        let image = self.blocks.0.join("image");
        // 1 says that there was something to repair.
        let repaired = Command::new("e2fsck").args(["-fy".as_ref(), image.as_os_str()]).output();
        assert!(repaired.is_ok_and(|out| out.status.code().is_some_and(|code| code < 4)));
        assert!(mount(&["-o", "loop", image.to_str().unwrap()], &self.mounted.0));
    }
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let ran = Command::new(program).args(arguments).stderr(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

fn mount(options: &[&str], place: &Path) -> bool {
    let mounted = Command::new("mount").args(options).arg(place).stderr(Stdio::null()).status();
    mounted.is_ok_and(|status| status.success())
}

fn unmount(place: &Path) {
    let _ = Command::new("umount").arg("-l").arg(place).stderr(Stdio::null()).status();
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

#[test]
fn a_full_disk_is_waited_for() {
    let place = Place::new();
    let Some(disk) = Disk::mount(&place, "3m") else { return };
    let mut live = Live::start(&place, &[]);
    disk.fill();
    live.wait("warnings", |live| {
        let said = live.said();
        said.contains("warning: cannot write `events.jsonl`: No space left")
            && said.contains("warning: no checkpoint of step")
    });
    disk.empty();
    live.saves(2);
    assert!(!events(&live.run, "not_saved").is_empty(), "it is told afterwards");
    let said = live.said();
    assert_eq!(said.matches("warning: cannot write `events.jsonl`").count(), 1, "{said}");
    assert_eq!(said.matches("warning: no checkpoint of step").count(), 1, "{said}");
    assert!(said.contains("before it could not be"), "{said}");
    live.stop_and_audit();
}

#[test]
fn a_disk_that_stays_full_costs_only_what_is_after_the_last_checkpoint() {
    let place = Place::new();
    let Some(disk) = Disk::mount(&place, "3m") else { return };
    let mut live = Live::start(&place, &[]);
    disk.fill();
    live.wait("a warning", |live| live.said().contains("warning: no checkpoint of step"));
    assert_eq!(live.stop(), Some(1), "{}", live.said());
    let said = live.said();
    assert!(said.contains("error: cannot write a checkpoint of step"), "{said}");
    assert!(said.contains("planaria resume "), "{said}");
    disk.empty();
    let run = live.run.to_str().unwrap();
    // There is a whole checkpoint to go on from, and nothing else that looks like one.
    for entry in fs::read_dir(live.run.join("checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.join("manifest.json").is_file(), "{}", path.display());
    }
    let mut again = place.command(&["resume", run]).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..3000 {
        if events(&live.run, "started").len() == 2 && events(&live.run, "saved").len() > 4 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let pid = again.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    assert_eq!(again.wait().unwrap().code(), Some(130));
    assert_eq!(place.json(&["audit", run, "--json"], 0)["exactly_once"], true);
}

#[test]
fn a_disk_that_fails_ends_the_run_at_most_and_the_next_command_cleans_up() {
    let place = Place::new();
    let Some(disk) = FailingDisk::mount(&place) else { return };
    let mut live = Live::start(&place, &["--workers", "2", "--servers", "1"]);
    let name = live.run.file_name().unwrap().to_str().unwrap().to_owned();
    disk.fail();
    // How long the system still takes what is written, nothing says.
    for _ in 0..1500 {
        let said = live.said();
        let is_told = ["Input/output error", "Read-only file system"].map(|why| said.contains(why));
        if is_told.contains(&true) || live.child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let code = live.stop();
    let said = live.said();
    assert!(code == Some(1), "{code:?}: {said}");
    assert!(said.contains("Input/output error") || said.contains("Read-only file"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let left = Command::new("pgrep").args(["-f", &format!("agent .*{name}")]).output().unwrap();
    assert!(left.stdout.is_empty(), "processes were left: {left:?}");
    disk.repair();
    // What the session could not take away, the next command does, and says so.
    let status = place.run(&["status", live.run.to_str().unwrap()]);
    let told = crate::binary::talk(&status);
    assert!(told.contains("removed `control.json`"), "{told}");
    assert!(!live.run.join("control.json").exists());
    let run = live.run.to_str().unwrap();
    let mut again = place.command(&["resume", run]).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..3000 {
        if events(&live.run, "started").len() == 2 && events(&live.run, "saved").len() > 4 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert!(runs("kill", &["-s", "INT", &again.id().to_string()]));
    assert_eq!(again.wait().unwrap().code(), Some(130));
    assert_eq!(place.json(&["audit", run, "--json"], 0)["exactly_once"], true);
    assert!(!live.run.join("state").exists() && !live.run.join("control.json").exists());
}

#[test]
fn a_read_only_folder_of_checkpoints_is_waited_for() {
    let place = Place::new();
    let Some(_disk) = Disk::mount(&place, "16m") else { return };
    let mut live = Live::start(&place, &[]);
    let checkpoint_folder = live.run.join("checkpoints");
    assert!(mount(&["--bind", checkpoint_folder.to_str().unwrap()], &checkpoint_folder));
    // Refused while a part of a checkpoint is open there.
    live.wait("a moment between checkpoints", |_| {
        mount(&["-o", "remount,bind,ro"], &checkpoint_folder)
    });
    live.wait("an event", |live| !events(&live.run, "not_saved").is_empty());
    let reason = events(&live.run, "not_saved")[0]["reason"].to_string();
    unmount(&checkpoint_folder);
    assert!(reason.contains("Read-only file system"), "{reason}");
    live.saves(2);
    live.stop_and_audit();
}

#[test]
fn what_is_deleted_is_made_again() {
    let place = Place::new();
    let mut live = Live::start(&place, &[]);
    // A checkpoint may be written into it at this moment.
    live.wait("the end of the folder", |live| {
        fs::remove_dir_all(live.run.join("checkpoints")).is_ok()
    });
    live.saves(1);
    fs::remove_dir_all(live.run.join("tensorboard")).unwrap();
    fs::remove_file(live.run.join("metrics.jsonl")).unwrap();
    fs::remove_file(live.run.join("events.jsonl")).unwrap();
    live.wait("events", |live| live.run.join("events.jsonl").exists());
    live.saves(2);
    let run = live.stop_and_audit();
    assert!(run.join("tensorboard/train").read_dir().unwrap().count() == 1);
}
