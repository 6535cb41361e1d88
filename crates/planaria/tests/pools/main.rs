//! Machines of every provider, the real ones: what each must do, and what happens when they do not.

mod docker;
mod support;
