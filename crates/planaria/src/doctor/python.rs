//! Whether a script's Python, and the framework in it, is there on a machine.
//!
//! Owns the question and what to do about its answers. Never installs anything.

use planaria_fleet::home::user_home;
use planaria_fleet::messages::TaskOutcome;
use planaria_fleet::provider::Fault;
use planaria_fleet::remote::Remote;
use planaria_fleet::setup::{Command, Hands};
use planaria_fleet::shell;
use planaria_recipe::script::{Framework, Job};
use std::time::Duration;

/// How long a framework may take to be imported.
const WITHIN: Duration = Duration::from_secs(150);
/// What an answer begins with: frameworks say a lot before it.
const MARK: &str = "planaria-found ";
/// Bytes of what is said that are kept.
const SAID_BYTES_MAX: usize = 64 << 10;

/// What is asked of each machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    python: String,
    module: Option<(&'static str, &'static str)>,
    needs_mpirun: bool,
}

impl Question {
    /// What a job needs; nothing where its set-up makes the Python.
    pub fn of(job: &Job, framework: Framework) -> Option<Self> {
        let is_made = job.script.python.is_none() && job.python() != "python3";
        if is_made {
            return None;
        }
        let python = match job.python().strip_prefix("~/") {
            // The script is at home where its user is, not in the machine's folder.
            Some(rest) if job.pool.is_here() => user_home().join(rest).display().to_string(),
            _ => job.python(),
        };
        Some(Self { python, module: module(framework), needs_mpirun: framework == Framework::Mpi })
    }

    /// Asks a machine: what it has, in words.
    pub fn ask(&self, mut remote: &Remote) -> Result<String, Fault> {
        let mut said = Vec::new();
        let text = self.text();
        let command = Command { mark: None, text: &text, env: &[], within: WITHIN };
        let outcome = remote.run(&command, &mut |bytes| {
            let room = SAID_BYTES_MAX.saturating_sub(said.len());
            said.extend_from_slice(&bytes[..bytes.len().min(room)]);
        })?;
        self.answer(remote.machine(), &outcome, &String::from_utf8_lossy(&said))
    }

    /// For `sh -c`.
    fn text(&self) -> String {
        let python = shell::path(&self.python);
        let code = match self.module {
            None => format!("import sys; print(\"{MARK}Python\", sys.version.split()[0])"),
            Some((module, _)) => format!(
                "import sys, {module} as m; print(\"{MARK}Python\", sys.version.split()[0] + \",\", \
                 \"{module}\", getattr(m, \"__version__\", \"\"))"
            ),
        };
        let mpirun = match self.needs_mpirun {
            true => "command -v mpirun >/dev/null || { echo 'no mpirun' >&2; exit 3; }; ",
            false => "",
        };
        format!("{mpirun}{python} -c '{code}'")
    }

    fn answer(&self, machine: &str, outcome: &TaskOutcome, said: &str) -> Result<String, Fault> {
        let python = &self.python;
        let found = said.lines().find_map(|line| line.trim().strip_prefix(MARK));
        let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let last = last.unwrap_or("it says nothing");
        match (outcome, found) {
            (TaskOutcome::Done, Some(found)) => Ok(found.trim().to_owned()),
            (TaskOutcome::Failed(126 | 127), _) => {
                let hint = "install it there, name another one in `script.python`, or let a `pip` \
                            step of `setup` make one";
                Err(Fault::fix(machine, format!("there is no `{python}`"), hint))
            }
            (TaskOutcome::Failed(3), _) if last == "no mpirun" => Err(Fault::fix(
                machine,
                "there is no `mpirun`",
                "install it there: `apt install openmpi-bin`, or `setup: [{apt: openmpi-bin}]`",
            )),
            (TaskOutcome::TimedOut, _) => {
                let what = format!("`{python}` did not answer within {} s", WITHIN.as_secs());
                Err(Fault::fix(machine, what, "look at its load and its disks"))
            }
            _ => {
                let package = self.module.map_or("", |(_, package)| package);
                let hint = match last.contains("No module named") {
                    true => format!(
                        "install it there: `{python} -m pip install {package}`, or \
                         `setup: [{{pip: {package}}}]` in the recipe"
                    ),
                    false => format!("see what `{python} -c 'import …'` says there"),
                };
                Err(Fault::fix(machine, format!("`{python}`: {last}"), hint))
            }
        }
    }
}

/// What a framework is imported as, and what it is installed as.
fn module(framework: Framework) -> Option<(&'static str, &'static str)> {
    match framework {
        Framework::Tensorflow => Some(("tensorflow", "tensorflow")),
        Framework::Pytorch => Some(("torch", "torch")),
        Framework::Jax => Some(("jax", "jax")),
        Framework::Horovod => Some(("horovod", "horovod")),
        Framework::Mpi => Some(("mpi4py", "mpi4py")),
        Framework::Plain => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::samples::job;

    fn question(keys: &str, framework: Framework) -> Option<Question> {
        let ssh = "pool: {provider: ssh, hosts: [h1]}";
        Question::of(&job(&format!("script: {{file: a.py{keys}}}, {ssh}")), framework)
    }

    #[test]
    fn python_is_asked_for_the_framework() {
        let plain = question(", python: '~/v e/bin/python'", Framework::Plain).unwrap();
        assert!(plain.text().starts_with("\"$HOME\"/'v e/bin/python' -c '"), "{}", plain.text());
        let torch = question("", Framework::Pytorch).unwrap();
        assert!(torch.text().starts_with("'python3' -c 'import sys, torch as m; "));
        let made = job("script: {file: a.py}, setup: [{pip: torch}]");
        assert_eq!(Question::of(&made, Framework::Pytorch), None);
    }

    #[test]
    fn answers_say_what_to_do() {
        let torch = question("", Framework::Pytorch).unwrap();
        let found =
            torch.answer("h1", &TaskOutcome::Done, "noise\nplanaria-found Python 3, torch 2\n");
        assert_eq!(found.unwrap(), "Python 3, torch 2");
        for (outcome, said, what, hint) in [
            (TaskOutcome::Failed(127), "sh: not found", "there is no `python3`", "`script.python`"),
            (
                TaskOutcome::Failed(1),
                "Traceback\nModuleNotFoundError: No module named 'torch'\n",
                "`python3`: ModuleNotFoundError: No module named 'torch'",
                "`python3 -m pip install torch`, or `setup: [{pip: torch}]`",
            ),
            (TaskOutcome::Failed(3), "no mpirun\n", "there is no `mpirun`", "openmpi-bin"),
            (TaskOutcome::TimedOut, "", "did not answer within", "load"),
            (TaskOutcome::Done, "", "it says nothing", "import"),
        ] {
            let fault = torch.answer("h1", &outcome, said).unwrap_err();
            assert!(fault.what.contains(what), "{}", fault.what);
            let told = fault.hint.unwrap_or_default();
            assert!(told.contains(hint), "{told}");
        }
    }
}
