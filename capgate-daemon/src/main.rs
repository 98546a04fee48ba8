//! Placeholder until its room is built.
fn main() {}
