//! A stand-in for the daemon.

use std::{
    io::{BufRead, BufReader, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use capgate_common::{
    compare::{Case, judge, seal},
    contract::Contract,
    evidence::Evidence,
    ledger::{ProbeSet, Recording},
    pathform::Forms,
    protocol::{self, Outcome, Request, Response, Sealed, Start, Status},
    rules::Rules,
};
use nix::{
    cmsg_space,
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg},
};

use crate::stand::until;

/// The token that it gives and wants.
const TOKEN: &str = "a-token-that-nobody-else-must-see";

/// How it behaves.
#[derive(Clone)]
pub(crate) struct Manner {
    /// What it answers to a `hello`.
    pub(crate) hello: Response,
    /// What it answers to a `start` instead of opening a job.
    pub(crate) refuse_start: Option<&'static str>,
    /// What it answers to an `enter` instead of moving the process.
    pub(crate) refuse_enter: Option<&'static str>,
    /// It hangs up on the lease when there is a file `die` beside its socket, as a daemon that is killed does.
    pub(crate) dies: bool,
    /// It reads `start` and says nothing.
    pub(crate) silent_at_start: bool,
    /// It reads `finish` and says nothing.
    pub(crate) silent_at_finish: bool,
    /// What it recorded.
    pub(crate) recording: Recording,
    /// Who did it.
    pub(crate) evidence: Evidence,
    /// What it answers to a `tail`, line by line.
    pub(crate) events: Vec<Response>,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            hello: Response::Hello {
                version: protocol::VERSION,
                program: "stand-in".to_owned(),
            },
            refuse_start: None,
            refuse_enter: None,
            dies: false,
            silent_at_start: false,
            silent_at_finish: false,
            recording: Recording::empty(ProbeSet::Tracepoint, false),
            evidence: Evidence::default(),
            events: Vec::new(),
        }
    }
}

/// What it was asked.
#[derive(Default)]
struct Seen {
    starts: Vec<Start>,
    /// Descriptors that came with each `start`.
    descriptors: Vec<usize>,
    outcomes: Vec<Outcome>,
    /// Leases that ended, asked to finish or not.
    ended: usize,
}

/// A stand-in that listens.
pub(crate) struct StandIn {
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

impl StandIn {
    /// Listens at `socket` until the test ends.
    pub(crate) fn listen(socket: &Path, manner: Manner) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let seen = Arc::new((Mutex::new(Seen::default()), Condvar::new()));
        let for_threads = Arc::clone(&seen);
        let die = socket.with_file_name("die");
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (manner, die, seen) = (manner.clone(), die.clone(), Arc::clone(&for_threads));
                thread::spawn(move || serve(stream.unwrap(), &manner, &die, &seen));
            }
        });
        Self { seen }
    }

    /// The `start` of the only job.
    pub(crate) fn start(&self) -> Start {
        let seen = self.seen.0.lock().unwrap();
        assert_eq!(seen.starts.len(), 1, "one job");
        assert_eq!(seen.descriptors, [2], "root and / came along");
        seen.starts[0].clone()
    }

    /// The `start` of the latest job.
    pub(crate) fn last_start(&self) -> Start {
        self.seen.0.lock().unwrap().starts.last().unwrap().clone()
    }

    /// Whether a job was asked for.
    pub(crate) fn was_started(&self) -> bool {
        !self.seen.0.lock().unwrap().starts.is_empty()
    }

    /// Whether the client has asked to seal.
    pub(crate) fn was_asked_to_seal(&self) -> bool {
        !self.seen.0.lock().unwrap().outcomes.is_empty()
    }

    /// How the client said that the only job ended.
    pub(crate) fn outcome(&self) -> Outcome {
        let seen = self.seen.0.lock().unwrap();
        assert_eq!(seen.outcomes.len(), 1, "one finish");
        seen.outcomes[0]
    }

    /// Waits until a lease has ended; says whether it was asked to finish first.
    pub(crate) fn until_lease_ends(&self) -> bool {
        let (seen, changed) = &*self.seen;
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut seen = seen.lock().unwrap();
        while seen.ended == 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the lease did not end");
            seen = changed.wait_timeout(seen, left).unwrap().0;
        }
        !seen.outcomes.is_empty()
    }
}

fn say(stream: &mut UnixStream, response: &Response) {
    let line = protocol::encode(response, protocol::MAX_RESPONSE).unwrap();
    // A client that is gone is what some tests are about.
    let _ = stream.write_all(&line);
}

