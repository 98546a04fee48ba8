//! Ordinary programs keep the strictest contract: what the C library and the host's plumbing do for them does not count.

use std::process::Command;

use crate::{
    absent,
    job::Place,
    project,
    service::{ALICE, ROOT, Service, succeed},
};

/// No connections, and no writes but those of git and Python for themselves.
const CONTRACT: &str = r#"{"allow_net": [], "cpu_budget": 60,
    "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "ignore_writes": [".git/index*", "**/__pycache__/**", ".pytest_cache/**", "$PYTHONPATH/**", "$TMPDIR/**"]}"#;

/// Runs a script of each kind of user under the contract.
fn check_green(place: &Place, service: &Service, script: &str) {
    let contract = place.contract(CONTRACT);
    let site = project::site_of(place);
    let job = place
        .job(service, &["sh", "-e", "-c", script])
        .env("PYTHONPATH", site)
        .env("TMPDIR", place.beside("tmp"))
        .gated(&contract);
    let done = job.start().wait();
    assert_eq!(done.code, 0, "{script}: {}", done.stderr);
    assert!(done.sealed().complete, "{script}: {}", done.stderr);
}

#[test]
fn ordinary_programs_are_green_with_an_empty_allow_net() {
    if absent::skip(
        "ordinary_programs_are_green_with_an_empty_allow_net",
        "pypi",
    )
    .unwrap()
    {
        return;
    }
    let service = Service::start();
    for uid in [ALICE, ROOT] {
        let place = Place::of(uid);
        let root = place.root();
        place.directory("tmp");
        std::fs::create_dir(root.join("tests")).unwrap();
        std::fs::write(
            root.join("tests/test_one.py"),
            "import tempfile, socket, getpass, platform\n\
             def test_one(tmp_path):\n    (tmp_path / 'f').write_text('x')\n    platform.platform()\n",
        )
        .unwrap();
        let git = |words: &[&str]| {
            let mut git = service.command(uid, "git");
            git.args(["-c", "user.name=n", "-c", "user.email=n@example.org"]);
            git.args(["-c", "init.defaultBranch=main"]).args(words);
            succeed(git.current_dir(&root));
        };
        let owner = format!("{uid}:{uid}");
        succeed(Command::new("chown").args(["-R", &owner]).arg(&root));
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-qm", "one"]);
        for script in [
            "ls -l / /tmp >/dev/null",
            "id >/dev/null",
            "id root >/dev/null; getent passwd; whoami || true",
            "tar -c tests | tar -tv >/dev/null",
            "git status >/dev/null",
            "git log --stat >/dev/null",
            "python3 -c 'import getpass, os, pwd; pwd.getpwuid(0); os.path.expanduser(\"~root\")'",
            "/usr/bin/python3 -m pytest -q >&2",
        ] {
            check_green(&place, &service, script);
        }
    }
}
