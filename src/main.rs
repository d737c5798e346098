//! The `mcp-workbench` executable.

use std::process::ExitCode;

use mcp_workbench::FaceKind;

fn main() -> ExitCode {
    mcp_workbench::run_shim_if_asked();
    mcp_workbench::main(FaceKind::Workbench)
}
