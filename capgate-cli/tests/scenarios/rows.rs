//! All rows, by area.

use crate::row::Row;

mod execs;
mod long;
mod network;
mod paths;
mod races;

/// Every row, by the name of its area.
pub(crate) fn all() -> Vec<(&'static str, Vec<Row>)> {
    vec![
        ("paths", paths::rows()),
        ("long", long::rows()),
        ("races", races::rows()),
        ("execs", execs::rows()),
        ("network", network::rows()),
    ]
}
