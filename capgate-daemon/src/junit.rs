//! Test results in JUnit's XML form, as a job leaves them in its root. The job wrote them, so they are read with bounds, and
//! what they say is a claim.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::BorrowedFd,
};

use capgate_common::suite::{Counted, Tests};
use quick_xml::{Reader, events::Event};
use rustix::{
    fs::{self, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// Largest file that is read, in bytes.
pub const MAX_BYTES: u64 = 16 << 20;

/// The elements that a file of results may begin with.
const TOPS: [&str; 2] = ["testsuites", "testsuite"];

/// Why results cannot be counted: the end of a sentence. The same file gives the same words, since they are sealed.
#[derive(Debug, thiserror::Error)]
pub enum JunitError {
    /// Nothing there.
    #[error("there is no such file")]
    Missing,
    /// A link on the way, or a way out of the root.
    #[error("its path leads out of the root or over a symbolic link")]
    Elsewhere,
    /// A directory, a fifo, a device.
    #[error("it is not a file")]
    NotFile,
    /// Larger than [`MAX_BYTES`].
    #[error("it has more than {} MiB", MAX_BYTES >> 20)]
    TooLarge,
    /// It cannot be read.
    #[error("it cannot be read ({0})")]
    Io(io::ErrorKind),
    /// It is no such file.
    #[error("it is no XML of test results: {0}")]
    Malformed(&'static str),
}

/// Reads and counts the file at `path` below `root`.
#[must_use]
pub fn read(root: BorrowedFd<'_>, path: &str) -> Tests {
    match text(root, path).and_then(|text| count(&text)) {
        Ok(counted) => Tests::Counted(counted),
        Err(error) => Tests::Unreadable {
            unreadable: error.to_string(),
        },
    }
}

fn text(root: BorrowedFd<'_>, path: &str) -> Result<Vec<u8>, JunitError> {
    // A fifo must not keep the daemon waiting for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let ways = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file =
        fs::openat2(root, path, flags, Mode::empty(), ways).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => JunitError::Missing,
            Errno::LOOP | Errno::XDEV => JunitError::Elsewhere,
            // A socket, and a device without a driver.
            Errno::NXIO => JunitError::NotFile,
            errno => JunitError::Io(io::Error::from(errno).kind()),
        })?;
    let stat = fs::fstat(&file).map_err(|errno| JunitError::Io(io::Error::from(errno).kind()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(JunitError::NotFile);
    }
    let mut text = Vec::new();
    File::from(file)
        .take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|error| JunitError::Io(error.kind()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(JunitError::TooLarge);
    }
    Ok(text)
}

/// A `testcase` element that is open.
struct Case {
    /// How many elements are around its children.
    depth: usize,
    failed: bool,
    skipped: bool,
}

/// Counts each `testcase` of a file, in however many suites.
///
/// # Errors
/// When it is no such file, or ends too early.
pub fn count(text: &[u8]) -> Result<Counted, JunitError> {
    let mut reader = Reader::from_reader(text);
    let mut counted = Counted::default();
    let mut depth: usize = 0;
    let mut case: Option<Case> = None;
    let mut begun = false;
    loop {
        let event = reader
            .read_event()
            .map_err(|_| JunitError::Malformed("it is not well-formed"))?;
        let (element, empty) = match &event {
            Event::Start(element) => (element, false),
            Event::Empty(element) => (element, true),
            Event::End(_) => {
                if case.as_ref().is_some_and(|case| case.depth == depth)
                    && let Some(case) = case.take()
                {
                    add(&mut counted, &case);
                }
                depth = depth.saturating_sub(1);
                continue;
            }
            Event::Eof if depth > 0 => return Err(JunitError::Malformed("it ends too early")),
            Event::Eof if !begun => return Err(JunitError::Malformed("it has no element")),
            Event::Eof => return Ok(counted),
            _ => continue,
        };
        let name = element.local_name();
        if depth == 0 {
            if begun || !TOPS.contains(&name.as_ref()) {
                return Err(JunitError::Malformed("it has no testsuites or testsuite"));
            }
            begun = true;
        }
        match (name.as_ref(), &mut case) {
            ("testcase", None) => {
                case = Some(Case {
                    depth: depth + 1,
                    failed: false,
                    skipped: false,
                });
            }
            ("testcase", Some(_)) => {
                return Err(JunitError::Malformed("a testcase is inside another"));
            }
            ("failure" | "error", Some(case)) if case.depth == depth => case.failed = true,
            ("skipped", Some(case)) if case.depth == depth => case.skipped = true,
            _ => {}
        }
        if !empty {
            depth += 1;
        } else if case.as_ref().is_some_and(|case| case.depth == depth + 1)
            && let Some(case) = case.take()
        {
            add(&mut counted, &case);
        }
    }
}

fn add(counted: &mut Counted, case: &Case) {
    let (run, failed, skipped) = match case {
        Case { failed: true, .. } => (1, 1, 0),
        Case { skipped: true, .. } => (0, 0, 1),
        Case { .. } => (1, 0, 0),
    };
    counted.run += run;
    counted.failed += failed;
    counted.skipped += skipped;
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsFd, unix::fs::symlink};

    use super::*;

    fn check(text: &str, expect: Result<(u64, u64, u64), &str>) {
        let got = count(text.as_bytes())
            .map(|it| (it.run, it.failed, it.skipped))
            .map_err(|error| error.to_string());
        let expect = expect.map_err(|why| format!("it is no XML of test results: {why}"));
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn every_testcase_counts_once() {
        check("<testsuite/>", Ok((0, 0, 0)));
        check(
            r#"<?xml version="1.0"?><testsuites><testsuite tests="99">
               <testcase name="a"/><testcase name="b"></testcase>
               <testcase name="c"><skipped message="x"/></testcase>
               <testcase name="d"><failure>no</failure><system-out>&lt;skipped/></system-out></testcase>
               <testcase name="e"><error/><skipped/></testcase></testsuite>
               <testsuite><testsuite><testcase><skipped>why</skipped></testcase></testsuite></testsuite>
               </testsuites>"#,
            Ok((4, 2, 2)),
        );
    }

    #[test]
    fn only_a_child_of_a_testcase_says_what_came_of_it() {
        check(
            "<testsuite><skipped/><testcase><properties><skipped/><failure/></properties></testcase></testsuite>",
            Ok((1, 0, 0)),
        );
        check(
            "<testsuite><testcase><system-out><![CDATA[<skipped/>]]></system-out></testcase><!-- <testcase/> --></testsuite>",
            Ok((1, 0, 0)),
        );
    }

    #[test]
    fn what_is_no_file_of_results_is_told() {
        check("", Err("it has no element"));
        check("ran 110 tests", Err("it has no element"));
        check("<html/>", Err("it has no testsuites or testsuite"));
        check(
            "<testsuite/><testsuite/>",
            Err("it has no testsuites or testsuite"),
        );
        check("<testsuite><testcase/>", Err("it ends too early"));
        check("<testsuite></testcase>", Err("it is not well-formed"));
        check("<testsuite><testcase", Err("it is not well-formed"));
        check(
            "<testsuite><testcase><testcase/></testcase></testsuite>",
            Err("a testcase is inside another"),
        );
    }

    #[test]
    fn a_file_is_read_in_the_root_and_nowhere_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        let inside = |name: &str| root.join(name);
        std::fs::create_dir_all(inside("build")).expect("directories");
        let text = "<testsuite><testcase/></testsuite>";
        std::fs::write(inside("build/out.xml"), text).expect("a file");
        std::fs::write(directory.path().join("out.xml"), text).expect("a file");
        symlink("build/out.xml", inside("link.xml")).expect("a link");
        symlink("build", inside("linked")).expect("a link");
        symlink("/", inside("top")).expect("a link");
        let large = File::create(inside("large.xml")).expect("a file");
        large.set_len(MAX_BYTES + 1).expect("a hole");
        nix::unistd::mkfifo(&inside("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        let descriptor = File::open(&root).expect("the root");
        for (path, expect) in [
            ("build/out.xml", ""),
            ("missing.xml", "there is no such file"),
            ("link.xml", "its path leads out"),
            ("linked/out.xml", "its path leads out"),
            ("top/out.xml", "its path leads out"),
            ("../out.xml", "its path leads out"),
            ("build", "it is not a file"),
            ("fifo", "it is not a file"),
            ("large.xml", "it has more than 16 MiB"),
        ] {
            let said = match read(descriptor.as_fd(), path) {
                Tests::Counted(counted) => {
                    assert_eq!(counted.run, 1);
                    String::new()
                }
                Tests::Unreadable { unreadable } => unreadable,
            };
            assert!(
                said.starts_with(expect) && expect.is_empty() == said.is_empty(),
                "{path}: {said}"
            );
        }
    }
}
