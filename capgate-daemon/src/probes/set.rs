//! The two probe sets: which programs each has, and where they are attached.

use std::{
    any::Any,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use aya::{
    Btf, Ebpf,
    programs::{
        BtfTracePoint, CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, CgroupSockAddr, FEntry,
        FExit, Program, ProgramError, ProgramFd, RawTracePoint,
    },
};
use capgate_common::ledger::ProbeSet;

use super::{
    At,
    error::{ProbesError, refused},
    kernel,
};

/// The objects that the build script made.
static TRACEPOINT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tracepoint"));
static FENTRY: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fentry"));

/// The program that is run, not attached, when a job begins.
pub(super) const ADOPT: &str = "adopt";

/// Where a program runs.
#[derive(Clone, Copy)]
pub(super) enum Where {
    /// A tracepoint with BTF-typed arguments.
    Tracepoint(&'static str),
    /// The entry of a function of the kernel.
    Entry(&'static str),
    /// The exit of one.
    Exit(&'static str),
    /// A socket's address, for every cgroup.
    SockAddr,
    /// Packets on their way out, for every cgroup.
    Egress,
    /// Packets on their way in, likewise.
    Ingress,
    /// Behind another program, by a tail call.
    Behind(&'static str),
}

/// One program of a set.
pub(super) struct Hook {
    /// Its name in the object.
    pub(super) program: &'static str,
    /// Where it runs.
    pub(super) at: Where,
    /// The type that the kernel's BTF has when there is such a place; without it the program is left out.
    pub(super) only_with: Option<&'static str>,
}

const fn hook(program: &'static str, at: Where) -> Hook {
    Hook {
        program,
        at,
        only_with: None,
    }
}

/// What both sets have.
const SHARED: [Hook; 10] = [
    hook(
        "sched_process_exec",
        Where::Tracepoint("sched_process_exec"),
    ),
    hook(
        "sched_process_fork",
        Where::Tracepoint("sched_process_fork"),
    ),
    hook(
        "sched_process_exit",
        Where::Tracepoint("sched_process_exit"),
    ),
    hook("connect4", Where::SockAddr),
    hook("connect6", Where::SockAddr),
    hook("sendmsg4", Where::SockAddr),
    hook("sendmsg6", Where::SockAddr),
    hook("egress", Where::Egress),
    hook("dns_egress", Where::Egress),
    hook("dns_ingress", Where::Ingress),
];

/// What both sets have for a job whose queries go to the daemon; attached while there is one.
pub(super) const FORWARD_HOOKS: [Hook; 4] = [
    hook("recvmsg4", Where::SockAddr),
    hook("recvmsg6", Where::SockAddr),
    hook("getpeername4", Where::SockAddr),
    hook("getpeername6", Where::SockAddr),
];

/// The tracepoint that tells io_uring operations; kernels before 6.3 lack it.
pub(super) const IO_URING: &str = "btf_trace_io_uring_submit_req";

const TRACEPOINT_HOOKS: [Hook; 11] = [
    hook("sys_exit", Where::Tracepoint("sys_exit")),
    hook(
        "cgroup_attach_task",
        Where::Tracepoint("cgroup_attach_task"),
    ),
    Hook {
        only_with: Some(IO_URING),
        ..hook(
            "io_uring_submit_req",
            Where::Tracepoint("io_uring_submit_req"),
        )
    },
    // In the order of their indexes.
    hook("opened", Where::Behind("sys_exit")),
    hook("named", Where::Behind("sys_exit")),
    hook("socket", Where::Behind("sys_exit")),
    hook("addressed", Where::Behind("sys_exit")),
    hook("sent_many", Where::Behind("sys_exit")),
    hook("received", Where::Behind("sys_exit")),
    hook("traced", Where::Behind("sys_exit")),
    hook("refused", Where::Behind("sys_exit")),
];

/// The function that makes an MPTCP socket listen; kernels without MPTCP lack it.
pub(super) const MPTCP: &str = "mptcp_listen";

const FENTRY_HOOKS: [Hook; 41] = [
    hook("file_open", Where::Entry("security_file_open")),
    hook("file_receive", Where::Entry("security_file_receive")),
    hook("open_refused", Where::Exit("do_filp_open")),
    hook("truncate", Where::Exit("vfs_truncate")),
    hook("path_mkdir", Where::Entry("security_path_mkdir")),
    hook("path_rmdir", Where::Entry("security_path_rmdir")),
    hook("path_unlink", Where::Entry("security_path_unlink")),
    hook("path_symlink", Where::Entry("security_path_symlink")),
    hook("path_link", Where::Entry("security_path_link")),
    hook("path_rename", Where::Entry("security_path_rename")),
    hook("path_mknod", Where::Entry("security_path_mknod")),
    hook("mknod", Where::Entry("do_mknodat")),
    hook("pin", Where::Entry("bpf_obj_pin_user")),
    hook("mknod_done", Where::Exit("do_mknodat")),
    hook("pin_done", Where::Exit("bpf_obj_pin_user")),
    hook("mkdir_done", Where::Exit("do_mkdirat")),
    hook("rmdir_done", Where::Exit("do_rmdir")),
    hook("unlink_done", Where::Exit("do_unlinkat")),
    hook("symlink_done", Where::Exit("do_symlinkat")),
    hook("link_done", Where::Exit("do_linkat")),
    hook("rename_done", Where::Exit("do_renameat2")),
    hook("chmod", Where::Exit("chmod_common")),
    hook("chown", Where::Exit("chown_common")),
    hook("setxattr", Where::Exit("vfs_setxattr")),
    hook("removexattr", Where::Exit("vfs_removexattr")),
    hook("socket_create", Where::Entry("security_socket_post_create")),
    hook("socket_connect", Where::Exit("security_socket_connect")),
    hook("socket_bind", Where::Exit("security_socket_bind")),
    hook("socket_sendmsg", Where::Entry("security_socket_sendmsg")),
    hook("unix_stream_connect", Where::Exit("unix_stream_connect")),
    hook("unix_dgram_connect", Where::Exit("unix_dgram_connect")),
    hook("unix_dgram_sendmsg", Where::Exit("unix_dgram_sendmsg")),
    hook("unix_may_send", Where::Entry("security_unix_may_send")),
    hook("unix_bind", Where::Exit("unix_bind")),
    hook("inet_bind", Where::Exit("inet_bind")),
    hook("inet6_bind", Where::Exit("inet6_bind")),
    hook("inet_listen", Where::Exit("inet_listen")),
    Hook {
        only_with: Some(MPTCP),
        ..hook(MPTCP, Where::Exit(MPTCP))
    },
    hook("bprm_check", Where::Entry("security_bprm_check")),
    hook(
        "ptrace_access_check",
        Where::Entry("security_ptrace_access_check"),
    ),
    hook("cgroup_attach", Where::Entry("cgroup_attach_task")),
];

/// What detaches a program when dropped.
pub(super) type Link = Box<dyn Any + Send>;

/// The object of a set.
pub(super) fn object(set: ProbeSet) -> &'static [u8] {
    match set {
        ProbeSet::Tracepoint => TRACEPOINT,
        ProbeSet::Fentry => FENTRY,
    }
}

/// The programs of a set that are for a kernel with these places.
pub(super) fn hooks(set: ProbeSet, has: impl Fn(&str) -> bool) -> Vec<&'static Hook> {
    let own: &'static [Hook] = match set {
        ProbeSet::Tracepoint => &TRACEPOINT_HOOKS,
        ProbeSet::Fentry => &FENTRY_HOOKS,
    };
    let all = own.iter().chain(&SHARED);
    all.filter(|hook| hook.only_with.is_none_or(&has)).collect()
}

/// Has the verifier check a program.
pub(super) fn load(ebpf: &mut Ebpf, hook: &Hook, btf: &Btf) -> Result<(), ProbesError> {
    let name = hook.program;
    match hook.at {
        Where::Tracepoint(at) | Where::Behind(at) => {
            program::<BtfTracePoint>(ebpf, name)?.load(at, btf)
        }
        Where::Entry(function) => program::<FEntry>(ebpf, name)?.load(function, btf),
        Where::Exit(function) => program::<FExit>(ebpf, name)?.load(function, btf),
        Where::SockAddr => program::<CgroupSockAddr>(ebpf, name)?.load(),
        Where::Egress | Where::Ingress => program::<CgroupSkb>(ebpf, name)?.load(),
    }
    .map_err(refused("load", name))
}

/// Has the verifier check the program that is run when a job begins.
pub(super) fn load_adopt(ebpf: &mut Ebpf) -> Result<(), ProbesError> {
    program::<RawTracePoint>(ebpf, ADOPT)?
        .load()
        .map_err(refused("load", ADOPT))
}

/// Attaches a program; `None` for one behind another. Links in `root`, the cgroup root, are always shared with other programs; asking
/// for it by flag is refused on older kernels.
pub(super) fn attach(
    ebpf: &mut Ebpf,
    hook: &Hook,
    root: &File,
) -> Result<Option<Link>, ProbesError> {
    let name = hook.program;
    let link: Result<Link, ProgramError> = match hook.at {
        Where::Behind(_) => return Ok(None),
        Where::Tracepoint(_) => {
            let program = program::<BtfTracePoint>(ebpf, name)?;
            let link = program.attach().and_then(|id| program.take_link(id));
            link.map(|link| Box::new(link) as Link)
        }
        Where::Entry(_) => {
            let program = program::<FEntry>(ebpf, name)?;
            let link = program.attach().and_then(|id| program.take_link(id));
            link.map(|link| Box::new(link) as Link)
        }
        Where::Exit(_) => {
            let program = program::<FExit>(ebpf, name)?;
            let link = program.attach().and_then(|id| program.take_link(id));
            link.map(|link| Box::new(link) as Link)
        }
        Where::SockAddr => {
            let program = program::<CgroupSockAddr>(ebpf, name)?;
            let link = program.attach(root, CgroupAttachMode::Single);
            let link = link.and_then(|id| program.take_link(id));
            link.map(|link| Box::new(link) as Link)
        }
        Where::Egress | Where::Ingress => {
            let direction = match hook.at {
                Where::Ingress => CgroupSkbAttachType::Ingress,
                _ => CgroupSkbAttachType::Egress,
            };
            let program = program::<CgroupSkb>(ebpf, name)?;
            let link = program.attach(root, direction, CgroupAttachMode::Single);
            let link = link.and_then(|id| program.take_link(id));
            link.map(|link| Box::new(link) as Link)
        }
    };
    link.map(Some).map_err(refused("attach", name))
}

/// A program's descriptor of its own.
pub(super) fn descriptor(ebpf: &Ebpf, name: &'static str) -> Result<ProgramFd, ProbesError> {
    let program = ebpf.program(name).ok_or(ProbesError::Object(name))?;
    let fd = program.fd().map_err(refused("find", name))?;
    fd.try_clone()
        .map_err(|error| refused("find", name)(ProgramError::IOError(error)))
}

/// Runs the program of [`ADOPT`]: the job in `slot` begins at these directories of this process.
pub(super) fn adopt(ebpf: &Ebpf, slot: u32, at: &At<'_>) -> Result<(), ProbesError> {
    let number = |file: BorrowedFd<'_>| {
        u64::try_from(file.as_raw_fd()).map_err(|error| ProbesError::Adopt(io::Error::other(error)))
    };
    let program = ebpf.program(ADOPT).ok_or(ProbesError::Object(ADOPT))?;
    let program: &RawTracePoint = program.try_into().map_err(refused("find", ADOPT))?;
    let fd = program.fd().map_err(refused("find", ADOPT))?;
    let newest = at.newest_mount.unwrap_or(0);
    let arguments = [u64::from(slot), number(at.root)?, number(at.slash)?, newest];
    kernel::run(fd.as_fd(), &arguments).map_err(ProbesError::Adopt)
}

/// A program of the object, as the type that it must have.
fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, ProbesError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or(ProbesError::Object(name))?;
    program.try_into().map_err(refused("find", name))
}
