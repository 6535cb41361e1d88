//! Machines of every provider, by the real binary: one suite that each passes, and what each says
//! when something is wrong.

#[expect(dead_code, reason = "what is shared with tests of one machine is not all used here")]
#[path = "../binary/mod.rs"]
mod binary;
mod conformance;
mod docker;
mod giving_back;
mod hosts;
mod local;
mod ssh;
mod ssh_faults;
mod support;
mod talk;
