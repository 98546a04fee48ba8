//! Many short threads: nothing waits for the end of what another one began.

use crate::row::Row;

/// Few enough for an emulated machine.
const THREADS: usize = 500;

pub(crate) fn rows() -> Vec<Row> {
    let names: Vec<String> = (0..THREADS).map(|number| format!("t{number}")).collect();
    vec![
        Row::program("many_short_threads", &format!("threads {THREADS}"))
            .writes(&names.join(" "))
            .net("127.0.0.1:9"),
    ]
}
