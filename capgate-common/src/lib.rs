//! What both halves of capgate share: the wire records and sizes that probes and daemon agree on, and
//! with feature `user` everything that needs std: ledger, contract, comparison, protocol, path and address forms.
#![cfg_attr(not(feature = "user"), no_std)]

#[cfg(feature = "user")]
pub mod address;
#[cfg(feature = "user")]
pub mod capability;
#[cfg(feature = "user")]
pub mod change;
#[cfg(feature = "user")]
pub mod compare;
#[cfg(feature = "user")]
pub mod contract;
pub mod enforce;
#[cfg(feature = "user")]
pub mod escapes;
pub mod event;
#[cfg(feature = "user")]
pub mod evidence;
#[cfg(feature = "user")]
pub mod finding;
#[cfg(feature = "user")]
pub mod gitignored;
#[cfg(feature = "user")]
pub mod glob;
#[cfg(feature = "user")]
pub mod hostname;
#[cfg(feature = "user")]
pub mod ledger;
pub mod limits;
#[cfg(feature = "user")]
pub mod netpattern;
#[cfg(feature = "user")]
pub mod outcome;
#[cfg(feature = "user")]
pub mod pathform;
#[cfg(feature = "user")]
pub mod protocol;
#[cfg(feature = "user")]
pub mod rules;
#[cfg(feature = "user")]
pub mod scrub;
#[cfg(feature = "user")]
pub mod suite;
#[cfg(feature = "user")]
pub mod verdict;
