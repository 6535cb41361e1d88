//! What two processes, or two versions, must agree on.
//!
//! Owns the words that cross a wire or outlive a process. Never decides anything, and never
//! computes on a tensor.
//!
//! # Layout
//! - [`message`]: what coordinator, servers, workers and consoles say to each other
//! - [`methods`]: what only processes of one training method say, and numbers of coded runs
//! - [`event`]: what happens in a run; [`journal`]: the file `events.jsonl` that keeps it
//! - [`launch`]: what a process is told when it is started
//! - [`clock`]: time, as it is passed in; [`planted`]: faults that tests plant in shells
//! - [`state`]: how far a run has come, as checkpoints keep it
//! - [`link`]: two processes that talk; [`listen`]: who may; `places`: how many may
//!   authenticate at a time; `refusals`: what is logged of refused connections
//! - [`credentials`]: what a process shows to others; [`identity`]: who a certificate says it is;
//!   [`standing`]: whom it believes at this moment; [`tls`]: certificates, and links under them; `trust`:
//!   one of them as it crosses a pipe
//! - [`frame`], [`auth`], [`transport`]: what a link is made of, from its bytes down to the `socket`;
//!   [`gate`]: a way through the controller's connection; `ticks`: how long a stranger may take;
//!   `haste`: how soon a lost packet is missed
//! - [`transfer`]: files of checkpoints and rows of coded runs, on links of their own
//! - [`frame_loss`]: frames that are lost on purpose
//! - [`retry`]: how soon a process tries again to reach another
//! - [`secret`], [`bytes`], [`error`]: what all of these use
//! - [`checkpoint`]: parts, manifests and the folder of them

mod agent;
pub mod auth;
pub mod bytes;
pub mod checkpoint;
pub mod clock;
pub mod credentials;
pub mod error;
pub mod event;
pub mod frame;
pub mod frame_loss;
pub mod gate;
mod haste;
pub mod identity;
pub mod journal;
pub mod launch;
pub mod link;
pub mod listen;
pub mod message;
pub mod methods;
mod outbox;
mod places;
pub mod planted;
mod receiver;
mod refusals;
pub mod retry;
pub mod secret;
mod sender;
mod socket;
pub mod standing;
pub mod state;
mod terms;
mod ticks;
pub mod tls;
pub mod transfer;
pub mod transport;
mod trust;
mod write_half;

pub use credentials::Credentials;
pub use error::Error;
pub use link::{Incoming, Receiver, Sender, Whom, accept, connect, identify};
pub use planaria_store::{durable, hash, plain};
pub use secret::Secret;
