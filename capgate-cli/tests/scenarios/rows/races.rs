//! Threads that rewrite a name while the kernel reads it.

use std::os::unix::net::UnixListener;

use crate::row::{Row, excluded};

/// The set reads the string when the call ends.
const RACE: &str = "it is not race-free (docs/limits.md)";

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::program("a_name_that_flips_while_it_is_opened", "flip open")
            .given("real")
            .writes("real")
            .tracepoint(excluded(RACE)),
        Row::program("a_name_that_flips_while_it_is_removed", "flip unlink")
            .given("real")
            .writes("real")
            .tracepoint(excluded(RACE)),
        Row::program("a_name_that_flips_while_it_is_renamed", "flip rename")
            .given("real")
            // What was renamed to `moved` and back is there no more: a name that nobody knew before counts as its directory.
            .writes("real *")
            .tracepoint(excluded(RACE)),
        Row::program(
            "an_address_that_flips_while_it_is_connected_to",
            "flip connect",
        )
        .outside(|site| UnixListener::bind(site.path("repo/real")).unwrap())
        .net("unix:./real")
        .tracepoint(excluded(RACE)),
    ]
}
