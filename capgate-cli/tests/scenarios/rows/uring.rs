//! What is done by io_uring, without a system call of its own.

use crate::{
    cells::{BEFORE_6_3, SINCE_6_3},
    row::{Row, incomplete},
};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (plain, polled, operation) in [
        (
            "open_and_write_by_a_ring",
            "open_and_write_by_a_polled_ring",
            "open",
        ),
        ("rename_by_a_ring", "rename_by_a_polled_ring", "rename"),
        ("unlink_by_a_ring", "unlink_by_a_polled_ring", "unlink"),
        ("mkdir_by_a_ring", "mkdir_by_a_polled_ring", "mkdir"),
    ] {
        let writes = match operation {
            "open" => "opened",
            "rename" => "from to",
            "unlink" => "from",
            _ => "made/f",
        };
        for (name, suffix) in [(plain, ""), (polled, " polled")] {
            let given = if matches!(operation, "rename" | "unlink") {
                "from"
            } else {
                ""
            };
            rows.push(
                Row::program(name, &format!("uring {operation}{suffix}"))
                    .given(given)
                    .writes(writes)
                    .tracepoint(incomplete("io_uring")),
            );
        }
    }
    for (plain, polled, operation) in [
        ("connect_by_a_ring", "connect_by_a_polled_ring", "connect"),
        ("sendmsg_by_a_ring", "sendmsg_by_a_polled_ring", "sendmsg"),
    ] {
        // The entry is there in both sets, but what a ring connects to may be no address: the tracepoint set does not tell.
        for (name, suffix) in [(plain, ""), (polled, " polled")] {
            rows.push(
                Row::program(name, &format!("uring {operation}{suffix}"))
                    .net("127.0.0.1:9")
                    .tracepoint(incomplete("io_uring")),
            );
        }
    }
    rows.push(Row::program("a_ring_alone_is_nothing", "uring nop").cells(SINCE_6_3));
    rows.push(
        Row::program("a_ring_alone_on_an_older_kernel", "uring nop")
            .cells(BEFORE_6_3)
            .tracepoint(incomplete("io_uring")),
    );
    rows
}
