use super::*;

/// What a log tells that begins in `/w`, where there is a directory `old` with a file `a`.
fn told(log: &str) -> Result<Story, String> {
    let found = |kind| super::super::walk::Found {
        kind,
        state: (0, 0, 0),
    };
    let walk = Walk {
        whole: vec!["/w".into()],
        names: [
            ("/w/old".into(), found(Kind::Directory)),
            ("/w/old/a".into(), found(Kind::File)),
        ]
        .into(),
    };
    Story::of(&strace::calls(log)?, &walk, Path::new("/w"))
}

fn check(log: &str, files: &[&str], directories: &[&str]) {
    let story = told(log).unwrap();
    let names = |paths: Vec<&PathBuf>| -> Vec<String> {
        let paths = paths.iter().map(|path| path.to_str().unwrap());
        paths
            .map(|path| path.trim_start_matches("/w/").to_owned())
            .collect()
    };
    assert_eq!(names(story.files.keys().collect()), files, "{log}");
    let found = names(story.directories.iter().collect());
    assert_eq!(found, directories, "{log}");
}

#[test]
fn names_are_those_of_files_that_were_written() {
    check(
        r#"7 openat(AT_FDCWD</w>, "a", O_WRONLY|O_CREAT, 0666) = 3</w/a>"#,
        &["a"],
        &[],
    );
    check(
        r#"7 openat(AT_FDCWD</w>, "old/a", O_RDONLY|O_CREAT, 0666) = 3</w/old/a>"#,
        &[],
        &[],
    );
    check(
        r#"7 openat(AT_FDCWD</w>, "b", O_RDONLY|O_CREAT, 0666) = 3</w/b>"#,
        &["b"],
        &[],
    );
    check(
        r#"7 openat(AT_FDCWD</w>, "a", O_WRONLY|O_CREAT, 0666) = 3</w/a>(deleted)"#,
        &["a"],
        &[],
    );
    check(
        r#"7 openat(AT_FDCWD</w>, "/w", O_RDWR|O_TMPFILE, 0600) = 3</w/#9>(deleted)"#,
        &[],
        &[],
    );
    check(
        r#"7 openat(AT_FDCWD</w>, "/dev/null", O_RDWR) = 3</dev/null>"#,
        &[],
        &[],
    );
    check(
        r#"7 openat(AT_FDCWD</w>, "a", O_RDWR) = -1 ENOENT (No such file or directory)"#,
        &[],
        &[],
    );
    check(
        r#"7 bind(3<socket:[9]>, {sa_family=AF_UNIX, sun_path="s"}, 4) = 0"#,
        &["s"],
        &[],
    );
}

#[test]
fn a_name_is_seen_from_where_the_call_was_made() {
    let vfork = "7 mkdir(\"d\", 0777) = 0\n7 vfork( <unfinished ...>\n8 chdir(\"d\") = 0\n8 unlink(\"x\") = 0\n7 <... vfork resumed>) = 8\n7 unlink(\"y\") = 0";
    check(vfork, &["d/x", "y"], &["d"]);
    let thread = "7 clone(child_stack=0x1, flags=CLONE_FS|CLONE_THREAD) = 8\n8 chdir(\"old\") = 0\n7 unlink(\"a\") = 0";
    check(thread, &["old/a"], &[]);
    check(
        "7 symlink(\"old\", \"l\") = 0\n7 unlink(\"l/a\") = 0\n7 unlink(\"l\") = 0\n7 unlink(\"l/b\") = 0",
        &["l", "l/b", "old/a"],
        &[],
    );
    check(r#"7 unlinkat(3</w/old>, "../c", 0) = 0"#, &["c"], &[]);
}

#[test]
fn a_directory_of_the_jobs_takes_its_names_along_and_another_one_does_not() {
    check(
        "7 mkdir(\"d\", 0777) = 0\n7 mknod(\"d/a\", 0600) = 0\n7 rename(\"d\", \"e\") = 0",
        &["d/a", "e/a"],
        &["d", "e"],
    );
    check("7 rename(\"old\", \"new\") = 0", &[], &["new", "old"]);
    check("7 rename(\"old/a\", \"b\") = 0", &["b", "old/a"], &[]);
}

#[test]
fn a_name_belongs_to_the_process_that_touched_it_first() {
    let log = "7 clone(flags=CLONE_FS|CLONE_THREAD) = 8\n8 fork() = 9\n9 unlink(\"a\") = 0\n8 unlink(\"a\") = 0\n8 unlink(\"b\") = 0";
    let story = told(log).unwrap();
    assert_eq!(story.files[Path::new("/w/a")], 9);
    assert_eq!(story.files[Path::new("/w/b")], 7);
}

#[test]
fn what_cannot_be_told_is_an_error() {
    for log in [
        r#"7 renameat2(AT_FDCWD</w>, "a", AT_FDCWD</w>, "b", RENAME_EXCHANGE) = 0"#,
        r#"7 unlinkat(AT_FDCWD</v>, "a", 0) = 0"#,
        r#"7 unlink("a"...) = 0"#,
        r#"7 execve("/proc/self/exe", ["x"], 0x1) = 0"#,
        "7 chroot(\"/w\") = 0",
        "7 unlink(\"a\") = 0\n8 unlink(\"b\") = 0",
        "7 fork() = 8\n7 fork() = 8",
    ] {
        assert!(told(log).is_err(), "{log}");
    }
}
