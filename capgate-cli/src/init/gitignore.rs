//! The ledger is no file to be committed: git is told so.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use capgate_common::{
    gitignored::{CommitRules, GitIgnored, RuleFile},
    pathform::escape,
};

use crate::{output::Output, place, shown::shown};

/// Largest file that is changed, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// What became of it.
#[derive(Debug)]
pub(crate) enum Ignored {
    /// Nothing had to be done: there is no repository, or its rules cover the ledger.
    Already,
    /// This line was added to this file.
    Added(String, PathBuf),
    /// The file was left alone; one phrase why.
    Refused(String),
}

/// Makes git ignore the ledger, by the `.gitignore` at the top of the work tree.
pub(crate) fn add(root: &Path, ledger: &Path) -> Ignored {
    let Ok(Some(top)) = place::git_top(root) else {
        return Ignored::Already;
    };
    let ledger = std::path::absolute(ledger).unwrap_or_else(|_| ledger.to_owned());
    let real = ledger.parent().and_then(|it| fs::canonicalize(it).ok());
    let real = real.zip(ledger.file_name()).map(|(it, name)| it.join(name));
    let Some(Ok(inside)) = real.map(|it| it.strip_prefix(&top).map(Path::to_owned)) else {
        return Ignored::Already;
    };
    let Some(name) = inside.to_str() else {
        return Ignored::Refused("the ledger's name is not UTF-8".to_owned());
    };
    let file = top.join(".gitignore");
    match change(&file, name) {
        Ok(None) => Ignored::Already,
        Ok(Some(line)) => Ignored::Added(line, file),
        Err(cause) => Ignored::Refused(format!("{}: {cause}", shown(&file))),
    }
}

/// Adds a line, unless the file's rules cover the name.
fn change(file: &Path, name: &str) -> io::Result<Option<String>> {
    let mut text = match fs::symlink_metadata(file) {
        // Git does not follow one either.
        Ok(found) if found.is_symlink() => return Err(io::Error::other("it is a symbolic link")),
        Ok(_) => place::read_text(file, MAX_BYTES)?,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => String::new(),
        Err(cause) => return Err(cause),
    };
    let rules = CommitRules {
        files: vec![RuleFile {
            directory: String::new(),
            text: text.clone(),
        }],
        ..CommitRules::default()
    };
    if GitIgnored::new(&rules).is_ok_and(|rules| rules.ignores(&escape(name.as_bytes()))) {
        return Ok(None);
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let line = format!("/{}", pattern(name));
    text.push_str(&line);
    text.push('\n');
    let output = Output::find(".gitignore", file).map_err(io::Error::other)?;
    output.replace(text.as_bytes()).map_err(io::Error::other)?;
    Ok(Some(line))
}

/// A name as git's rules spell it.
fn pattern(name: &str) -> String {
    let mut pattern = String::new();
    for character in name.chars() {
        if matches!(character, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    let trimmed = pattern.trim_end_matches(' ').len();
    let spaces = pattern.split_off(trimmed);
    pattern + &spaces.replace(' ', "\\ ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Ignored, add};

    #[test]
    fn the_line_is_added_once_and_the_rest_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let top = fs::canonicalize(dir.path()).expect("its real name");
        fs::create_dir_all(top.join(".git")).expect("a repository");
        fs::write(top.join(".git/HEAD"), "ref: refs/heads/main\n").expect("its head");
        fs::create_dir(top.join("te sts")).expect("a directory");
        let file = top.join(".gitignore");
        let ledger = top.join("te sts/actual.json");
        fs::write(&file, "*.o").expect("rules");
        assert!(
            matches!(add(&top, &ledger), Ignored::Added(line, _) if line == "/te sts/actual.json")
        );
        let expect = "*.o\n/te sts/actual.json\n";
        assert_eq!(fs::read_to_string(&file).expect("rules"), expect);
        assert!(matches!(add(&top, &ledger), Ignored::Already));
        assert_eq!(fs::read_to_string(&file).expect("rules"), expect);
        // One that lies elsewhere is none of git's business.
        assert!(matches!(
            add(&top, "/tmp/actual.json".as_ref()),
            Ignored::Already
        ));
        fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink("elsewhere", &file).expect("a link");
        assert!(matches!(add(&top, &ledger), Ignored::Refused(_)));
        assert!(!top.join("elsewhere").exists());
    }
}
