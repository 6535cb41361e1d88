//! Text between people and programs: the figures in what a script writes, numbers as people read them,
//! and colours and widths on a terminal.
//!
//! Every line that a script prints goes through here, so this crate is optimised where its users are
//! not. Pure: text in, text or values out. Never reads, writes or asks the time.
//!
//! # Layout
//! - [`figures`]: the numbers in what a script writes
//! - [`number`]: numbers as people read them
//! - [`paint`]: text with colours

pub mod figures;
pub mod number;
pub mod paint;
