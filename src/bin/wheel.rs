//! The `mcp-workbench` executable once more, under the name of the wheel.

use std::process::ExitCode;

use mcp_workbench::Face;

fn main() -> ExitCode {
    mcp_workbench::run_shim_if_asked();
    mcp_workbench::main(Face::Workbench)
}
