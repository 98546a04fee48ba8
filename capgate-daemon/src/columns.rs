//! What a session knows -> the ledger's columns and the evidence.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use capgate_common::{
    address::NetEntry,
    discretion::Discretion,
    escapes,
    event::{self as wire, KIND_NAMES},
    evidence::{Addresses, Column, Counts, Entry, Evidence, Item, Process},
    ledger::Recording,
    pathform::{Form, Forms, Place, escape},
    refuse::{self, Refusals},
    rules::Rules,
};
use hashbrown::HashMap;

use crate::{
    ending::{self, Outcome, Written},
    look::{End, Look},
    loss,
    names::{NameId, Names},
    process::{Image, ImageId, Processes, Program},
    resolve::Resolver,
    seen::Seen,
    sockets::standing::{self, Standing},
    writes::Writes,
};

/// Most members of each list of evidence; the last one then says how many more there were.
const MOST_ITEMS: usize = 100_000;
/// Members of each list that show their whole process chain with arguments; later ones show the process alone.
const MOST_CHAINS: usize = 10_000;

/// What the counters of both sides say together.
#[must_use]
pub fn counts(counters: &wire::Counters, decoded: u64, rejected: u64) -> Counts {
    let sum = |kinds: &[u64]| {
        kinds
            .iter()
            .fold(0u64, |sum, &count| sum.saturating_add(count))
    };
    Counts {
        attempted: sum(&counters.attempted),
        emitted: sum(&counters.emitted),
        deduplicated: sum(&counters.deduplicated),
        lost: sum(&counters.lost),
        received: decoded + rejected,
        decoded,
        rejected,
    }
}

/// What the counters say was lost on the way.
pub fn kernel_losses(recording: &mut Recording, counters: &wire::Counters, counts: &Counts) {
    for (name, lost) in KIND_NAMES.iter().zip(counters.lost) {
        recording.lose(name, lost);
    }
    recording.lose(loss::UNREAD, counts.emitted.saturating_sub(counts.received));
    recording.lose(
        loss::UNACCOUNTED,
        counts.received.saturating_sub(counts.emitted),
    );
    let accounted = counts
        .emitted
        .saturating_add(counts.deduplicated)
        .saturating_add(counts.lost);
    recording.lose(loss::UNACCOUNTED, counts.attempted.abs_diff(accounted));
}

/// What is at every written name now, and how many cannot be told. After `deadline` nothing is looked at any more.
#[must_use]
pub fn ends(
    writes: &Writes,
    names: &Names,
    resolver: &Resolver,
    look: &dyn Look,
    deadline_ns: u64,
) -> (HashMap<NameId, End>, u64) {
    let mut ends = HashMap::new();
    let mut unknown = 0;
    let own_proc = resolver.own_proc();
    for (directory, members) in writes.by_directory(names) {
        let is_late = look.now_ns() > deadline_ns;
        let is_own_proc = !is_late
            && (directory == own_proc || names.ancestors(directory).any(|above| above == own_proc));
        let found = if is_late {
            vec![End::Unknown; members.len()]
        } else if is_own_proc {
            // The process is gone. Nobody makes or removes names there: what was opened was there.
            vec![End::Other; members.len()]
        } else {
            let leaves: Vec<&[u8]> = members.iter().map(|&name| names.component(name)).collect();
            look.ends(&names.bytes(directory), &leaves)
        };
        for (name, end) in members.into_iter().zip(found) {
            unknown += u64::from(end == End::Unknown);
            ends.insert(name, end);
        }
    }
    (ends, unknown)
}

/// A program as an entry; `None` when it is not known.
#[must_use]
pub fn program(program: &Program, names: &Names, forms: &Forms) -> Option<String> {
    match program {
        Program::Unknown => None,
        Program::File(name) => Some(forms.form(&names.bytes(*name), &|_| false)?.entry),
        Program::Memfd(name) => Some(escape(name)),
    }
}

/// A process as evidence shows it.
#[must_use]
pub fn process(image: &Image, names: &Names, forms: &Forms, discretion: &Discretion) -> Process {
    let args = image.argv.strip_suffix(b"\0").unwrap_or_default();
    let argv: Vec<String> = if image.argv.is_empty() {
        Vec::new()
    } else {
        args.split(|&byte| byte == 0).map(escape).collect()
    };
    Process {
        pid: image.pid,
        exe: program(&image.program, names, forms).unwrap_or_default(),
        argv: discretion.keep(&argv),
        status: image.status,
    }
}

/// Entries and how each came about. Two names with one form are one entry.
#[derive(Default)]
struct Tally(BTreeMap<String, Seen>);

impl Tally {
    fn add(&mut self, entry: String, seen: &Seen) {
        self.0
            .entry(entry)
            .and_modify(|known| known.merge(seen))
            .or_insert(*seen);
    }

    fn keys(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }
}

