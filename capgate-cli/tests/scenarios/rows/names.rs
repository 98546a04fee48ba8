//! Names made and changed by other calls than open.

use crate::row::{List, Row};

pub(crate) fn rows() -> Vec<Row> {
    vec![
        Row::program("truncate_by_name", "names truncate a")
            .given("a")
            .writes("a"),
        Row::program("truncate_by_descriptor", "names ftruncate a")
            .given("a")
            .writes("a"),
        Row::program("fallocate", "names fallocate a")
            .given("a")
            .writes("a"),
        Row::program("a_hard_link_counts_where_it_is_made", "names link a b")
            .given("a")
            .writes("b"),
        Row::sh("a_symbolic_link_counts_where_it_is_made", "ln -s nowhere b").writes("b"),
        Row::program("a_fifo", "names fifo p").writes("p"),
        Row::program("a_socket_by_mknod", "names socket s").writes("s"),
        Row::program("a_file_by_mknod", "names regular f").writes("f"),
        Row::program("attributes_are_evidence", "names attribute a")
            .given("a")
            .evidence(List::Metadata, "a"),
        Row::program("a_file_without_a_name", "names nameless"),
        Row::program("a_file_that_is_named_later", "names named f").writes("f"),
        Row::program("a_file_that_is_named_through_proc", "names named-by-proc f").writes("f"),
        Row::program("a_descriptor_opened_again", "names again a")
            .given("a")
            .writes("a"),
        Row::program("open_by_handle", "names handle a")
            .given("a")
            .writes("a"),
        Row::program("two_files_change_places", "names exchange a b")
            .given("a b")
            .writes("a b"),
        Row::sh(
            "two_directories_change_places",
            "{bin}/names exchange d e; echo x > d/x; rm e/a",
        )
        .given("d/a e/b")
        .execs("{bin}/names")
        // What was removed at e/a had been d/a before the job.
        .writes("d/ e/ d/x d/a"),
        Row::program("a_rename_that_replaces_nothing", "names noreplace a b")
            .given("a")
            .writes("a b"),
        Row::sh(
            "what_replaced_nothing_and_is_gone_is_transient",
            "echo > a; {bin}/names noreplace a b; rm b",
        )
        .execs("{bin}/names")
        .evidence(List::Transient, "a b"),
        Row::program("a_rename_that_leaves_a_whiteout", "names whiteout a b")
            .given("a")
            .writes("a b"),
        Row::program("anonymous_memory_is_no_file", "names memory"),
        Row::program("many_lives_under_one_name", "names loop a").writes("a"),
        Row::sh(
            "a_directory_that_was_there_is_renamed",
            "mv d e; echo x > e/x",
        )
        .given("d/a")
        .writes("d/ e/ e/x"),
        Row::sh("what_is_removed_from_a_renamed_directory", "mv d e; rm e/a")
            .given("d/a d/b")
            .writes("d/ e/ d/a"),
        Row::sh(
            "what_is_written_in_a_renamed_directory",
            "mv d e; echo x >> e/a",
        )
        .given("d/a d/b")
        .writes("d/ e/ d/a e/a"),
        Row::sh(
            "a_directory_of_the_job_carries_its_names",
            "mkdir t; echo x > t/x; mv t d",
        )
        .writes("d/x")
        .evidence(List::Transient, "t/x"),
        Row::sh("a_file_becomes_a_directory", "rm a; mkdir a; echo x > a/x")
            .given("a")
            .writes("a a/ a/x"),
        Row::sh(
            "links_that_leave_the_root_when_their_directory_moves",
            "mv d/e e; echo x > e/l/f",
        )
        .given("d/e/ d/e/l->../../outside")
        .outside(|site| site.directory("outside"))
        .writes("d/e/ e/ {site}/outside/f"),
        Row::program("a_name_in_a_page_that_was_never_touched", "page untouched")
            .given("old")
            .outside(|site| std::fs::write(site.path("repo/string"), "name\0old\0").unwrap())
            .writes("name old"),
        Row::program("a_name_that_ends_where_a_page_ends", "page border")
            .given("old")
            .writes("name old"),
    ]
}
