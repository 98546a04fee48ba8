//! `--base`: the contract of a commit counts, the branch's own is a proposal, and a hostile repository runs nothing.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use capgate_common::{
    gitignored::{CommitRules, GitIgnored, RuleFile},
    ledger::{ProbeSet, Recording, digest},
    protocol::Start,
};

use crate::{
    repository::Repository,
    stand::{EMPTY, Stand, fails, output, text},
};

const CONTRACT: &str = "tests/capability.ledger.json";

/// A stand whose repository is a real one, with the empty contract committed on `main`.
fn stand() -> (Stand, Repository) {
    stand_that_writes(&[])
}

/// The same; its daemon says that these names were written.
fn stand_that_writes(names: &[&str]) -> (Stand, Repository) {
    let stand = Stand::with(|manner| {
        let mut recording = Recording::empty(ProbeSet::Tracepoint, false);
        recording.write_paths = names.iter().map(|&it| it.to_owned()).collect();
        manner.recording = recording;
    });
    fs::remove_dir_all(stand.path(".git")).unwrap();
    let repository = Repository::init(&stand.path(""));
    repository.commit("the contract");
    (stand, repository)
}

fn allowing(destination: &str) -> String {
    EMPTY.replace("[]", &format!("[\"{destination}\"]"))
}

/// Runs with a base, and comes back with what the daemon was asked and what the user was told.
#[track_caller]
fn run(stand: &Stand, base: &str) -> (Start, String) {
    let output = output(&mut stand.run_with(&["--base", base], &["true"]));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    (stand.daemon.last_start(), said)
}

#[test]
fn the_base_counts_and_the_branch_proposes() {
    let (stand, repository) = stand();
    let base = repository.git(&["rev-parse", "HEAD"]);
    repository.git(&["checkout", "--quiet", "-b", "patch"]);
    repository.write(CONTRACT, &allowing("192.0.2.1:443"));
    repository.commit("allow more");
    repository.git(&["update-ref", "refs/remotes/origin/main", &base]);

    for reference in [
        "main",
        "origin/main",
        "refs/heads/main",
        &base,
        &base[..10],
        "HEAD^",
        "main...",
        "origin/main...patch",
    ] {
        let (start, said) = run(&stand, reference);
        assert_eq!(start.contract.as_deref(), Some(EMPTY), "{reference}");
        let source = start.contract_source.unwrap();
        assert!(
            source.contains(&base[..12]) && source.ends_with(&format!(":{CONTRACT}")),
            "{source}"
        );
        // The file that the job must leave alone is the one in the work tree.
        let file = stand.path(CONTRACT).canonicalize().unwrap();
        assert_eq!(start.contract_path.as_deref(), file.to_str());
        assert!(
            said.contains("proposal: the work tree's own contract says something else")
                && said.contains("+ allow_net: `192.0.2.1:443`"),
            "{said}"
        );
    }
    let (start, said) = run(&stand, "HEAD");
    assert_eq!(start.contract.unwrap(), allowing("192.0.2.1:443"));
    assert!(!said.contains("proposal"), "{said}");
}

#[test]
fn a_branch_that_removes_or_breaks_its_contract_is_judged_all_the_same() {
    let (stand, repository) = stand();
    repository.git(&["checkout", "--quiet", "-b", "patch"]);
    fs::remove_file(stand.path(CONTRACT)).unwrap();
    let (start, said) = run(&stand, "main");
    assert_eq!(start.contract.as_deref(), Some(EMPTY));
    assert!(
        said.contains("the work tree has no contract any more"),
        "{said}"
    );
    repository.write(CONTRACT, "{\"allow_net\": 1}");
    let (_, said) = run(&stand, "main");
    assert!(said.contains("own contract cannot be used"), "{said}");
    // Another spelling of the same is no proposal.
    repository.write(CONTRACT, &EMPTY.replace(' ', "\n"));
    let (_, said) = run(&stand, "main");
    assert!(!said.contains("proposal"), "{said}");
}

