//! Ordinary programs keep the strictest contract: what the C library and the host's plumbing do for them does not count.

use std::{fs, path::Path, process::Command};

use crate::{
    absent,
    job::Place,
    project,
    service::{ALICE, ROOT, Service, succeed},
};

/// No connections, and no writes but those of git, Python, cargo and make for themselves.
const CONTRACT: &str = r#"{"allow_net": [], "cpu_budget": 60,
    "writes": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "ignore_writes": [".git/index*", "**/__pycache__/**", ".pytest_cache/**", "target/**", "Cargo.lock", "build/**", "$PYTHONPATH/**", "$TMPDIR/**"]}"#;

/// A small project for every tool.
const FILES: [(&str, &str); 5] = [
    (
        "tests/test_one.py",
        "import tempfile, socket, getpass, platform\n\
         def test_one(tmp_path):\n    (tmp_path / 'f').write_text('x')\n    platform.platform()\n",
    ),
    ("one.c", "int main(void) { return 0; }\n"),
    (
        "Makefile",
        "all:\n\tmkdir -p build\n\tcc -o build/one one.c\n\tbuild/one\n",
    ),
    (
        "Cargo.toml",
        "[package]\nname = \"one\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    ),
    ("src/main.rs", "fn main() {}\n"),
];

/// Runs a script of each kind of user under the contract.
fn check_green(place: &Place, service: &Service, site: &Path, script: &str) {
    let contract = place.contract(CONTRACT);
    let tmp = place.beside("tmp");
    let job = place
        .job(service, &["sh", "-e", "-c", script])
        .env("PYTHONPATH", site)
        .env("CARGO_HOME", tmp.join("cargo"))
        .env("npm_config_cache", tmp.join("npm"))
        .env("npm_config_update_notifier", "false")
        .env("TMPDIR", tmp)
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
        let site = project::site_of(&place);
        for (name, text) in FILES {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
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
            "make >&2",
            "cat tests/test_one.py Makefile | sort | uniq -c | tail -n 3 | wc -l >/dev/null",
            // Whether there is a log or not.
            "logger hello || true",
        ] {
            check_green(&place, &service, &site, script);
        }
        // A toolchain in root's home is root's.
        if uid == ROOT {
            check_green(&place, &service, &site, "cargo build --offline --quiet >&2");
        }
    }
}

#[test]
fn npm_test_is_green_with_an_empty_allow_net() {
    if absent::skip("npm_test_is_green_with_an_empty_allow_net", "npm").unwrap() {
        return;
    }
    let service = Service::start();
    for uid in [ALICE, ROOT] {
        let place = Place::of(uid);
        place.directory("tmp");
        fs::write(
            place.root().join("package.json"),
            r#"{"name": "one", "version": "0.1.0", "scripts": {"test": "node -e \"require('os').hostname()\""}}"#,
        )
        .unwrap();
        check_green(
            &place,
            &service,
            "/nowhere".as_ref(),
            "npm test --silent >&2",
        );
    }
}
