//! Variables in a string: faults stand inside it, values arrive whole and are not expanded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mcp_workbench::expand;

fuzz_target!(|text: &str| {
    let value = "${HOME} $${X} \u{fc}";
    let expansion = expand(text, &|name| (name == "HOME").then(|| value.to_owned()));
    for fault in &expansion.faults {
        assert!(text[fault.range.clone()].starts_with("${"));
    }
    for (name, found) in &expansion.variables {
        assert_eq!((name.as_str(), found.as_str()), ("HOME", value));
    }
    if !text.contains('$') {
        assert_eq!(expansion.text, text);
    }
});
