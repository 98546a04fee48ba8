use std::collections::BTreeMap;

use capgate_common::{evidence::Column, ledger::Coverage};

use super::{Closing, Session};
use crate::{
    event::{Event, Fact, File, FileSystem, Membership, NameOp, Top},
    session::Limits,
    story::{
        MNT_NS, Machine, Teller, closing, entries, file, kernel_path, lost, record, tell, view,
        words,
    },
};

#[test]
fn programs_and_scripts_are_both_in_the_column() {
    let record = tell(
        "exec /usr/bin/env; script /usr/bin/python3.11 tests/run.py; exec a.out",
        Machine::new("tests/run.py"),
    );
    assert_eq!(
        words(&record.recording.execs),
        "/usr/bin/env /usr/bin/python3.11 a.out tests/run.py"
    );
    assert_eq!(lost(&record), "");
}

#[test]
fn a_script_is_resolved_and_one_that_cannot_be_is_lost() {
    let record = tell(
        "script /bin/sh l",
        Machine::new("l->/opt/run.sh /opt/run.sh"),
    );
    assert_eq!(words(&record.recording.execs), "/bin/sh /opt/run.sh");
    let record = tell(
        "script /bin/sh /dev/fd/3",
        Machine::new("/dev/fd->/proc/self/fd"),
    );
    assert_eq!(
        (words(&record.recording.execs), lost(&record)),
        ("/bin/sh".to_owned(), "unresolved=1".to_owned())
    );
    let record = tell(
        "create x.sh; script /bin/sh x.sh; unlink x.sh",
        Machine::default(),
    );
    assert_eq!(words(&record.recording.execs), "/bin/sh x.sh");
    assert_eq!(lost(&record), "");
}

fn alter(story: &str, alter: impl Fn(&mut Event)) -> Vec<Event> {
    let mut events = Teller::new().tell(story);
    events.iter_mut().for_each(alter);
    events
}

#[test]
fn a_memfd_runs_under_its_own_name() {
    let events = alter("exec /memfd:x", |event| {
        if let Fact::Exec(exec) = &mut event.fact {
            exec.exe.top = Top::Internal;
        }
    });
    assert_eq!(
        words(&record(view(), Machine::default(), events).recording.execs),
        "memfd:x"
    );
}

#[test]
fn evidence_shows_who_did_it_and_its_parents_with_secrets_masked() {
    let record = tell(
        "join 10; exec /bin/sh -c x; fork 11; @11; exec /usr/bin/curl --password hunter2; tcp 192.0.2.1:443; create a;
         exit; @10; create b",
        Machine::new("a b"),
    );
    let by = |column, name: &str| {
        let found = record
            .evidence
            .entries
            .iter()
            .find(|entry| entry.column == column && entry.entry == name);
        let by = &found.expect("an entry").by;
        let show = |p: &capgate_common::evidence::Process| {
            format!("{} {} [{}]", p.pid, p.exe, p.argv.join(" "))
        };
        by.iter().map(show).collect::<Vec<_>>().join(" < ")
    };
    let curl = "11 /usr/bin/curl [/usr/bin/curl --password ***] < 10 /bin/sh [/bin/sh -c x]";
    assert_eq!(by(Column::Net, "192.0.2.1:443"), curl);
    assert_eq!(by(Column::Writes, "a"), curl);
    assert_eq!(by(Column::Writes, "b"), "10 /bin/sh [/bin/sh -c x]");
    assert_eq!(by(Column::Execs, "/usr/bin/curl"), curl);
}

#[test]
fn evidence_counts_and_says_when_first() {
    let record = tell(
        "+40; open a 5; open a 5; truncate a; unlink b",
        Machine::new("a"),
    );
    let entry = &record.evidence.entries[0];
    assert_eq!(
        (entry.entry.as_str(), entry.count, entry.first_ms),
        ("a", 3, 41)
    );
    assert_eq!(entry.ops, ["open", "truncate"]);
}

#[test]
fn leaving_the_job_is_an_escape() {
    for story in ["leave 10", "fork 11 outside"] {
        let record = tell(story, Machine::default());
        assert_eq!(words(&record.recording.escapes), "cgroup-leave");
    }
    assert_eq!(
        words(
            &tell("join 10; fork 11", Machine::default())
                .recording
                .escapes
        ),
        ""
    );
}

