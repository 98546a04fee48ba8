//! `cargo xtask bench`: what recording costs, as ratios to a bare run on the same machine.

pub(crate) mod load;
pub(crate) mod recorder;
mod stats;
mod suite;

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use self::{load::Kind, recorder::Recorder, stats::Spread, suite::Suite};
use crate::{
    build,
    packages::{self, Package},
    workspace,
};

/// What the bench calls beyond the project's own programs.
const PACKAGES: [Package; 3] = [
    Package {
        name: "strace",
        provides: "strace",
        why: "the tracer that the bench compares with",
    },
    Package {
        name: "python3",
        provides: "/usr/bin/python3",
        why: "runs a real project's test suite",
    },
    Package {
        name: "python3-pip",
        provides: "/usr/bin/pip3",
        why: "fetches that project",
    },
];

/// Rounds of a micro-load. Each has a bare run and its partners.
const ROUNDS: usize = 11;

/// Rounds of the suite and of strace, which take long.
const LONG_ROUNDS: usize = 5;

/// strace makes a traced call about fifty times as slow; this many times fewer calls are enough.
const STRACE_SHARE: u32 = 20;

/// What strace watches: what a job's ledger is made of. Other calls pass by its seccomp filter.
const STRACE: [&str; 5] = [
    "-f",
    "--seccomp-bpf",
    "-o",
    "/dev/null",
    "--trace=%file,%network,%process",
];

/// A micro-load and what is promised for it inside a job.
struct Micro {
    /// What is called.
    kind: Kind,
    /// Calls in a run, about a third of a second's worth.
    calls: u32,
    /// The highest ratio that is promised.
    target: f64,
}

/// The micro-loads, with the targets of the project.
const MICROS: [Micro; 6] = [
    Micro {
        kind: Kind::OpenRead,
        calls: 100_000,
        target: 1.6,
    },
    Micro {
        kind: Kind::OpenWrite,
        calls: 50_000,
        target: 1.7,
    },
    Micro {
        kind: Kind::OpenNew,
        calls: 10_000,
        target: 1.7,
    },
    Micro {
        kind: Kind::Exec,
        calls: 400,
        target: 1.15,
    },
    Micro {
        kind: Kind::UdpConnect,
        calls: 100_000,
        target: 1.6,
    },
    Micro {
        kind: Kind::Getppid,
        calls: 1_000_000,
        target: 1.8,
    },
];

/// The highest ratio that is promised for the suite.
const SUITE_TARGET: f64 = 1.03;

/// What is measured under enforcement, and its calls in a run.
const ENFORCED: [(Kind, u32); 2] = [(Kind::UdpConnect, 100_000), (Kind::TcpConnect, 10_000)];

/// The highest ratio of an enforced connect to a recorded one that is promised.
const ENFORCED_TARGET: f64 = 1.1;

/// Milliseconds that the start and end of a job may take.
const START_END_TARGET_MS: f64 = 40.0;

/// MiB that an idle daemon may hold.
const RESIDENT_TARGET_MIB: f64 = 20.0;

/// The names, beside those of the micro-loads, of what can be measured alone.
const SUITE: &str = "suite";
const START_END: &str = "start-end";
const ENFORCE: &str = "enforce";

