//! The user's own script on the machines of a pool.
//!
//! # Layout
//! - [`layout`]: which process goes where; [`variables`]: what each is told; [`decide`]: what its end
//!   means; all pure

pub mod decide;
pub mod layout;
pub mod variables;
