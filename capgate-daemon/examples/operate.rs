//! Changes files as it is told: what the property test of the recorder has several of, at the same time.
//!
//! Each batch on stdin is a directory, then one operation a line, then an empty line. The operations are done in the directory,
//! one after the other, whether they succeed or not; then a line is written to stdout.
//!
//!     create NAME TEXT | write NAME TEXT | truncate NAME | nameless NAME | unlink NAME | rmdir NAME | mkdir NAME
//!     fifo NAME | symlink NAME | link OLD NEW | rename OLD NEW | noreplace OLD NEW | exchange ONE OTHER
//!
//! Example: `printf '/tmp\ncreate a x\nrename a b\n\n' | cargo run --example operate`

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{OpenOptionsExt, symlink},
    },
};

use anyhow::{Context, Result, bail};
use nix::{
    fcntl::{AT_FDCWD, AtFlags, RenameFlags, renameat2},
    libc::O_TMPFILE,
    sys::stat::Mode,
    unistd::{linkat, mkfifo},
};

fn main() -> Result<()> {
    let mut lines = io::stdin().lock().lines();
    while let Some(directory) = lines.next() {
        let directory = directory?;
        let mut batch = Vec::new();
        for line in lines.by_ref() {
            let line = line?;
            if line.is_empty() {
                break;
            }
            batch.push(line);
        }
        env::set_current_dir(&directory).with_context(|| directory.clone())?;
        for line in &batch {
            // Most random operations have nothing to work on.
            let _failed: io::Result<()> = operate(line)?;
        }
        println!("done");
        io::stdout().flush()?;
    }
    Ok(())
}

/// Does one operation; an error is a line that is none.
fn operate(line: &str) -> Result<io::Result<()>> {
    let words: Vec<&str> = line.split(' ').collect();
    let rename = |one: &str, other: &str, flags| {
        renameat2(AT_FDCWD, one, AT_FDCWD, other, flags).map_err(io::Error::from)
    };
    Ok(match *words {
        ["create", name, text] => {
            File::create_new(name).and_then(|mut file| write!(file, "{text}"))
        }
        ["write", name, text] => OpenOptions::new()
            .append(true)
            // A fifo without a reader would wait.
            .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW)
            .open(name)
            .and_then(|mut file| write!(file, "{text}")),
        ["truncate", name] => nix::unistd::truncate(name, 0).map_err(Into::into),
        ["nameless", name] => nameless(name),
        ["unlink", name] => fs::remove_file(name),
        ["rmdir", name] => fs::remove_dir(name),
        ["mkdir", name] => fs::create_dir(name),
        ["fifo", name] => mkfifo(name, Mode::S_IRUSR).map_err(Into::into),
        ["symlink", name] => symlink("nowhere", name),
        ["link", old, new] => fs::hard_link(old, new),
        ["rename", old, new] => rename(old, new, RenameFlags::empty()),
        ["noreplace", old, new] => rename(old, new, RenameFlags::RENAME_NOREPLACE),
        ["exchange", one, other] => rename(one, other, RenameFlags::RENAME_EXCHANGE),
        _ => bail!("no operation: {line}"),
    })
}

/// A file that gets its name when it is there.
fn nameless(name: &str) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(O_TMPFILE)
        .open(".")?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    linkat(AT_FDCWD, path.as_str(), AT_FDCWD, name, follow).map_err(Into::into)
}
