use super::{Kind, Message, MessageError, parse};
use crate::dns::craft::{answer, query, record};

fn names(message: &Message) -> (String, u16) {
    let question = message.question.as_ref().expect("a question");
    (question.name.to_string(), question.kind.0)
}

fn addresses(bytes: &[u8]) -> String {
    let message = parse(bytes).expect("a message");
    let addresses: Vec<String> = message.addresses.iter().map(ToString::to_string).collect();
    addresses.join(" ")
}

#[test]
fn a_query_says_what_is_asked() {
    let message = parse(&query(7, "WWW.example.org", 28)).unwrap();
    assert_eq!(
        names(&message),
        ("www.example.org".to_owned(), Kind::AAAA.0)
    );
    assert!(message.id == 7 && !message.response && message.addresses.is_empty());
    assert_eq!(
        parse(&query(7, "", 2))
            .unwrap()
            .question
            .unwrap()
            .name
            .as_str(),
        "."
    );
}

#[test]
fn an_answer_gives_the_addresses_of_the_name_asked_for() {
    for (records, expected) in [
        ("", ""),
        ("www.example.org A 192.0.2.1", "192.0.2.1"),
        (
            "WWW.Example.Org A 192.0.2.1; www.example.org A 192.0.2.2",
            "192.0.2.1 192.0.2.2",
        ),
        // Of another name, of another kind, of no name at all.
        ("a.example.org A 192.0.2.1", ""),
        ("www.example.org AAAA 2001:db8::1", ""),
        (
            "www.example.org TXT x; www.example.org A 192.0.2.1",
            "192.0.2.1",
        ),
        // Aliases, in any order.
        (
            "www.example.org CNAME a.example.net; a.example.net A 192.0.2.1",
            "192.0.2.1",
        ),
        (
            "b.example.net A 192.0.2.1; a.example.net CNAME b.example.net; www.example.org CNAME a.example.net",
            "192.0.2.1",
        ),
        (
            "www.example.org CNAME a.example.net; b.example.net A 192.0.2.1",
            "",
        ),
        // An alias that leads back.
        (
            "www.example.org CNAME a.example.net; a.example.net CNAME www.example.org; a.example.net A 192.0.2.1",
            "",
        ),
        (
            "www.example.org CNAME www.example.org; www.example.org A 192.0.2.1",
            "",
        ),
    ] {
        assert_eq!(
            addresses(&answer(1, 0, "www.example.org", 1, records)),
            expected,
            "{records}"
        );
    }
    let six = answer(
        1,
        0,
        "a.example",
        28,
        "a.example AAAA 2001:db8::1; a.example A 192.0.2.1",
    );
    assert_eq!(addresses(&six), "2001:db8::1");
    let mapped = answer(1, 0, "a.example", 28, "a.example AAAA ::ffff:192.0.2.1");
    assert_eq!(addresses(&mapped), "192.0.2.1");
}

#[test]
fn a_chain_of_aliases_has_an_end() {
    let chain = |links: usize| {
        let alias = |n: usize| format!("n{n}.x CNAME n{}.x;", n + 1);
        let records: String = (0..links).map(alias).collect();
        let records = format!("{records} n{links}.x A 192.0.2.1");
        addresses(&answer(1, 0, "n0.x", 1, &records))
    };
    assert_eq!(chain(31), "192.0.2.1");
    assert_eq!(chain(32), "");
}

#[test]
fn results_and_truncation_are_told() {
    let message = parse(&answer(9, 3, "a.example", 1, "")).unwrap();
    assert!(message.response && message.rcode == 3 && !message.truncated);
    let mut bytes = answer(9, 0, "a.example", 1, "");
    bytes[2] |= 2;
    assert!(parse(&bytes).unwrap().truncated);
}

#[test]
fn what_is_no_standard_query_is_refused() {
    let mut update = query(1, "a.example", 1);
    update[2] |= 5 << 3;
    assert_eq!(parse(&update), Err(MessageError::Opcode));
    let mut twice = query(1, "a.example", 1);
    twice[5] = 2;
    assert_eq!(parse(&twice), Err(MessageError::Questions));
    let mut chaos = query(1, "a.example", 1);
    let last = chaos.len() - 1;
    chaos[last] = 3;
    assert_eq!(parse(&chaos).unwrap().question, None);
    let mut none = query(1, "a.example", 1);
    none.truncate(12);
    none[5] = 0;
    assert_eq!(parse(&none).unwrap().question, None);
}

#[test]
fn every_cut_is_refused_or_says_less() {
    let whole = answer(
        1,
        0,
        "a.example",
        1,
        "a.example CNAME b.example; b.example A 192.0.2.1",
    );
    for len in 0..whole.len() {
        assert_eq!(
            parse(&whole[..len]),
            Err(MessageError::Malformed),
            "{len} of {}",
            whole.len()
        );
    }
}

#[test]
fn a_name_that_points_to_itself_is_refused() {
    let mut bytes = query(1, "a.example", 1);
    bytes.truncate(12);
    bytes.extend([0xc0, 12, 0, 1, 0, 1]);
    assert_eq!(parse(&bytes), Err(MessageError::Malformed));
}

#[test]
fn any_bytes_leave_a_name_that_entries_may_have() {
    let mut bytes = query(1, "", 1);
    bytes.truncate(12);
    let label = [0, 10, 27, b'.', b'*', b'\\', 0x7f, 0xff];
    bytes.push(8);
    bytes.extend(label);
    bytes.extend([0, 0, 1, 0, 1]);
    let name = parse(&bytes).unwrap().question.unwrap().name;
    assert_eq!(name.as_str(), "\\x00\\x0a\\x1b\\x2e\\x2a\\x5c\\x7f\\xff");
}

#[test]
fn random_bytes_never_panic() {
    // A fixed linear congruential sequence: the same bytes in every run.
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_le_bytes()[7]
    };
    let whole = answer(
        1,
        0,
        "a.example",
        1,
        "a.example CNAME b.example; b.example A 192.0.2.1",
    );
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random() % 8 {
            let at = usize::from(random()) % bytes.len();
            bytes[at] = random();
        }
        let _: Result<Message, MessageError> = parse(&bytes);
        let noise: Vec<u8> = (0..random()).map(|_| random()).collect();
        let _: Result<Message, MessageError> = parse(&noise);
    }
}

#[test]
fn the_records_of_the_tests_are_what_they_say() {
    assert_eq!(
        record("a A 192.0.2.1"),
        [1, b'a', 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 192, 0, 2, 1]
    );
}
