//! What a run in one process survives, and how that is proved and put to the test.

#[path = "../binary/mod.rs"]
mod binary;

mod audit;
mod chaos;
mod storage;
