//! `cargo xtask vm`: the scenario suite on every kernel of the matrix, with both probe sets, and the same ledgers everywhere.

mod cell;
mod console;
mod debian;
mod initramfs;
mod ledgers;
mod machine;
mod modules;
mod needs;
mod suite;

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result};

use crate::{tally::Tally, workspace};
use cell::{Cell, NATIVE, PROBE_SETS, Place};
use console::Verdict;
use debian::Kernel;
use ledgers::Ledgers;
use machine::Machine;
use suite::Suite;

pub(crate) use needs::install_ia32;

/// Machines that run at once.
const AT_ONCE: usize = 2;

/// The probe set of this machine's own cell: its kernel may not let the other one load.
const NATIVE_SET: &str = "tracepoint";

/// What a number of cells came to.
struct Outcome {
    /// The sum over all runs of the suite; each difference counts as a failure.
    tally: Tally,
    /// Scenarios whose ledger is not the same everywhere.
    differences: usize,
}

/// Runs the cells of these names, or all of them, and says what came of it.
pub(crate) fn matrix(names: &[String]) -> Result<ExitCode> {
    let cells = cell::named(names)?;
    let mut ledgers = Ledgers::default();
    let mut tally = Tally::default();
    for cell in &cells {
        if cell.place == Place::Here {
            tally.add(native(cell, &mut ledgers)?);
        }
    }
    let mut outcome = emulated(&cells, ledgers)?;
    outcome.tally.add(tally);
    println!(
        "vm: {} cells, {} differences",
        cells.len(),
        outcome.differences
    );
    Ok(if outcome.tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs every emulated cell, as a part of all tests. The suite has already run on this machine and left its ledgers in
/// [`native_ledgers`].
pub(crate) fn beside_tests() -> Result<Tally> {
    let mut ledgers = Ledgers::default();
    let cells = cell::named(&[])?;
    let mut tally = Tally::default();
    if ledgers.add_all(NATIVE, &native_ledgers())? == 0 {
        eprintln!("xtask: {NATIVE}: the suite left no ledgers");
        tally.failed += 1;
    }
    let outcome = emulated(&cells, ledgers)?;
    println!(
        "vm: {} cells, {} differences",
        cells.len(),
        outcome.differences
    );
    tally.add(outcome.tally);
    Ok(tally)
}

/// What tells the suite which cell it runs in, on this machine; its ledgers of an earlier run are gone.
pub(crate) fn prepare_native(cargo: &mut Command) -> Result<()> {
    let dir = fresh(native_ledgers())?;
    cargo
        .env("CAPGATE_SCENARIO_CELL", NATIVE)
        .env("CAPGATE_SCENARIO_PROBE_SET", NATIVE_SET)
        .env("CAPGATE_SCENARIO_LEDGERS", dir);
    Ok(())
}

/// Runs the suite on this machine.
fn native(cell: &Cell, ledgers: &mut Ledgers) -> Result<Tally> {
    if cfg!(target_arch = "x86_64") {
        needs::install_ia32()?;
    }
    let mut suite = suite::here()?;
    prepare_native(&mut suite)?;
    let output = suite
        .output()
        .with_context(|| format!("cannot run {}", workspace::show(&suite)))?;
    let mut verdict = console::judge(
        &String::from_utf8_lossy(&output.stdout),
        output.status.code(),
    );
    if verdict.problem.is_some() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    collect(cell, NATIVE_SET, &native_ledgers(), &mut verdict, ledgers)?;
    report(cell, NATIVE_SET, &verdict);
    Ok(verdict.tally)
}

/// Runs those of the cells that are emulated, and compares all ledgers.
fn emulated(cells: &[&'static Cell], ledgers: Ledgers) -> Result<Outcome> {
    let queue = Mutex::new(prepare(cells)?);
    let sums = Mutex::new((Tally::default(), ledgers));
    let work = || -> Result<()> {
        loop {
            let next = queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            let Some(ready) = next else { return Ok(()) };
            let verdicts = ready.emulate()?;
            let cell = ready.cell;
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            let (tally, ledgers) = &mut *sums;
            for (set, mut verdict) in verdicts {
                let dir = directory_of(cell).join("ledgers").join(set);
                collect(cell, set, &dir, &mut verdict, ledgers)?;
                report(cell, set, &verdict);
                tally.add(verdict.tally);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    })?;
    let (mut tally, ledgers) = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    let differences = ledgers.differences();
    for difference in &differences {
        eprintln!(
            "xtask: {}: {} and {} differ:\n{}",
            difference.scenario,
            difference.first,
            difference.others.join(", "),
            difference.lines
        );
    }
    tally.failed += differences.len();
    Ok(Outcome {
        tally,
        differences: differences.len(),
    })
}

/// A cell whose machine can boot.
struct Ready {
    cell: &'static Cell,
    machine: Machine,
    kernel: Kernel,
    initramfs: PathBuf,
}

/// Installs, fetches, builds and packs what the emulated ones of these cells need. One after the other, since they share it.
fn prepare(cells: &[&'static Cell]) -> Result<VecDeque<Ready>> {
    let mut suites = Vec::<(Machine, Suite)>::new();
    let mut ready = VecDeque::new();
    for &cell in cells {
        let Place::Emulated {
            kernel,
            machine,
            packaged,
        } = cell.place
        else {
            continue;
        };
        let built = suites.iter().position(|(built, _)| *built == machine);
        let built = match built {
            Some(index) => index,
            None => {
                needs::install(machine)?;
                suites.push((machine, Suite::build(machine)?));
                suites.len() - 1
            }
        };
        let kernel = debian::kernel(kernel, machine)?;
        let plan = initramfs::Plan {
            cell: cell.name,
            machine,
            packaged,
        };
        let initramfs = plan.make(&kernel, &suites[built].1, &directory_of(cell))?;
        ready.push_back(Ready {
            cell,
            machine,
            kernel,
            initramfs,
        });
    }
    Ok(ready)
}

impl Ready {
    /// Boots the machine and reads its verdicts.
    fn emulate(&self) -> Result<Vec<(&'static str, Verdict)>> {
        let dir = directory_of(self.cell);
        let left = machine::run(self.machine, &self.kernel.image, &self.initramfs, &dir)?;
        eprintln!(
            "xtask: {}: Linux {} ran for {} s",
            self.cell.name,
            self.kernel.release,
            left.took.as_secs()
        );
        let ledgers = fresh(dir.join("ledgers"))?;
        let mut unpack = Command::new("tar");
        unpack.arg("-xf").arg(&left.disk).arg("-C").arg(ledgers);
        let unpacked = workspace::said(&mut unpack);
        let mut verdicts = Vec::new();
        for set in PROBE_SETS {
            let mut verdict = console::verdict(&left.console, set);
            let whole = match (&left.ended_early, &unpacked) {
                (Some(reason), _) => Err(reason.clone()),
                (None, Err(e)) => Err(format!("its ledgers cannot be read: {e:#}")),
                (None, Ok(_)) => Ok(()),
            };
            if let Err(reason) = whole {
                let tail = console::tail(&left.console);
                verdict.fails(format!("{reason}; its console ends with\n{tail}"));
            }
            verdicts.push((set, verdict));
        }
        Ok(verdicts)
    }
}

/// Adds the ledgers of one run to all others. A run that left none has nothing to compare, which is no success.
fn collect(
    cell: &Cell,
    set: &str,
    dir: &Path,
    verdict: &mut Verdict,
    ledgers: &mut Ledgers,
) -> Result<()> {
    let place = format!("{} {set}", cell.name);
    let count = if dir.exists() {
        ledgers.add_all(&place, dir)?
    } else {
        0
    };
    if count == 0 {
        verdict.fails("the suite left no ledgers".to_owned());
    }
    Ok(())
}

/// Prints the verdict of one run, and what is wrong with it.
fn report(cell: &Cell, set: &str, verdict: &Verdict) {
    if let Some(problem) = &verdict.problem {
        eprintln!("xtask: {} {set}: {problem}", cell.name);
    }
    println!(
        "{} {set}: {} passed, {} failed",
        cell.name, verdict.tally.passed, verdict.tally.failed
    );
}

/// Where everything of the matrix is kept: what is fetched and built once, and what the last run left.
fn directory() -> PathBuf {
    workspace::target().join("vm")
}

/// Where one cell's last run is.
fn directory_of(cell: &Cell) -> PathBuf {
    directory().join("cells").join(cell.name)
}

/// Where the suite leaves its ledgers when it runs on this machine.
fn native_ledgers() -> PathBuf {
    directory().join("cells").join(NATIVE).join("ledgers")
}

/// An empty directory in place of what is there.
fn fresh(dir: PathBuf) -> Result<PathBuf> {
    let made = match fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => fs::create_dir_all(&dir),
    };
    made.with_context(|| format!("cannot clear {}", dir.display()))?;
    Ok(dir)
}