/// Measures everything, or only what is named, and prints one table.
pub(crate) fn measure(only: &[String]) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "the bench loads eBPF programs, which only root can: run `sudo -E cargo xtask bench`"
        );
    }
    let mut known: Vec<_> = MICROS.iter().map(|micro| micro.kind.name()).collect();
    known.extend([SUITE.into(), START_END.into(), ENFORCE.into()]);
    if let Some(unknown) = only.iter().find(|name| !known.contains(name)) {
        bail!(
            "nothing to measure is called {unknown:?}; known are {}",
            known.join(", ")
        );
    }
    let wanted = |name: &str| only.is_empty() || only.iter().any(|one| one == name);

    packages::ensure(&PACKAGES)?;
    build::binaries()?;
    // Optimised as well: the loop around the calls must not count.
    let mut own = workspace::cargo([
        "build",
        "--release",
        "--quiet",
        "--package",
        "xtask",
        "--target-dir",
    ]);
    workspace::run(own.arg(workspace::target()))?;

    let suite = wanted(SUITE).then(Suite::prepare).transpose()?;
    let dir = workspace::target().join("bench");
    remake(&dir)?;
    let mut recorder = Recorder::start(&dir)?;
    idle(&mut recorder, "before its first job")?;
    println!("Ratios to a bare run: median (middle half) of paired runs.");
    println!(
        "{:<12} {:>8}  {:<18} {:>6}  {:<18} strace",
        "", "bare", "in a job", "target", "beside a job"
    );
    // In memory: the time of a disk's file system would hide the cost of a probe.
    let files = tempfile::tempdir_in("/dev/shm").context("cannot make a directory in /dev/shm")?;
    for micro in MICROS.iter().filter(|micro| wanted(&micro.kind.name())) {
        let runs = measure_micro(&mut recorder, &files.path().join("files"), micro)?;
        row(&micro.kind.name(), micro.target, &runs);
    }
    if let Some(suite) = suite {
        let (wall, cpu) = measure_suite(&mut recorder, &suite)?;
        row(suite::PROJECT, SUITE_TARGET, &wall);
        row("its CPU time", SUITE_TARGET, &cpu);
    }
    if wanted(START_END) {
        start_and_end(&mut recorder)?;
    }
    if wanted(ENFORCE) {
        enforced(&recorder, &files.path().join("files"))?;
    }
    idle(&mut recorder, "after all jobs")
}

/// What the runs of one load gave, round by round.
#[derive(Default)]
struct Runs {
    /// Nanoseconds of a call, or of the whole suite, with no probe attached.
    bare: Vec<f64>,
    /// The same inside a job.
    inside: Vec<f64>,
    /// The same outside, while a job runs.
    beside: Vec<f64>,
    /// The same under strace, for the first rounds only.
    strace: Vec<f64>,
    /// A recording lost something, so its cost is not that of a good one.
    incomplete: bool,
}

/// Prints what one load costs.
fn row(name: &str, target: f64, runs: &Runs) {
    let show = |values: &[f64]| {
        Spread::of_ratios(values, &runs.bare).map_or("-".into(), |spread| spread.to_string())
    };
    let bare = Spread::of(runs.bare.clone()).map_or("-".into(), |spread| duration(spread.median));
    let remark = if runs.incomplete {
        "  a recording was INCOMPLETE"
    } else {
        ""
    };
    println!(
        "{name:<12} {bare:>8}  {:<18} {:>6}  {:<18} {}{remark}",
        show(&runs.inside),
        format!("≤ {target}"),
        show(&runs.beside),
        show(&runs.strace)
    );
}

/// Nanoseconds in a unit that a person reads.
fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

/// Runs a micro-load in each way, round by round, so that what else the machine does meets all alike.
fn measure_micro(recorder: &mut Recorder, files: &Path, micro: &Micro) -> Result<Runs> {
    let mut runs = Runs::default();
    for round in 0..ROUNDS {
        recorder.settle()?;
        runs.bare
            .push(load(Command::new("env"), micro.kind, micro.calls, files)?.0);
        if round < LONG_ROUNDS {
            let mut strace = Command::new("strace");
            strace.args(STRACE);
            runs.strace
                .push(load(strace, micro.kind, micro.calls / STRACE_SHARE, files)?.0);
        }
        let idle = recorder.idle_job()?;
        runs.beside
            .push(load(Command::new("env"), micro.kind, micro.calls, files)?.0);
        drop(idle);
        let (inside, complete) = load(recorder.job(), micro.kind, micro.calls, files)?;
        runs.inside.push(inside);
        runs.incomplete |= !complete;
    }
    Ok(runs)
}

