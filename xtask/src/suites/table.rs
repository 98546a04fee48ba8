//! The page with the suites' digests.

use std::fmt::Write as _;

use super::{INIT_RUNS, Row};

const HEAD: &str = "# Digests of real suites

`cargo xtask suites` writes this page. Each suite gets a contract from `capgate init --runs RUNS` in a fresh checkout, and is then held to it eight
times: in two directories, by two users, with a cold and a warm cache each. One digest means that no run wrote anything else than another.
*Transient* are names that came and went in the last run.

| suite | run by | digest | names | patterns | transient | kept |
|---|---|---|---|---|---|---|
";

/// The page.
pub(crate) fn page(rows: &[Row]) -> String {
    let mut page = HEAD.replace("RUNS", INIT_RUNS);
    for row in rows {
        let digests: Vec<&str> = row
            .digests
            .iter()
            .map(|it| it.get(..12).unwrap_or(it))
            .collect();
        let patterns: Vec<String> = row
            .patterns
            .iter()
            .map(|it| format!("`{}`", it.replace('|', "\\|")))
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| {} | `{}` | {} | {} | {} | {} | {} of {} |",
            row.name,
            row.script.replace('|', "\\|"),
            digests.join(", "),
            row.names,
            if patterns.is_empty() {
                "none".to_owned()
            } else {
                patterns.join(" ")
            },
            row.transient,
            row.kept,
            row.runs
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::{Row, page};

    #[test]
    fn a_row_tells_all() {
        let page = page(&[Row {
            name: "x-1",
            script: "a | b",
            digests: vec!["0123456789abcdef".to_owned()],
            names: 2,
            patterns: vec!["**/c/**".to_owned()],
            transient: 3,
            kept: 8,
            runs: 8,
        }]);
        assert!(
            page.ends_with("| x-1 | `a \\| b` | 0123456789ab | 2 | `**/c/**` | 3 | 8 of 8 |\n"),
            "{page}"
        );
        assert!(page.contains("init --runs 3"), "{page}");
    }
}
