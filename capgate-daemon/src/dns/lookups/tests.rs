use crate::story::{Machine, entries, lost, tell, words};

/// Tells a story. Expects the column `net`, and what of it is the job's own and a probe.
#[track_caller]
fn check(story: &str, net: &str, own: &str, probes: &str) {
    let record = tell(story, Machine::new(""));
    assert_eq!(words(&record.recording.net), net, "net of: {story}");
    assert_eq!(entries(&record.evidence.own), own, "own of: {story}");
    assert_eq!(
        entries(&record.evidence.probes),
        probes,
        "probes of: {story}"
    );
    assert_eq!(lost(&record), "", "lost of: {story}");
}

#[test]
fn an_address_is_called_what_was_asked_for() {
    check(
        "ask x.org; answer x.org 192.0.2.1; tcp 192.0.2.1:443",
        "x.org:443",
        "",
        "",
    );
    check(
        "ask x.org; answer x.org 192.0.2.1,192.0.2.2; tcp 192.0.2.2:443; tcp 192.0.2.1:80",
        "x.org:443 x.org:80",
        "",
        "",
    );
    check(
        "ask x.org/28; answer x.org/28 2001:db8::1; ask x.org; answer x.org 192.0.2.1; tcp [2001:db8::1]:443; tcp 192.0.2.1:443",
        "x.org:443",
        "",
        "",
    );
    check(
        "ask X.org; answer x.ORG 192.0.2.1; tcp [::ffff:192.0.2.1]:443",
        "x.org:443",
        "",
        "",
    );
}

#[test]
fn a_connect_before_the_answer_keeps_its_address() {
    check(
        "tcp 192.0.2.1:443; ask x.org; answer x.org 192.0.2.1; tcp 192.0.2.1:443",
        "192.0.2.1:443 x.org:443",
        "",
        "",
    );
    check(
        "ask x.org; tcp 192.0.2.1:443; answer x.org 192.0.2.1",
        "192.0.2.1:443 dns:x.org",
        "",
        "",
    );
}

#[test]
fn the_addresses_stay_in_evidence() {
    let story = "ask x.org; answer x.org 192.0.2.1,192.0.2.2; tcp 192.0.2.2:443; tcp 192.0.2.1:443; tcp 192.0.2.9:443";
    let record = tell(story, Machine::new(""));
    let addresses = record.evidence.addresses();
    let [(entry, addresses)] = addresses.iter().collect::<Vec<_>>()[..] else {
        panic!("{addresses:?}");
    };
    assert_eq!(entry, "x.org:443");
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["192.0.2.1", "192.0.2.2"]);
}

#[test]
fn of_several_names_the_latest_of_the_same_thread_counts_then_of_the_process_then_of_the_job() {
    // x.org by thread 11, y.org by thread 12 of the same process, z.org by another one; z.org last.
    let asked = "@10.11; ask x.org; answer x.org 192.0.2.1; @10.12; ask y.org; answer y.org 192.0.2.1; @20; ask z.org; answer z.org 192.0.2.1";
    for (who, name, others) in [
        ("@10.11", "x.org:1", "dns:y.org dns:z.org"),
        ("@10.12", "y.org:1", "dns:x.org dns:z.org"),
        ("@10.13", "y.org:1", "dns:x.org dns:z.org"),
        ("@20", "z.org:1", "dns:x.org dns:y.org"),
        ("@30", "z.org:1", "dns:x.org dns:y.org"),
    ] {
        let mut expected: Vec<&str> = others.split(' ').chain([name]).collect();
        expected.sort_unstable();
        check(
            &format!("{asked}; {who}; tcp 192.0.2.1:1"),
            &expected.join(" "),
            "",
            "",
        );
    }
    // The same name asked for again is the latest again.
    check(
        "ask x.org; answer x.org 192.0.2.1; ask y.org; answer y.org 192.0.2.1; ask x.org; answer x.org 192.0.2.1; tcp 192.0.2.1:1",
        "dns:y.org x.org:1",
        "",
        "",
    );
}

#[test]
fn only_the_answer_to_a_query_names() {
    // Nobody asked; asked on another socket; for another name; for another kind; from another resolver; twice.
    for story in [
        "answer x.org 192.0.2.1; tcp 192.0.2.1:1",
        "answer x.org 192.0.2.1 192.0.2.99; tcp 192.0.2.1:1",
    ] {
        check(story, "192.0.2.1:1", "", "");
    }
    for story in [
        "@10.11; ask x.org; @10.12; answer x.org 192.0.2.1; tcp 192.0.2.1:1",
        "ask x.org; answer y.org 192.0.2.1; tcp 192.0.2.1:1",
        "ask x.org; answer x.org/28 ::ffff:192.0.2.1; tcp 192.0.2.1:1",
        "ask x.org; answer x.org 192.0.2.1 192.0.2.54; tcp 192.0.2.1:1",
        "ask x.org; answer x.org 192.0.2.1 192.0.2.99; tcp 192.0.2.1:1",
        "ask x.org; answer x.org 192.0.2.2; answer x.org 192.0.2.1; tcp 192.0.2.1:1",
    ] {
        check(story, "192.0.2.1:1 dns:x.org", "", "");
    }
    // Who is not configured is not asked.
    check(
        "ask x.org 192.0.2.99; answer x.org 192.0.2.1 192.0.2.99; tcp 192.0.2.1:1",
        "192.0.2.1:1",
        "",
        "",
    );
}

