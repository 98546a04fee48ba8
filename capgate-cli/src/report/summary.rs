//! The summary of a step of a GitHub workflow: a file of Markdown that the runner names, and shows on the run's page.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use crate::shown::shown;

/// The variable with the file's path.
const VARIABLE: &str = "GITHUB_STEP_SUMMARY";
/// GitHub shows no summary of a step that is longer, in bytes.
const LIMIT: u64 = 1 << 20;
/// What stands in the place of what is left out.
const CUT: &str = "\n\n(The rest is in the files: a summary is bounded.)\n";

/// The file, opened before anything of the job runs: what the job puts at its place later is not written to.
#[derive(Debug)]
pub(crate) struct StepSummary {
    file: File,
    path: PathBuf,
}

/// A summary that cannot be written. It decides nothing, so a caller says so and goes on.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the job summary to {path}, which {VARIABLE} names: {cause}")]
pub(crate) struct SummaryError {
    path: String,
    cause: io::Error,
}

impl StepSummary {
    /// The file that the runner names; `None` where there is no such runner.
    ///
    /// # Errors
    /// When it cannot be opened, or is no regular file.
    pub(crate) fn find() -> Result<Option<Self>, SummaryError> {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        path.map(|path| Self::open(path.into())).transpose()
    }

    fn open(path: PathBuf) -> Result<Self, SummaryError> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            // A fifo must not keep us waiting for a reader.
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(&path)
            .and_then(|file| match file.metadata()?.is_file() {
                true => Ok(file),
                false => Err(io::Error::other("it is not a file")),
            });
        match file {
            Ok(file) => Ok(Self { file, path }),
            Err(cause) => Err(SummaryError {
                path: shown(&path),
                cause,
            }),
        }
    }

    /// Adds a report behind what is there, as far as there is room.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn append(mut self, markdown: &str) -> Result<(), SummaryError> {
        let written = self.file.metadata().and_then(|metadata| {
            let room = LIMIT.saturating_sub(metadata.len());
            let text = bounded(markdown, usize::try_from(room).unwrap_or(usize::MAX));
            self.file.write_all(text.as_bytes())
        });
        written.map_err(|cause| SummaryError {
            path: shown(&self.path),
            cause,
        })
    }
}

/// As many whole lines as there is room for: no line of a report needs the next one.
fn bounded(markdown: &str, room: usize) -> String {
    if markdown.len() <= room {
        return markdown.to_owned();
    }
    let Some(room) = room.checked_sub(CUT.len()) else {
        return String::new();
    };
    let end = markdown.as_bytes()[..room]
        .iter()
        .rposition(|&byte| byte == b'\n');
    format!("{}{CUT}", &markdown[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{CUT, LIMIT, StepSummary, bounded};

    #[test]
    fn a_report_is_cut_at_the_end_of_a_line() {
        assert_eq!(bounded("a\nb\n", 4), "a\nb\n");
        let long = "é line\n".repeat(100);
        let cut = bounded(&long, 200);
        assert!(cut.len() <= 200 && cut.ends_with(CUT), "{cut}");
        assert!(
            cut.trim_end_matches(CUT)
                .lines()
                .all(|line| line == "é line")
        );
        assert_eq!(bounded(&long, 3), "");
    }

    #[test]
    fn summaries_follow_each_other_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("summary");
        fs::write(&path, "before\n").unwrap();
        let append = |text: &str| {
            StepSummary::open(path.clone())
                .unwrap()
                .append(text)
                .unwrap();
        };
        append("one\n");
        append("two\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\none\ntwo\n");
        append(&"x\n".repeat(1 << 20));
        let length = fs::metadata(&path).unwrap().len();
        assert!((LIMIT - 4..=LIMIT).contains(&length), "{length}");
        append("no room\n");
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
    }

    #[test]
    fn what_is_no_file_is_refused_and_a_later_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let refused = StepSummary::open(dir.path().to_owned()).unwrap_err();
        assert!(refused.to_string().contains("cannot write the job summary"));
        let (path, victim) = (dir.path().join("summary"), dir.path().join("victim"));
        fs::write(&victim, "mine").unwrap();
        let summary = StepSummary::open(path.clone()).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        summary.append("text").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
        assert!(StepSummary::open(path).is_err());
    }
}
