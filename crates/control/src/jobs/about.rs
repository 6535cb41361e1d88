//! What commands say of a job, and which of them are not for every kind.
//!
//! Owns the questions; each kind answers in its folder, and `jobs` knows which kind is asked.

/// A command that not every kind of job can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Audit,
    Chaos {
        is_live: bool,
    },
    Evaluate,
    Resume,
    Scale {
        /// Where workers were asked for, how many.
        workers: Option<u32>,
        is_live: bool,
    },
}

/// Why a job cannot take a command, and what to do instead.
pub struct Refusal {
    pub why: &'static str,
    pub instead: String,
}

/// What one kind of job answers. `path` is the run's folder as people write it.
pub trait About {
    /// What a first Ctrl-C leads to.
    fn stopping(&self) -> &'static str;
    /// What a second one has led to, and what can be done then.
    fn quit(&self, path: &str) -> String;
    /// What a run does that `planaria stop` asked to stop.
    fn stops(&self) -> &'static str;
    /// The command that takes up a run that was stopped, or does its work once more.
    fn again(&self, path: &str) -> String;
    /// Its runs, as in "run X is a script's".
    fn owner(&self) -> &'static str;
    fn refuses(&self, command: Command, path: &str) -> Option<Refusal>;
}
