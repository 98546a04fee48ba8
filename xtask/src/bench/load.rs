//! `xtask load`: one kind of call in a loop. The same program runs bare, in a job and under strace.

use std::{
    fs::{File, OpenOptions},
    io,
    net::{TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::Command,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::{
    libc,
    sys::socket::{setsockopt, sockopt},
};

/// How many times the load is measured in one run; the median is the run's answer. So many that one part takes about a
/// millisecond, less than a turn on the CPU: on a busy machine most parts then pass without another process in between.
const PARTS: u32 = 200;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A system call that no probe records.
    Getppid,
    /// Open an existing file for reading, and close it.
    OpenRead,
    /// Open one and the same file for writing, and close it.
    OpenWrite,
    /// Open a file that does not exist yet for writing, and close it.
    OpenNew,
    /// Start a program that does nothing, and wait for it.
    Exec,
    /// Connect a UDP socket.
    UdpConnect,
    /// Make a TCP connection, and break it off.
    TcpConnect,
}

impl Kind {
    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }
}

/// Calls `count` times, with files in `dir`, and prints nanoseconds per call.
pub(crate) fn run(kind: Kind, count: u32, dir: &Path) -> Result<()> {
    let mut call = prepare(kind, dir)
        .with_context(|| format!("cannot prepare {kind:?} in {}", dir.display()))?;
    let per_part = (count / PARTS).max(1);
    let mut parts = Vec::new();
    for part in 0..PARTS {
        let started = Instant::now();
        for i in 0..per_part {
            call(part * per_part + i).with_context(|| format!("{kind:?} failed"))?;
        }
        parts.push(started.elapsed().as_nanos() / u128::from(per_part));
    }
    parts.sort_unstable();
    match parts.get(parts.len() / 2) {
        Some(median) => println!("{median}"),
        None => bail!("nothing was measured"),
    }
    Ok(())
}

/// The call; it is told how many there were before.
type Call = Box<dyn FnMut(u32) -> io::Result<()>>;

/// Everything that must be there before the first call.
fn prepare(kind: Kind, dir: &Path) -> io::Result<Call> {
    let file = dir.join("file");
    File::create(&file)?;
    let new = dir.to_owned();
    Ok(match kind {
        Kind::Getppid => Box::new(|_| {
            nix::unistd::getppid();
            Ok(())
        }),
        Kind::OpenRead => Box::new(move |_| File::open(&file).map(drop)),
        Kind::OpenWrite => Box::new(move |_| OpenOptions::new().write(true).open(&file).map(drop)),
        Kind::OpenNew => Box::new(move |i| File::create_new(new.join(i.to_string())).map(drop)),
        Kind::Exec => Box::new(|_| Command::new("/bin/true").status().map(drop)),
        Kind::UdpConnect => {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            // The discard port; nothing is sent to it.
            Box::new(move |_| socket.connect("127.0.0.1:9"))
        }
        Kind::TcpConnect => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let to = listener.local_addr()?;
            // Without waiting for the last packets of each, so that ports do not run out.
            let at_once = libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            Box::new(move |_| {
                let stream = TcpStream::connect(to)?;
                setsockopt(&stream, sockopt::Linger, &at_once)?;
                listener.accept().map(drop)
            })
        }
    })
}
