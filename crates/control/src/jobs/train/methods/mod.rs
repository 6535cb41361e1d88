//! What a training method needs of the controller besides processes: a folder for each that needs
//! anything, asked here for every run.

mod coded;

pub use coded::{Source, check, coding};
