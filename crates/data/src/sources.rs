//! The kinds of data: one file for each.

pub mod digits;
