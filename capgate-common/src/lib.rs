//! What both halves of capgate share.
#![cfg_attr(not(feature = "user"), no_std)]
