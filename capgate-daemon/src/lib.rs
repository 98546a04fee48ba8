//! capgated.
