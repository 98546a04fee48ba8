//! Programs that everybody uses, each with the entries that it must leave: how they look names up and connect is their own affair.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{
    names::{Stand, net, web},
    project::PYTHON,
    resolver::{CONFIGURATION, Resolver},
    service::{succeed, until},
};

/// Serves a directory on port 8000 of the far side.
struct Files(Child);

impl Files {
    fn new(stand: &Stand, directory: &Path) -> Self {
        let mut command = Command::new(PYTHON);
        command
            .args(["-m", "http.server", "8000", "--bind", "::"])
            .current_dir(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let files = Self(stand.network.far(|| command.spawn().unwrap()));
        until("the files are served", || {
            stand
                .network
                .far(|| TcpStream::connect("10.77.0.1:8000").is_ok())
        });
        files
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Runs a command where names are found. Expects what it ends with and the column `net`.
#[track_caller]
fn check(stand: &Stand, command: &[&str], code: i32, expected: &[&str]) {
    let done = stand.run(None, command);
    assert_eq!(done.code, code, "{command:?}: {}", done.stderr);
    assert!(
        done.sealed().complete,
        "{command:?}: {:?}",
        done.sealed().recording.lost
    );
    assert_eq!(net(&done), expected, "{command:?}: {}", done.stderr);
}

#[test]
fn clients_of_the_web_are_told_by_name() {
    const HAPPY_EYEBALLS: &str = "
import asyncio
async def main():
    _, writer = await asyncio.open_connection('rpython.example.org', 8000, happy_eyeballs_delay=0.01)
    writer.close()
asyncio.run(main())
";
    const FETCH: &str =
        "fetch('http://rnode.example.org:8000/').then(answer => process.exit(answer.ok ? 0 : 1))";
    const STATIC: &str =
        r#"fn main() { std::net::TcpStream::connect("rstatic.example.org:8000").unwrap(); }"#;
    let stand = Stand::new(CONFIGURATION);
    let resolver = Resolver::new(&stand.network);
    let served = stand.place.directory("served");
    let bare = served.join("repo.git");
    let git = |words: &[&str]| succeed(Command::new("git").args(words).current_dir(&bare));
    fs::create_dir(&bare).unwrap();
    git(&["init", "-q", "--bare"]);
    let tree = git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    let commit = git(&[&identity[..], &["commit-tree", "-m", "x", tree.trim()]].concat());
    git(&["update-ref", "refs/heads/main", commit.trim()]);
    git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    git(&["update-server-info"]);
    let source = stand.place.beside("static.rs");
    let program = stand.place.beside("static");
    fs::write(&source, STATIC).unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args([
        "--edition",
        "2024",
        "-C",
        "target-feature=+crt-static",
        "-o",
    ]);
    succeed(rustc.arg(&program).arg(&source));

    resolver.during(&stand.network, || {
        let _files = Files::new(&stand, &served);
        let curl = [
            "curl",
            "-sS",
            "-o",
            "/dev/null",
            "http://rcurl.example.org:8000/",
        ];
        check(&stand, &curl, 0, &["rcurl.example.org:8000", "resolver:53"]);
        let clone = [
            "git",
            "clone",
            "-q",
            "http://rgit.example.org:8000/repo.git",
            "clone",
        ];
        check(&stand, &clone, 0, &["resolver:53", "rgit.example.org:8000"]);
        check(
            &stand,
            &[PYTHON, "-c", HAPPY_EYEBALLS],
            0,
            &["resolver:53", "rpython.example.org:8000"],
        );
        check(
            &stand,
            &["node", "-e", FETCH],
            0,
            &["resolver:53", "rnode.example.org:8000"],
        );
        check(
            &stand,
            &[program.to_str().unwrap()],
            0,
            &["resolver:53", "rstatic.example.org:8000"],
        );
    });
}

#[test]
fn a_proxy_that_refuses_is_the_only_destination() {
    let stand = Stand::new(CONFIGURATION);
    let pip = [
        PYTHON,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--retries",
        "0",
        "--index-url",
        "https://pypi.example.org/simple",
        "--proxy",
        "http://127.0.0.1:9",
        "nothing",
    ];
    check(&stand, &pip, 1, &["127.0.0.1:9"]);
    let cargo = [
        "env",
        "CARGO_HOME=home",
        "CARGO_HTTP_PROXY=http://127.0.0.1:9",
        "CARGO_NET_RETRY=0",
        "cargo",
        "info",
        "--index",
        "sparse+http://index.example.org/",
        "nothing",
    ];
    check(&stand, &cargo, 101, &["127.0.0.1:9"]);
}

#[test]
fn a_database_is_told_by_name_and_by_path() {
    let stand = Stand::new(CONFIGURATION);
    let resolver = Resolver::new(&stand.network);
    let psql = |host: &str, port: &str| {
        let words = ["psql", "-w", "-h", host, "-p", port, "-U", "user", "base"];
        words.map(str::to_owned)
    };
    let words = |command: &[String]| {
        command
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let directory = stand.place.directory("sockets");
    let socket = directory.join(".s.PGSQL.5432");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let command = words(&psql(directory.to_str().unwrap(), "5432"));
    let command: Vec<&str> = command.split(' ').collect();
    // Whoever is there hangs up.
    check(
        &stand,
        &command,
        2,
        &[&format!("unix:{}", socket.display())],
    );
    server.join().unwrap();
    let command = words(&psql("rbase.example.org", "8080"));
    let command: Vec<&str> = command.split(' ').collect();
    web(&stand.network, || {
        resolver.during(&stand.network, || {
            check(
                &stand,
                &command,
                2,
                &["rbase.example.org:8080", "resolver:53"],
            );
        });
    });
}
