//! Which file is meant.
