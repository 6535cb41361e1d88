//! Kinds of job, and what they share.
//!
//! A kind is a folder: which processes there are, what each is told, and what their ends mean.
//! Getting machines, watching over processes, stopping and giving back are the same for all. Never
//! prints.
//!
//! # Layout
//! - [`about`]: what commands say of a job, and which of them are not for it
//! - [`controller`]: the loop around the machines and processes of any kind
//! - [`train`]: a network or a linear model, on one process or many
//! - [`script`]: the user's own script on the machines of a pool
//! - [`pooling`]: what a pool is made of, and how its machines meet the others; `steps`: what is told
//!   of their set-up

pub mod about;
pub mod controller;
pub mod pooling;
pub mod script;
mod steps;
pub mod train;

use planaria_fleet::provider::Provider;
use std::sync::Arc;

/// Machines that are there already.
#[derive(Clone)]
pub struct Machines {
    pub provider: Arc<dyn Provider>,
    /// The one that this process is on.
    pub own: String,
}

impl std::fmt::Debug for Machines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Machines({})", self.provider.name())
    }
}
