//! All rows, by area.

use crate::row::Row;

mod enforcement;
mod escapes;
mod execs;
mod filesystems;
mod long;
mod lookups;
mod names;
mod namespaces;
mod network;
mod paths;
mod races;
mod refused;
mod threads;
mod uring;

/// Every row, by the name of its area.
pub(crate) fn all() -> Vec<(&'static str, Vec<Row>)> {
    vec![
        ("paths", paths::rows()),
        ("long", long::rows()),
        ("names", names::rows()),
        ("races", races::rows()),
        ("uring", uring::rows()),
        ("namespaces", namespaces::rows()),
        ("filesystems", filesystems::rows()),
        ("threads", threads::rows()),
        ("execs", execs::rows()),
        ("escapes", escapes::rows()),
        ("network", network::rows()),
        ("lookups", lookups::rows()),
        ("enforcement", enforcement::rows()),
        ("refused", refused::rows()),
    ]
}