#[test]
fn tracing_a_process_outside_is_an_escape_and_one_that_cannot_be_told_is_unseen() {
    let tell = |story: &str| tell(story, Machine::default()).recording;
    assert_eq!(words(&tell("ptrace 1").escapes), "ptrace-outside");
    assert_eq!(words(&tell("ptrace 2").escapes), "");
    let unknown = tell("ptrace 3");
    assert_eq!(
        (words(&unknown.escapes), words(&unknown.coverage.unseen)),
        (String::new(), "ptrace".to_owned())
    );
    let events = alter("ptrace 3", |event| {
        if let Fact::Ptrace { target_is, .. } = &mut event.fact {
            *target_is = Membership::Inside;
        }
    });
    assert!(
        record(view(), Machine::default(), events)
            .recording
            .coverage
            .unseen
            .is_empty()
    );
}

#[test]
fn writing_the_contract_is_an_escape_by_name_by_identity_and_by_its_directory() {
    let machine = || Machine::new("tests/contract.json");
    let escapes = |story: &str| words(&tell(story, machine()).recording.escapes);
    for story in [
        "open tests/contract.json",
        "create t; rename t tests/contract.json",
        "unlink tests/contract.json; create tests/contract.json",
        "rename tests old; mkdir tests",
        "exchange tests old",
        "link tests/contract.json t; open t 5; unlink t",
        "open elsewhere 77",
    ] {
        assert_eq!(escapes(story), "contract-written", "{story}");
    }
    for story in [
        "open tests/other",
        "mkdir tests/x; rmdir tests/x",
        "chmod tests/contract.json",
    ] {
        assert_eq!(escapes(story), "", "{story}");
    }
}

#[test]
fn a_link_at_the_contracts_place_is_the_contract_as_much_as_the_file_behind_it() {
    let machine = || Machine::new("tests/contract.json->../ci/c.json ci/c.json");
    for story in [
        "open ci/c.json",
        "unlink tests/contract.json; create tests/contract.json",
        "rename ci old",
    ] {
        let escapes = words(&tell(story, machine()).recording.escapes);
        assert_eq!(escapes, "contract-written", "{story}");
    }
}

#[test]
fn blind_spots_are_named() {
    let record = tell("unseen 1; unseen 2; unseen 2", Machine::default());
    assert_eq!(words(&record.recording.coverage.unseen), "compat io_uring");
}

#[test]
fn in_another_mount_namespace_only_what_passes_no_mount_has_a_name() {
    let elsewhere = |story| {
        let events = alter(story, |event| event.mnt_ns = MNT_NS + 1);
        record(view(), Machine::new("a d"), events)
    };
    let found =
        elsewhere("create a; rename c d; exec /bin/sh; tcp 192.0.2.1:1; unix /run/nscd/socket -2");
    let Coverage { unseen, .. } = &found.recording.coverage;
    assert_eq!(
        (words(unseen), lost(&found)),
        (String::new(), String::new())
    );
    assert_eq!(words(&found.recording.write_paths), "a c d");
    for story in [
        "unlink x/b",
        "unlink /b",
        "rename a x/b",
        "rename x/b a",
        "mkdir ..",
        "truncate a",
        "unix /run/x",
    ] {
        let found = elsewhere(story);
        assert_eq!(
            words(&found.recording.coverage.unseen),
            "mount_namespace",
            "{story}"
        );
        assert_eq!(words(&found.recording.write_paths), "", "{story}");
    }
    assert_eq!(words(&elsewhere("chmod a").recording.coverage.unseen), "");
}

