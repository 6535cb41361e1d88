//! Real files, and real hosts behind pipes.

mod listing;
mod lying;
mod names;
mod whole;

use super::code::Unlisted;
use super::*;
use crate::channel::{Channel, StderrTail};
use crate::host::serve::{self, Leave, Setting};
use crate::messages::questions::Found;
use crate::messages::{Hello, ToHost, VERSION};
use crate::provider::Remedy;
use crate::remote::Remote;
use crate::setup::Hands;
use planaria_protocol::clock::Clock;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

struct Still;

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn unix_seconds(&self) -> f64 {
        0.0
    }
    fn cpu(&self) -> Duration {
        Duration::ZERO
    }
}

fn hello(name: &str) -> Hello {
    Hello {
        version: VERSION,
        build: "b".into(),
        pid: 1,
        hostname: name.into(),
        cores: 1,
        gpus: 0,
        memory_bytes: 0,
        disk_free_bytes: 0,
        unix_seconds: 0.0,
        addresses: Vec::new(),
        controller: None,
        folder: String::new(),
        probe: None,
    }
}

/// A machine: a home with a host in it.
struct Place {
    home: PathBuf,
    remote: Remote,
    host: Option<JoinHandle<Leave>>,
}

impl Place {
    fn open(name: &str, home: &Path) -> Self {
        let (to_host, host_reads) = std::io::pipe().map(|(r, w)| (w, r)).unwrap();
        let (from_host, host_writes) = std::io::pipe().unwrap();
        let (hello, home) = (hello(name), home.to_path_buf());
        let setting = Setting {
            program: "/bin/false".into(),
            run: "r".into(),
            home: home.clone(),
            hello,
            is_alone: false,
        };
        let host = std::thread::spawn(move || {
            serve::run(setting, host_reads, host_writes, &Still).expect("it serves")
        });
        let channel = Channel {
            reading: Box::new(from_host),
            writing: Box::new(to_host),
            closing: Arc::new(|| {}),
            stderr_tail: StderrTail::default(),
        };
        let remote = Remote::meet(name, channel, "b", |_| {}).expect("it says hello");
        Self { home, remote, host: Some(host) }
    }

    fn work(&self, path: &str) -> PathBuf {
        self.home.join("runs/r/work").join(path)
    }

    #[track_caller]
    fn lay(&self, folder: &Path) -> Sent {
        let code = Code::read(folder, &[]).unwrap();
        self.remote.lay_out(&code, &mut |_, _| {}).unwrap()
    }

