//! Where machines come from: one file or folder for each kind.
//!
//! # Layout
//! - [`local`]: folders of this machine; the smallest provider, to begin another from
//! - [`ssh`]: machines that are there already, by the OpenSSH client
//! - [`docker`]: containers on one engine
//! - [`dialled`]: machines that call by themselves, of a detached run
//! - [`carrier`]: a process whose standard streams are a channel, which the first two use

pub mod carrier;
pub mod dialled;
pub mod docker;
pub mod local;
pub mod ssh;
