//! A server: some blocks of the parameters, their optimizer, and the state.
//!
//! Owns a range of blocks for the length of a run: gathers gradients, finishes the tree over
//! shards, updates, hands the new blocks out, and writes its part of a checkpoint. Never decides
//! when a step counts; the coordinator commits.
//!
//! # Layout
//! - [`region`]: where the values live, so that another process can go on from them
//! - [`chunk`]: a few blocks with their inputs and values, the unit that threads work on
//! - [`store`]: all chunks of a server, and which step is being gathered
//! - [`tally`]: what is not gradients: scores, digests, batch-norm statistics (server 0)
//! - [`server`]: all of it as a value, without links and threads; [`snapshot`]: what it saves
//! - `followers`: who is sent its parameters; `outlet`: where what it says goes
//! - [`part_files`]: its files of checkpoints, where it does not have the run's folder
//! - [`serve`]: the process: sockets, threads and the clock around the value

pub mod chunk;
mod followers;
mod outlet;
pub mod part_files;
pub mod region;
pub mod serve;
pub mod server;
pub mod snapshot;
pub mod store;
pub mod tally;

pub use server::Server;

/// Where log lines go.
pub type Log = std::sync::Arc<dyn Fn(&str) + Send + Sync>;
