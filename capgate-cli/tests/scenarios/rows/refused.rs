//! What a contract refuses, reached in every way that there is.

use std::{fs, os::unix::net::UnixListener};

use crate::{
    row::{List, Row, incomplete},
    site::Site,
};

/// The refused program.
const PROVIDER: &str = "exec:provider";
/// The reach of it.
const REACHED: &str = "exec:{bin}/provider";

/// A socket of somebody outside, in the root.
fn listener(site: &Site) -> UnixListener {
    UnixListener::bind(site.path("repo/s.sock")).unwrap()
}

/// A directory that only root may write to, with a file in it.
fn locked(site: &Site) {
    fs::create_dir(site.path("locked")).unwrap();
    fs::write(site.path("locked/there"), "").unwrap();
}

pub(crate) fn rows() -> Vec<Row> {
    let program = |name, script: &str| Row::sh(name, script).reaches(PROVIDER, REACHED);
    let ran = |name, script: &str| program(name, script).execs("{bin}/provider");
    let denied = |name, script: &str, reach: &str| {
        Row::sh(name, &format!("! {script} 2>/dev/null"))
            .user(1000)
            .outside(locked)
            .reaches("write:{site}/locked/**", reach)
    };
    vec![
        ran("a_refused_program_through_the_search_path", "provider"),
        ran("a_refused_program_by_its_path", "{bin}/provider"),
        ran("a_refused_program_by_a_shell", "sh -c provider"),
        ran(
            "a_refused_program_without_an_environment",
            "env -i {bin}/provider",
        ),
        ran("a_refused_program_by_a_link", "ln -s {bin}/provider s; ./s").writes("s"),
        program(
            "a_refused_program_by_a_hard_link",
            "ln {bin}/provider h; ./h",
        )
        .execs("h")
        .writes("h"),
        program("a_copy_of_a_refused_program", "cp {bin}/provider c; ./c")
            .execs("c")
            .writes("c"),
        Row::program(
            "a_refused_program_by_its_descriptor",
            "run fd {bin}/provider",
        )
        .execs("{bin}/provider")
        .reaches(PROVIDER, REACHED),
        Row::sh(
            "another_program_of_a_refused_name",
            "cp {bin}/serve provider; ./provider || true",
        )
        .execs("provider")
        .writes("provider")
        .reaches(PROVIDER, "exec:provider"),
        Row::sh(
            "a_refused_program_that_may_not_be_executed",
            "./provider 2>/dev/null || test $? = 126",
        )
        .given("provider")
        .reaches(PROVIDER, "exec:provider"),
        Row::sh(
            "a_script_that_an_interpreter_is_given",
            "sh ./provider || true",
        )
        .given("provider")
        .reaches(PROVIDER, "exec:provider"),
        Row::sh(
            "a_refused_program_that_is_only_looked_at",
            "cat provider > /dev/null; command -v {bin}/provider; sh -c 'true' provider",
        )
        .given("provider")
        .reaches(PROVIDER, ""),
        Row::program("a_refused_destination", "tcp refused")
            .net("127.0.0.1:9")
            .reaches("net:127.0.0.0/8:1-99", "net:127.0.0.1:9"),
        Row::program("a_refused_destination_by_a_ring", "uring connect")
            .net("127.0.0.1:9")
            .reaches("net:127.0.0.1:*", "net:127.0.0.1:9")
            .tracepoint(incomplete("io_uring")),
        Row::program("a_refused_socket", "unix stream s.sock")
            .outside(listener)
            .net("unix:./s.sock")
            .reaches("unix:./s.sock", "unix:./s.sock"),
        Row::program("a_refused_socket_by_a_ring", "uring unix")
            .outside(listener)
            .net("unix:./s.sock")
            .reaches("unix:./s.sock", "unix:./s.sock")
            .tracepoint(incomplete("io_uring")),
        Row::program(
            "a_refused_socket_that_is_not_there",
            "unix absent {site}/none",
        )
        .reaches("unix:{site}/none", "unix:{site}/none"),
        Row::sh("a_refused_name_that_comes_and_goes", "echo > d/x; rm d/x")
            .given("d/")
            .evidence(List::Transient, "d/x")
            .reaches("write:d/**", "write:d/x"),
        Row::sh("a_refused_name_by_a_link_to_its_directory", "echo > l/x")
            .given("d/ l->d")
            .writes("d/x")
            .reaches("write:l/**", "write:d/x"),
        Row::sh("a_directory_of_refused_names_is_moved", "mv d e")
            .given("d/x")
            .writes("d/ e/")
            .reaches("write:d/**", "write:d"),
        denied(
            "a_refused_open",
            "echo > {site}/locked/new",
            "write:{site}/locked/new",
        ),
        denied(
            "a_refused_open_of_what_is_there",
            "echo > {site}/locked/there",
            "write:{site}/locked/there",
        ),
        denied(
            "a_refused_removal",
            "rm {site}/locked/there",
            "write:{site}/locked/there",
        ),
        denied(
            "a_refused_directory",
            "mkdir {site}/locked/new",
            "write:{site}/locked/new",
        ),
    ]
}
