//! The `mcp-workbench` executable once more, under the name of the wheel.

use std::process::ExitCode;

use mcp_workbench::config::locate::Face;

fn main() -> ExitCode {
    mcp_workbench::core::process::run_shim_if_asked();
    mcp_workbench::cli::main(Face::Workbench)
}
