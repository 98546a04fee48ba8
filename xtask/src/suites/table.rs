//! The page with the suites' digests.

use std::collections::BTreeMap;

use super::{INIT_RUNS, Row, SUITES};

const HEAD: &str = "# Digests of real suites

`cargo xtask suites` writes this page. Each suite gets a contract from `capgate init --runs RUNS` in a fresh checkout, and is then held to it eight
times: in two directories, by two users, with a cold and a warm cache each. One digest means that no run wrote anything else than another.
*Transient* are names that came and went in the last run.

| suite | run by | digest | names | patterns | transient | kept |
|---|---|---|---|---|---|---|
";

/// The page with one row more, or another one in its place; the others are those of the old page. In the order of the suites.
pub(crate) fn page(old: &str, row: &Row) -> String {
    let name = |line: &str| -> Option<String> {
        let name = line.strip_prefix("| ")?.split(' ').next()?;
        SUITES
            .iter()
            .any(|suite| suite.name == name)
            .then(|| name.to_owned())
    };
    let kept = old
        .lines()
        .filter_map(|line| Some((name(line)?, format!("{line}\n"))));
    let mut lines: BTreeMap<String, String> = kept.collect();
    lines.insert(row.name.to_owned(), line(row));
    let lines = SUITES.iter().filter_map(|suite| lines.remove(suite.name));
    HEAD.replace("RUNS", INIT_RUNS) + &lines.collect::<String>()
}

fn line(row: &Row) -> String {
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
    format!(
        "| {} | `{}` | {} | {} | {} | {} | {} of {} |\n",
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
    )
}

#[cfg(test)]
mod tests {
    use super::{Row, page};

    fn row(name: &'static str, names: usize) -> Row {
        Row {
            name,
            script: "a | b",
            digests: vec!["0123456789abcdef".to_owned()],
            names,
            patterns: vec!["**/c/**".to_owned()],
            transient: 3,
            kept: 8,
            runs: 8,
        }
    }

    #[test]
    fn rows_come_one_by_one_and_stand_in_order() {
        let first = page("", &row("pluggy-1.7.0", 2));
        let line = "| pluggy-1.7.0 | `a \\| b` | 0123456789ab | 2 | `**/c/**` | 3 | 8 of 8 |\n";
        assert!(first.ends_with(&format!("|---|\n{line}")), "{first}");
        assert!(first.contains("init --runs 3"), "{first}");
        let both = page(&first, &row("attrs-26.1.0", 1));
        assert!(
            both.ends_with(line) && both.contains("| attrs-26.1.0 |"),
            "{both}"
        );
        assert_eq!(page(&both, &row("pluggy-1.7.0", 2)), both);
        let changed = page(&both, &row("pluggy-1.7.0", 4));
        assert!(
            changed.contains("| 4 |") && !changed.contains("| 2 |"),
            "{changed}"
        );
    }
}
