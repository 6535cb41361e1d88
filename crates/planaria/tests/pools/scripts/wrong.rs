//! What a user can get wrong, and what is said.