#[test]
fn files_are_found_by_the_root_and_by_their_file_system() {
    let tell = |top, bytes: &[u8]| {
        let mut written = file("a", 5);
        written.path.top = top;
        written.path.bytes = bytes.to_vec();
        let events = vec![Teller::new().event(Fact::File(written))];
        let record = record(view(), Machine::new("a /etc/b"), events);
        let unseen = words(&record.recording.coverage.unseen);
        (words(&record.recording.write_paths), unseen, lost(&record))
    };
    let named = |name: &str| (name.to_owned(), String::new(), String::new());
    assert_eq!(tell(Top::Root, b"/a"), named("a"));
    let on = |device, magic, newer| {
        Top::Device(FileSystem {
            device,
            magic,
            newer,
        })
    };
    const EXT4: u32 = 0xef53;
    assert_eq!(tell(on(1, EXT4, false), b"/etc/b"), named("/etc/b"));
    assert_eq!(tell(on(1, EXT4, true), b"/repo/a"), named("a"));
    let unseen = (String::new(), "mount_namespace".to_owned(), String::new());
    assert_eq!(
        tell(on(2, EXT4, false), b"/a"),
        unseen,
        "mounted nowhere else"
    );
    const TMPFS: u32 = 0x0102_1994;
    let nothing = (String::new(), String::new(), String::new());
    assert_eq!(
        tell(on(2, TMPFS, false), b"/a"),
        nothing,
        "gone with the job"
    );
    assert_eq!(tell(on(2, TMPFS, true), b"/a"), unseen, "others see it");
    const PROC: u32 = 0x9fa0;
    assert_eq!(
        tell(on(2, PROC, false), b"/12/uid_map"),
        named("/proc/self/uid_map")
    );
}

#[test]
fn an_attempt_counts_when_it_is_done() {
    let attempts = |done: &[(usize, NameOp)]| {
        let mut teller = Teller::new();
        let mut events = teller.tell("unlink a; mkdir d; @7; unlink b");
        for event in &mut events {
            if let Fact::Name(name) = &mut event.fact {
                name.attempt = true;
            }
        }
        for &(of, op) in done {
            let task = events[of].task;
            let done = teller.event(Fact::Done(op));
            events.push(Event { task, ..done });
        }
        let record = record(view(), Machine::new("d/"), events);
        assert_eq!(lost(&record), "");
        words(&record.recording.write_paths)
    };
    assert_eq!(attempts(&[]), "");
    assert_eq!(attempts(&[(2, NameOp::Unlink)]), "b");
    assert_eq!(
        attempts(&[(1, NameOp::Unlink)]),
        "",
        "the thread tried something else since"
    );
    assert_eq!(
        attempts(&[(2, NameOp::Unlink), (2, NameOp::Unlink)]),
        "b",
        "once"
    );
}

#[test]
fn an_attempt_that_was_damaged_is_counted_once() {
    let mut teller = Teller::new();
    let mut events = teller.tell("unlink a");
    for event in &mut events {
        event.damaged = true;
        if let Fact::Name(name) = &mut event.fact {
            name.attempt = true;
            name.first.broken = true;
        }
    }
    events.push(teller.event(Fact::Done(NameOp::Unlink)));
    let record = record(view(), Machine::default(), events);
    assert_eq!(lost(&record), "damaged=1");
}

#[test]
fn scripts_are_told_by_the_kernel_when_their_interpreter_runs() {
    let mut teller = Teller::new();
    let mut events = teller.tell("exec first.sh; exec second.sh; exec other.sh; script /bin/sh 3");
    for (index, event) in events.iter_mut().enumerate() {
        let Fact::Exec(exec) = &mut event.fact else {
            panic!("{event:?}")
        };
        exec.was = event.task.tid;
        exec.attempt = index < 3;
        exec.first = index == 0 || index == 1;
    }
    let record = record(view(), Machine::default(), events);
    assert_eq!(
        words(&record.recording.execs),
        "/bin/sh other.sh second.sh",
        "the first one failed"
    );
    assert_eq!(lost(&record), "");
}

