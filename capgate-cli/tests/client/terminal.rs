//! The wrapper on a terminal: keys, job control, size, hang-up.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, ExitStatus},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    pty::{Winsize, openpty},
};

use crate::stand::{Stand, until};

/// Says each signal that it gets into the file of its first argument, and on the terminal.
const REPORTER: &str = r#"
    open my $log, ">>", shift or die;
    for my $signal (qw(HUP INT QUIT WINCH CONT)) {
        $SIG{$signal} = sub { syswrite $log, "$signal\n"; syswrite STDOUT, "got $signal\n"; exit 3 if $signal eq "HUP" };
    }
    $SIG{TERM} = sub { exit 0 };
    syswrite STDOUT, "ready $$\n";
    my $end = time + 60;
    select undef, undef, undef, 1 while time < $end;
"#;

/// A terminal, and a program that leads its session.
pub(crate) struct Terminal {
    master: Option<OwnedFd>,
    screen: Arc<(Mutex<Vec<u8>>, Condvar)>,
    /// How much of the screen has been looked at.
    read: usize,
    child: Child,
}

impl Terminal {
    pub(crate) fn start(command: &mut Command) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(Some(&size), None).unwrap();
        for end in [&pty.master, &pty.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        let slave = pty.slave;
        command
            .env("NO_COLOR", "1")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap());
        // SAFETY: setsid and ioctl are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() == -1 || libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            })
        };
        let child = command.spawn().unwrap();
        // The command keeps copies of the terminal, which would keep it from hanging up.
        command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        drop(slave);
        let screen = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let for_reader = Arc::clone(&screen);
        let mut reader = File::from(pty.master.as_fd().try_clone_to_owned().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Until the terminal hangs up.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                for_reader
                    .0
                    .lock()
                    .unwrap()
                    .extend_from_slice(&bytes[..count]);
                for_reader.1.notify_all();
            }
        });
        Self {
            master: Some(pty.master),
            screen,
            read: 0,
            child,
        }
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        let master = self.master.as_ref().unwrap().try_clone().unwrap();
        File::from(master).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `words` appear, after what was expected before; comes back with what came up to there.
    #[track_caller]
    pub(crate) fn expect(&mut self, words: &str) -> String {
        let (screen, changed) = &*self.screen;
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut screen = screen.lock().unwrap();
        loop {
            let new = &screen[self.read..];
            let found = new
                .windows(words.len())
                .position(|it| it == words.as_bytes());
            if let Some(at) = found {
                let text = String::from_utf8_lossy(&new[..at]).into_owned();
                self.read += at + words.len();
                return text;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "`{words}` did not appear in: {}",
                String::from_utf8_lossy(new)
            );
            screen = changed.wait_timeout(screen, left).unwrap().0;
        }
    }

    fn resize(&self, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: the structure outlives the call, which only reads it.
        let done = unsafe {
            libc::ioctl(
                self.master.as_ref().unwrap().as_raw_fd(),
                libc::TIOCSWINSZ,
                &raw const size,
            )
        };
        assert_eq!(done, 0);
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the program on the terminal ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The reporter under the wrapper, as leader of the terminal's session.
fn reporter(stand: &Stand) -> Terminal {
    let log = stand.outside("log");
    Terminal::start(&mut stand.run(&["perl", "-e", REPORTER, log.to_str().unwrap()]))
}

fn log(stand: &Stand) -> String {
    fs::read_to_string(stand.outside("log")).unwrap()
}

#[test]
fn the_command_is_on_the_terminal() {
    let stand = Stand::new();
    let script = "test -t 0 -a -t 1 -a -t 2 && stty size && tty && echo on $(ps -o tpgid= -p $$) $(ps -o pgid= -p $$) end";
    let mut terminal = Terminal::start(&mut stand.run(&["sh", "-c", script]));
    terminal.expect("24 80\r\n/dev/pts/");
    terminal.expect("on ");
    let said = terminal.expect(" end");
    let groups: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(groups[0], groups[1], "in the foreground");
    terminal.expect("capgate: match");
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn a_key_gives_one_signal() {
    let stand = Stand::new();
    let mut terminal = reporter(&stand);
    terminal.expect("ready");
    for (key, name) in [("\x03", "INT"), ("\x1c", "QUIT"), ("\x03", "INT")] {
        terminal.type_in(key);
        terminal.expect(&format!("got {name}\r\n"));
    }
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(terminal.child.id()).unwrap()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    terminal.wait();
    assert_eq!(log(&stand), "INT\nQUIT\nINT\n");
}

#[test]
fn ctrl_c_ends_an_ordinary_command() {
    let stand = Stand::new();
    let mut terminal =
        Terminal::start(&mut stand.run(&["sh", "-c", "echo ready; exec sleep 1000"]));
    terminal.expect("ready");
    terminal.type_in("\x03");
    assert_eq!(terminal.wait().code(), Some(130));
    assert_eq!(stand.ledger().recording.lost["interrupted"], 1);
}

#[test]
fn a_new_size_is_one_signal() {
    let stand = Stand::new();
    let mut terminal = reporter(&stand);
    terminal.expect("ready");
    for rows in [30, 40, 50] {
        terminal.resize(rows);
        terminal.expect("got WINCH\r\n");
    }
    terminal.type_in("\x03");
    terminal.expect("got INT\r\n");
    assert_eq!(log(&stand), "WINCH\nWINCH\nWINCH\nINT\n");
}

#[test]
fn a_terminal_that_hangs_up_is_one_signal_although_only_the_session_leader_is_told() {
    let stand = Stand::new();
    let mut terminal = reporter(&stand);
    terminal.expect("ready");
    // The reader's copy goes when the hang-up ends its read.
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(terminal.child.id()).unwrap()),
        nix::sys::signal::Signal::SIGHUP,
    )
    .unwrap();
    assert_eq!(terminal.wait().code(), Some(3));
    assert_eq!(log(&stand), "HUP\n");
}

