//! What commands say of a training.

use crate::jobs::about::{About, Command, Refusal};

pub struct Train;

impl About for Train {
    fn stopping(&self) -> &'static str {
        "finishing this step, then saving; Ctrl-C again quits without saving"
    }

    fn quit(&self, path: &str) -> String {
        format!("quit without saving; {} goes on from the last checkpoint", self.again(path))
    }

    fn stops(&self) -> &'static str {
        "is saving and stops"
    }

    fn again(&self, path: &str) -> String {
        format!("planaria resume {path}")
    }

    fn owner(&self) -> &'static str {
        "a training's"
    }

    fn refuses(&self, _: Command, _: &str) -> Option<Refusal> {
        None
    }
}
