use crate::story::{Machine, Teller, entries, lost, record, rules, tell, view, words};

/// Tells a story; `end` is what the file system has at its end. Expects the write set and the transient names, and no loss.
#[track_caller]
fn check(story: &str, end: &str, writes: &str, transient: &str) {
    let record = tell(story, Machine::new(end));
    assert_eq!(
        words(&record.recording.write_paths),
        writes,
        "write set of: {story}"
    );
    assert_eq!(
        entries(&record.evidence.transient),
        transient,
        "transient of: {story}"
    );
    assert_eq!(lost(&record), "", "lost of: {story}");
}

#[test]
fn what_is_made_and_stays_counts() {
    check("create a", "a", "a", "");
    check("create d/a", "d/a", "d/a", "");
    check("symlink far a", "a->far", "a", "");
    check("link b a", "a b", "a", "");
    check("mknod a", "a", "a", "");
    check("bind a", "a", "a", "");
    check(
        "create /etc/x; create /home/u/y",
        "/etc/x /home/u/y",
        "/etc/x ~/y",
        "",
    );
}

#[test]
fn what_was_there_and_is_written_counts() {
    check("open a", "a", "a", "");
    check("truncate a", "a", "a", "");
    check("receive a", "a", "a", "");
    check(
        "open /proc/77/oom_score_adj",
        "",
        "/proc/77/oom_score_adj",
        "",
    );
    check(
        "open /proc/10/oom_score_adj; @11; open /proc/11/task/12/comm",
        "",
        "/proc/self/oom_score_adj /proc/self/task/$TID/comm",
        "",
    );
}

#[test]
fn what_was_there_and_is_removed_counts() {
    check("unlink a", "", "a", "");
    check("rmdir d", "", "d/", "");
    check("unlink d/a; unlink d/b; rmdir d", "", "d/ d/a d/b", "");
    check("open a 5; unlink a", "", "a", "");
    check("open a; truncate a; unlink a", "", "a", "");
    check("rename a b; unlink b", "", "* a", "");
}

#[test]
fn what_comes_and_goes_does_not_count() {
    check("create a; unlink a", "", "", "a");
    check("mknod a; unlink a", "", "", "a");
    check("symlink x a; unlink a", "", "", "a");
    check("link b a; unlink a", "b", "", "a");
    check("bind s; unlink s", "", "", "s");
    check("create a; unlink a; create a; unlink a", "", "", "a");
    check("create a 5; open a 5; truncate a; unlink a", "", "", "a");
}

#[test]
fn a_file_that_was_removed_and_made_again_counts_even_when_it_is_gone() {
    check("unlink a; create a", "a", "a", "");
    check("unlink a; create a; unlink a", "", "a", "");
    check("unlink a; symlink x a; unlink a", "", "a", "");
}

#[test]
fn the_final_name_counts_and_the_temporary_one_does_not() {
    check("create a.tmp; rename a.tmp a", "a", "a", "a.tmp");
    check(
        "create a.1402; rename a.1402 a; create a.1403; rename a.1403 a",
        "a",
        "a",
        "a.1402 a.1403",
    );
    check("create a; rename a b; rename b c", "c", "* c", "a");
    check("create a; noreplace a b; rename b c", "c", "c", "a b");
}

#[test]
fn a_renames_target_without_history_that_is_gone_counts_as_its_directory() {
    check("create a.tmp; rename a.tmp a; unlink a", "", "*", "a.tmp");
    check(
        "create d/a.tmp; rename d/a.tmp d/a; unlink d/a",
        "d/",
        "d/*",
        "d/a.tmp",
    );
    // With history it is known.
    check(
        "create a; unlink a; create a.tmp; rename a.tmp a; unlink a",
        "",
        "",
        "a a.tmp",
    );
    check(
        "create a; create a.tmp; rename a.tmp a; unlink a",
        "",
        "",
        "a a.tmp",
    );
    check(
        "create a.tmp; noreplace a.tmp a; unlink a",
        "",
        "",
        "a a.tmp",
    );
    check(
        "open a; create a.tmp; rename a.tmp a; unlink a",
        "",
        "a",
        "a.tmp",
    );
}

#[test]
fn renaming_what_was_there_counts_at_both_names() {
    check("rename a b", "b", "a b", "");
    check("rename d e", "e/", "d/ e/", "");
    check("rename d e; rmdir e", "", "* d/", "");
    check("rename d e; rename e f", "f/", "* d/ f/", "");
    check("exchange a b", "a b", "a b", "");
    check("exchange a d", "a/ d", "a a/ d d/", "");
}

#[test]
fn a_directory_made_in_the_job_carries_its_names_along() {
    check(
        "mkdir t; create t/a; mkdir t/s; create t/s/b; rename t d",
        "d/a d/s/b",
        "d/a d/s/b",
        "t/a t/s/b",
    );
    check(
        "mkdir t; create t/a; create t/b; unlink t/b; rename t d",
        "d/a",
        "d/a",
        "t/a t/b",
    );
    check(
        "mkdir t; create t/a; rename t d; rename d e",
        "e/a",
        "* e/a",
        "d/a t/a",
    );
    check(
        "mkdir t; create t/a.tmp; rename t/a.tmp t/a; unlink t/a; rmdir t",
        "",
        "",
        "t/a t/a.tmp",
    );
    check(
        "mkdir t; create t/a; rename t d; unlink d/a; rmdir d",
        "",
        "*",
        "d/a t/a",
    );
}

