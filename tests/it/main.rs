//! Integration tests: the real executable, real pipes, real processes.

mod fake;
mod harness;
