//! Running processes for a plan, and none left behind.
//!
//! Owns the processes that were started for a run, and who takes the place of one that is lost.
//! Never knows what they say to each other.
//!
//! # Layout
//! - [`supervise`]: what is started, ended and given up; pure
//! - [`training`]: what the command of a training run does, as a value, and its policy
//! - [`ending`]: how a process has ended; [`process`]: signals to one, and waiting for it;
//!   [`backoff`]: pauses before it is tried again
//! - [`local`]: processes on this machine; [`command`]: one that is waited for; [`guard`]: around
//!   each of a user's script; [`guarded`]: its other end; [`redact`]: secrets, taken out of what they
//!   write; [`log_end`]: what one said last; [`rendezvous`]: where those of Horovod meet
//! - [`sites`]: both, used alike; [`pool`]: the machines of a run
//! - [`provider`]: where machines come from; [`providers`]: those there are; [`finding`]: what they
//!   need here
//! - [`messages`]: what a controller and the host on a machine say to each other; [`host`]: that
//!   process; [`remote`]: the controller's end of the [`channel`]; [`carrier`]: a process that is one;
//!   [`gate`]: the way from a machine that reaches nothing to processes of the run
//! - [`program`]: what goes to a machine; [`home`]: where it lies there; [`setup`]: what is done
//!   there first; [`made`]: what that made, known again; [`shell`]: words for `sh`
//! - [`files`]: a script's, to machines and back; [`sockets`]: a machine's; [`many`]: the same work
//!   for many

mod archive;
pub mod backoff;
pub mod carrier;
pub mod channel;
pub mod command;
pub mod ending;
pub mod files;
pub mod finding;
pub mod gate;
pub mod guard;
pub mod guarded;
pub mod home;
pub mod host;
pub mod local;
pub mod log_end;
pub mod made;
pub mod many;
pub mod messages;
mod oom;
pub mod pool;
pub mod process;
pub mod program;
pub mod provider;
pub mod providers;
pub mod redact;
pub mod remote;
pub mod rendezvous;
pub mod setup;
pub mod shell;
pub mod sites;
pub mod sockets;
pub mod supervise;
pub mod training;

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its log cannot be written.
    #[error("cannot write the log `{path}`: {why}")]
    Log {
        /// Where it should be.
        path: String,
        why: std::io::Error,
    },
    /// The system did not start it.
    #[error("cannot start {agent}: {why}")]
    Start { agent: planaria_protocol::message::Agent, why: std::io::Error },
}