    #[track_caller]
    fn reads(&self, path: &str) -> String {
        fs::read_to_string(self.work(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// The script writes a file, so long ago.
    fn made(&self, path: &str, text: &str, seconds_ago: i64) {
        let place = self.work(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, text).unwrap();
        let now = mtime_ns(&fs::metadata(&place).unwrap());
        let file = File::options().write(true).open(&place).unwrap();
        set_mtime(&file, now - seconds_ago * 1_000_000_000).unwrap();
    }

    fn found(&self, pattern: &str) -> Vec<String> {
        let (files, is_cut) = self.remote.find(&Patterns::new(&[pattern]).unwrap()).unwrap();
        assert!(!is_cut);
        files.into_iter().map(|file| file.path).collect()
    }

    fn end(mut self) {
        assert!(self.remote.say(ToHost::End));
        let host = self.host.take().unwrap();
        assert!(matches!(host.join().expect("no panic"), Leave::Told));
    }
}

fn write(folder: &Path, path: &str, text: impl AsRef<[u8]>) {
    let place = folder.join(path);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::write(place, text).unwrap();
}

fn paths(code: &Code) -> Vec<&str> {
    code.bundle.entries.iter().map(|entry| entry.path.as_str()).collect()
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn code_is_laid_out_and_only_changes_are_sent_again() {
    let (folder, home) = (temporary(), temporary());
    let root = folder.path();
    write(root, "train.py", "print(1)");
    write(root, "copy.py", "print(1)");
    write(root, "empty", "");
    write(root, "big", vec![7; 3_000_000]);
    write(root, "pkg/deep/x.py", "x");
    fs::create_dir(root.join("checkpoints")).unwrap();
    fs::set_permissions(root.join("train.py"), fs::Permissions::from_mode(0o755)).unwrap();
    let place = Place::open("m1", home.path());
    let mut told = Vec::new();
    let code = Code::read(root, &[]).unwrap();
    let sent = place.remote.lay_out(&code, &mut |sent, total| told.push((sent, total))).unwrap();
    assert_eq!((sent.files, sent.contents_sent), (5, 4), "the same content goes once");
    assert_eq!(sent.bytes_sent, 3_000_009);
    assert_eq!(told.last(), Some(&(3_000_009, 3_000_009)));
    assert!(told.windows(2).all(|two| two[0].0 <= two[1].0));
    assert_eq!(Path::new(&sent.folder), place.work(""));
    assert_eq!(place.reads("train.py"), "print(1)");
    assert_eq!(fs::read(place.work("big")).unwrap(), vec![7; 3_000_000]);
    assert_eq!(fs::metadata(place.work("train.py")).unwrap().mode() & 0o777, 0o755);
    assert!(place.work("checkpoints").is_dir());

    // What the script makes or changes stays; what the code had and has not any more goes.
    place.made("checkpoints/1.pt", "made", 0);
    place.made("pkg/notes", "made", 0);
    write(&place.work(""), "copy.py", "the script's own");
    fs::remove_file(root.join("empty")).unwrap();
    fs::remove_dir_all(root.join("pkg")).unwrap();
    write(root, "train.py", "print(2)");
    let sent = place.lay(root);
    assert_eq!((sent.contents_sent, sent.bytes_sent), (1, 8));
    assert_eq!(place.reads("train.py"), "print(2)");
    assert_eq!(place.reads("copy.py"), "the script's own");
    assert_eq!(place.reads("checkpoints/1.pt"), "made");
    assert_eq!(place.reads("pkg/notes"), "made");
    assert!(!place.work("pkg/deep").exists() && !place.work("empty").exists());
    place.end();
    assert!(!home.path().join("runs/r").exists(), "nothing of the run is left");

    // Another run on the same machine has it all.
    let place = Place::open("m1", home.path());
    assert_eq!(place.lay(root).bytes_sent, 0);
    assert_eq!(place.reads("train.py"), "print(2)");
    place.end();
}

#[test]
fn many_small_files_go_together() {
    let (folder, home) = (temporary(), temporary());
    for n in 0..3000 {
        write(folder.path(), &format!("d{}/{n}.txt", n % 7), n.to_string());
    }
    let place = Place::open("m1", home.path());
    let before = place.remote.number();
    assert_eq!(place.lay(folder.path()).contents_sent, 3000);
    let asked = place.remote.number() - before;
    assert!(asked < 20, "{asked} questions");
    assert_eq!(place.reads("d1/2934.txt"), "2934");
    place.end();
}

#[test]
fn a_file_that_changes_after_it_was_listed_is_an_error_that_names_it() {
    let (folder, home) = (temporary(), temporary());
    write(folder.path(), "train.py", "print(1)");
    let code = Code::read(folder.path(), &[]).unwrap();
    let place = Place::open("m1", home.path());
    for text in ["print(2)", "x"] {
        write(folder.path(), "train.py", text);
        let fault = place.remote.lay_out(&code, &mut |_, _| {}).unwrap_err();
        assert_eq!(fault.remedy, Remedy::Fix);
        assert!(fault.what.contains("train.py` changed"), "{fault}");
    }
    place.lay(folder.path());
    place.end();
}

#[test]
fn nothing_is_laid_out_outside_of_the_work_folder() {
    let (folder, home, elsewhere) = (temporary(), temporary(), temporary());
    write(folder.path(), "train.py", "x");
    let place = Place::open("m1", home.path());
    place.lay(folder.path());
    let good = Code::read(folder.path(), &[]).unwrap();
    for path in ["../x", "/tmp/x", "a/../../x", "", "a/"] {
        let mut code = good.clone();
        code.bundle.entries[0].path = path.to_owned();
        let fault = place.remote.lay_out(&code, &mut |_, _| {}).unwrap_err();
        assert!(fault.what.contains(&format!("`{path}` leads out")), "{fault}");
    }
    for to in ["/etc", "../x", "a/../../x"] {
        let mut code = good.clone();
        code.bundle.entries[0].what = What::Link { to: to.to_owned() };
        assert!(place.remote.lay_out(&code, &mut |_, _| {}).is_err(), "{to}");
    }
    // Nor through a link that the script made.
    symlink(elsewhere.path(), place.work("out")).unwrap();
    let mut code = good;
    code.bundle.entries[0].path = "out/train.py".to_owned();
    let fault = place.remote.lay_out(&code, &mut |_, _| {}).unwrap_err();
    assert!(fault.what.contains("is no folder"), "{fault}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    place.end();
}

#[test]
fn outputs_are_what_the_script_made() {
    let (folder, home, elsewhere) = (temporary(), temporary(), temporary());
    write(folder.path(), "config.json", "{}");
    write(folder.path(), "other.json", "{}");
    write(elsewhere.path(), "secret.json", "{}");
    let place = Place::open("m1", home.path());
    assert_eq!(place.found("**"), [""; 0], "there is no work folder yet");
    place.lay(folder.path());
    assert_eq!(place.found("*.json"), [""; 0], "it was laid out");
    place.made("new.json", "{}", 0);
    place.made("out/deep/x.json", "{}", 10);
    write(&place.work(""), "other.json", "{1}");
    symlink("new.json", place.work("linked.json")).unwrap();
    symlink(elsewhere.path().join("secret.json"), place.work("leak.json")).unwrap();
    symlink(elsewhere.path(), place.work("leaks")).unwrap();
    assert_eq!(place.found("*.json"), ["linked.json", "new.json", "other.json"]);
    assert_eq!(place.found("out/**/*.json"), ["out/deep/x.json"]);
    assert_eq!(place.found("leaks/*"), [""; 0]);
    let all = ["linked.json", "new.json", "other.json", "out/deep/x.json"];
    assert_eq!(place.found("**/*.json"), all);
    let (files, _) = place.remote.find(&Patterns::new(&["out"]).unwrap()).unwrap();
    assert!((9..=11).contains(&(files[0].age_ns / 1_000_000_000)), "{files:?}");
    let leak = Found { path: "leak.json".into(), bytes: 2, mtime_ns: 0, age_ns: 0 };
    assert!(place.remote.fetch(&leak, &mut std::io::sink()).is_err());
    place.end();
}

#[test]
fn a_large_file_is_fetched_whole_while_other_words_get_through() {
    let (folder, home) = (temporary(), temporary());
    write(folder.path(), "x", "");
    let place = Place::open("m1", home.path());
    place.lay(folder.path());
    let content: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(place.work("model.bin"), &content).unwrap();
    let find = || place.remote.find(&Patterns::new(&["*.bin"]).unwrap()).unwrap().0.remove(0);
    let found = find();
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        let fetching = scope.spawn(|| place.remote.fetch(&found, &mut got));
        let mut hands = &place.remote;
        assert!(!hands.is_done("mark").unwrap());
        assert!(matches!(fetching.join().unwrap().unwrap(), send::Fetched::Whole));
    });
    assert!(got == content);
    // Changed since it was found: that is told, and is no fault.
    place.made("model.bin", "shorter", 1);
    let fetched = place.remote.fetch(&found, &mut std::io::sink()).unwrap();
    assert!(matches!(fetched, send::Fetched::Changed));
    fs::remove_file(place.work("model.bin")).unwrap();
    let fetched = place.remote.fetch(&found, &mut std::io::sink()).unwrap();
    assert!(matches!(fetched, send::Fetched::Changed));
    place.end();
}

/// Two machines with the same code, and outputs of both.
struct Scene {
    _folders: Vec<tempfile::TempDir>,
    one: Place,
    two: Place,
    outputs: Outputs,
    kept: PathBuf,
}

impl Scene {
    fn new() -> Self {
        Self::of(&["out/**"])
    }

    fn of(patterns: &[&str]) -> Self {
        let folders: Vec<tempfile::TempDir> = (0..4).map(|_| temporary()).collect();
        write(folders[0].path(), "train.py", "x");
        let one = Place::open("m1", folders[1].path());
        let two = Place::open("m2", folders[2].path());
        one.lay(folders[0].path());
        two.lay(folders[0].path());
        let kept = folders[3].path().join("outputs");
        let outputs = Outputs::new(&kept, Patterns::new(patterns).unwrap());
        Self { _folders: folders, one, two, outputs, kept }
    }

    fn round(&mut self, is_last: bool) -> outputs::Round {
        let machines = [("m1", &self.one.remote), ("m2", &self.two.remote)];
        let round = self.outputs.round(&machines, is_last, &|| Duration::ZERO);
        assert!(round.faults.is_empty() && round.notes.is_empty(), "{round:?}");
        round
    }

    /// All that is kept, with its text.
    #[track_caller]
    fn holds(&self, expect: &[(&str, &str)]) {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.kept.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                    continue;
                }
                let path = entry.path().strip_prefix(&self.kept).unwrap().display().to_string();
                found.insert(path, fs::read_to_string(entry.path()).unwrap());
            }
        }
        let expect: BTreeMap<String, String> =
            expect.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        assert_eq!(found, expect);
    }
}

