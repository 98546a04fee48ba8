use std::{collections::BTreeSet, net::IpAddr};

use super::{Column, Counts, Entry, Evidence, Item, Process};

fn balanced() -> Counts {
    Counts {
        attempted: 9,
        emitted: 6,
        deduplicated: 2,
        lost: 1,
        received: 6,
        decoded: 5,
        rejected: 1,
    }
}

#[test]
fn the_file_has_the_shape_of_the_design() {
    let by = vec![Process {
        pid: 7,
        exe: "/bin/sh".to_owned(),
        argv: vec!["sh".to_owned()],
        status: Some(3),
    }];
    let evidence = Evidence {
        entries: vec![Entry {
            column: Column::Writes,
            entry: "a".to_owned(),
            addresses: BTreeSet::new(),
            ops: vec!["create".to_owned()],
            count: 3,
            first_ms: 120,
            by: by.clone(),
        }],
        own: vec![Item {
            entry: "127.0.0.1:80".to_owned(),
            ops: vec!["connect".to_owned()],
            count: 1,
            first_ms: 5,
            by: Vec::new(),
        }],
        leftovers: by,
        counts: balanced(),
        ..Evidence::default()
    };
    let json = evidence.to_json();
    let compact: String = json.split_whitespace().collect();
    assert_eq!(
        compact,
        concat!(
            r#"{"entries":[{"column":"writes","entry":"a","ops":["create"],"count":3,"first_ms":120,"#,
            r#""by":[{"pid":7,"exe":"/bin/sh","argv":["sh"],"status":3}]}],"transient":[],"#,
            r#""self":[{"entry":"127.0.0.1:80","ops":["connect"],"count":1,"first_ms":5,"by":[]}],"#,
            r#""probes":[],"ambient":[],"ignored":[],"metadata":[],"inherited":[],"#,
            r#""leftovers":[{"pid":7,"exe":"/bin/sh","argv":["sh"],"status":3}],"skips":[],"#,
            r#""counts":{"attempted":9,"emitted":6,"deduplicated":2,"lost":1,"received":6,"decoded":5,"rejected":1}}"#,
        )
    );
    assert!(json.ends_with("}\n"));
    assert_eq!(
        Evidence::from_json(json.as_bytes()).expect("evidence"),
        evidence
    );
}

#[test]
fn the_addresses_behind_a_name_stand_with_its_entry() {
    let addr = |text: &str| text.parse::<IpAddr>().expect("an address");
    let addresses = BTreeSet::from([addr("192.0.2.2"), addr("2001:db8::1")]);
    let evidence = Evidence {
        entries: vec![Entry {
            column: Column::Net,
            entry: "www.example.org:443".to_owned(),
            addresses: addresses.clone(),
            ops: vec!["connect".to_owned()],
            count: 1,
            first_ms: 5,
            by: Vec::new(),
        }],
        counts: balanced(),
        ..Evidence::default()
    };
    let json = evidence.to_json();
    let compact: String = json.split_whitespace().collect();
    assert!(
        compact.contains(r#""addresses":["192.0.2.2","2001:db8::1"],"ops""#),
        "{json}"
    );
    let read = Evidence::from_json(json.as_bytes()).expect("evidence");
    assert_eq!(read.addresses()["www.example.org:443"], addresses);
}

#[test]
fn unknown_keys_are_refused() {
    let json = Evidence::default()
        .to_json()
        .replace("\"probes\"", "\"probe\"");
    let error = Evidence::from_json(json.as_bytes()).expect_err("an unknown key");
    assert!(
        error.to_string().contains("unknown field `probe`"),
        "{error}"
    );
}

#[test]
fn counts_that_add_up_are_balanced() {
    assert_eq!(Counts::default().imbalance(), None);
    assert_eq!(balanced().imbalance(), None);
    let full = Counts {
        attempted: u64::MAX,
        emitted: u64::MAX,
        received: u64::MAX,
        decoded: u64::MAX,
        ..Counts::default()
    };
    assert_eq!(full.imbalance(), None);
}

#[test]
fn each_count_that_is_off_is_told() {
    let off: [fn(&mut Counts); 7] = [
        |counts| counts.attempted += 1,
        |counts| counts.emitted += 1,
        |counts| counts.deduplicated += 1,
        |counts| counts.lost += 1,
        |counts| counts.received += 1,
        |counts| counts.decoded += 1,
        |counts| counts.rejected += 1,
    ];
    for change in off {
        let mut counts = balanced();
        change(&mut counts);
        assert!(counts.imbalance().is_some(), "{counts:?}");
    }
}
