//! A second and a third look at what a job did: the system calls that strace saw inside it, and the file system before and
//! after. Nothing here knows a probe; what capgate says is compared with what they say.

pub mod judge;
pub mod story;
pub mod strace;
pub mod tree;
pub mod walk;
