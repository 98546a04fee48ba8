//! A real git repository, for tests that read commits.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Git in a directory, without any configuration but the repository's own.
pub(crate) fn git_in(directory: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(directory)
        .args(["-c", "user.name=a", "-c", "user.email=a@example.org"])
        .args(["-c", "init.defaultBranch=main"])
        .args(["-c", "protocol.file.allow=always"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let output = git.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

/// A work tree with commits.
pub(crate) struct Repository {
    top: PathBuf,
}

impl Repository {
    /// A new one, at a directory that is there or not.
    pub(crate) fn init(top: &Path) -> Self {
        fs::create_dir_all(top).unwrap();
        git_in(top, &["init", "--quiet"]);
        Self {
            top: top.to_owned(),
        }
    }

    /// A clone, with these options.
    pub(crate) fn clone(&self, to: &Path, options: &[&str]) -> Self {
        let url = format!("file://{}", self.top.display());
        let mut arguments = vec!["clone", "--quiet"];
        arguments.extend(options);
        let target = to.display().to_string();
        arguments.extend([url.as_str(), target.as_str()]);
        git_in(&self.top, &arguments);
        Self { top: to.to_owned() }
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git_in(&self.top, arguments)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Commits all that is there, ignored or not, and comes back with the commit's name.
    pub(crate) fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all", "--force"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }
}