#[test]
fn devices_that_hold_nothing_and_files_without_a_name_do_not_count() {
    let tell = |file: File| {
        let event = Teller::new().event(Fact::File(file));
        record(view(), Machine::new("/dev/x"), vec![event])
    };
    let device = |mode, major: u32, minor| File {
        mode,
        rdev: major << 20 | minor,
        ..file("/dev/x", 5)
    };
    for (major, minor) in [(1, 3), (1, 5), (1, 7), (5, 0), (5, 2), (136, 0), (143, 7)] {
        assert!(
            tell(device(0o20_666, major, minor))
                .recording
                .write_paths
                .is_empty()
        );
    }
    for (major, minor) in [(1, 1), (1, 9), (5, 1), (8, 0)] {
        assert_eq!(
            words(&tell(device(0o20_666, major, minor)).recording.write_paths),
            "/dev/x"
        );
    }
    assert_eq!(
        words(&tell(device(0o60_666, 1, 3)).recording.write_paths),
        "/dev/x",
        "a block device"
    );

    let mut nameless = file("/etc/#5", 5);
    nameless.path.unhashed = true;
    nameless.created = true;
    assert!(tell(nameless.clone()).recording.write_paths.is_empty());
    nameless.path.bytes = b"/etc/#6".to_vec();
    assert_eq!(
        words(&tell(nameless).recording.write_paths),
        "/etc/*",
        "made and removed before it was looked at"
    );

    let mut pipe = file("/pipe:[1]", 5);
    pipe.path.top = Top::Internal;
    let record = tell(pipe.clone());
    assert_eq!(
        (words(&record.recording.write_paths), lost(&record)),
        (String::new(), String::new())
    );
    pipe.path.top = Top::Nowhere;
    assert_eq!(lost(&tell(pipe)), "unresolved=1", "a detached mount");
}

#[test]
fn a_nameless_file_that_gets_a_name_was_made_by_the_job() {
    let mut nameless = file("/repo/#5", 5);
    nameless.path.unhashed = true;
    nameless.created = true;
    let mut teller = Teller::new();
    let mut events = vec![teller.event(Fact::File(nameless))];
    events.extend(teller.tell("linkfollow /proc/self/fd/3 a; open a 5"));
    let record = record(view(), Machine::new("a"), events);
    assert_eq!(
        (words(&record.recording.write_paths), lost(&record)),
        ("a".to_owned(), String::new())
    );
}

#[test]
fn a_removed_file_of_the_job_that_is_opened_again_stays_transient() {
    let mut teller = Teller::new();
    let mut events = teller.tell("create a 5; unlink a");
    let mut again = file("a", 5);
    again.path.unhashed = true;
    events.push(teller.event(Fact::File(again)));
    let record = record(view(), Machine::default(), events);
    assert_eq!(
        (
            words(&record.recording.write_paths),
            entries(&record.evidence.transient)
        ),
        (String::new(), "a".to_owned())
    );
}

#[test]
fn metadata_is_evidence() {
    let record = tell("chmod a; chmod a; lchown l", Machine::new("a l->a"));
    assert_eq!(entries(&record.evidence.metadata), "a l");
    assert!(record.recording.write_paths.is_empty());
}

#[test]
fn damaged_and_rejected_records_are_lost_and_what_is_there_is_used() {
    let events = alter("create a", |event| event.damaged = true);
    let found = record(view(), Machine::new("a"), events);
    assert_eq!(
        (lost(&found), words(&found.recording.write_paths)),
        ("damaged=1".to_owned(), "a".to_owned())
    );
    let events = alter("create a", |event| {
        event.damaged = true;
        event.fact = Fact::File(File {
            path: crate::event::KernelPath {
                broken: true,
                ..kernel_path("a")
            },
            ..file("a", 1)
        });
    });
    assert_eq!(
        lost(&record(view(), Machine::default(), events)),
        "damaged=1",
        "once"
    );
    let mut session = Session::open(view(), Box::new(Machine::default())).expect("room");
    session.reject();
    assert_eq!((session.received(), session.lost()), (1, 1));
    assert_eq!(lost(&session.seal(closing(1))), "rejected=1");
}

