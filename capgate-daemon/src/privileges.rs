//! What the daemon gives up once it has what it needs: however it was started, it serves with little more than the service's
//! unit allows it.

use rustix::{
    io,
    thread::{CapabilitySet, capabilities, set_capabilities, set_no_new_privs},
};

/// What serving takes; the reasons stand in `dist/capgated.service`. One is not in that unit: without a cgroup of its own, as
/// when it is started by hand, the daemon makes cgroups at the top of the hierarchy, whose mode lets nobody write; and a private
/// one removes its socket and store from a directory of its user's.
const NEEDED: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::DAC_OVERRIDE);

/// Gives up all other capabilities, and the possibility to gain any. For this thread and those that it makes from now on.
///
/// # Errors
/// When the kernel refuses.
pub fn drop_unneeded() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.permitted &= NEEDED;
    sets.effective = sets.permitted;
    sets.inheritable = CapabilitySet::empty();
    set_no_new_privs(true)?;
    set_capabilities(None, sets)
}