#[test]
fn the_proposal_is_in_every_format() {
    let (stand, repository) = stand();
    repository.write(CONTRACT, &allowing("192.0.2.1:443"));
    for (format, phrase) in [
        ("json", "\"member\": \"192.0.2.1:443\""),
        ("markdown", "**proposal**: "),
        ("github", "::warning title=capgate proposal::"),
    ] {
        let options = ["--base", "main", "--format", format];
        let output = output(&mut stand.run_with(&options, &["true"]));
        let stdout = text(&output.stdout);
        assert!(stdout.contains(phrase), "{stdout}");
        assert!(stdout.contains("192.0.2.1:443"), "{stdout}");
    }
}

#[test]
fn what_is_not_there_is_said_with_what_to_fetch() {
    let (stand, repository) = stand();
    let refused = |reference: &str, words: &[&str]| {
        fails(
            &mut stand.run_with(&[&format!("--base={reference}")], &["true"]),
            125,
            words,
        );
        assert!(!stand.has_ledger());
    };
    refused(
        "origin/main",
        &[
            "`origin/main`",
            "no such commit",
            "git fetch origin +refs/heads/main:refs/remotes/origin/main",
        ],
    );
    refused("next", &["git fetch origin next", "origin/next"]);
    refused("0123456789abcdef", &["git fetch origin 0123456789abcdef"]);
    refused("-h", &["cannot use `-h` as the base"]);
    refused("main:tests", &["cannot use `main:tests` as the base"]);
    refused(" ", &["cannot use ` ` as the base"]);

    let empty = repository.git(&[
        "commit-tree",
        "-m",
        "x",
        "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    ]);
    refused(
        &empty,
        &["there is no contract at", CONTRACT, "capgate init"],
    );
    refused(&format!("{empty}...main"), &["merge base", "do not meet"]);

    repository.git(&["tag", "twice", &empty]);
    repository.git(&["branch", "twice", "main"]);
    refused("twice", &["several references have that name"]);

    let mut outside = stand.run_with(
        &["--base", "main", "--contract", "/etc/hostname"],
        &["true"],
    );
    fails(
        &mut outside,
        125,
        &["/etc/hostname", "is not inside the repository"],
    );
    let bare = stand.outside("plain");
    fs::create_dir(&bare).unwrap();
    let mut nowhere = stand.run_with(&["--base", "main", "--root", "../plain"], &["true"]);
    fails(&mut nowhere, 125, &["is in no git work tree"]);
}

#[test]
fn a_link_or_a_directory_in_the_contracts_place_is_no_contract() {
    let (stand, repository) = stand();
    fs::remove_file(stand.path(CONTRACT)).unwrap();
    symlink("elsewhere.json", stand.path(CONTRACT)).unwrap();
    repository.write("elsewhere.json", EMPTY);
    let link = repository.commit("a link");
    fails(
        &mut stand.run_with(&["--base", &link], &["true"]),
        125,
        &["a symbolic link", "--contract"],
    );
    fs::remove_file(stand.path(CONTRACT)).unwrap();
    repository.write(&format!("{CONTRACT}/x"), EMPTY);
    let directory = repository.commit("a directory");
    fails(
        &mut stand.run_with(&["--base", &directory], &["true"]),
        125,
        &["a directory"],
    );
}

#[test]
fn a_shallow_clone_says_so() {
    let (stand, repository) = stand();
    let old = repository.git(&["rev-parse", "HEAD"]);
    repository.write("x", "1");
    repository.commit("second");
    repository.git(&["checkout", "--quiet", "-b", "patch"]);
    repository.write("x", "2");
    repository.commit("third");
    let clone = repository.clone(&stand.outside("clone"), &["--depth=1", "--branch=patch"]);
    let refused = |reference: &str, words: &[&str]| {
        let mut run = stand.run_with(&["--base", reference], &["true"]);
        fails(run.current_dir(clone.path("")), 125, words);
    };
    refused("HEAD^", &["the clone is shallow", "git fetch --deepen=1"]);
    refused(
        "origin/main",
        &[
            "the clone is shallow",
            "git fetch --depth=1 origin +refs/heads/main:refs/remotes/origin/main",
        ],
    );
    refused(
        &old,
        &[
            "the clone is shallow",
            &format!("git fetch --depth=1 origin {old}"),
        ],
    );
    // What is said to fetch is enough.
    clone.git(&[
        "fetch",
        "--quiet",
        "--depth=1",
        "origin",
        "+refs/heads/main:refs/remotes/origin/main",
    ]);
    refused(
        "origin/main...",
        &[
            "do not meet",
            "the clone is shallow",
            "git fetch --unshallow",
        ],
    );
    let mut run = stand.run_with(&["--base", "origin/main"], &["true"]);
    let output = output(run.current_dir(clone.path("")));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_merge_commit_of_depth_two_has_its_base() {
    let (stand, repository) = stand();
    repository.git(&["checkout", "--quiet", "-b", "patch"]);
    repository.write(CONTRACT, &allowing("192.0.2.1:443"));
    repository.commit("allow more");
    repository.git(&["checkout", "--quiet", "-b", "merge", "main"]);
    repository.git(&["merge", "--quiet", "--no-ff", "-m", "merge", "patch"]);
    let clone = repository.clone(&stand.outside("clone"), &["--depth=2", "--branch=merge"]);
    let mut run = stand.run_with(&["--base", "HEAD^1"], &["true"]);
    let output = output(run.current_dir(clone.path("")));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(stand.daemon.last_start().contract.as_deref(), Some(EMPTY));
}

#[test]
fn a_work_tree_and_a_partial_clone_are_read_like_any_other() {
    let (stand, repository) = stand();
    let tree = stand.outside("tree");
    repository.git(&[
        "worktree",
        "add",
        "--quiet",
        tree.to_str().unwrap(),
        "-b",
        "patch",
    ]);
    let mut run = stand.run_with(&["--base", "main"], &["true"]);
    assert_eq!(output(run.current_dir(&tree)).status.code(), Some(0));
    // Its contract's bytes were never fetched, and nothing fetches them behind the user's back.
    repository.git(&["config", "uploadpack.allowFilter", "true"]);
    let partial = repository.clone(
        &stand.outside("partial"),
        &["--filter=blob:none", "--no-checkout"],
    );
    let base = ["--base", "origin/main", "--ledger", "../l.json"];
    let mut run = stand.run_with(&base, &["true"]);
    fails(
        run.current_dir(partial.path("")),
        125,
        &[CONTRACT, "where the clone is partial, git show fetches"],
    );
    partial.git(&["show", &format!("origin/main:{CONTRACT}")]);
    let mut run = stand.run_with(&base, &["true"]);
    let output = output(run.current_dir(partial.path("")));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_hostile_repository_runs_nothing_and_changes_nothing() {
    let (stand, repository) = stand();
    let trap = stand.outside("trap");
    fs::write(
        &trap,
        format!(
            "#!/bin/sh\necho \"$0 $*\" >> {}\nexit 1\n",
            stand.outside("sprung").display()
        ),
    )
    .unwrap();
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
    let trap = trap.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "core.gitProxy",
        "core.askPass",
        "core.alternateRefsCommand",
        "pager.rev-parse",
        "pager.ls-tree",
        "pager.cat-file",
        "diff.external",
        "diff.x.textconv",
        "filter.x.smudge",
        "gpg.program",
        "credential.helper",
        "alias.rev-parse",
        "alias.cat-file",
        "uploadpack.packObjectsHook",
    ] {
        let value = if key.starts_with("alias") {
            format!("!{trap}")
        } else {
            trap.to_owned()
        };
        repository.git(&["config", key, &value]);
    }
    let hooks = stand.outside("hooks");
    fs::create_dir(&hooks).unwrap();
    for hook in [
        "post-index-change",
        "reference-transaction",
        "post-checkout",
        "fsmonitor-watchman",
    ] {
        symlink(trap, hooks.join(hook)).unwrap();
    }
    repository.git(&["config", "core.hooksPath", hooks.to_str().unwrap()]);
    // A remote that is asked for what is missing.
    for (key, value) in [
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", &format!("ext::{trap}")),
        ("protocol.ext.allow", "always"),
        ("remote.origin.uploadpack", trap),
    ] {
        repository.git(&["config", key, value]);
    }
    repository.write(".gitattributes", "* filter=x diff=x\n");
    fs::remove_file(stand.outside("sprung")).ok();

    let (start, _) = run(&stand, "main");
    assert_eq!(start.contract.as_deref(), Some(EMPTY));
    let gone = "0123456789012345678901234567890123456789";
    fails(
        &mut stand.run_with(&["--base", gone], &["true"]),
        125,
        &["no such commit"],
    );
    // An object that is not there is not asked for either.
    let blob = repository.git(&["rev-parse", &format!("main:{CONTRACT}")]);
    let object = stand.path(&format!(".git/objects/{}/{}", &blob[..2], &blob[2..]));
    fs::rename(&object, stand.outside("object")).unwrap();
    fails(
        &mut stand.run_with(&["--base", "main"], &["true"]),
        125,
        &[CONTRACT, "git says"],
    );
    fs::rename(stand.outside("object"), &object).unwrap();
    assert!(
        !Path::exists(&stand.outside("sprung")),
        "{:?}",
        fs::read_to_string(stand.outside("sprung"))
    );

    // Nor does a replaced object, or the caller's environment, change what is read.
    repository.write("wide.json", &allowing("192.0.2.1:*"));
    let wide = repository.git(&["hash-object", "-w", "wide.json"]);
    repository.git(&["-c", "core.hooksPath=/dev/null", "replace", &blob, &wide]);
    assert_ne!(repository.git(&["cat-file", "blob", &blob]), EMPTY);
    let other = Repository::init(&stand.outside("other"));
    other.write(CONTRACT, &allowing("192.0.2.1:*"));
    other.commit("wide");
    let mut run = stand.run_with(&["--base", "main"], &["true"]);
    run.env("GIT_DIR", other.path(".git"))
        .env("GIT_OBJECT_DIRECTORY", other.path(".git/objects"))
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.fsmonitor")
        .env("GIT_CONFIG_VALUE_0", trap);
    let output = output(&mut run);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(stand.daemon.last_start().contract.as_deref(), Some(EMPTY));
    assert!(!Path::exists(&stand.outside("sprung")));
}

#[test]
fn the_checkouts_own_git_is_not_run() {
    let (stand, _repository) = stand();
    let trap = stand.path("git");
    fs::write(&trap, "#!/bin/sh\ntouch sprung\nexit 1\n").unwrap();
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
    let mut run = stand.run_with(&["--base", "main"], &["true"]);
    let path = std::env::var("PATH").unwrap();
    let output = output(run.env("PATH", format!(".::{path}")));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!stand.path("sprung").exists() && !Path::new("/sprung").exists());
}

#[test]
fn root_reads_a_repository_of_the_directorys_owner() {
    let (stand, _repository) = stand();
    let give = std::process::Command::new("chown")
        .args(["-R", "64111:64111"])
        .arg(stand.path(""))
        .status();
    assert!(give.unwrap().success());
    run(&stand, "main");
}

#[test]
fn files_are_checked_against_a_base_too() {
    let (stand, repository) = stand_that_writes(&["a"]);
    output(&mut stand.run_with(&["--record", "--ledger", "l.json"], &["true"]));
    repository.git(&["checkout", "--quiet", "-b", "patch"]);
    let own = EMPTY.replace(&digest(&[].into()), &digest(&["a".to_owned()].into()));
    repository.write(CONTRACT, &own);
    let check = |options: &[&str]| {
        let mut arguments = vec!["check", "l.json"];
        arguments.extend(options);
        let output = output(&mut stand.capgate(arguments));
        (output.status.code(), text(&output.stdout))
    };
    assert_eq!(check(&[]).0, Some(0));
    let (code, said) = check(&["--base", "main"]);
    assert_eq!(code, Some(120), "{said}");
    assert!(
        said.contains("+ `a`") && said.contains("proposal"),
        "{said}"
    );
}

#[test]
fn what_git_ignores_is_read_from_the_commit() {
    let (stand, repository) = stand();
    let asking = EMPTY.replace('}', r#", "ignore_gitignored": true}"#);
    repository.write(CONTRACT, &asking);
    repository.write(".gitignore", "*.o\n/gen/\ncapability.actual.json\n");
    repository.write("sub/.gitignore", "!kept.o\n");
    repository.write("tracked.o", "1");
    repository.write("gen/tracked", "1");
    repository.commit("rules");
    repository.git(&["checkout", "--quiet", "-b", "patch"]);
    repository.write(".gitignore", "*\n");
    repository.write("sub/.gitignore", "*\n");
    let base = repository.git(&["rev-parse", "main"]);
    let (start, _) = run(&stand, "main");
    let rules = start.commit_rules.unwrap();
    assert!(rules.source.starts_with("main ("), "{}", rules.source);
    assert!(rules.source.contains(&base[..12]), "{}", rules.source);
    let files: Vec<(&str, &str)> = rules
        .files
        .iter()
        .map(|file| (file.directory.as_str(), file.text.as_str()))
        .collect();
    assert_eq!(
        files,
        [
            ("", "*.o\n/gen/\ncapability.actual.json\n"),
            ("sub", "!kept.o\n")
        ]
    );
    let never: Vec<&str> = rules.never.iter().map(String::as_str).collect();
    assert_eq!(
        never,
        [
            "gen/tracked",
            "tests/capability.actual.json",
            CONTRACT,
            "tracked.o"
        ]
    );

    // Without a base, those of HEAD; a root below the top knows where it lies.
    let own = output(&mut stand.run(&["true"]));
    assert_eq!(own.status.code(), Some(0), "{}", text(&own.stderr));
    assert_eq!(
        stand.daemon.last_start().commit_rules.unwrap().files.len(),
        2
    );
    let options = ["--base", "main", "--root", "sub", "--contract", CONTRACT];
    let below = output(&mut stand.run_with(&options, &["true"]));
    assert_eq!(below.status.code(), Some(0), "{}", text(&below.stderr));
    assert_eq!(stand.daemon.last_start().commit_rules.unwrap().root, "sub");

    // Which has to be there.
    let unborn = Repository::init(&stand.outside("unborn"));
    unborn.write(CONTRACT, &asking);
    let mut there = stand.run(&["true"]);
    fails(
        there.current_dir(unborn.path("")),
        125,
        &["`HEAD`", "commit something first"],
    );

    // And not at all where the contract does not ask.
    repository.write(CONTRACT, EMPTY);
    repository.commit("no longer");
    assert_eq!(run(&stand, "HEAD").0.commit_rules, None);
}

/// What git says of paths by the rules that lie in a repository alone: whether it ignores each.
fn ignored_by_git(repository: &Repository, paths: &[String]) -> Vec<bool> {
    let list = repository.path("list");
    fs::write(&list, paths.join("\0") + "\0").unwrap();
    // `--no-index`: what is tracked has no say. What is not ignored is listed with empty fields.
    let mut check = std::process::Command::new("git");
    check
        .current_dir(repository.path(""))
        .args(["check-ignore", "--no-index", "--stdin", "-z"])
        .args(["--verbose", "--non-matching"])
        .stdin(fs::File::open(&list).unwrap());
    let answer = check.output().unwrap();
    let fields: Vec<&[u8]> = answer.stdout.split(|&byte| byte == 0).collect();
    let answers: Vec<bool> = fields
        .chunks_exact(4)
        .map(|answer| !answer[2].is_empty() && !answer[2].starts_with(b"!"))
        .collect();
    assert_eq!(answers.len(), paths.len());
    answers
}

fn rules_of(files: &[(&str, &str)]) -> GitIgnored {
    GitIgnored::new(&CommitRules {
        source: "HEAD".to_owned(),
        files: files
            .iter()
            .map(|&(directory, text)| RuleFile {
                directory: directory.to_owned(),
                text: text.to_owned(),
            })
            .collect(),
        ..CommitRules::default()
    })
    .unwrap()
}

#[test]
fn random_rules_say_what_git_says() {
    const PATTERNS: [&str; 26] = [
        "a", "/a", "a/", "a/b", "/a/b", "*", "*.c", "a*", "?", "**", "**/b", "a/**", "a/**/b",
        "!a", "!a/", "!*.c", "!/a/b", "[ab]", "[!a]", "a\\*", "#x", "\\!a", "b ", "*/b", "/*",
        "!*/",
    ];
    const NAMES: [&str; 7] = ["a", "b", "ab", "x.c", "!a", "a*", "c"];
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::init(dir.path());
    let mut paths: Vec<String> = NAMES.map(str::to_owned).to_vec();
    for _ in 0..2 {
        let deeper = paths
            .iter()
            .flat_map(|path| NAMES.map(|name| format!("{path}/{name}")));
        paths = NAMES
            .map(str::to_owned)
            .into_iter()
            .chain(deeper.collect::<Vec<_>>())
            .collect();
    }
    let mut seed = 7_usize;
    let mut next = |bound: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    let mut both = (0, 0);
    for _ in 0..150 {
        let mut text = || -> String {
            (0..1 + next(4))
                .map(|_| format!("{}\n", PATTERNS[next(PATTERNS.len())]))
                .collect()
        };
        let (top, below) = (text(), text());
        repository.write(".gitignore", &top);
        repository.write("a/.gitignore", &below);
        let rules = rules_of(&[("", &top), ("a", &below)]);
        for (path, git) in paths.iter().zip(ignored_by_git(&repository, &paths)) {
            // The one directory that is there, and known to git as one.
            let entry = if path == "a" { "a/" } else { path };
            assert_eq!(rules.ignores(entry), git, "{path} by {top:?} and {below:?}");
            if git { both.0 += 1 } else { both.1 += 1 }
        }
    }
    assert!(both.0 > 1000 && both.1 > 1000, "{both:?}");
}

#[test]
fn the_rules_say_what_git_says() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::init(dir.path());
    let files = [
        (
            "",
            "# c\n*.o\n!keep.o\n/top\nbuild/\ndoc/*.txt\na/**/z\n**/deep\nx/**\nspace \\ \n\\!bang\n[ab]c\n*.py[co]\n!\n/\nfoo/*/bar\n.*.sw?\n",
        ),
        ("sub", "!*.o\n/top\nonly/\n!only/kept\n"),
        ("sub/two", "*.o\n"),
    ];
    for (directory, text) in files {
        let name = Path::new(directory).join(".gitignore");
        repository.write(name.to_str().unwrap(), text);
    }
    let rules = rules_of(&files);
    let components = [
        "top", "build", "doc", "a.txt", "a", "z", "deep", "x", "k.o", "keep.o", "sub", "two",
        "only", "kept", "ac", "m.pyc", "foo", "bar", "!bang", ".a.swp", "space  ",
    ];
    let mut paths: Vec<String> = Vec::new();
    for one in components {
        paths.push(one.to_owned());
        for two in components {
            paths.push(format!("{one}/{two}"));
            for three in ["z", "k.o", "kept", "bar", "top", "keep.o"] {
                paths.push(format!("{one}/{two}/{three}"));
            }
        }
    }
    let mut ignored = 0;
    for (path, git) in paths.iter().zip(ignored_by_git(&repository, &paths)) {
        assert_eq!(rules.ignores(path), git, "{path}");
        ignored += usize::from(git);
    }
    assert!(
        ignored > 100 && ignored < paths.len(),
        "{ignored} of {}",
        paths.len()
    );
}
