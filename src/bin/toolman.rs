//! The `toolman` executable.
fn main() {}
