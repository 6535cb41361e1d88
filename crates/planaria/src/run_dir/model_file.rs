//! The trained network as files.
