//! The scripted fake upstream.
fn main() {}
