use super::{MASK, MAX_ARG_BYTES, MAX_ARGS, scrub};

fn check(argv: &[&str], expect: &[&str]) {
    let argv: Vec<String> = argv.iter().map(|&arg| arg.to_owned()).collect();
    assert_eq!(scrub(&argv), expect);
    assert_eq!(
        scrub(&scrub(&argv)),
        expect,
        "scrubbing twice changes nothing"
    );
}

#[test]
fn ordinary_command_lines_stay_as_they_are() {
    for argv in [
        &["pytest", "-q", "-k", "not slow"][..],
        &["git", "clone", "https://example.org:8443/a/b.git"],
        &["cc", "-DKEYWORD=1", "-o", "/tmp/x", "a.c"],
        &["docker", "run", "-u", "1000:1000", "image:latest"],
        &["ssh-keygen", "-t", "ed25519", "--key-file", "/tmp/k"],
        &["echo", "monkey=banana", "tokenizer=fast"],
        &["curl", "http://[2001:db8::1]:80/", "http://[2001:db8::1]/"],
        &["sk-learn-a-rather-long-package-name"],
        &["npm_config_cache_directory_of_some_length"],
        &["a=b=c", "==", "=", "://", "-", "--", ""],
        &["é=ü", "пароль=x", "名前"],
    ] {
        check(argv, argv);
    }
}

#[test]
fn the_value_of_an_option_with_a_telling_name_is_masked() {
    check(&["x", "--password", "hunter2"], &["x", "--password", MASK]);
    check(&["x", "--password=hunter2"], &["x", "--password=***"]);
    check(&["x", "--password=two words"], &["x", "--password=***"]);
    check(&["x", "--api-key", "-abc"], &["x", "--api-key", MASK]);
    check(
        &["x", "--github-token", "t", "y"],
        &["x", "--github-token", MASK, "y"],
    );
    check(&["x", "--apiKey=t"], &["x", "--apiKey=***"]);
    check(
        &["x", "--client.secret", "s"],
        &["x", "--client.secret", MASK],
    );
    check(
        &["x", "--no-password", "--verbose"],
        &["x", "--no-password", "--verbose"],
    );
}

#[test]
fn the_value_of_a_variable_with_a_telling_name_is_masked() {
    check(
        &["env", "PGPASSWORD=a b", "psql"],
        &["env", "PGPASSWORD=***", "psql"],
    );
    check(
        &["env", "AWS_SECRET_ACCESS_KEY=x"],
        &["env", "AWS_SECRET_ACCESS_KEY=***"],
    );
    check(
        &["make", "TOKEN=x", "CC=gcc"],
        &["make", "TOKEN=***", "CC=gcc"],
    );
    check(&["env", "PASSWORD="], &["env", "PASSWORD="]);
    // Where the value ends is not known when it opens the argument.
    check(&["sh", "-c", "TOKEN=a b; make"], &["sh", "-c", "TOKEN=***"]);
}

#[test]
fn scripts_are_masked_word_by_word() {
    check(
        &[
            "sh",
            "-c",
            "cd x && TOKEN=abc make; x --password 'hunter2' && echo ok",
        ],
        &[
            "sh",
            "-c",
            "cd x && TOKEN=*** make; x --password '***' && echo ok",
        ],
    );
    check(
        &[
            "sh",
            "-c",
            "curl -H 'Authorization: Bearer abc' https://example.org/",
        ],
        &[
            "sh",
            "-c",
            "curl -H 'Authorization: Bearer ***' https://example.org/",
        ],
    );
    check(
        &["sh", "-c", "echo --token", "next"],
        &["sh", "-c", "echo --token", "next"],
    );
}

#[test]
fn headers_are_masked() {
    check(
        &["curl", "-H", "Authorization: Bearer a.b.c"],
        &["curl", "-H", "Authorization: ***"],
    );
    check(
        &["curl", "-H", "X-Api-Key:abc"],
        &["curl", "-H", "X-Api-Key:***"],
    );
    check(
        &["curl", "-H", "Cookie: a=b; c=d"],
        &["curl", "-H", "Cookie: ***"],
    );
    check(
        &["curl", "-H", "Accept: text/html"],
        &["curl", "-H", "Accept: text/html"],
    );
}

#[test]
fn credentials_in_urls_are_masked() {
    check(
        &["https://u:p@example.org/x"],
        &["https://***@example.org/x"],
    );
    check(&["https://token@example.org"], &["https://***@example.org"]);
    check(
        &["a=https://u:p@w@example.org/x?y"],
        &["a=https://***@example.org/x?y"],
    );
    check(
        &["https://example.org/?a=1&token=abc&b=2"],
        &["https://example.org/?a=1&token=***&b=2"],
    );
    check(&["postgres://u:hunt"], &["postgres://***"]);
    check(
        &["http://u:p@example.org,http://v:q@example.org"],
        &["http://***@example.org,http://***@example.org"],
    );
}

#[test]
fn logins_are_masked() {
    check(&["curl", "-u", "me:hunter2"], &["curl", "-u", "me:***"]);
    check(&["curl", "--user", "me"], &["curl", "--user", "me"]);
}

#[test]
fn tokens_of_known_shape_are_masked_wherever_they_stand() {
    let secret = "A1b2C3d4E5f6A1b2C3d4E5f6A1b2C3d4E5f6";
    for prefix in [
        "ghp_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "sk-",
        "npm_",
        "AKIA",
        "eyJ",
    ] {
        let token = format!("{prefix}{secret}");
        check(&[&token], &[MASK]);
        check(&[&format!("a:{token},b")], &["a:***,b"]);
    }
    check(
        &["eyJhbGciOiJIUzI1NiJ9aaaaaaaaaaaaaaaaaaaa.x.y"],
        &["***.x.y"],
    );
}

#[test]
fn long_command_lines_are_bounded_and_masked_before_they_are_cut() {
    let long = format!("{}--x é", "é".repeat(MAX_ARG_BYTES));
    let many: Vec<String> = std::iter::repeat_n(long, MAX_ARGS + 5).collect();
    let scrubbed = scrub(&many);
    assert_eq!(scrubbed.len(), MAX_ARGS + 1);
    assert_eq!(scrubbed.last().map(String::as_str), Some("… 5 more"));
    assert!(
        scrubbed
            .iter()
            .all(|arg| arg.len() <= MAX_ARG_BYTES + "…".len())
    );

    let url = format!(
        "https://{}:{}@example.org",
        "u".repeat(600),
        "p".repeat(600)
    );
    assert_eq!(scrub(&[url]), ["https://***@example.org"]);
}

#[test]
fn a_secret_behind_its_name_is_masked_in_any_short_script() {
    let mut scripts = vec![String::new()];
    for _ in 0..4 {
        let longer: Vec<String> = scripts
            .iter()
            .flat_map(|script| {
                ["key", "=", ":", "'", " ", "--", "://", "@", "é"]
                    .map(|part| format!("{script}{part}"))
            })
            .collect();
        scripts.extend(longer);
    }
    for script in scripts {
        let script = format!("{script} --key=hunter2 {script}");
        let scrubbed = scrub(&[script.clone(), "--key".to_owned(), "hunter3".to_owned()]);
        let leaks = scrubbed.iter().any(|arg| arg.contains("hunter"));
        assert!(!leaks, "{script:?}: {scrubbed:?}");
    }
}