#[test]
fn traffic_to_a_configured_resolver_is_one_entry() {
    check(
        "udp 192.0.2.53:53; egress 192.0.2.53:53 192.0.2.7:4000; tcp 192.0.2.54:53; send 192.0.2.54:53",
        "resolver:53",
        "",
        "",
    );
    check(
        "send 192.0.2.99:53; send 192.0.2.53:54",
        "192.0.2.53:54 192.0.2.99:53",
        "",
        "",
    );
    check("udp 192.0.2.53:53", "", "", "192.0.2.53:53");
}

#[test]
fn what_was_only_asked_for_is_an_entry_whatever_came_of_it() {
    check(
        "ask x.org; ask x.org/28; ask y.org; answer y.org -; ask 1.2.0.192.in-addr.arpa/12",
        "dns:1.2.0.192.in-addr.arpa dns:x.org dns:y.org",
        "",
        "",
    );
    // A probe of the C library does not make it a destination.
    check(
        "ask x.org; answer x.org 192.0.2.1; udp 192.0.2.1:0",
        "dns:x.org",
        "",
        "192.0.2.1:0",
    );
    // Where the job itself listens is none either: the query left nevertheless.
    check(
        "ask x.org; answer x.org 127.0.0.1; listen 127.0.0.1:80; tcp 127.0.0.1:80",
        "dns:x.org",
        "127.0.0.1:80",
        "",
    );
}

#[test]
fn the_names_that_a_search_tries_are_one_lookup() {
    // Found in the second domain; before, in the first and as it is.
    check(
        "ask www.a.example; answer www.a.example -; ask www.b.example; answer www.b.example 192.0.2.1; tcp 192.0.2.1:1",
        "www.b.example:1",
        "",
        "dns:www.a.example",
    );
    check(
        "ask x.y; answer x.y -; ask x.y.a.example; answer x.y.a.example 192.0.2.1; tcp 192.0.2.1:1",
        "x.y.a.example:1",
        "",
        "dns:x.y",
    );
    // Found as it is, after the domains.
    check(
        "ask x.y.a.example; ask x.y.b.example; answer x.y.b.example -; ask x.y; answer x.y 192.0.2.1",
        "dns:x.y",
        "",
        "dns:x.y.a.example dns:x.y.b.example",
    );
    // Found nowhere: the plain name stands for all.
    check(
        "ask x.a.example; ask x.b.example; ask x",
        "dns:x",
        "",
        "dns:x.a.example dns:x.b.example",
    );
    // Without the plain name each stands for itself.
    check(
        "ask x.a.example; ask x.b.example",
        "dns:x.a.example dns:x.b.example",
        "",
        "",
    );
    check("ask x.c.example; ask x", "dns:x dns:x.c.example", "", "");
}

#[test]
fn what_the_job_itself_answers_names_nothing() {
    check(
        "bindudp 192.0.2.53:53; ask x.org; answer x.org 192.0.2.1; tcp 192.0.2.1:1",
        "192.0.2.1:1",
        "dns:x.org",
        "",
    );
    check(
        "ask x.org; answer x.org 192.0.2.1; tcp 192.0.2.1:1; send 192.0.2.53:53; bindudp 192.0.2.53:53",
        "192.0.2.1:1",
        "192.0.2.53:53 dns:x.org",
        "",
    );
}

#[test]
fn a_datagram_belongs_to_the_name_that_its_connect_had() {
    check(
        "ask x.org; answer x.org 192.0.2.1; udp 192.0.2.1:1; ask y.org; answer y.org 192.0.2.1; egress 192.0.2.1:1 192.0.2.7:5",
        "dns:y.org x.org:1",
        "",
        "",
    );
    check(
        "@10.11; ask x.org; answer x.org 192.0.2.1; udp 192.0.2.1:1; @10.12; ask y.org; answer y.org 192.0.2.1; udp 192.0.2.1:1; @10.11; egress 192.0.2.1:1 192.0.2.7:5",
        "dns:y.org x.org:1",
        "",
        "192.0.2.1:1",
    );
    // Of a socket that was there before.
    check(
        "ask x.org; answer x.org 192.0.2.1; egress 192.0.2.1:1 192.0.2.7:5",
        "x.org:1",
        "",
        "",
    );
}
