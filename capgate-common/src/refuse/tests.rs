use super::{Refusal, Refusals};
use crate::{glob::GlobError, pathform::Forms};

fn parse(texts: &[&str]) -> Vec<Refusal> {
    let refusals = texts.iter().map(|text| text.parse());
    refusals.collect::<Result<_, _>>().expect("refusals")
}

fn refusals(texts: &[&str]) -> Refusals {
    Refusals::new(parse(texts)).expect("usable")
}

#[test]
fn a_program_is_refused_by_its_name_or_by_its_path() {
    let check = |texts: &[&str], entry: &str, expect: bool| {
        assert_eq!(refusals(texts).program(entry), expect, "{texts:?} {entry}");
    };
    check(&["exec:az"], "/usr/bin/az", true);
    check(&["exec:az"], "az", true);
    check(&["exec:az"], "tests/bin/az", true);
    check(&["exec:az"], "~/bin/az", true);
    check(&["exec:az"], "/usr/bin/azure", false);
    check(&["exec:az"], "/usr/az/bin", false);
    check(&["exec:kube*"], "/usr/bin/kubectl", true);
    check(&["exec:/usr/bin/az"], "/usr/bin/az", true);
    check(&["exec:/usr/bin/az"], "/usr/local/bin/az", false);
    check(&["exec:/opt/az/**"], "/opt/az/bin/python3", true);
    check(&["exec:tools/az"], "tools/az", true);
    check(&["exec:memfd:az"], "memfd:az", true);
    check(&["write:az"], "az", false);
}

#[test]
fn a_destination_is_refused_by_the_syntax_of_allow_net() {
    let check = |text: &str, entry: &str, expect: bool| {
        let entry = entry.parse().expect("an entry");
        assert_eq!(refusals(&[text]).destination(&entry), expect, "{text}");
    };
    check("net:169.254.169.254:*", "169.254.169.254:80", true);
    check("net:169.254.169.254:*", "169.254.169.253:80", false);
    check("net:192.0.2.0/24:443", "192.0.2.7:443", true);
    check("unix:/run/docker.sock", "unix:/run/docker.sock", true);
    check("unix:/run/docker.sock", "unix:/run/docker2.sock", false);
    check("unix:@abstract", "unix:@abstract", true);
    check("net:*.example.org:443", "www.example.org:443", true);
    check("net:*.example.org:443", "dns:www.example.org", false);
    check("net:dns:*.example.org", "dns:www.example.org", true);
}

#[test]
fn what_would_refuse_nothing_is_an_error_or_taken_for_what_it_means() {
    let problem = |text: &str| text.parse::<Refusal>().expect_err(text);
    assert!(problem("net:self").contains("`self` cannot be refused"));
    assert!(problem("exec:/opt/az/").contains("`exec:/opt/az/**`"));
    assert!(refusals(&["write:out/"]).write("out"));
    assert!(refusals(&["write:**/cache/"]).write("a/cache"));
    for text in ["write:out//", "write:"] {
        assert!(Refusals::new(parse(&[text])).is_err(), "{text}");
    }
}

#[test]
fn moving_a_directory_moves_what_is_refused_in_it() {
    let refusals = refusals(&["write:~/.ssh/**", "write:/etc/passwd"]);
    for (entry, write, displace) in [
        ("~/.ssh/id", true, true),
        ("~/.ssh", false, true),
        ("~", false, true),
        ("~/.sshx", false, false),
        ("/etc/passwd", true, true),
        ("/etc", false, true),
        ("/etc/passw", false, false),
    ] {
        assert_eq!(refusals.write(entry), write, "{entry}");
        assert_eq!(refusals.displace(entry), displace, "{entry}");
    }
}

#[test]
fn links_in_refused_paths_are_followed() {
    let forms = Forms::new(b"/work", Some(b"/home/u"), 1000).expect("forms");
    let real = |path: &[u8]| {
        Some(
            match path {
                b"/var/run" => &b"/run"[..],
                b"/var/run/there.sock" => b"/run/there.sock",
                b"/home/u/.ssh" => b"/secrets/u",
                b"/work/tools" => b"/opt/tools",
                b"/usr/bin/az" => b"/usr/lib/az/az",
                b"/usr/bin/nc" => b"/bin/busybox",
                _ => return None,
            }
            .to_vec(),
        )
    };
    let followed = refusals(&[
        "unix:/var/run/docker.sock",
        "unix:/var/run/there.sock",
        "write:~/.ssh/**",
        "exec:tools/*",
        "exec:/usr/bin/az",
        "exec:/usr/bin/nc",
        "exec:/missing/x",
    ])
    .followed(&forms, &real)
    .expect("usable");
    let net = |entry: &str| followed.destination(&entry.parse().expect("an entry"));
    assert!(net("unix:/run/docker.sock") && net("unix:/var/run/docker.sock"));
    assert!(net("unix:/run/there.sock") && !net("unix:/run/other.sock"));
    assert!(followed.write("/secrets/u/id") && followed.write("~/.ssh/id"));
    assert!(followed.displace("/secrets"));
    assert!(followed.program("/opt/tools/az") && followed.program("/usr/lib/az/az"));
    assert!(followed.program("/missing/x"));
    assert!(followed.program("/usr/bin/nc") && !followed.program("/bin/busybox"));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (text, phrase) in [
        ("az", "`exec:`, `net:`, `unix:` or `write:`"),
        ("", "`exec:`, `net:`, `unix:` or `write:`"),
        ("exec:", "a program is expected"),
        ("net:", "expected"),
        ("net:192.0.2.1", "expected"),
    ] {
        let problem = text.parse::<Refusal>().expect_err(text);
        assert!(problem.contains(phrase), "{text}: {problem}");
    }
    for (text, phrase) in [
        ("exec:*", "matches everything"),
        ("exec:/**", "matches everything"),
        ("write:**", "matches everything"),
        ("write:", "an empty pattern"),
        ("write:/a/../b", "`..`"),
    ] {
        let GlobError { index, problem } =
            Refusals::new(parse(&["exec:az", text])).expect_err(text);
        assert_eq!(index, Some(1), "{text}");
        assert!(problem.contains(phrase), "{text}: {problem}");
    }
}
