//! Why a command ended badly, and the exit code that follows from it.
//!
//! Owns the exit codes. Never prints; `main` does.

use planaria_protocol::message::Trouble;
use planaria_recipe::Diagnostics;
use std::fmt::Display;
use std::io::ErrorKind;

/// Exit codes, as documented in `planaria --help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The work failed: the disk, the data or the training itself.
    Failed,
    /// The user must change the command, the recipe or a file.
    User,
    /// Stopped by Ctrl-C or SIGTERM after saving.
    Interrupted,
    /// Stopped at once, by a second Ctrl-C or before the first step; nothing was saved.
    Unsaved,
    /// An audit lacks evidence: what is proven is told, and what is missing.
    Unproven,
    /// A user's script failed, with this code.
    Script(u8),
}

impl Exit {
    /// What the process exits with.
    pub fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::User => 2,
            Self::Unproven => 3,
            Self::Interrupted => 130,
            Self::Unsaved => 131,
            Self::Script(code) => code,
        }
    }

    /// What a process of ours that ended with this code has ended with; nothing where it did well.
    pub fn of_code(code: i32) -> Option<Self> {
        match code {
            0 => None,
            2 => Some(Self::User),
            3 => Some(Self::Unproven),
            130 => Some(Self::Interrupted),
            131 => Some(Self::Unsaved),
            _ => Some(Self::Failed),
        }
    }
}

/// A message for the user, an optional hint, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// What the process exits with.
    pub exit: Exit,
    /// What failed, with its value and place.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Whether the message is a recipe's mistakes, each of which says that it is an error.
    pub is_diagnosis: bool,
}

/// What fallible commands return.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// As a command exits with it.
    pub fn new(exit: Exit, message: String, hint: Option<String>) -> Self {
        Self { exit, message, hint, is_diagnosis: false }
    }

    /// The user must change something.
    pub fn user(message: impl Display) -> Self {
        Self::new(Exit::User, message.to_string(), None)
    }

    /// The world did not co-operate.
    pub fn failed(message: impl Display) -> Self {
        Self::new(Exit::Failed, message.to_string(), None)
    }

    /// The same as events tell it.
    pub fn trouble(&self) -> Trouble {
        let (hint, fix_input) = (self.hint.clone(), self.exit == Exit::User);
        Trouble { hint, fix_input, ..Trouble::new(&self.message) }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.is_diagnosis {
            write!(f, "error: ")?;
        }
        write!(f, "{}", plain(self.message.trim_end()))?;
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {}", plain(hint)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// The user has to change the recipe.
impl From<Diagnostics> for Failure {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::from(&diagnostics)
    }
}

impl From<&Diagnostics> for Failure {
    fn from(diagnostics: &Diagnostics) -> Self {
        Self { is_diagnosis: true, ..Self::user(diagnostics) }
    }
}

/// What went wrong in another process of the run.
impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        let exit = if trouble.fix_input { Exit::User } else { Exit::Failed };
        Self::new(exit, trouble.message, trouble.hint)
    }
}

/// Without control characters but line ends: a name cannot steer the terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '·' } else { c }).collect()
}

/// Says which file or action an I/O error belongs to.
pub trait Context<T> {
    /// `what` reads like "cannot write `path`".
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| {
            let failure = Failure::failed(format!("{}: {e}", what()));
            match e.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    failure.hint("free some space, then go on with `planaria resume RUN`")
                }
                _ => failure,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_the_terminal() {
        let failure = Failure::user("`\x1b[31mred` does not exist").hint("a\x07b\nc");
        assert_eq!(failure.to_string(), "error: `·[31mred` does not exist\n\nhint: a·b\nc");
    }
}
