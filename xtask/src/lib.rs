//! What the project's tasks share with its tests.

pub mod witnesses;
