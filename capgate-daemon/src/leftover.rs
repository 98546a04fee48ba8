//! What is said about processes that outlived the command, or that worked for it from outside: programs that are known to stay behind are
//! named with the way to turn that off.

use std::path::Path;

use crate::cgroup::Member;

/// Most processes that one note names.
const NAMED: usize = 5;

/// A program that leaves a server behind, and what keeps it from that. The first word is looked for in the names of the program
/// and of its script; the second, when there is one, in its arguments.
const STAY_BEHIND: [(&str, &str, &str); 16] = [
    ("java", "GradleDaemon", "run Gradle with --no-daemon"),
    (
        "java",
        "KotlinCompileDaemon",
        "set kotlin.compiler.execution.strategy=in-process",
    ),
    ("java", "A-server.jar", "run Bazel with --batch"),
    ("bazel", "", "run Bazel with --batch"),
    ("sccache", "", "end with sccache --stop-server"),
    ("dmypy", "", "run mypy instead of dmypy"),
    ("mypy.dmypy", "", "run mypy instead of dmypy"),
    ("buck2", "", "end with buck2 kill"),
    ("watchman", "", "end with watchman shutdown-server"),
    ("pantsd", "", "run Pants with --no-pantsd"),
    (
        "dotnet",
        "VBCSCompiler",
        "build with -p:UseSharedCompilation=false",
    ),
    ("dotnet", "nodemode", "build with -nodeReuse:false"),
    ("node", "nx", "set NX_DAEMON=false"),
    ("turbo", "daemon", "run turbo with --no-daemon"),
    ("adb", "", "end with adb kill-server"),
    ("gpg-agent", "", "end with gpgconf --kill gpg-agent"),
];

/// A note about what was left, `None` when nothing was.
#[must_use]
pub fn note(members: &[Member]) -> Option<String> {
    if members.is_empty() {
        return None;
    }
    let (subject, verb) = match members.len() {
        1 => ("1 process".to_owned(), "was"),
        count => (format!("{count} processes"), "were"),
    };
    let mut names: Vec<String> = members
        .iter()
        .take(NAMED)
        .map(|member| format!("{} (pid {})", name(member), member.pid))
        .collect();
    if members.len() > NAMED {
        names.push("…".to_owned());
    }
    let mut hints: Vec<&str> = members.iter().filter_map(hint).collect();
    hints.sort_unstable();
    hints.dedup();
    let hint = match hints.as_slice() {
        [] => String::new(),
        hints => format!("; {}", hints.join(", ")),
    };
    Some(format!(
        "{subject} outlived the command and {verb} killed: {}{hint}",
        names.join(", ")
    ))
}

/// Whether a process is a program that is known to stay behind.
#[must_use]
pub fn is_known(member: &Member) -> bool {
    hint(member).is_some()
}

/// A note about a process outside that worked for the job at `place`; `None` when it is no program that is known to.
#[must_use]
pub fn outside(member: &Member, place: &str) -> Option<String> {
    let hint = hint(member)?;
    Some(format!(
        "the job used {} (pid {}) at {place}, which ran before it, and what that did for it was not recorded: {hint}",
        name(member),
        member.pid
    ))
}

/// The last part of a path, as text.
fn base(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// What a reader knows a process by.
fn name(member: &Member) -> String {
    match (&member.exe, member.argv.first()) {
        (Some(exe), _) => base(exe),
        (None, Some(first)) => String::from_utf8_lossy(first).into_owned(),
        (None, None) => "unknown".to_owned(),
    }
}

/// How to keep a process from staying, when that is known.
fn hint(member: &Member) -> Option<&'static str> {
    let argv: Vec<String> = member
        .argv
        .iter()
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect();
    // Of a script, the interpreter is the program and the script the first or second argument; of a module, the one after `-m`.
    let module = usize::from(argv.get(1).is_some_and(|argument| argument == "-m"));
    let scripts = argv.iter().take(2 + module);
    let names: Vec<String> = std::iter::once(name(member))
        .chain(scripts.map(|argument| base(Path::new(argument))))
        .collect();
    STAY_BEHIND
        .iter()
        .find(|(program, argument, _)| {
            names.iter().any(|name| name == program)
                && argv.iter().any(|given| given.contains(argument))
        })
        .map(|(_, _, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(pid: i32, exe: &str, argv: &[&str]) -> Member {
        Member {
            pid,
            exe: (!exe.is_empty()).then(|| exe.into()),
            argv: argv.iter().map(|text| text.as_bytes().to_vec()).collect(),
        }
    }

    fn check(members: &[Member], expect: Option<&str>) {
        assert_eq!(note(members).as_deref(), expect);
    }

    #[test]
    fn leftovers_are_named_with_what_turns_them_off() {
        check(&[], None);
        check(
            &[member(7, "/usr/bin/sleep", &["sleep", "60"])],
            Some("1 process outlived the command and was killed: sleep (pid 7)"),
        );
        check(
            &[
                member(
                    7,
                    "/usr/bin/java",
                    &[
                        "java",
                        "-cp",
                        "x",
                        "org.gradle.launcher.daemon.bootstrap.GradleDaemon",
                        "8",
                    ],
                ),
                member(
                    9,
                    "/usr/bin/python3.11",
                    &["/usr/bin/python3", "/usr/bin/pantsd"],
                ),
            ],
            Some(
                "2 processes outlived the command and were killed: java (pid 7), python3.11 (pid 9); \
                 run Gradle with --no-daemon, run Pants with --no-pantsd",
            ),
        );
    }

    #[test]
    fn who_worked_for_the_job_from_outside_is_named_with_what_turns_it_off() {
        let check = |exe, argv: &[&str], expect: Option<&str>| {
            let note = outside(&member(7, exe, argv), "port 4226");
            assert_eq!(
                note.as_deref().and_then(|note| note.rsplit(": ").next()),
                expect,
                "{argv:?}"
            );
        };
        check(
            "/opt/sccache",
            &["sccache"],
            Some("end with sccache --stop-server"),
        );
        let dmypy = Some("run mypy instead of dmypy");
        let python = "/usr/bin/python3.11";
        check(python, &["python3", "/usr/bin/dmypy", "daemon"], dmypy);
        check(python, &["python3", "-m", "mypy.dmypy", "daemon"], dmypy);
        check(
            "/usr/lib/jvm/bin/java",
            &[
                "java",
                "-cp",
                "x",
                "org.gradle.launcher.daemon.bootstrap.GradleDaemon",
            ],
            Some("run Gradle with --no-daemon"),
        );
        check(
            "/usr/bin/java",
            &["bazel(work)", "-jar", "/home/u/.cache/A-server.jar"],
            Some("run Bazel with --batch"),
        );
        check("/usr/bin/postgres", &["postgres", "-D", "sccache.d"], None);
        check("", &[], None);
    }

    #[test]
    fn many_leftovers_are_not_all_named() {
        let members: Vec<_> = (1..=9).map(|pid| member(pid, "", &["x"])).collect();
        let text = note(&members).unwrap_or_default();
        assert!(text.starts_with("9 processes") && text.ends_with("x (pid 5), …"));
    }
}