/// The columns in the making.
pub struct Columns<'a> {
    names: &'a Names,
    forms: &'a Forms,
    discretion: &'a Discretion,
    rules: Option<&'a Rules>,
    temp_dirs: &'a [NameId],
    net: Tally,
    /// The addresses behind entries of `net` that are names.
    addresses: Addresses,
    writes: Tally,
    execs: Tally,
    escapes: Tally,
    /// `None` when nothing is refused.
    reaches: Option<Tally>,
    transient: Tally,
    own: Tally,
    probes: Tally,
    ambient: Tally,
    ignored: Tally,
    metadata: Tally,
}

impl<'a> Columns<'a> {
    /// Empty columns.
    #[must_use]
    pub fn new(
        names: &'a Names,
        forms: &'a Forms,
        discretion: &'a Discretion,
        rules: Option<&'a Rules>,
        temp_dirs: &'a [NameId],
    ) -> Self {
        Self {
            names,
            forms,
            discretion,
            rules,
            temp_dirs,
            net: Tally::default(),
            addresses: Addresses::new(),
            writes: Tally::default(),
            execs: Tally::default(),
            escapes: Tally::default(),
            reaches: None,
            transient: Tally::default(),
            own: Tally::default(),
            probes: Tally::default(),
            ambient: Tally::default(),
            ignored: Tally::default(),
            metadata: Tally::default(),
        }
    }

    fn form(&self, name: NameId) -> Option<Form> {
        self.forms.form(&self.names.bytes(name), &|_| false)
    }

    /// The column `writes`, and what does not count of it.
    pub fn writes(&mut self, concluded: &ending::Concluded) {
        for &Written {
            name,
            outcome,
            ref seen,
        } in &concluded.written
        {
            let Some(form) = self.form(name) else {
                continue;
            };
            let Outcome {
                as_file,
                as_directory,
                untold,
                transient,
            } = outcome;
            if as_directory {
                self.write(form.directory(), seen);
            }
            if transient {
                self.transient.add(form.entry.clone(), seen);
            }
            if untold || transient && !self.may_be_transient(name, &form) {
                self.write_in(concluded, name, form, seen);
            } else if as_file {
                self.write(form.entry, seen);
            }
        }
    }

    fn write(&mut self, entry: String, seen: &Seen) {
        if self.ignores(&entry) {
            self.ignored.add(entry, seen);
        } else {
            self.writes.add(entry, seen);
        }
    }

    /// A name that must not be written down, since it may be random: its directory is, the nearest one that is there or was.
    fn write_in(&mut self, concluded: &ending::Concluded, name: NameId, form: Form, seen: &Seen) {
        if self.ignores(&form.entry) {
            self.ignored.add(form.entry, seen);
            return;
        }
        let directory = self
            .names
            .ancestors(name)
            .find(|above| !concluded.passing.contains(above));
        if let Some(form) = self.form(directory.unwrap_or(NameId::ROOT)) {
            self.write(form.anything_in(), seen);
        }
    }

    fn ignores(&self, entry: &str) -> bool {
        self.rules.is_some_and(|rules| rules.ignores(entry))
    }

    /// Whether names come and go at a place as a matter of course: in the root, at home, in temporary directories, in scratch.
    fn may_be_transient(&self, name: NameId, form: &Form) -> bool {
        form.place != Place::Other
            || self
                .names
                .ancestors(name)
                .any(|above| self.temp_dirs.contains(&above))
            || self
                .rules
                .is_some_and(|rules| rules.scratch().matches(&form.entry))
    }

    /// The column `execs`.
    pub fn execs(&mut self, execs: &HashMap<Program, Seen>) {
        for (ran, seen) in execs {
            if let Some(entry) = program(ran, self.names, self.forms) {
                self.execs.add(entry, seen);
            }
        }
    }

    /// Mode, owner and attribute changes.
    pub fn metadata(&mut self, metadata: &HashMap<NameId, Seen>) {
        for (&name, seen) in metadata {
            if let Some(form) = self.form(name) {
                self.metadata.add(form.entry, seen);
            }
        }
    }

    /// The column `net`, what does not count of it, and the services among it that start processes for others. What is refused is
    /// reached however it counts, but for an address that nothing was sent to.
    pub fn net(&mut self, concluded: Vec<standing::Concluded>, refusals: Option<&Refusals>) {
        for standing::Concluded {
            entry,
            standing,
            seen,
            address,
            delegate,
        } in concluded
        {
            if let Some(address) = address {
                self.addresses
                    .entry(entry.clone())
                    .or_default()
                    .insert(address);
            }
            if let Some(refusals) = refusals {
                self.reach_destination(&entry, address, standing, &seen, refusals);
            }
            if let Some(delegate) = delegate {
                self.escapes.add(escapes::delegate(delegate), &seen);
            }
            let tally = match standing {
                Standing::Entry => &mut self.net,
                Standing::Own => &mut self.own,
                Standing::Probe => &mut self.probes,
                Standing::Ambient => &mut self.ambient,
            };
            tally.add(entry, &seen);
        }
    }

