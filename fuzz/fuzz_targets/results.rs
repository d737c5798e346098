//! A long result and the arguments of `read_result`: a line of arguments, then what the upstream sent. What is read fits its
//! limit and is a part of the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mcp_workbench::read_long_result;

fuzz_target!(|text: &str| {
    if let Some((arguments, result)) = text.split_once('\n') {
        read_long_result(arguments, result);
    }
});