#[test]
fn outputs_come_back_once_they_are_still_and_all_at_the_end() {
    let mut scene = Scene::new();
    scene.one.made("out/a", "a", 5);
    scene.one.made("out/fresh", "f", 0);
    let round = scene.round(false);
    assert_eq!((round.fetched.len(), round.matched, round.unsettled), (1, 2, 1));
    scene.holds(&[("out/a", "a")]);
    // One that was being written the last time too is taken as it is.
    assert_eq!(scene.round(false).fetched, ["out/fresh"]);
    assert!(scene.round(false).fetched.is_empty(), "nothing has changed");
    scene.one.made("out/a", "b", 3);
    scene.one.made("out/last", "l", 0);
    assert_eq!(scene.round(false).fetched, ["out/a"]);
    scene.round(true);
    scene.holds(&[("out/a", "b"), ("out/fresh", "f"), ("out/last", "l")]);
    let kept = mtime_ns(&fs::metadata(scene.kept.join("out/a")).unwrap());
    let there = mtime_ns(&fs::metadata(scene.one.work("out/a")).unwrap());
    assert_eq!(kept, there, "times are kept");
}

#[test]
fn the_preferred_machine_has_the_name_and_others_are_kept_apart() {
    let mut scene = Scene::new();
    scene.two.made("out/log", "two", 5);
    scene.two.made("out/same", "s", 5);
    scene.round(false);
    scene.holds(&[("out/log", "two"), ("out/same", "s")]);
    scene.one.made("out/log", "one", 5);
    scene.one.made("out/same", "s", 5);
    scene.round(false);
    scene.holds(&[("out/log", "one"), ("m2/out/log", "two"), ("out/same", "s")]);
    // The preferred one goes on; the other's is fetched again to be kept apart.
    scene.two.made("out/same", "t", 5);
    scene.two.made("out/log", "one", 5);
    scene.round(false);
    scene.holds(&[("out/log", "one"), ("out/same", "s"), ("m2/out/same", "t")]);
    scene.one.made("out/log", "more", 5);
    scene.round(false);
    scene.holds(&[
        ("out/log", "more"),
        ("m2/out/log", "one"),
        ("out/same", "s"),
        ("m2/out/same", "t"),
    ]);
}

