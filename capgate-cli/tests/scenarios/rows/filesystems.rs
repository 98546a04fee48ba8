//! One story on every kind of file system: the same ledger.

use std::{
    fs::{self, File},
    process::Command,
};

use crate::{
    cells::PACKAGED,
    row::{List, Row},
    site::{Site, succeed},
};

/// What is there before.
const GIVEN: &str = "a old gone big keep/";
/// What happens. Directories that were there are not renamed: overlayfs would make mv copy them.
const STORY: &str = "echo x >> a; echo x > new; mv old renamed; rm gone; mkdir made; echo x > made/m; mv made moved; ln a hard; \
    ln -s a soft; echo x > t.tmp; mv t.tmp t; mkfifo p; chmod 600 a; rmdir keep; truncate -s 1 big";
/// And its answer.
const WRITES: &str = "a new old renamed gone moved/m hard soft t p keep/ big";

fn told(name: &'static str) -> Row {
    Row::sh(name, STORY)
        .writes(WRITES)
        .evidence(List::Transient, "made/m t.tmp")
        .evidence(List::Metadata, "a")
}

/// Mounts a fresh file system from a file over the root.
fn image(site: &Site, kind: &str) {
    // The smallest that both kinds can be, and a hole but for what is used.
    let path = site.path("image");
    File::create(&path).unwrap().set_len(320 << 20).unwrap();
    succeed(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&path));
    succeed(
        Command::new("mount")
            .args(["-t", kind, "-o", "loop"])
            .arg(&path)
            .arg(site.path("repo")),
    );
    site.mounted("repo");
    site.give(GIVEN);
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        told("the_story_where_the_checkout_is").given(GIVEN),
        told("the_story_on_tmpfs").outside(|site| {
            site.mount("tmpfs", "none".as_ref(), "repo", "");
            site.give(GIVEN);
        }),
        told("the_story_on_overlayfs").outside(|site| {
            // The checkout is below, and what is written goes to memory.
            site.give(GIVEN);
            fs::rename(site.path("repo"), site.path("lower")).unwrap();
            site.mount("tmpfs", "none".as_ref(), "memory", "");
            site.directory("memory/upper");
            site.directory("memory/work");
            let options = site.fill(
                "lowerdir={site}/lower,upperdir={site}/memory/upper,workdir={site}/memory/work",
            );
            site.mount("overlay", "overlay".as_ref(), "repo", &options);
        }),
        told("the_story_on_xfs")
            .cells(PACKAGED)
            .needs("images")
            .outside(|site| image(site, "xfs")),
        told("the_story_on_btrfs")
            .cells(PACKAGED)
            .needs("images")
            .outside(|site| image(site, "btrfs")),
        Row::command(
            "python_replaces_a_file",
            &[
                "/usr/bin/python3.11",
                "-Ic",
                "import os; open('x.tmp', 'w').close(); os.replace('x.tmp', 'x')",
            ],
        )
        .cells(PACKAGED)
        .writes("x")
        .evidence(List::Transient, "x.tmp"),
    ]
}
