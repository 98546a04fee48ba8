//! With the real daemon.

mod gate;
mod service;
mod stream;
mod wrapper;
