//! One file a verb; all terminal text and exit codes.

pub mod check;
