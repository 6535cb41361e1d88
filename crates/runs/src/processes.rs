//! The processes of a script's run, as its events tell of them.
//!
//! A part of the fold that [`Summary`](crate::summary::Summary) is: where each process is, how often it
//! was started, and how it was lost. Pure.

use planaria_protocol::event::What;
use serde::Serialize;

/// All of them, in the order of their ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Processes {
    pub all: Vec<Process>,
    /// How often processes were started again.
    pub restarts: u32,
    /// Why, the oldest first.
    pub restarted: Vec<Restarted>,
    /// Whether a round has ended, and another may have other processes.
    is_over: bool,
}

/// A process of a script's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    pub process: String,
    pub machine: Option<String>,
    /// How often it was started.
    pub starts: u32,
    /// How it was lost, where it was not started again since.
    pub lost: Option<String>,
}

impl Process {
    /// As people read it.
    pub fn title(&self) -> String {
        title(&self.process)
    }
}

/// Processes that were started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restarted {
    /// Which; all of them where there is none.
    pub process: Option<String>,
    pub reason: String,
}

impl Restarted {
    /// As a sentence, without its end.
    pub fn text(&self) -> String {
        let whom = match &self.process {
            Some(process) => format!("{} is", title(process)),
            None => "all processes are".into(),
        };
        format!("{}: {whom} started again", self.reason)
    }
}

/// `worker 0` for `worker-0`.
pub fn title(slug: &str) -> String {
    match slug.rsplit_once('-') {
        Some((role, index)) => format!("{role} {index}"),
        None => slug.to_owned(),
    }
}

impl Processes {
    /// The next event.
    pub fn take(&mut self, what: &What) {
        match what {
            What::Joined { agent, machine, .. } => self.joined(agent, machine.clone()),
            What::Lost { agent, reason, .. } => {
                if let Some(process) = self.all.iter_mut().find(|one| one.process == *agent) {
                    process.lost = Some(reason.clone());
                }
            }
            What::Restarted { agent, restarts, reason, .. } => {
                self.is_over |= agent.is_none();
                self.restarts = *restarts;
                self.restarted.push(Restarted { process: agent.clone(), reason: reason.clone() });
            }
            _ => {}
        }
    }

    fn joined(&mut self, agent: &str, machine: Option<String>) {
        if std::mem::take(&mut self.is_over) {
            self.all.iter_mut().for_each(|one| one.machine = None);
        }
        match self.all.iter_mut().find(|one| one.process == agent) {
            Some(process) => {
                process.starts += 1;
                (process.machine, process.lost) = (machine, None);
            }
            None => {
                let (process, starts) = (agent.to_owned(), 1);
                self.all.push(Process { process, machine, starts, lost: None });
            }
        }
    }

    /// Those of the newest round.
    pub fn placed(&self) -> Vec<Process> {
        self.all.iter().filter(|process| process.machine.is_some()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_one_sentence() {
        let reason = "worker 1 was ended by signal 9".to_owned();
        for (process, expect) in [
            (Some("worker-1"), "worker 1 was ended by signal 9: worker 1 is started again"),
            (None, "worker 1 was ended by signal 9: all processes are started again"),
        ] {
            let process = process.map(str::to_owned);
            assert_eq!(Restarted { process, reason: reason.clone() }.text(), expect);
        }
    }
}