#[test]
fn what_the_kernel_counted_and_nobody_read_is_lost() {
    let seal = |change: &dyn Fn(&mut Closing)| {
        let session = Session::open(view(), Box::new(Machine::default())).expect("room");
        let mut closing = closing(0);
        change(&mut closing);
        lost(&session.seal(closing))
    };
    assert_eq!(seal(&|_| {}), "");
    assert_eq!(
        seal(&|closing| (closing.counters.attempted[1], closing.counters.emitted[1]) = (3, 3)),
        "unread=3"
    );
    assert_eq!(
        seal(&|closing| (closing.counters.attempted[2], closing.counters.lost[2]) = (3, 3)),
        "name=3"
    );
    assert_eq!(
        seal(&|closing| closing.counters.attempted[2] = 3),
        "unaccounted=3"
    );
    assert_eq!(
        seal(&|closing| closing.counters.deduplicated[2] = 3),
        "unaccounted=3"
    );
    assert_eq!(
        seal(&|closing| closing.lost = BTreeMap::from([("skipped".to_owned(), 2)])),
        "skipped=2"
    );
}

#[test]
fn memory_and_events_are_bounded_and_what_is_cut_is_lost() {
    let tell = |limits| {
        let mut view = view();
        view.limits = limits;
        let story: Vec<String> = (0..200)
            .map(|n| format!("create f{n}; tcp 192.0.2.{n}:80"))
            .collect();
        record(
            view,
            Machine::default(),
            Teller::new().tell(&story.join(";")),
        )
    };
    let bounded = tell(Limits {
        names: 100,
        bytes: 1 << 20,
        events: 1000,
    });
    assert_eq!(lost(&bounded), "memory=211");
    let bounded = tell(Limits {
        names: 1000,
        bytes: 1 << 20,
        events: 50,
    });
    assert_eq!(lost(&bounded), "events=350");
}

#[test]
fn a_lookup_that_takes_too_long_is_given_up() {
    let mut session = Session::open(view(), Box::new(Slow)).expect("room");
    for event in Teller::new().tell("create a; create d/b") {
        session.apply(event, false);
    }
    let record = session.seal(closing(2));
    assert_eq!(
        lost(&record),
        "unresolved=1",
        "the first directory was looked at"
    );
    assert_eq!(words(&record.recording.write_paths).split(' ').count(), 1);
}

/// A machine on which a lookup takes a minute.
struct Slow;

impl crate::look::Look for Slow {
    fn now_ns(&self) -> u64 {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NOW: AtomicU64 = AtomicU64::new(0);
        NOW.fetch_add(600_000_000, Ordering::Relaxed)
    }
    fn at(&self, _: &[u8]) -> crate::look::At {
        crate::look::At::Nothing
    }
    fn ends(&self, _: &[u8], names: &[&[u8]]) -> Vec<crate::look::End> {
        vec![crate::look::End::Nothing; names.len()]
    }
    fn identity(&self, _: &[u8]) -> Option<(u32, u64)> {
        None
    }
    fn addresses(&self, _: u64) -> Vec<std::net::IpAddr> {
        Vec::new()
    }
    fn interface(&self, _: u64, _: u32) -> Option<Vec<u8>> {
        None
    }
    fn file(&self, _: &[u8]) -> Option<std::fs::File> {
        None
    }
    fn program(&self, _: u32) -> Option<std::fs::File> {
        None
    }
    fn is_outside(&self, _: u32, _: u32) -> Option<bool> {
        None
    }
    fn process(&self, _: u32) -> Option<crate::cgroup::Member> {
        None
    }
    fn listeners(
        &self,
        _: u64,
        _: &std::collections::BTreeSet<u16>,
    ) -> Vec<(u16, crate::cgroup::Member)> {
        Vec::new()
    }
}

#[test]
fn a_build_server_outside_is_told_of_and_the_jobs_own_is_not() {
    let notes = |story: &str| {
        let events = Teller::new().tell(story);
        record(view(), Machine::new("/tmp/s /tmp/t"), events).notes
    };
    let told = |place: &str| {
        format!(
            "the job used sccache (pid 9) at {place}, which ran before it, and what that did for it was not recorded: end with sccache --stop-server"
        )
    };
    let server = crate::story::SERVER;
    assert_eq!(
        notes(&format!(
            "exec /bin/sh; unix /tmp/s 0 {server}; unix /tmp/s 0 {server}"
        )),
        [told("`unix:/tmp/s`")]
    );
    assert_eq!(
        notes("exec /bin/sh; tcp 127.0.0.1:4226; tcp 127.0.0.1:80"),
        [told("port 4226")]
    );
    // Another program, a member of the job, and a port of another host.
    for story in [
        "exec /bin/sh; unix /tmp/t 0 77",
        &format!("exec /bin/sh; fork {server}; unix /tmp/s 0 {server}"),
        "exec /bin/sh; tcp 192.0.2.1:4226",
    ] {
        assert_eq!(notes(story), [""; 0], "{story}");
    }
}

