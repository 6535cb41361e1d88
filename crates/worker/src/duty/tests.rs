//! Of duty.
