//! The lock file of both faces: whatever it holds, it is read or its fault has a place in it; what was read is written and
//! read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mcp_workbench::{LockForm, read_lock};

fuzz_target!(|text: &str| {
    for form in [LockForm::Toolboxes, LockForm::Namespaces] {
        match read_lock(form, text) {
            Ok(written) => assert_eq!(read_lock(form, &written).expect("what was written can be read"), written),
            Err(span) => assert!(text.get(span).is_some(), "the fault has a place"),
        }
    }
});
