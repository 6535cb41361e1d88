//! A user's place at a machine: a folder with a recipe, a home of its own, and the command.

use super::eventually;
use crate::binary::{Place, RECIPE, talk};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// Somebody who gives commands.
pub struct Workspace {
    place: Place,
}

impl Workspace {
    /// With `pool.yaml`: a training that goes on for long, on this pool.
    pub fn new(pool: &str) -> Self {
        let place = Place::new();
        fs::create_dir(place.path().join("home")).expect("a home");
        let workspace = Self { place };
        workspace.write("pool.yaml", pool, 100_000);
        workspace
    }

    /// Writes a recipe for a pool.
    pub fn write(&self, name: &str, pool: &str, epochs: u32) {
        let recipe = RECIPE.replace("epochs: 3", &format!("epochs: {epochs}"));
        let text = format!("pool: {pool}\n{recipe}");
        fs::write(self.place.path().join(name), text).expect("a recipe");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Where machines of `local` are.
    pub fn machines(&self) -> PathBuf {
        self.path("home/.cache/planaria/machines")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.place.command(words);
        // Nothing of the user who runs the tests.
        command.env("HOME", self.path("home")).env("DOCKER_HOST", "unix:///nonexistent/engine");
        command.env_remove("SSH_AUTH_SOCK");
        command
    }

    /// A command to its end, which is awaited for a few minutes at most; what it wrote to stdout and
    /// stderr. It must end with this exit code.
    #[track_caller]
    pub fn give(&self, words: &[&str], code: i32) -> (String, String) {
        let child = self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let output = Training::of(child.expect("the binary starts")).end();
        let (out, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), talk(&output));
        assert_eq!(output.status.code(), Some(code), "{words:?}: {out}\n{said}");
        assert!(!said.contains("panicked"), "{said}");
        (out, said)
    }

    /// Trains `pool.yaml`, and waits until so many machines are held and steps are made.
    #[track_caller]
    pub fn train(&self, machines: usize) -> Training {
        let mut command = self.command(&["train", "pool.yaml"]);
        let log = fs::File::create(self.path("train.log")).expect("a log");
        let again = log.try_clone().expect("a log");
        let mut training =
            Training::of(command.stdout(log).stderr(again).spawn().expect("it starts"));
        eventually("the first step", || {
            let ended = training.child().try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "{}", self.log());
            let Some(run) = self.runs().pop() else { return false };
            let read = |name: &str| fs::read_to_string(run.join(name)).unwrap_or_default();
            let held = read("resources.jsonl").matches("\"will\"").count();
            held == machines && read("events.jsonl").contains("\"event\":\"epoch\"")
        });
        training
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("train.log")).unwrap_or_default()
    }

    /// Puts a file into the folder.
    pub fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    /// Starts a command; what it says is in [`Workspace::said`] while it does.
    #[track_caller]
    pub fn start(&self, words: &[&str], env: &[(&str, &str)]) -> Training {
        let said = fs::File::create(self.path("said.log")).expect("a log");
        let mut command = self.command(words);
        command.envs(env.iter().copied()).stdout(Stdio::piped()).stderr(said);
        Training::of(command.spawn().expect("the binary starts"))
    }

    /// What the command that was started last has said so far.
    pub fn said(&self) -> String {
        fs::read_to_string(self.path("said.log")).unwrap_or_default()
    }

    /// Waits until it has said this.
    #[track_caller]
    pub fn hears(&self, training: &mut Training, what: &str) {
        eventually(what, || {
            let (said, ended) = (self.said(), training.child().try_wait());
            let is_said = said.contains(what);
            assert!(is_said || matches!(ended, Ok(None)), "it ended without `{what}`: {said}");
            is_said
        });
    }

    /// Waits until it has told of this epoch or a later one: fast ones share a line.
    #[track_caller]
    pub fn reaches(&self, training: &mut Training, epoch: u64) {
        eventually("an epoch", || {
            let (told, ended) = (self.epochs_told(), training.child().try_wait());
            let is_there = told >= epoch;
            assert!(is_there || matches!(ended, Ok(None)), "it ended too soon: {}", self.said());
            is_there
        });
    }

    /// The last epoch that it has told of.
    pub fn epochs_told(&self) -> u64 {
        let said = self.said();
        let last = |line: &str| {
            let epochs = line.strip_prefix("epoch ").or_else(|| line.strip_prefix("epochs "))?;
            let (epochs, _) = epochs.split_once('/')?;
            epochs.rsplit('–').next()?.replace(',', "").parse().ok()
        };
        said.lines().filter_map(last).max().unwrap_or(0)
    }

    /// The newest run's folder.
    #[track_caller]
    pub fn run(&self) -> PathBuf {
        self.runs().into_iter().max().expect("a run")
    }

    /// Folders of runs.
    pub fn runs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("runs")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

/// A command under way; it is killed where a test ends before it.
pub struct Training(Option<Child>);

impl Training {
    fn of(child: Child) -> Self {
        Self(Some(child))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is under way")
    }

    /// As from a keyboard.
    pub fn interrupt(&mut self) {
        // SAFETY: sends a signal to a child that was started here and not waited for yet.
        unsafe { libc::kill(self.child().id() as libc::pid_t, libc::SIGINT) };
    }

    /// Stops it where it is.
    pub fn halt(&mut self) {
        // SAFETY: sends a signal to a child that was started here and not waited for yet.
        unsafe { libc::kill(self.child().id() as libc::pid_t, libc::SIGSTOP) };
    }

    /// Ends it without a word.
    pub fn kill(mut self) {
        self.child().kill().expect("it can be killed");
        self.child().wait().expect("it can be waited for");
        self.0 = None;
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(mut self) -> Output {
        let child = self.0.take().expect("it ends once");
        let pid = child.id() as libc::pid_t;
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(child.wait_with_output()));
        match told.recv_timeout(std::time::Duration::from_secs(300)) {
            Ok(output) => output.expect("what it wrote"),
            Err(_) => {
                // SAFETY: sends a signal to a child that was started here and not waited for yet.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                panic!("the command hangs");
            }
        }
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