    /// A destination is reached by its name, or by the address behind it.
    fn reach_destination(
        &mut self,
        entry: &str,
        address: Option<IpAddr>,
        standing: Standing,
        seen: &Seen,
        refusals: &Refusals,
    ) {
        let Ok(destination) = entry.parse::<NetEntry>() else {
            return;
        };
        if standing == Standing::Probe && !destination.is_unix() {
            return;
        }
        let behind = match (&destination, address) {
            (&NetEntry::Name { port, .. }, Some(address)) => Some(NetEntry::inet(address, port)),
            _ => None,
        };
        let named = [Some(destination), behind].into_iter().flatten();
        for destination in named.filter(|it| refusals.destination(it)) {
            let anchor = if destination.is_unix() {
                ""
            } else {
                refuse::NET
            };
            let reaches = self.reaches.get_or_insert_default();
            reaches.add(format!("{anchor}{destination}"), seen);
        }
    }

    /// The column `escapes`.
    pub fn escapes(&mut self, escapes: BTreeMap<String, Seen>) {
        for (entry, seen) in escapes {
            self.escapes.add(entry, &seen);
        }
    }

    /// The column `reaches`, but for destinations.
    pub fn reaches(&mut self, reaches: BTreeMap<String, Seen>) {
        let tally = self.reaches.get_or_insert_default();
        for (entry, seen) in reaches {
            tally.add(entry, &seen);
        }
    }

    /// Fills the recording's columns. The rest is evidence, and the names that the contract covers.
    #[must_use]
    pub fn finish(
        self,
        recording: &mut Recording,
        processes: &Processes,
    ) -> (Evidence, BTreeSet<String>) {
        recording.net = self.net.keys();
        recording.write_paths = self.writes.keys();
        recording.execs = self.execs.keys();
        recording.escapes = self.escapes.keys();
        recording.reaches = self.reaches.as_ref().map(Tally::keys);
        let mut witness = Witness {
            processes,
            names: self.names,
            forms: self.forms,
            discretion: self.discretion,
            known: HashMap::new(),
        };
        let mut entries = Vec::new();
        for (column, tally) in [
            (Column::Net, self.net),
            (Column::Writes, self.writes),
            (Column::Execs, self.execs),
            (Column::Escapes, self.escapes),
            (Column::Reaches, self.reaches.unwrap_or_default()),
        ] {
            entries.extend(witness.items(tally).into_iter().map(|item| {
                let Item {
                    entry,
                    ops,
                    count,
                    first_ms,
                    by,
                } = item;
                let addresses = match column {
                    Column::Net => self.addresses.get(&entry).cloned().unwrap_or_default(),
                    _ => BTreeSet::new(),
                };
                Entry {
                    column,
                    entry,
                    addresses,
                    ops,
                    count,
                    first_ms,
                    by,
                }
            }));
        }
        let ignored = self.ignored.keys();
        let evidence = Evidence {
            entries,
            transient: witness.items(self.transient),
            own: witness.items(self.own),
            probes: witness.items(self.probes),
            ambient: witness.items(self.ambient),
            ignored: witness.items(self.ignored),
            metadata: witness.items(self.metadata),
            ..Evidence::default()
        };
        (evidence, ignored)
    }
}

/// Says who did it.
struct Witness<'a> {
    processes: &'a Processes,
    names: &'a Names,
    forms: &'a Forms,
    discretion: &'a Discretion,
    /// Chains that were asked for before.
    known: HashMap<ImageId, Vec<Process>>,
}

impl Witness<'_> {
    fn items(&mut self, tally: Tally) -> Vec<Item> {
        let count = tally.0.len();
        let mut items: Vec<Item> = Vec::with_capacity(count.min(MOST_ITEMS + 1));
        for (index, (entry, seen)) in tally.0.into_iter().take(MOST_ITEMS).enumerate() {
            items.push(Item {
                entry,
                ops: seen.ops.words(),
                count: seen.count,
                first_ms: u64::from(seen.first_ms),
                by: if index < MOST_CHAINS {
                    self.chain(seen.by)
                } else {
                    self.alone(seen.by)
                },
            });
        }
        if count > MOST_ITEMS {
            items.push(Item {
                entry: format!("({} more)", count - MOST_ITEMS),
                ops: Vec::new(),
                count: 0,
                first_ms: 0,
                by: Vec::new(),
            });
        }
        items
    }

    fn chain(&mut self, id: ImageId) -> Vec<Process> {
        let Self {
            processes,
            names,
            forms,
            discretion,
            known,
        } = self;
        let chain = || {
            processes
                .chain(id)
                .map(|image| process(image, names, forms, discretion))
                .collect()
        };
        known.entry(id).or_insert_with(chain).clone()
    }

    fn alone(&self, id: ImageId) -> Vec<Process> {
        let image = self.processes.get(id);
        let process = image.map(|image| Process {
            pid: image.pid,
            exe: program(&image.program, self.names, self.forms).unwrap_or_default(),
            argv: Vec::new(),
            status: image.status,
        });
        process.into_iter().collect()
    }
}
