//! What a run shows of itself: figures for machines (JSON, TensorBoard) and for people (HTML).
//!
//! Owns how figures are written down. Never trains, and
//! never decides when to write.
//!
//! # Layout
//! - [`report`]: `report.json`; [`html`], [`chart`], [`confusion`], `regression`: the same as a page
//! - [`live`]: `live.html`, a run on many machines while it trains
//! - [`timeline`]: what happened at which step; [`strip`]: who was there
//! - [`scaling`]: `scaling.json` and `scaling.html`, of several runs
//! - [`tensorboard`]: event files

pub mod chart;
pub mod confusion;
pub mod html;
pub mod live;
mod regression;
pub mod report;
pub mod scaling;
pub mod strip;
pub mod tensorboard;
pub mod timeline;