#[test]
fn machines_are_given_what_they_lack() {
    let mut scene = Scene::new();
    scene.one.made("out/ckpt-1", "c1", 50);
    scene.one.made("out/log", "one", 50);
    scene.two.made("out/log", "two", 50);
    scene.round(true);
    scene.outputs.give_back("m2", &scene.two.remote).unwrap();
    assert_eq!(scene.two.reads("out/ckpt-1"), "c1");
    assert_eq!(scene.two.reads("out/log"), "two", "its own stays");
    assert!(scene.round(true).fetched.is_empty(), "what was given is not fetched again");
    // What was given is renewed, unless the script went on with it.
    scene.one.made("out/ckpt-1", "c2", 40);
    scene.round(true);
    scene.outputs.give_back("m2", &scene.two.remote).unwrap();
    assert_eq!(scene.two.reads("out/ckpt-1"), "c2");
    // Another machine takes the place of both.
    let home = temporary();
    let again = Place::open("m2", home.path());
    again.lay(scene._folders[0].path());
    scene.outputs.give_back("m2", &again.remote).unwrap();
    assert_eq!(again.reads("out/log"), "two", "what that machine had");
    assert_eq!(again.reads("out/ckpt-1"), "c2");
    let third = temporary();
    let new = Place::open("m3", third.path());
    new.lay(scene._folders[0].path());
    scene.outputs.give_back("m3", &new.remote).unwrap();
    assert_eq!(new.reads("out/log"), "one");
    let mtime = |path: &Path| mtime_ns(&fs::metadata(path).unwrap());
    assert_eq!(mtime(&new.work("out/ckpt-1")), mtime(&scene.one.work("out/ckpt-1")));
    // Its first machine is gone: what the new one goes on with has the name.
    new.made("out/ckpt-1", "c3", 5);
    let machines = [("m3", &new.remote), ("m2", &again.remote)];
    scene.outputs.round(&machines, false, &|| Duration::ZERO);
    let expect = [("out/ckpt-1", "c3"), ("out/log", "one"), ("m2/out/log", "two")];
    scene.holds(&expect);
}