/// Reads one line, and the descriptors that came with its first byte.
fn read_line(stream: &UnixStream) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut first = [0];
    let mut space = cmsg_space!([i32; 8]);
    let mut parts = [std::io::IoSliceMut::new(&mut first)];
    let message = recvmsg::<()>(
        stream.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )
    .ok()?;
    let mut descriptors = Vec::new();
    for control in message.cmsgs().unwrap() {
        if let ControlMessageOwned::ScmRights(fds) = control {
            // SAFETY: the kernel has just made these descriptors for this process.
            descriptors.extend(
                fds.into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    if message.bytes == 0 {
        return None;
    }
    let mut line = first.to_vec();
    BufReader::with_capacity(1, stream)
        .read_until(b'\n', &mut line)
        .ok()?;
    Some((line, descriptors))
}

fn serve(mut stream: UnixStream, manner: &Manner, die: &Path, shared: &(Mutex<Seen>, Condvar)) {
    let mut job = None;
    while let Some((line, descriptors)) = read_line(&stream) {
        let request: Request = protocol::decode(&line, protocol::MAX_REQUEST).unwrap();
        match request {
            Request::Hello { .. } => say(&mut stream, &manner.hello),
            Request::Start(start) => {
                let mut seen = shared.0.lock().unwrap();
                seen.starts.push((*start).clone());
                seen.descriptors.push(descriptors.len());
                drop(seen);
                if let Some(message) = manner.refuse_start {
                    let message = message.to_owned();
                    say(&mut stream, &Response::Error { message });
                    continue;
                }
                job = Some(start);
                if manner.silent_at_start {
                    continue;
                }
                let (token, notes) = (TOKEN.to_owned(), Vec::new());
                let job = "j-1".to_owned();
                say(&mut stream, &Response::Started { job, token, notes });
                if manner.dies {
                    until("it is told to die", || die.exists());
                    return;
                }
            }
            Request::Enter { token } => {
                assert_eq!(token, TOKEN);
                match manner.refuse_enter {
                    None => say(&mut stream, &Response::Entered),
                    Some(message) => {
                        let message = message.to_owned();
                        say(&mut stream, &Response::Error { message });
                    }
                }
            }
            Request::Finish { outcome } => {
                shared.0.lock().unwrap().outcomes.push(outcome);
                if !manner.silent_at_finish {
                    let sealed = sealed(job.as_deref().unwrap(), outcome, manner);
                    say(&mut stream, &Response::Sealed(Box::new(sealed)));
                }
            }
            Request::Tail { .. } => {
                for event in &manner.events {
                    say(&mut stream, event);
                }
            }
            Request::Capability { name, unit } => {
                let absent = name == "docker" && !unit.is_empty();
                let meaning = format!("what {name} means");
                say(&mut stream, &Response::Capability { meaning, absent });
            }
            Request::Ps => say(&mut stream, &Response::Jobs { jobs: Vec::new() }),
            Request::Status => say(&mut stream, &Response::Status(Box::new(status()))),
            Request::Show { job } | Request::Stop { job: Some(job) } => {
                let message = format!("cannot find job {job}: there is no such job");
                say(&mut stream, &Response::Error { message });
            }
            Request::Stop { job: None } => say(&mut stream, &Response::Stopped),
        }
    }
    if job.is_some() {
        shared.0.lock().unwrap().ended += 1;
        shared.1.notify_all();
    }
}

fn sealed(start: &Start, outcome: Outcome, manner: &Manner) -> Sealed {
    let forms = Forms::new(b"/nowhere", None, 0).unwrap();
    let rules = start
        .contract
        .as_ref()
        .filter(|_| !start.record)
        .map(|text| {
            let contract = Contract::from_json(text.as_bytes()).unwrap();
            Rules::new(contract, &start.env, &forms, start.commit_rules.as_deref()).unwrap()
        });
    let case = Case {
        recording: &manner.recording,
        rules: rules.as_ref(),
        outcome: outcome.into(),
        require_race_free: false,
        ignored: None,
        addresses: None,
    };
    let judgement = judge(&case);
    Sealed {
        job: "j-1".to_owned(),
        ledger: seal(&case, &judgement),
        evidence: manner.evidence.clone(),
        contract: start.contract.clone(),
        contract_source: start.contract_source.clone(),
        exit_code: judgement.exit_code,
        judgement,
        outcome: Some(outcome),
        notes: Vec::new(),
        argv: start.argv.clone(),
        wall_ms: 1234,
    }
}

fn status() -> Status {
    Status {
        program: "stand-in".to_owned(),
        pid: 1,
        probe_set: "tracepoint".to_owned(),
        fallback: None,
        race_free: false,
        attached: Vec::new(),
        not_covered: vec!["io_uring file operations".to_owned()],
        not_denied: vec!["unix sockets".to_owned()],
        cgroup_root: "/sys/fs/cgroup".to_owned(),
        kernel: "6.1.0".to_owned(),
        running: 0,
        max_jobs: 64,
        rss: 1 << 20,
        events: 0,
        lost: 0,
        store: "/var/lib/capgate".to_owned(),
        absent: ["docker".to_owned()].into(),
        allow_client_absent: true,
    }
}
