//! Integration tests.

#[cfg(target_os = "linux")]
mod process;
