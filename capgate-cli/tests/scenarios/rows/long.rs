//! Long names: exact, or said to be cut. Never a cut one as a real one.

use crate::row::Row;

/// The name of what `deep` makes.
fn deep(components: usize, length: usize) -> String {
    format!("{}/", "d".repeat(length)).repeat(components) + "f"
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::program("one_hundred_and_fifty_directories", "deep 150 1").writes(&deep(150, 1)),
        Row::program("components_of_255_bytes", "deep 3 255").writes(&deep(3, 255)),
        Row::sh(
            "a_name_of_3600_bytes_in_one_call",
            &format!("echo x > {}", deep(15, 239)),
        )
        .outside(|site| {
            let name = deep(15, 239);
            site.directory(&format!("repo/{}", name.trim_end_matches("/f")));
        })
        .writes(&deep(15, 239)),
        Row::program("a_path_beyond_4096_bytes", "deep 20 250").writes(&deep(20, 250)),
        Row::program("a_path_beyond_what_a_record_holds", "deep 40 250")
            .writes("")
            .incomplete("damaged"),
        Row::program("six_hundred_directories", "deep 600 1").writes(&deep(600, 1)),
    ]
}
