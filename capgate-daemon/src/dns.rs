//! What a job asks its resolvers and what they answer.

pub mod configured;
#[cfg(test)]
pub(crate) mod craft;
pub mod lookups;
pub mod message;
pub mod streams;
