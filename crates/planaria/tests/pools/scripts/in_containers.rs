//! The same in containers of a real Docker engine.
