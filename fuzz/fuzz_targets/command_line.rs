//! The one string of a command.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Option<bool>, &str)| mcp_workbench::split_command(input.1, input.0));
