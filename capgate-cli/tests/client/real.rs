//! With the real daemon.

mod capability;
mod gate;
mod service;
mod stream;
mod wrapper;
