//! `--detach` of commands whose controller stays on this machine.

/// Whether a command is left to a process of this machine.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Leaving {
    /// Leave it to a process of this machine: once it has begun the run's name is printed, and
    /// neither the terminal nor this command is needed any more. `status`, `logs -f` and `stop` find it.
    #[arg(long, conflicts_with = "json")]
    pub detach: bool,
    /// This is the process that `--detach` leaves behind.
    #[arg(long, hide = true, conflicts_with_all = ["json", "detach"])]
    pub detached: bool,
}
