//! Names as calls give them, and what they mean.

use std::os::unix::fs::symlink;

use crate::row::{List, Row};

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::sh("a_relative_name_goes_up", "cd sub; echo x > ../a")
            .given("sub/")
            .writes("a"),
        Row::program("names_start_at_descriptors", "dirfds")
            .given("sub/ other/ away/ sub/old")
            .writes("sub/f sub/old other/new"),
        Row::sh("a_link_to_a_file_is_the_file", "ln -s a b; echo x > b")
            .given("a")
            .writes("a b"),
        Row::sh(
            "a_link_to_a_directory_is_the_directory",
            "ln -s {site}/out out; echo x > out/f",
        )
        .outside(|site| site.directory("out"))
        .writes("out {site}/out/f"),
        Row::sh("removed_names_stay_known", "rm a; rmdir d")
            .given("a d/")
            .writes("a d/"),
        Row::sh(
            "a_temporary_name_gives_way_to_the_final_one",
            "echo > x.tmp; mv x.tmp x",
        )
        .writes("x")
        .evidence(List::Transient, "x.tmp"),
        Row::sh(
            "moving_to_another_file_system",
            "echo > x.tmp; mv x.tmp {site}/else/x",
        )
        .outside(|site| site.mount("tmpfs", "none".as_ref(), "else", ""))
        .writes("{site}/else/x")
        .evidence(List::Transient, "x.tmp"),
        Row::program("a_shared_mapping_needs_no_write", "mapped a")
            .given("a")
            .writes("a"),
        Row::program("reading_and_writing_is_writing", "open rdwr a")
            .given("a")
            .writes("a"),
        Row::program("a_refused_open_is_no_write", "open refused a").given("a"),
        Row::program("creating_what_exists_is_no_write", "open creat a").given("a"),
        Row::sh("descriptors_that_a_job_began_with_are_evidence", "echo x")
            .evidence(List::Inherited, "{site}/stdout"),
        Row::sh("modes_are_evidence", "chmod 700 a")
            .given("a")
            .evidence(List::Metadata, "a"),
        Row::sh("a_root_that_is_a_link", "echo x > f")
            .outside(|site| symlink("repo", site.path("link")).unwrap())
            .root("link")
            .writes("f"),
        Row::sh("a_failing_job_is_recorded", "echo x > f; exit 3")
            .writes("f")
            .code(3),
        Row::program("truncating_needs_no_write", "open trunc a")
            .given("a")
            .writes("a"),
        Row::sh("devices_that_hold_nothing_do_not_count", "echo x > /dev/null"),
        Row::sh(
            "names_are_bytes",
            r#"echo x > "$(printf 'a\nb')"; echo x > "$(printf '\377')"; echo x > 'b\'; echo x > 'c (deleted)'; mkdir '~'; echo x > '~/d'"#,
        )
        .writes_exactly(&[r"a\x0ab", r"\xff", r"b\\", "c (deleted)", r"\x7e/d"]),
        Row::sh("a_target_that_nobody_knew_counts_as_its_directory", "mv a b; rm b")
            .given("a")
            .writes("a *"),
        Row::sh(
            "a_transient_name_outside_of_the_usual_places_counts_as_its_directory",
            "echo x > /run/capgate-scenario; rm /run/capgate-scenario",
        )
        .writes("/run/*"),
        Row::sh("a_transient_name_is_none", "echo x > t; rm t; mkdir d; echo x > d/t; rm -r d")
            .evidence(List::Transient, "t d/t"),
        Row::program("a_handle_on_a_path_is_no_write", "open path a").given("a"),
        Row::program("what_is_there_already_is_not_made_again", "open exclusive a").given("a"),
    ]
}
