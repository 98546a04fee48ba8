//! Talks to capgated by hand: reads commands on stdin, one a line, and answers each with one line on stdout.
//!
//!     connect NAME SOCKET   make a connection and greet: the daemon's answer
//!     open NAME SOCKET      make a connection, without a greeting
//!     ask NAME JSON         send a request: the daemon's answer
//!     start NAME JSON       send a request with the working directory and / as descriptors: the answer
//!     start-at DIR NAME JSON    the same with another directory, which is not looked into
//!     directories NAME N    send N descriptors with an empty message
//!     send NAME TEXT        send a line and wait for nothing
//!     flood NAME BYTES      send that many bytes without a newline: `sent`, or why not
//!     receive NAME          the next line from the daemon, or `closed`
//!     close NAME            close a connection
//!     leak NAME             let programs that are executed inherit a connection: its descriptor
//!     cgroup                the cgroup of this process
//!     run COMMAND           run a shell command: its exit status
//!     spawn COMMAND         begin a shell command: its process id
//!     exec COMMAND          become a shell command
//!
//! What the project's tests use to be many different clients. Example, as root:
//!
//!     printf 'connect a /run/capgate/capgated.sock\nask a {"request":"status"}\n' | cargo run --example talk

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, IoSlice, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::{fs::OpenOptionsExt, net::UnixStream, process::CommandExt},
    },
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use capgate_common::protocol::{Request, VERSION};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sys::socket::{ControlMessage, MsgFlags, sendmsg},
};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct Connection {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Connection {
    fn open(path: &str) -> Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            reader: BufReader::new(stream.try_clone()?),
            stream,
        })
    }

    fn send(&mut self, line: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[_] = if raw.is_empty() { &[] } else { &rights };
        let sent = sendmsg::<()>(
            self.stream.as_raw_fd(),
            &[IoSlice::new(line)],
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        self.stream.write_all(&line[sent..])?;
        Ok(())
    }

    fn receive(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Ok("closed".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            // What a daemon does that hangs up on unread bytes.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok("closed".to_owned()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Splits off the first word.
fn word(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

fn shell(command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command);
    shell
}

fn answer(connections: &mut HashMap<String, Connection>, line: &str) -> Result<String> {
    let (verb, rest) = word(line);
    let (name, text) = word(rest);
    let line = format!("{text}\n").into_bytes();
    match verb {
        "open" | "connect" => {
            let mut connection = Connection::open(text)?;
            let said = if verb == "connect" {
                let hello = Request::Hello {
                    version: VERSION,
                    program: "talk".to_owned(),
                };
                let mut line = serde_json::to_vec(&hello)?;
                line.push(b'\n');
                // A daemon that refuses hangs up without listening: what it said is there to be read.
                let _refused = connection.send(&line, &[]);
                connection.receive()?
            } else {
                "open".to_owned()
            };
            connections.insert(name.to_owned(), connection);
            return Ok(said);
        }
        "close" => {
            connections.remove(name).context("no such connection")?;
            return Ok("closed".to_owned());
        }
        "cgroup" => {
            let text = std::fs::read_to_string("/proc/self/cgroup")?;
            let path = text.lines().find_map(|line| line.strip_prefix("0::"));
            return Ok(path.context("no v2 cgroup")?.to_owned());
        }
        "start-at" => {
            let root = File::options()
                .read(true)
                .custom_flags(libc::O_PATH)
                .open(name)?;
            let (name, text) = word(text);
            let connection = connections.get_mut(name).context("no such connection")?;
            let top = File::open("/")?;
            let line = format!("{text}\n").into_bytes();
            connection.send(&line, &[root.as_fd(), top.as_fd()])?;
            return connection.receive();
        }
        "run" => return Ok(format!("{}", shell(rest).status()?)),
        "spawn" => return Ok(shell(rest).spawn()?.id().to_string()),
        "exec" => return Err(shell(rest).exec().into()),
        _ => {}
    }
    let connection = connections.get_mut(name).context("no such connection")?;
    match verb {
        "ask" => {
            connection.send(&line, &[])?;
            connection.receive()
        }
        "start" => {
            let (root, top) = (File::open(".")?, File::open("/")?);
            connection.send(&line, &[root.as_fd(), top.as_fd()])?;
            connection.receive()
        }
        "directories" => {
            let directories: Vec<File> = (0..text.parse()?)
                .map(|_| File::open("/"))
                .collect::<io::Result<_>>()?;
            let descriptors: Vec<_> = directories.iter().map(AsFd::as_fd).collect();
            connection.send(b" ", &descriptors)?;
            Ok("sent".to_owned())
        }
        "send" => {
            connection.send(&line, &[])?;
            Ok("sent".to_owned())
        }
        "flood" => {
            let bytes = vec![b'x'; text.parse()?];
            match connection.stream.write_all(&bytes) {
                Ok(()) => Ok("sent".to_owned()),
                Err(error) => Ok(format!("error: {error}")),
            }
        }
        "receive" => connection.receive(),
        "leak" => {
            let fd = connection.stream.as_fd();
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(fd.as_raw_fd().to_string())
        }
        other => bail!("no such command: {other}"),
    }
}

fn main() -> Result<()> {
    let mut connections = HashMap::new();
    let mut stdout = io::stdout();
    for line in io::stdin().lines() {
        let said = match answer(&mut connections, &line?) {
            Ok(said) => said,
            Err(error) => format!("error: {error:#}"),
        };
        writeln!(stdout, "{said}")?;
        stdout.flush()?;
    }
    Ok(())
}