#[test]
fn after_a_loss_all_machines_have_the_newest_survivors_files() {
    let mut scene = Scene::new();
    // Both save; the controller has seen the first's epoch 30 and neither of the last ones.
    scene.one.made("out/model", "30", 50);
    scene.one.made("out/optim", "30", 50);
    scene.two.made("out/model", "30", 49);
    scene.two.made("out/optim", "30", 49);
    scene.round(false);
    scene.one.made("out/model", "39", 6);
    scene.one.made("out/optim", "39", 6);
    scene.two.made("out/model", "40", 5);
    scene.two.made("out/optim", "40", 5);
    scene.two.made("out/rank-1", "own", 5);
    // Another machine takes the place of one that is lost.
    let home = temporary();
    let new = Place::open("m3", home.path());
    new.lay(scene._folders[0].path());
    let machines = [("m1", &scene.one.remote), ("m2", &scene.two.remote), ("m3", &new.remote)];
    let levelled = scene.outputs.level(&machines, &|| Duration::ZERO).unwrap();
    assert_eq!((levelled.from.as_deref(), levelled.differed), (Some("m2"), 2));
    for place in [&scene.one, &scene.two, &new] {
        for (path, text) in [("out/model", "40"), ("out/optim", "40"), ("out/rank-1", "own")] {
            assert_eq!(place.reads(path), text, "{path} in {:?}", place.home);
        }
    }
    // What is kept here is the same, and what was replaced is kept apart.
    scene.holds(&[
        ("out/model", "40"),
        ("out/optim", "40"),
        ("out/rank-1", "own"),
        ("m1/out/model", "39"),
        ("m1/out/optim", "39"),
    ]);
    let levelled = scene.outputs.level(&machines, &|| Duration::ZERO).unwrap();
    assert_eq!(levelled, outputs::Levelled::default(), "they are the same already");
    // The first goes on, and has its name again.
    scene.one.made("out/model", "41", 0);
    scene.outputs.round(&machines, true, &|| Duration::ZERO);
    assert_eq!(fs::read_to_string(scene.kept.join("out/model")).unwrap(), "41");
    new.end();
}

#[test]
fn a_machine_that_is_gone_is_a_fault_and_others_are_fetched_from() {
    let mut scene = Scene::new();
    scene.two.made("out/x", "x", 5);
    assert!(scene.one.remote.say(ToHost::End));
    drop(scene.one.host.take().unwrap().join());
    let machines = [("m1", &scene.one.remote), ("m2", &scene.two.remote)];
    let round = scene.outputs.round(&machines, false, &|| Duration::ZERO);
    assert_eq!(round.faults.len(), 1);
    assert_eq!(round.faults[0].machine, "m1");
    assert_eq!(round.fetched, ["out/x"]);
}

#[test]
fn ports_and_meetings_are_asked_over_the_channel() {
    let home = temporary();
    let place = Place::open("m1", home.path());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (free, taken) = place.remote.ports(3, &[port]).unwrap();
    assert_eq!((free.len(), taken.len()), (3, 1));
    assert_eq!(taken[0].by.as_ref().map(|by| by.0), Some(std::process::id()));
    place.remote.release(&free).unwrap();
    let (again, _) = place.remote.ports(0, &free).unwrap();
    assert_eq!(again, free);
    use crate::messages::questions::Meeting;
    let meets = |meeting| place.remote.meets(std::process::id(), port, meeting).unwrap();
    assert!(meets(Meeting::Listens) && !meets(Meeting::Connects));
    place.end();
}

/// A disk of its own, with little room.
struct Disk(tempfile::TempDir);

impl Disk {
    /// Nothing where this user cannot mount one.
    fn mount() -> Option<Self> {
        let folder = temporary();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(folder.path());
        let ran = mount.output().ok()?;
        ran.status.success().then_some(Self(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_is_told_with_the_machine_and_the_file() {
    let Some(disk) = Disk::mount() else { return };
    let folder = temporary();
    // It fits into the store, but not a second time into the work folder.
    write(folder.path(), "model.bin", vec![7; 1_200_000]);
    let place = Place::open("m1", disk.0.path());
    let code = Code::read(folder.path(), &[]).unwrap();
    let fault = place.remote.lay_out(&code, &mut |_, _| {}).unwrap_err();
    assert!(fault.what.contains("its disk is full") && fault.what.contains("model.bin"), "{fault}");
    assert_eq!((fault.machine.as_str(), fault.remedy), ("m1", Remedy::Replace));
    write(folder.path(), "model.bin", vec![8; 4_000_000]);
    let code = Code::read(folder.path(), &[]).unwrap();
    let fault = place.remote.lay_out(&code, &mut |_, _| {}).unwrap_err();
    assert!(fault.what.contains("its disk is full"), "{fault}");
    assert!(fault.what.contains("model.bin"), "{fault}");
    let left = fs::read_dir(disk.0.path().join("files")).unwrap().map(Result::unwrap);
    let unfinished = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("new-"));
    assert_eq!(unfinished.count(), 0);
    place.end();
}
