use crate::{
    event::{Fact, Name, NameOp, Named, Top},
    story::{Machine, Teller, kernel_path, lost, named, record, tell, view, words},
};

/// Tells a story on a machine that is looked at after everything has happened, as when the daemon lags behind.
#[track_caller]
fn check(story: &str, machine: &str, writes: &str, losses: &str) {
    let record = tell(story, Machine::new(machine));
    assert_eq!(
        words(&record.recording.write_paths),
        writes,
        "write set of: {story}"
    );
    assert_eq!(lost(&record), losses, "lost of: {story}");
}

#[test]
fn dots_and_slashes_are_walked() {
    check(
        "unlink ./a; unlink s/../b; unlink s//c; unlink ../etc/d; rmdir e/",
        "s/",
        "/etc/d a b e/ s/c",
        "",
    );
}

#[test]
fn a_link_on_the_way_is_followed_and_a_last_one_is_not() {
    check("unlink l/a", "l->d d/", "d/a", "");
    check("unlink l/a", "l->/tmp/out /tmp/out/", "/tmp/out/a", "");
    check("unlink l/../a", "l->/tmp/out /tmp/out/", "/tmp/a", "");
    check("unlink l/a", "l->m/ m->../x /x/", "/x/a", "");
    check("unlink l", "", "l", "");
    check("truncate l", "l->a a", "a", "");
    check("chmod l", "l->a a", "", "");
}

#[test]
fn what_the_job_made_is_known_without_looking() {
    check(
        "create d/x; symlink d l; unlink l/a; unlink l",
        "d/x",
        "d/a d/x",
        "",
    );
    // The link pointed elsewhere then.
    check(
        "symlink one l; unlink l/a; unlink l; symlink two l; unlink l/b",
        "l->two one/ two/",
        "l one/a two/b",
        "",
    );
    check(
        "symlink one l; symlink two t; rename t l; unlink l/b",
        "l->two one/ two/",
        "l two/b",
        "",
    );
    check(
        "symlink one l; rename l m; unlink m/b",
        "m->one one/",
        "m one/b",
        "",
    );
}

#[test]
fn what_is_gone_is_taken_for_a_directory() {
    check("unlink d/s/a; rmdir d/s; rmdir d", "", "d/ d/s/ d/s/a", "");
    check(
        "unlink d/s/a; rename d/s e; rmdir e; rmdir d",
        "",
        "* d/ d/s/ d/s/a",
        "",
    );
}

#[test]
fn an_assumption_that_an_event_refutes_is_lost() {
    check("unlink l/a; unlink l", "", "l l/a", "unresolved=1");
    check(
        "unlink l/a; rename l m; unlink m",
        "",
        "* l l/a",
        "unresolved=1",
    );
    check(
        "unlink l/a; create t; rename t l; open l",
        "l",
        "l l/a",
        "unresolved=1",
    );
}

#[test]
fn a_look_that_came_after_a_change_is_not_trusted_for_what_came_before() {
    // By now `l` points to `two`; when `a` was removed it may have pointed elsewhere.
    check(
        "unlink l/a; unlink l; symlink two l",
        "l->two two/",
        "l two/a",
        "unresolved=1",
    );
    let record = tell(
        "unlink l/a; unlink l; symlink two l",
        Machine::early("l->two two/"),
    );
    assert_eq!(lost(&record), "");
}

#[test]
fn loops_and_errors_are_lost() {
    check("unlink l/a", "l->l", "", "unresolved=1");
    check("unlink d/a", "d?", "", "unresolved=1");
    check("truncate a", "", "", "unresolved=1");
}

#[test]
fn the_processes_own_links_cannot_be_followed() {
    check("unlink /proc/self/cwd/a", "", "", "unresolved=1");
    check("unlink /proc/thread-self/fd/3/a", "", "", "unresolved=1");
    check(
        "truncate /dev/stdout",
        "/dev/stdout->/proc/self/fd/1",
        "",
        "unresolved=1",
    );
    check(
        "truncate /proc/self/oom_score_adj",
        "",
        "/proc/self/oom_score_adj",
        "",
    );
    check("chmod /proc/self/fd/3", "", "", "");
}

#[test]
fn a_source_of_a_link_that_cannot_be_told_is_lost_when_somebody_writes_through_it() {
    check("linkfollow /proc/self/fd/3 t; unlink t", "", "", "");
    check(
        "linkfollow /proc/self/fd/3 t; open t 5; unlink t",
        "",
        "",
        "unresolved=1",
    );
    check(
        "linkfollow /proc/self/fd/3 t; open t 5",
        "t",
        "t",
        "unresolved=1",
    );
}

fn unlink(first: Named) -> Vec<crate::event::Event> {
    let name = Name {
        attempt: false,
        refused: false,
        op: NameOp::Unlink,
        arg: 0,
        first,
        second: Named::default(),
    };
    vec![Teller::new().event(Fact::Name(name))]
}

#[test]
fn an_absolute_string_starts_at_the_tasks_root() {
    let chroot = Named {
        base: kernel_path("/repo/jail"),
        ..named("/etc/../../x")
    };
    let record = record(view(), Machine::new("jail/etc/"), unlink(chroot));
    assert_eq!(words(&record.recording.write_paths), "jail/x");
}

#[test]
fn absolute_links_in_relative_strings_are_not_followed_once_a_task_has_another_root() {
    let mut teller = Teller::new();
    let mut events = unlink(Named {
        base: kernel_path("/repo/jail"),
        ..named("/x")
    });
    events.extend(teller.tell("unlink l/a"));
    let record = record(view(), Machine::new("l->/d /d/"), events);
    assert_eq!(lost(&record), "unresolved=1");
}

#[test]
fn names_that_the_kernel_could_not_read_are_lost() {
    let broken = Named {
        broken: true,
        ..named("a")
    };
    assert_eq!(
        lost(&record(view(), Machine::default(), unlink(broken))),
        "unresolved=1"
    );
    let mut base = named("a");
    base.base.top = Top::Nowhere;
    assert_eq!(
        lost(&record(view(), Machine::default(), unlink(base.clone()))),
        "unresolved=1"
    );
    base.base.top = Top::Internal;
    assert_eq!(lost(&record(view(), Machine::default(), unlink(base))), "");
}
