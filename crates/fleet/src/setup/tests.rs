//! Steps on a machine that is a folder: real `sh`, real files.

use super::*;
use crate::command;
use crate::guard::Orders;
use crate::guarded::tests::guards;
use crate::provider::Remedy;
use planaria_recipe::setup::{Scalar, SecretText, Step, Words};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

/// A machine whose home is a folder.
struct Place {
    root: tempfile::TempDir,
    /// Where commands are looked for.
    path: String,
    commands: usize,
    puts: usize,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["marks", "run", "bin", "here"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let path = std::env::var("PATH").unwrap();
        Self { root, path, commands: 0, puts: 0 }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Only what is named is there, besides programs written for the test.
    fn with_programs(programs: &[&str], written: &[(&str, &str)]) -> Self {
        let mut place = Self::new();
        for program in programs {
            let found = std::env::split_paths(&place.path).map(|p| p.join(program));
            let found = found.into_iter().find(|p| p.exists()).unwrap();
            symlink(found, place.at("bin").join(program)).unwrap();
        }
        for (program, text) in written {
            let path = place.at("bin").join(program);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        place.path = place.at("bin").display().to_string();
        place
    }

    fn write(&self, path: &str, text: &str) -> String {
        fs::write(self.at(path), text).unwrap();
        self.at(path).display().to_string()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    fn target(&self, path: &str) -> PathBuf {
        path.strip_prefix("~/").map_or_else(|| path.into(), |inside| self.at(inside))
    }

    /// Sets the machine up and says what was logged, and how it went.
    fn apply_in(&mut self, steps: &[Step], groups: &[&str]) -> (Result<Summary, Fault>, String) {
        let setup = Setup::prepare(steps).unwrap();
        let mut log = Vec::new();
        let groups = groups.iter().map(|g| (*g).to_owned()).collect();
        let machine = Machine::new("node1", "node1", groups);
        let machines = [(machine.clone(), "ansible_connection=local".to_owned())];
        let folder = self.at("here");
        let program = self.at("bin/ansible-playbook").display().to_string();
        let job = Job {
            run: &Tag::new("r1").unwrap(),
            machine: &machine,
            machines: &machines,
            folder: &folder,
            clock: &Still,
            is_cancelled: &|| false,
            on_step: &|_| {},
            pause: Some(Duration::from_millis(1)),
            ansible: &program,
            guards: &guards(),
        };
        let summary = setup.apply(&job, self, &mut log);
        (summary, String::from_utf8(log).unwrap())
    }

    fn apply(&mut self, steps: &[Step]) -> (Result<Summary, Fault>, String) {
        self.apply_in(steps, &[])
    }

    #[track_caller]
    fn counts(&mut self, steps: &[Step]) -> (usize, usize) {
        let (summary, log) = self.apply(steps);
        let summary = summary.unwrap_or_else(|fault| panic!("{fault}\n{log}"));
        (summary.done, summary.skipped)
    }
}

impl Hands for Place {
    fn is_done(&mut self, mark: &str) -> Result<bool, Fault> {
        Ok(self.at("marks").join(mark).exists())
    }

    fn is_intact(&mut self, mark: &str, made: &Made) -> Result<bool, Fault> {
        let (mark, target) = (self.at("marks").join(mark), self.target(&made.to));
        let is_intact = fs::read_to_string(&mark).unwrap() == made.stamp(&target);
        if !is_intact {
            fs::remove_file(mark).unwrap();
        }
        Ok(is_intact)
    }

    fn seal(&mut self, mark: &str, made: &Made) -> Result<(), Fault> {
        let target = self.target(&made.to);
        fs::write(self.at("marks").join(mark), made.stamp(&target)).unwrap();
        Ok(())
    }

    fn put(&mut self, path: &str, mode: u32, bytes: &mut dyn Read) -> Result<(), Fault> {
        self.puts += 1;
        let mut content = Vec::new();
        bytes.read_to_end(&mut content).unwrap();
        let path = self.at("run").join(path);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Ok(())
    }

    fn run(
        &mut self,
        command: &Command<'_>,
        output: &mut dyn FnMut(&[u8]),
    ) -> Result<TaskOutcome, Fault> {
        if command.mark.is_some_and(|mark| self.at("marks").join(mark).exists()) {
            return Ok(TaskOutcome::Skipped);
        }
        self.commands += 1;
        let folder = self.at("run").display().to_string();
        let mut orders = Orders::command(["/bin/sh", "-c", command.text], &folder);
        let home = self.root.path().display().to_string();
        orders.env = vec![("HOME".into(), home), ("PATH".into(), self.path.clone())];
        orders.env.extend(command.env.iter().cloned());
        let run = command::run(&guards(), &orders, command.within, &|| false, output);
        let outcome = run.unwrap();
        if let (TaskOutcome::Done, Some(mark)) = (&outcome, command.mark) {
            fs::write(self.at("marks").join(mark), "").unwrap();
        }
        Ok(outcome)
    }
}

/// A clock that stands still.
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

fn words(list: &[&str]) -> Option<Words> {
    Some(Words::Several(list.iter().map(|w| (*w).to_owned()).collect()))
}

fn run(command: &str) -> Step {
    Step { run: Some(command.into()), ..Step::default() }
}

fn check(command: &str) -> Step {
    Step { check: Some(command.into()), ..Step::default() }
}

fn copy(from: &str, to: &str) -> Step {
    Step { copy: Some(from.into()), to: Some(to.into()), ..Step::default() }
}

fn env(step: Step, name: &str, value: &str) -> Step {
    Step { env: BTreeMap::from([(name.to_owned(), SecretText::new(value))]), ..step }
}

#[test]
fn a_step_is_done_once_and_a_changed_one_again() {
    let mut place = Place::new();
    let first = [run("echo a >>~/a"), run("echo b >>~/b"), check("test -s ~/a; echo c >>~/c")];
    assert_eq!(place.counts(&first), (3, 0));
    // A check is done every time; where a step stands does not matter.
    assert_eq!(place.counts(&[first[1].clone(), first[2].clone(), first[0].clone()]), (1, 2));
    let second = [run("echo a2 >>~/a"), first[1].clone()];
    assert_eq!(place.counts(&second), (1, 1));
    assert_eq!(
        (place.read("a"), place.read("b"), place.read("c")),
        ("a\na2\n".into(), "b\n".into(), "c\nc\n".into())
    );
    let with = |value| env(run("echo $X >>~/x"), "X", value);
    assert_eq!(place.counts(&[with("1")]), (1, 0));
    assert_eq!(place.counts(&[with("1"), with("2")]), (1, 1));
    // What a step is called and how patient it is makes it no other.
    let named = Step { name: Some("x".into()), seconds: Some(5), ..with("1") };
    assert_eq!(place.counts(&[named]), (0, 1));
}

#[test]
fn a_file_that_was_copied_and_is_gone_is_copied_again() {
    let mut place = Place::new();
    fs::write(place.at("here/x"), "x").unwrap();
    let from = place.at("here/x").display().to_string();
    let steps = [copy(&from, "~/x"), run("echo y >>~/x"), copy(&from, "~/z"), run("rm ~/z")];
    assert_eq!(place.counts(&steps), (4, 0));
    // What later steps made of it is no reason to do it again.
    assert_eq!(place.counts(&steps), (0, 4));
    assert_eq!(place.read("x"), "xy\n");
    fs::remove_file(place.at("x")).unwrap();
    assert_eq!(place.counts(&steps), (1, 3));
    assert_eq!(place.read("x"), "x");
    fs::write(place.at("x"), "something else").unwrap();
    let (done, log) = place.apply(&steps[..1]);
    assert_eq!(done.unwrap().done, 1);
    assert!(log.contains("gone or was changed"), "{log}");
    assert_eq!(place.counts(&steps[..1]), (0, 1));
}

#[test]
fn steps_are_for_groups_and_in_order() {
    let mut place = Place::new();
    let on = |groups: &[&str], word: &str| Step {
        on: words(groups),
        ..run(&format!("echo {word} >>~/all"))
    };
    let steps = [
        on(&["all"], "1"),
        on(&["server"], "2"),
        on(&["worker"], "3"),
        on(&["big", "server"], "4"),
        run("echo 5 >>~/all"),
    ];
    let (summary, log) = place.apply_in(&steps, &["worker", "big"]);
    assert_eq!(summary.unwrap().done, 4);
    assert_eq!(place.read("all"), "1\n3\n4\n5\n");
    assert!(log.contains("== step 4: run echo 4 >>~/all\n== done in 0.0 s\n"), "{log}");
    let (summary, log) = place.apply_in(&steps, &["server"]);
    assert_eq!(summary.unwrap(), Summary { done: 1, skipped: 3, seconds: 0.0 }, "{log}");
}

#[test]
fn a_failure_names_machine_step_code_and_last_lines() {
    let mut place = Place::new();
    let (summary, log) =
        place.apply(&[run("true"), run("seq 1 30; echo oh no >&2; exit 3"), run("touch ~/never")]);
    let fault = summary.unwrap_err();
    assert_eq!((&*fault.machine, fault.remedy), ("node1", Remedy::Replace));
    let lines: Vec<&str> = fault.what.lines().collect();
    assert_eq!(
        lines[0],
        "step 2 `run seq 1 30; echo oh no >&2; exit 3` ended with exit code 3; its last lines:"
    );
    assert_eq!((lines.len(), lines[1], lines[10]), (11, "  22", "  oh no"));
    assert!(fault.hint.unwrap().contains("logs/setup-node1.log"));
    assert!(
        log.contains("\n1\n2\n3\n") && log.ends_with("== attempt 1 ended with exit code 3\n"),
        "{log}"
    );
    assert!(!place.at("never").exists());
    assert_eq!(place.counts(&[run("true")]), (0, 1));
}

#[test]
fn attempts_are_counted_and_bounded() {
    let mut place = Place::new();
    let flaky = |retries| Step { retries, ..run("echo x >>~/tries; test $(wc -l <~/tries) -ge 3") };
    let fault = place.apply(&[flaky(Some(1))]).0.unwrap_err();
    assert!(fault.what.contains("ended with exit code 1, 2 times"), "{fault}");
    assert_eq!(place.counts(&[flaky(Some(2))]), (1, 0));
    assert_eq!(place.read("tries"), "x\nx\nx\n");
}

#[test]
fn a_step_that_hangs_is_ended() {
    let mut place = Place::new();
    let step = Step { seconds: Some(1), ..run("echo going; sleep 60") };
    let fault = place.apply(&[step]).0.unwrap_err();
    assert!(fault.what.contains("did not end within 1 s; its last lines:\n  going"), "{fault}");
}

#[test]
fn secrets_reach_the_step_and_nothing_else() {
    let mut place = Place::new();
    let secret = "hunter2-swordfish";
    let file = place.write("key", &format!("{secret}\n"));
    let reference = format!("file:{file}");
    let leak =
        "echo token=$TOKEN; printf hunter2-; sleep 0.1; echo swordfish; echo $TOKEN | wc -c; false";
    let (summary, log) = place.apply(&[env(run(leak), "TOKEN", &reference)]);
    let fault = summary.unwrap_err();
    assert!(fault.what.ends_with("  token=***\n  ***\n  18"), "{fault}");
    assert!(log.contains("token=***\n***\n18\n"), "{log}");
    assert!(!format!("{log}{fault:?}").contains(secret));
    let mut values =
        BTreeMap::from([("key".to_owned(), Scalar::Text(SecretText::new(&reference)))]);
    values.insert("n".to_owned(), Scalar::Float(1.0));
    let from = place.write("conf.in", "{{machine}} {{run}} [{{groups}}] {{key}} {{ n }}\n");
    let step =
        Step { template: Some(from), to: Some("~/etc/x.conf".into()), values, ..Step::default() };
    assert_eq!(place.counts(std::slice::from_ref(&step)), (1, 0));
    assert_eq!(place.read("etc/x.conf"), format!("node1 r1 [] {secret} 1.0\n"));
    let mode = fs::metadata(place.at("etc/x.conf")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(place.counts(&[step]), (0, 1));
}

#[test]
fn nothing_begins_with_something_missing() {
    let place = Place::new();
    let template = place.write("conf.in", "a\n{{nothing}}");
    let template = Step { template: Some(template), to: Some("~/x".into()), ..Step::default() };
    for (step, said) in [
        (
            env(run("true"), "A", "${env:NO_SUCH_VARIABLE_2}"),
            "step 2: the recipe refers to `${env:NO_SUCH_VARIABLE_2}`",
        ),
        (copy("/no/such/file", "~/x"), "step 2: `/no/such/file` cannot be read"),
        (
            Step { ansible: Some("/no/such.yml".into()), ..Step::default() },
            "step 2: `/no/such.yml` cannot be read",
        ),
        (template, "line 2: no field `nothing`; there are `machine`, `run`, `groups`"),
        (Step::default(), "step 2: it names no action"),
    ] {
        let steps = [run("true"), step];
        let fault = Setup::prepare(&steps).err().unwrap();
        assert!(fault.what.contains(said), "{fault}");
        assert_eq!(fault.remedy, Remedy::Fix);
        // Each is found, whatever is wrong with others.
        let missing = copy("/no/such/other", "~/y");
        let faults = Setup::faults(&[&steps[..], &[missing]].concat());
        assert_eq!(faults.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1, 2]);
        let own = said.trim_start_matches("step 2: ");
        assert!(faults[0].1.what.contains(own), "{faults:?}");
    }
}

#[test]
fn files_and_folders_are_copied_once() {
    let mut place = Place::new();
    let file = place.write("x.bin", "one");
    let step = Step { mode: Some("0640".into()), ..copy(&file, "~/new/it's x.bin") };
    assert_eq!(place.counts(std::slice::from_ref(&step)), (1, 0));
    assert_eq!(place.counts(std::slice::from_ref(&step)), (0, 1));
    assert_eq!(place.puts, 1);
    place.write("x.bin", "two");
    assert_eq!(place.counts(std::slice::from_ref(&step)), (1, 0));
    assert_eq!(place.read("new/it's x.bin"), "two");
    let mode = |path: &str| fs::metadata(place.at(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("new/it's x.bin"), 0o640);
    fs::create_dir_all(place.at("tree/a/b")).unwrap();
    place.write("tree/a/b/c", "deep");
    place.write("tree/run", "#!/bin/sh");
    fs::set_permissions(place.at("tree/run"), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = copy(&place.at("tree").display().to_string(), "~/there");
    assert_eq!(place.counts(std::slice::from_ref(&folder)), (1, 0));
    assert_eq!(place.counts(std::slice::from_ref(&folder)), (0, 1));
    assert_eq!(place.read("there/a/b/c"), "deep");
    let mode = |path: &str| fs::metadata(place.at(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("there/run"), 0o755);
    // Nothing is left of what was staged.
    assert_eq!(fs::read_dir(place.at("run")).unwrap().count(), 0);
}

#[test]
fn a_name_that_can_be_known_before_is_not_used() {
    let mut place = Place::new();
    fs::create_dir(place.at("shared")).unwrap();
    let secret = place.write("x.bin", "secret");
    // What another user has made first is neither written into nor moved into place.
    let theirs = place.write("shared/x.planaria", "theirs");
    symlink("x.planaria", place.at("shared/x")).unwrap();
    let step = Step { mode: Some("0600".into()), ..copy(&secret, "~/shared/x") };
    assert_eq!(place.counts(&[step]), (1, 0));
    assert_eq!(fs::read_to_string(theirs).unwrap(), "theirs");
    let placed = fs::symlink_metadata(place.at("shared/x")).unwrap();
    assert!(placed.is_file() && placed.permissions().mode() & 0o777 == 0o600, "{placed:?}");
    assert_eq!(place.read("shared/x"), "secret");
    assert_eq!(fs::read_dir(place.at("shared")).unwrap().count(), 2, "nothing else is left");
    fs::create_dir(place.at("shared/folder")).unwrap();
    let fault = place.apply(&[copy(&secret, "~/shared/folder")]).0.unwrap_err();
    assert!(fault.what.contains("shared/folder is a folder"), "{fault}");
    assert_eq!(fs::read_dir(place.at("shared/folder")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(place.at("shared")).unwrap().count(), 3, "nothing else is left");
}

#[test]
fn a_folder_of_another_user_is_not_written_into() {
    let mut place = Place::new();
    fs::create_dir_all(place.at("shared/theirs")).unwrap();
    fs::set_permissions(place.at("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
    // Only root can be another user.
    if std::os::unix::fs::chown(place.at("shared/theirs"), Some(65534), None).is_err() {
        return;
    }
    fs::create_dir(place.at("tree")).unwrap();
    place.write("tree/key", "secret");
    let step = copy(&place.at("tree").display().to_string(), "~/shared/theirs");
    let fault = place.apply(std::slice::from_ref(&step)).0.unwrap_err();
    assert!(fault.what.contains("belongs to user 65534"), "{fault}");
    assert!(!place.at("shared/theirs/key").exists());
    let file = copy(&place.at("tree/key").display().to_string(), "~/shared/theirs/key");
    let fault = place.apply(&[file]).0.unwrap_err();
    assert!(fault.what.contains("belongs to user 65534"), "{fault}");
    assert_eq!(fs::read_dir(place.at("shared/theirs")).unwrap().count(), 0);
    // Where no other can have made it, root may give a user something.
    fs::set_permissions(place.at("shared"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(place.counts(&[step]), (1, 0));
    assert_eq!(place.read("shared/theirs/key"), "secret");
}

#[test]
fn no_sudo_is_said_so() {
    let apt = Step { apt: words(&["libgomp1"]), ..Step::default() };
    let tools = ["find", "head", "env"];
    let refused = "echo 'sudo: a password is required' >&2; exit 1";
    let lists = ("dpkg-query", "exit 1");
    for sudo in [&[][..], &[("sudo", refused)]] {
        let mut programs = vec![("id", "echo 1000"), ("apt-get", "exit 1"), lists];
        programs.extend(sudo);
        let mut place = Place::with_programs(&tools, &programs);
        let fault = place.apply(std::slice::from_ref(&apt)).0.unwrap_err();
        assert_eq!(
            fault.what,
            "step 1 `apt libgomp1`: no sudo on node1: this step needs root, and `sudo -n` does not give it"
        );
        assert_eq!(place.commands, 1, "it is not tried again");
    }
    // What is there already needs no root.
    let there = ("dpkg-query", "printf 'ii '");
    let mut place =
        Place::with_programs(&tools, &[("id", "echo 1000"), ("apt-get", "exit 1"), there]);
    assert_eq!(place.counts(&[apt]), (1, 0));
}

#[test]
fn packages_are_installed_and_lists_fetched_only_when_needed() {
    let apt = |package: &str| Step { apt: words(&[package]), ..Step::default() };
    let get = "echo \"$DEBIAN_FRONTEND $*\" >>~/calls; case $* in *update*) touch ~/updated ;; *) test -e ~/updated ;; esac";
    let programs = [
        ("id", "echo 0"),
        ("apt-get", get),
        ("dpkg-query", "exit 1"),
        ("find", "echo some_Packages"),
    ];
    let mut place = Place::with_programs(&["head", "env", "touch"], &programs);
    assert_eq!(place.counts(&[apt("a")]), (1, 0));
    let calls = place.read("calls");
    let verbs: Vec<bool> =
        calls.lines().map(|line| line.ends_with("install --no-install-recommends -- a")).collect();
    assert_eq!(verbs, [true, false, true], "{calls}");
    assert!(calls.starts_with("noninteractive -y -q -o DPkg::Lock::Timeout=300"), "{calls}");
    assert_eq!(place.counts(&[apt("b")]), (1, 0));
    assert_eq!(place.read("calls").lines().count(), 4);
    let mut place = Place::with_programs(&["head", "env"], &[]);
    let fault = place.apply(&[apt("a")]).0.unwrap_err();
    assert!(fault.what.contains("no apt-get on node1"), "{fault}");
}

#[test]
fn packages_of_python_go_to_an_environment() {
    let pip = Step {
        pip: words(&["numpy==2.0.0", "a b'c"]),
        venv: Some("~/my venv".into()),
        ..Step::default()
    };
    let python = r#"case $* in
  '-m venv'*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; echo made >>~/calls ;;
  '-m pip --version') test "${0##*/}" = python ;;
  *) for word; do echo "<$word>" >>~/calls; done ;;
esac"#;
    let tools = ["mkdir", "cp", "dirname"];
    let mut place = Place::with_programs(&tools, &[("python3", python)]);
    assert_eq!(place.counts(std::slice::from_ref(&pip)), (1, 0));
    let calls = place.read("calls");
    assert!(calls.starts_with("made\n<-m>\n<pip>\n<install>\n"), "{calls}");
    assert!(calls.ends_with("<-->\n<numpy==2.0.0>\n<a b'c>\n"), "{calls}");
    assert_eq!(place.counts(std::slice::from_ref(&pip)), (0, 1));
    for (programs, said) in [
        (&[][..], "no python3 on node1"),
        (
            &[("python3", "echo 'ensurepip is not available'; exit 1")],
            "cannot make virtual environments; its last lines:\n  ensurepip is not available",
        ),
    ] {
        let mut place = Place::with_programs(&tools, programs);
        let fault = place.apply(std::slice::from_ref(&pip)).0.unwrap_err();
        assert!(fault.what.contains(said), "{fault}");
        assert_eq!(place.commands, 1);
    }
}

#[test]
fn playbooks_are_played_from_here_once() {
    let playbook =
        |place: &Place| Step { ansible: Some(place.write("site.yml", "[]")), ..Step::default() };
    let mut place =
        Place::with_programs(&["cat"], &[("ansible-playbook", "echo \"$@\"; cat \"$2\"")]);
    let step = playbook(&place);
    let (summary, log) = place.apply(std::slice::from_ref(&step));
    assert_eq!(summary.unwrap().done, 1);
    assert!(
        log.contains("--limit node1 --") && log.contains("node1 ansible_connection=local\n"),
        "{log}"
    );
    assert_eq!(place.counts(std::slice::from_ref(&step)), (0, 1));
    place.write("site.yml", "[other]");
    assert_eq!(place.counts(std::slice::from_ref(&step)), (1, 0));
    let mut place = Place::with_programs(&[], &[]);
    let step = playbook(&place);
    let fault = place.apply(&[step]).0.unwrap_err();
    assert_eq!(fault.remedy, Remedy::Fix);
    assert!(fault.hint.unwrap().contains("pip install ansible-core"));
}

#[test]
fn one_that_is_given_up_waits_for_nothing() {
    let setup = Setup::prepare(&[Step { retries: Some(9), ..run("false") }]).unwrap();
    let mut place = Place::new();
    let machine = Machine::new("node1", "node1", Vec::new());
    let asked = Cell::new(0);
    let is_cancelled = || asked.replace(asked.get() + 1) > 2;
    let job = Job {
        run: &Tag::new("r1").unwrap(),
        machine: &machine,
        machines: &[],
        folder: std::path::Path::new("/nowhere"),
        clock: &Still,
        is_cancelled: &is_cancelled,
        on_step: &|_| {},
        pause: Some(Duration::from_secs(3600)),
        ansible: "ansible-playbook",
        guards: &guards(),
    };
    assert!(setup.apply(&job, &mut place, &mut std::io::sink()).is_err());
}

#[test]
fn many_machines_are_set_up_at_the_same_time() {
    let setup = Setup::prepare(&[run("echo a >>~/a"), check("test -s ~/a")]).unwrap();
    std::thread::scope(|scope| {
        let apply = || {
            let mut place = Place::new();
            let machine = Machine::new("n", "n", Vec::new());
            let job = Job {
                run: &Tag::new("r1").unwrap(),
                machine: &machine,
                machines: &[],
                folder: std::path::Path::new("/nowhere"),
                clock: &Still,
                is_cancelled: &|| false,
                on_step: &|_| {},
                pause: None,
                ansible: "ansible-playbook",
                guards: &guards(),
            };
            setup.apply(&job, &mut place, &mut std::io::sink()).map(|summary| summary.done)
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(apply)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Ok(2));
        }
    });
}
