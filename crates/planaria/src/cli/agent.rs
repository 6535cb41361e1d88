//! `planaria agent`: the processes that a run starts; not for users.

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// `planaria agent`.
#[derive(Debug, Parser)]
#[command(name = "planaria agent", no_binary_name = true)]
struct Agent {
    #[command(subcommand)]
    role: Role,
}

/// Which process of a run.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub enum Role {
    /// Says which build this is, and nothing else.
    Build,
    /// Says whether the data of a recipe is on this machine.
    Data,
    /// Starts and ends the others on a machine of a pool.
    Host {
        run: String,
        /// Calls its controller, as its orders say.
        #[arg(long)]
        dial: bool,
        /// Is the run's controller.
        #[arg(long, conflicts_with = "dial", requires = "at")]
        control: bool,
        /// The place to listen on which others call it: a controller, or a host that may succeed it.
        #[arg(long, value_name = "WHERE")]
        at: Option<String>,
    },
    /// Tells what is new in the folder of a detached run.
    Mirror { folder: PathBuf },
    /// The coordinator of a run.
    Coordinator {
        /// The run, for people who list processes.
        run: String,
    },
    /// A parameter server.
    Server {
        /// Number of the server.
        index: u32,
        /// The run, for people who list processes.
        run: String,
    },
    /// A worker.
    Worker {
        /// Number of the worker.
        index: u32,
        /// The run, for people who list processes.
        run: String,
    },
    /// Where processes of Horovod meet.
    Rendezvous {
        /// Where it listens.
        port: u16,
    },
    /// Keeps another program, such as a command of the set-up.
    Command {
        /// The run, for people who list processes.
        run: String,
    },
    /// Keeps a process of a script.
    Task {
        /// Number of the process.
        index: u32,
        /// The run, for people who list processes.
        run: String,
    },
}

impl Role {
    /// The role that these words after `agent` ask for; ends the process where they ask for none.
    pub fn of(words: &[OsString]) -> Self {
        Self::of_a_step(words).unwrap_or_else(|| Agent::parse_from(words).role)
    }

    /// Those that a run's first step waits for, read without the parser, which takes longer to set up
    /// than they take to start.
    fn of_a_step(words: &[OsString]) -> Option<Self> {
        let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
        match words?.as_slice() {
            ["coordinator", run] => Some(Self::Coordinator { run: (*run).to_owned() }),
            [role, index, run] => {
                let (index, run) = (index.parse().ok()?, (*run).to_owned());
                match *role {
                    "server" => Some(Self::Server { index, run }),
                    "worker" => Some(Self::Worker { index, run }),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_without_the_parser_is_what_it_reads() {
        for words in [
            &["coordinator", "digits-1"][..],
            &["server", "0", "digits-1"],
            &["worker", "4095", "digits-1"],
            &["worker", "-1", "digits-1"],
            &["worker", "0"],
            &["task", "0", "digits-1"],
            &["host", "digits-1", "--dial"],
            &["--help"],
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let parsed = Agent::try_parse_from(&words).ok().map(|agent| agent.role);
            match Role::of_a_step(&words) {
                Some(role) => assert_eq!(Some(&role), parsed.as_ref(), "{words:?}"),
                None => assert!(!matches!(parsed, Some(Role::Worker { .. })), "{words:?}"),
            }
        }
    }
}
