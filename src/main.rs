//! The `mcp-workbench` executable.
fn main() {}
