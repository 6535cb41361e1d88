//! Users' own scripts with the real frameworks, unchanged, on hosts and in containers: each to its
//! accuracy, with a process killed on the way, and with a machine lost.
//!
//! # Layout
//! - `kinds`: one script of each framework, as `examples` has it
//! - `on_hosts`, `in_containers`: all of them on real sshd hosts and with a real Docker engine
//! - `wrong`: what a user can get wrong, and what is said

mod in_containers;
mod kinds;
mod on_hosts;
mod wrong;
