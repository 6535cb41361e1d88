//! Machines of every provider, by the real binary: one suite that each passes, and what each says
//! when something is wrong.

mod conformance;
mod docker;
mod hosts;
mod local;
mod ssh;
mod ssh_faults;
mod support;
mod talk;
