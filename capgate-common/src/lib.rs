//! What both halves of capgate share: the wire records and sizes that probes and daemon agree on, and
//! with feature `user` everything that needs std: ledger, contract, comparison, protocol, path and address forms.
#![cfg_attr(not(feature = "user"), no_std)]

pub mod event;
pub mod limits;
