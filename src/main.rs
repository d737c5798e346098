//! The `mcp-workbench` executable.

use std::process::ExitCode;

use mcp_workbench::config::locate::Face;

fn main() -> ExitCode {
    mcp_workbench::core::process::run_shim_if_asked();
    mcp_workbench::cli::main(Face::Workbench)
}