/// Runs one micro-load as the last words of `wrapper`: nanoseconds per call, and whether a recording was complete.
fn load(mut wrapper: Command, kind: Kind, calls: u32, files: &Path) -> Result<(f64, bool)> {
    remake(files)?;
    wrapper
        .arg(workspace::binary("xtask"))
        .args(["load", &kind.name(), &calls.to_string()])
        .arg(files);
    let (printed, complete) = recorder::output(&mut wrapper)?;
    let ns = printed
        .parse()
        .with_context(|| format!("the load printed {printed:?}"))?;
    Ok((ns, complete))
}

/// Runs the suite in each way: by the clock, and by CPU time.
fn measure_suite(recorder: &mut Recorder, suite: &Suite) -> Result<(Runs, Runs)> {
    let mut wall = Runs::default();
    let mut cpu = Runs::default();
    // The first run compiles the project's modules.
    suite.run(Command::new("env"))?;
    for round in 0..LONG_ROUNDS {
        recorder.settle()?;
        let bare = suite.run(Command::new("env"))?;
        wall.bare.push(nanoseconds(bare.wall));
        cpu.bare.push(nanoseconds(bare.cpu));
        let inside = suite.run(recorder.job())?;
        wall.inside.push(nanoseconds(inside.wall));
        cpu.inside.push(nanoseconds(inside.cpu));
        wall.incomplete |= !inside.complete;
        if round == 0 {
            let mut strace = Command::new("strace");
            strace.args(STRACE);
            let traced = suite.run(strace)?;
            wall.strace.push(nanoseconds(traced.wall));
            cpu.strace.push(nanoseconds(traced.cpu));
        }
    }
    Ok((wall, cpu))
}

/// For ratios.
fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// Times a job that does nothing, when its probes must be attached first and when they are.
fn start_and_end(recorder: &mut Recorder) -> Result<()> {
    let mut first = Vec::new();
    let mut next = Vec::new();
    for _ in 0..ROUNDS {
        recorder.settle()?;
        first.push(time_of_nothing(recorder)?);
        let _idle = recorder.idle_job()?;
        next.push(time_of_nothing(recorder)?);
    }
    for (times, when) in [
        (first, "when no job ran before"),
        (next, "beside another job"),
    ] {
        if let Some(spread) = Spread::of(times) {
            println!("capgate run -- true, {when}: {spread} ms, target ≤ {START_END_TARGET_MS}");
        }
    }
    Ok(())
}

/// Times connects in an enforced job, beside those in one that is only recorded.
fn enforced(recorder: &Recorder, files: &Path) -> Result<()> {
    for (kind, calls) in ENFORCED {
        let (mut recorded, mut enforced) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            recorded.push(load(recorder.job(), kind, calls, files)?.0);
            enforced.push(load(recorder.enforced_job()?, kind, calls, files)?.0);
        }
        if let Some(spread) = Spread::of_ratios(&enforced, &recorded) {
            println!(
                "{}, enforced: {spread} of recording alone, target ≤ {ENFORCED_TARGET}",
                kind.name()
            );
        }
    }
    Ok(())
}

/// Milliseconds of a whole job that does nothing.
fn time_of_nothing(recorder: &Recorder) -> Result<f64> {
    let started = Instant::now();
    recorder::output(recorder.job().arg("true"))?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Says what the daemon holds when no job runs.
fn idle(recorder: &mut Recorder, when: &str) -> Result<()> {
    recorder.settle()?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "a daemon's memory is far from 2^53 KiB"
    )]
    let resident = recorder.resident_kib()? as f64 / 1024.0;
    println!(
        "idle daemon, {when}: {resident:.1} MiB resident, target ≤ {RESIDENT_TARGET_MIB}; {} programs attached, target 0",
        recorder.attached()?
    );
    Ok(())
}

/// An empty directory in the place of one that may hold files.
fn remake(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}