#[test]
fn a_shell_stops_and_continues_the_job() {
    let stand = Stand::new();
    let mut shell = Command::new("bash");
    shell
        .args(["--norc", "--noprofile", "-i"])
        .current_dir(stand.path(""))
        .env("PS1", "prompt> ")
        .env("TERM", "dumb")
        .env("HISTFILE", "");
    let mut terminal = Terminal::start(&mut shell);
    terminal.expect("prompt> ");
    // A cat that says when it begins and goes on: only then is the terminal its own and not the shell's.
    let cat =
        r#"perl -pe 'BEGIN { $| = 1; $SIG{CONT} = sub { print "go on\n" }; print "beg", "un\n" }'"#;
    let line = format!(
        "{} run --socket {} -- {cat}\n",
        env!("CARGO_BIN_EXE_capgate"),
        stand.outside("sock").display()
    );
    terminal.type_in(&line);
    terminal.expect("begun\r\n");
    // It reads what is typed: once by the terminal's echo, once by itself.
    terminal.type_in("one\n");
    terminal.expect("one\r\none\r\n");
    for word in ["two", "three"] {
        terminal.type_in("\x1a");
        terminal.expect("Stopped");
        terminal.expect("prompt> ");
        terminal.type_in("fg\n");
        terminal.expect("go on\r\n");
        terminal.type_in(&format!("{word}\n"));
        terminal.expect(&format!("{word}\r\n{word}\r\n"));
    }
    // In the background it may not read from the terminal, and stops.
    terminal.type_in("\x1a");
    terminal.expect("Stopped");
    terminal.expect("prompt> ");
    terminal.type_in("bg\n");
    terminal.expect("prompt> ");
    until("it is stopped again", || {
        terminal.type_in("jobs\n");
        terminal.expect("prompt> ").contains("Stopped")
    });
    terminal.type_in("fg\n");
    terminal.expect("go on\r\n");
    terminal.type_in("four\n");
    terminal.expect("four\r\nfour\r\n");
    terminal.type_in("\x04");
    terminal.expect("capgate: match");
    terminal.expect("prompt> ");
    terminal.type_in("echo code $?; exit\n");
    terminal.expect("code 0");
    terminal.wait();
}

#[test]
fn a_pipeline_shares_the_terminal() {
    let stand = Stand::new();
    let mut shell = Command::new("bash");
    shell
        .args(["--norc", "--noprofile", "-i"])
        .current_dir(stand.path(""))
        .env("PS1", "prompt> ")
        .env("TERM", "dumb")
        .env("HISTFILE", "");
    let mut terminal = Terminal::start(&mut shell);
    terminal.expect("prompt> ");
    // The second half reads from the terminal itself, which only the foreground may.
    let line = format!(
        "{} run --socket {} -- echo from the job | sh -c 'cat; read line </dev/tty; echo got $line'\n",
        env!("CARGO_BIN_EXE_capgate"),
        stand.outside("sock").display()
    );
    terminal.type_in(&line);
    terminal.expect("got $line'\r\n");
    terminal.expect("from the job\r\n");
    terminal.type_in("word\n");
    terminal.expect("got word");
    terminal.expect("prompt> ");
    terminal.type_in("exit\n");
    terminal.wait();
}

#[test]
fn an_interactive_shell_in_the_job_has_its_own_job_control() {
    let stand = Stand::new();
    let mut wrapped = stand.run(&["bash", "--norc", "--noprofile", "-i"]);
    wrapped
        .env("PS1", "inner> ")
        .env("TERM", "dumb")
        .env("HISTFILE", "");
    let mut terminal = Terminal::start(&mut wrapped);
    terminal.expect("inner> ");
    let program = r#"perl -e '$| = 1; $SIG{CONT} = sub { print "go on\n" }; print "beg", "un\n"; sleep 9 while 1'"#;
    terminal.type_in(&format!("{program}\n"));
    terminal.expect("begun\r\n");
    terminal.type_in("\x1a");
    terminal.expect("Stopped");
    terminal.expect("inner> ");
    // A key at its prompt ends nothing. A shell that has written its prompt and does not read yet shows no new one for it alone.
    terminal.type_in("\x03");
    terminal.type_in("\n");
    terminal.expect("inner> ");
    terminal.type_in("fg\n");
    terminal.expect("go on\r\n");
    terminal.type_in("\x03");
    terminal.expect("inner> ");
    terminal.type_in("exit 7\n");
    terminal.expect("capgate: job-failed");
    assert_eq!(terminal.wait().code(), Some(7));
}
