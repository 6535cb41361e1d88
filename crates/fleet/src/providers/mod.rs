//! Where machines come from: one file or folder for each kind.
//!
//! # Layout
//! - [`local`]: folders of this machine; the smallest provider, to begin another from
//! - [`ssh`]: machines that are there already, by the OpenSSH client
//! - [`carrier`]: a process whose standard streams are a channel, which both use

pub mod carrier;
pub mod local;
pub mod ssh;
