//! A run on many processes, by the real binary: the same bits as in one process, whatever happens
//! to it, and nothing left behind.

mod apart;
#[path = "../binary/mod.rs"]
mod binary;
mod coded;
mod damage;
mod faults;
mod insiders;
mod larger;
mod live;
mod redundant;
mod resuming;
mod same_bits;
mod starting;
mod strangers;
mod surviving;
