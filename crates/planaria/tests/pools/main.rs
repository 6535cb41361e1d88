//! Machines of every provider, by the real binary: one suite that each passes, and what each says
//! when something is wrong.

#[path = "../binary/mod.rs"]
mod binary;
mod coded;
mod conformance;
mod data_there;
mod detached;
mod docker;
mod failing;
mod given_hosts;
mod giving_back;
mod growing;
mod hosts;
mod killed;
mod local;
mod runs;
mod scripts;
mod secrets;
mod ssh;
mod ssh_faults;
mod stolen;
mod strangers;
mod support;
mod talk;