#[test]
fn events_are_told_as_entries_to_whoever_watches() {
    let mut session = Session::open(view(), Box::new(Machine::new("a"))).expect("room");
    let mut shown = Vec::new();
    for event in Teller::new().tell(
        "exec /bin/sh; create a; open /home/u/x; rename a b; tcp 192.0.2.1:443; unix @x; fork 11; unseen 2; exit",
    ) {
        let told = session.apply(event, true).expect("an event");
        shown.push(format!("{} {} {} {} {}", told.seq, told.ms, told.kind, told.op, told.subject));
        assert_eq!((told.pid, told.exe.as_deref()), (10, Some("/bin/sh")));
    }
    let expect = [
        "1 1 exec exec /bin/sh",
        "2 2 file create a",
        "3 3 file open ~/x",
        "4 4 name rename b",
        "5 5 inet connect 192.0.2.1:443",
        "6 6 unix connect unix:@x",
        "7 7 fork fork 11",
        "8 8 unseen unseen io_uring",
        "9 9 exit exit ",
    ];
    assert_eq!(shown, expect);
    let backlog = session.backlog();
    assert_eq!(backlog.len(), 9);
    assert_eq!((backlog[1].seq, backlog[1].subject.as_str()), (2, "a"));
    assert!(
        session
            .apply(Teller::new().tell("create c").remove(0), false)
            .is_none()
    );
}

#[test]
fn what_a_job_began_with_and_left_over_is_listed() {
    let mut session = Session::open(view(), Box::new(Machine::default())).expect("room");
    for event in Teller::new().tell("exec /bin/sh; fork 11; @11; exec /usr/bin/daemon -f; exit") {
        session.apply(event, false);
    }
    session.inherited(10, b"/var/log/ci.log");
    session.inherited(10, b"pipe:[77]");
    session.leftovers(&[11, 99]);
    let evidence = session.seal(closing(5)).evidence;
    assert_eq!(entries(&evidence.inherited), "/var/log/ci.log pipe:[77]");
    let left: Vec<String> = evidence
        .leftovers
        .iter()
        .map(|p| format!("{} {}", p.pid, p.exe))
        .collect();
    assert_eq!(left, ["11 /usr/bin/daemon", "99 "]);
}

#[test]
fn the_seal_has_the_columns_and_counts() {
    let record = tell("create a; tcp 192.0.2.1:443", Machine::new("a"));
    assert_eq!(record.recording.cpu_sec, 2);
    assert_eq!(record.recording.coverage.probe_set.word(), "tracepoint");
    let counts = record.evidence.counts;
    assert_eq!(
        (
            counts.emitted,
            counts.received,
            counts.decoded,
            counts.imbalance()
        ),
        (2, 2, 2, None)
    );
}

#[test]
fn the_same_behaviour_in_another_order_gives_the_same_recording() {
    let one = tell(
        "create b; create a; tcp 192.0.2.1:1; tcp 192.0.2.2:1; exec /bin/sh",
        Machine::new("a b"),
    );
    let other = tell(
        "@99; +500; exec /bin/sh; tcp 192.0.2.2:1; tcp 192.0.2.1:1; create a; create b",
        Machine::new("a b"),
    );
    assert_eq!(one.recording, other.recording);
}

#[test]
fn every_blind_spot_that_is_found_here_has_a_sentence() {
    for name in [
        super::UNSEEN_SOCKET_FAMILY,
        super::UNSEEN_PTRACE,
        super::UNSEEN_CORE_DUMP,
        super::UNSEEN_MOUNT_NAMESPACE,
    ] {
        let known = capgate_common::unseen::BLIND_SPOTS;
        assert!(known.iter().any(|(it, _)| *it == name), "{name}");
    }
}
