//! Machines of every provider, by the real binary: one suite that each passes, and what each says
//! when something is wrong.

#[path = "../binary/mod.rs"]
mod binary;
mod conformance;
mod detached;
mod docker;
mod giving_back;
mod hosts;
mod local;
mod ssh;
mod ssh_faults;
mod support;
mod talk;