#[test]
fn names_in_a_directory_that_was_moved_belong_to_where_they_were() {
    // pip removes a package so: under a random name.
    check(
        "rename pkg x7; unlink x7/a; unlink x7/s/b; rmdir x7/s; rmdir x7",
        "",
        "* pkg/ pkg/a pkg/s/ pkg/s/b",
        "x7/a x7/s/b",
    );
    check("rename d e; open e/a 5", "e/a", "d/ d/a e/ e/a", "");
    check("create d/n; rename d e", "e/n", "d/ e/ e/n", "d/n");
}

#[test]
fn plain_directories_do_not_count() {
    check("mkdir d", "d/", "", "");
    check("mkdir d; rmdir d", "", "", "");
    check("mkdir /opt/x; rmdir /opt/x", "", "", "");
    check("rmdir d; mkdir d", "d/", "d/", "");
}

#[test]
fn a_name_that_changes_its_type_counts_as_both() {
    check("unlink a; mkdir a", "a/", "a a/", "");
    check("rmdir d; create d", "d", "d d/", "");
    check("unlink a; symlink x a", "a->x", "a", "");
}

#[test]
fn transient_names_outside_count_as_their_directory() {
    check(
        "create /etc/cron.d/x; unlink /etc/cron.d/x",
        "/etc/cron.d/",
        "/etc/cron.d/*",
        "/etc/cron.d/x",
    );
    check(
        "mkdir /opt/q; create /opt/q/x; unlink /opt/q/x; rmdir /opt/q",
        "/opt/",
        "/opt/*",
        "/opt/q/x",
    );
    for place in ["/tmp", "/var/tmp", "/dev/shm", "/home/u"] {
        let story = format!("create {place}/x; unlink {place}/x");
        check(
            &story,
            "",
            "",
            &format!("{place}/x").replace("/home/u", "~"),
        );
    }
    check(
        "create /run/user/1000/x; unlink /run/user/1000/x",
        "",
        "",
        "/run/user/$UID/x",
    );
    check(
        "create /run/user/1001/x; unlink /run/user/1001/x",
        "/run/user/1001/",
        "/run/user/1001/*",
        "/run/user/1001/x",
    );
}

#[test]
fn two_processes_and_a_lock_file_in_the_wrong_order() {
    check(
        "@1; create l; @2; create l; @1; unlink l; @2; unlink l",
        "",
        "",
        "l",
    );
    check("@1; unlink l; @2; create l", "", "", "l");
    check(
        "@2; unlink l; @1; create l; create l; unlink l",
        "",
        "",
        "l",
    );
    // Far apart, the order is what it seems.
    check("@1; unlink l; +2000; @2; create l", "", "l", "");
    check("@1; unlink l; create l", "", "l", "");
    // Opened before the record of its creation came.
    check("@1; open l 5; @2; create l 5; unlink l", "", "", "l");
}

#[test]
fn an_inode_that_the_job_did_not_make_was_there() {
    check("@1; open a 5; @2; create a 6; unlink a", "", "a", "");
    check("create t 5; rename t a; open a 5; unlink a", "", "*", "t");
}

#[test]
fn writing_through_a_hard_link_changes_the_file_at_its_other_name() {
    check("link a t; open t 5; unlink t", "a", "a", "t");
    check("create a 5; link a t; open t 5; unlink t", "a", "a", "t");
    check(
        "link a t; link t u; open u 5; unlink u; unlink t",
        "a",
        "a",
        "t u",
    );
}

#[test]
fn a_whiteout_stays_behind() {
    check("whiteout a b", "a b", "a b", "");
    check("create a; whiteout a b", "a b", "a b", "");
}

#[test]
fn a_rename_to_itself_counts_when_it_is_there() {
    check("rename a a", "a", "a", "");
}

#[test]
fn what_the_contract_covers_is_listed_and_does_not_count() {
    let mut view = view();
    view.rules = Some(rules(
        r#", "ignore_writes": ["**/*.pyc"], "scratch": ["/opt/cache"]"#,
    ));
    let events = Teller::new().tell(
        "create a.pyc; create b; create /opt/cache/x; create /opt/cache/y; unlink /opt/cache/y;
         create t; rename t u.pyc; unlink u.pyc",
    );
    let record = record(view, Machine::new("a.pyc b /opt/cache/x"), events);
    assert_eq!(words(&record.recording.write_paths), "b");
    assert_eq!(words(&record.ignored), "/opt/cache/x a.pyc u.pyc");
    assert_eq!(
        entries(&record.evidence.ignored),
        "/opt/cache/x a.pyc u.pyc"
    );
    assert_eq!(entries(&record.evidence.transient), "/opt/cache/y t");
}

#[test]
fn a_name_whose_end_cannot_be_told_counts_and_is_lost() {
    let record = tell("create a; unlink a", Machine::new("a?"));
    assert_eq!(words(&record.recording.write_paths), "a");
    assert_eq!(lost(&record), "unresolved=1");
}

#[test]
fn a_directory_made_in_the_job_and_moved_by_another_process_does_not_count() {
    check("@5; mkdir d; @6; noreplace d e", "e/", "", "");
    check(
        "@5; mkdir d; @6; rename d e; @7; rename e f; create f/x",
        "f/x",
        "* f/x",
        "",
    );
}

#[test]
fn what_is_truncated_through_a_link_is_written_at_its_other_name() {
    check("link a b; truncate b", "a b", "a b", "");
    check("truncate b; link a b", "a b", "a b", "");
}
