//! The `mcp-workbench` executable.
fn main() {
    mcp_workbench::core::process::run_shim_if_asked();
}
