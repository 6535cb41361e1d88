//! A machine's sockets: ports that are free, and which processes are connected.
//!
//! Owns what a host has given out. Reads the kernel's tables; never connects anywhere.
//!
//! # Layout
//! - [`ports`]: free ones, and who has the others; [`folder`]: Unix sockets, for this user only
//! - [`interfaces`]: the network's; [`table`]: the kernel's table of sockets, and which processes they belong to

pub mod folder;
mod interfaces;
pub mod ports;
pub mod table;

pub use interfaces::{Interface, interfaces};

#[cfg(test)]
mod tests;
