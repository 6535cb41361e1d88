//! What can go wrong, by what the caller must do about it.

/// Errors of networks and training.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The layers do not fit together: fix the recipe.
    #[error("{0}")]
    Shape(String),
    /// Saved weights belong to another network: fix the input.
    #[error("{0}")]
    Mismatch(String),
    /// An engine cannot compute here, or not this network: do as the hint says.
    #[error("the engine `{engine}` {why}: {hint}")]
    Engine {
        engine: &'static str,
        /// Such as `finds no device on this machine`.
        why: String,
        hint: String,
    },
    /// Training has run away: stop.
    #[error("{what} is {value} at step {step}")]
    NotFinite {
        /// What is not a finite number.
        what: &'static str,
        value: f64,
        /// At which step.
        step: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_lacks_is_said_with_what_to_do() {
        let why = "finds no device on this machine".into();
        let error = Error::Engine { engine: "toy", why, hint: "plug one in".into() };
        let text = "the engine `toy` finds no device on this machine: plug one in";
        assert_eq!(error.to_string(), text);
    }
}
