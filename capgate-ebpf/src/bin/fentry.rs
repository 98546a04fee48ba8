//! The `fentry` set: entry and exit of the kernel's own functions, with its own objects.
//!
//! `security_*` functions are the stable ones (include/linux/security.h). Most run before the kernel acts; whether a change of
//! names then happened is told by the exit of the function behind the system call, which io_uring calls too.
#![no_std]
#![no_main]

#[path = "../shared.rs"]
mod shared;

use aya_ebpf::{
    btf_maps::HashMap,
    macros::{btf_map, btf_tracepoint, fentry, fexit},
    programs::{BtfTracePointContext, FEntryContext, FExitContext},
};
use capgate_common::event::{
    INET_BIND, INET_LISTEN, NAME_CHMOD, NAME_CHOWN, NAME_LINK, NAME_MKDIR, NAME_MKNOD, NAME_RENAME,
    NAME_RMDIR, NAME_SYMLINK, NAME_TRUNCATE, NAME_UNLINK, NAME_XATTR, SOCKET_BIND, SOCKET_CONNECT,
    SOCKET_SEND,
};
use capgate_ebpf::{
    exec, file,
    kernel::{self, Address, Typed},
    name::{self, Entry, Place, With},
    process,
    record::Pool,
    scope,
    socket::{self, Given},
};

/// An argument that is a pointer, to be read by helpers.
macro_rules! pointer {
    ($ctx:expr, $index:literal) => {
        Address($ctx.arg::<u64>($index))
    };
}

/// What the function returned: 0 for success, else a negative errno; an error where the kernel does not tell.
#[inline(always)]
fn returned(ctx: &FExitContext) -> i32 {
    ctx.ret().unwrap_or(-1)
}

// Files.

/// Kernel: `int security_file_open(struct file *file)`, in do_dentry_open: every way to open but O_PATH, after permission checks.
#[fentry(function = "security_file_open")]
pub fn file_open(ctx: FEntryContext) -> i32 {
    file::opening::<Pool>(Typed::argument(ctx.arg(0)));
    0
}

/// Kernel: `int security_file_receive(struct file *file)`: SCM_RIGHTS and pidfd_getfd.
#[fentry(function = "security_file_receive")]
pub fn file_receive(ctx: FEntryContext) -> i32 {
    file::receiving::<Pool>(pointer!(ctx, 0));
    0
}

/// Kernel: `struct file *do_filp_open(int dfd, struct filename *pathname, const struct open_flags *op)`: every way to open by name,
/// that of a program to be executed included. Here are those that may not.
#[fexit(function = "do_filp_open")]
pub fn open_refused(ctx: FExitContext) -> i32 {
    name::open_refused::<Pool>(
        ctx.ret::<u64>().unwrap_or(0) as i64,
        ctx.arg::<u64>(0) as i32,
        pointer!(ctx, 1),
        pointer!(ctx, 2),
    );
    0
}

/// Kernel: `long vfs_truncate(const struct path *path, loff_t length)`, of truncate(2).
#[fexit(function = "vfs_truncate")]
pub fn truncate(ctx: FExitContext) -> i32 {
    if returned(&ctx) == 0 {
        name::changed::<Pool>(NAME_TRUNCATE, 0, Place::Path(pointer!(ctx, 0)));
    }
    0
}

// Names: attempts.

/// Kernel: `int security_path_mkdir(const struct path *dir, struct dentry *dentry, umode_t mode)`.
#[fentry(function = "security_path_mkdir")]
pub fn path_mkdir(ctx: FEntryContext) -> i32 {
    attempt(&ctx, NAME_MKDIR, ctx.arg::<u64>(2) as u32, With::Nothing);
    0
}

/// Kernel: `int security_path_rmdir(const struct path *dir, struct dentry *dentry)`.
#[fentry(function = "security_path_rmdir")]
pub fn path_rmdir(ctx: FEntryContext) -> i32 {
    attempt(&ctx, NAME_RMDIR, 0, With::Nothing);
    0
}

/// Kernel: `int security_path_unlink(const struct path *dir, struct dentry *dentry)`.
#[fentry(function = "security_path_unlink")]
pub fn path_unlink(ctx: FEntryContext) -> i32 {
    attempt(&ctx, NAME_UNLINK, 0, With::Nothing);
    0
}

/// Kernel: `int security_path_symlink(const struct path *dir, struct dentry *dentry, const char *old_name)`.
#[fentry(function = "security_path_symlink")]
pub fn path_symlink(ctx: FEntryContext) -> i32 {
    attempt(&ctx, NAME_SYMLINK, 0, With::Text(pointer!(ctx, 2)));
    0
}

/// Kernel: `int security_path_link(struct dentry *old_dentry, const struct path *new_dir, struct dentry *new_dentry)`.
#[fentry(function = "security_path_link")]
pub fn path_link(ctx: FEntryContext) -> i32 {
    let entry = Entry {
        dir: pointer!(ctx, 1),
        dentry: pointer!(ctx, 2),
    };
    name::attempted::<Pool>(NAME_LINK, 0, entry, With::Source(pointer!(ctx, 0)));
    0
}

/// Kernel: `int security_path_rename(const struct path *old_dir, struct dentry *old_dentry, const struct path *new_dir,
/// struct dentry *new_dentry, unsigned int flags)`.
#[fentry(function = "security_path_rename")]
pub fn path_rename(ctx: FEntryContext) -> i32 {
    let to = Entry {
        dir: pointer!(ctx, 2),
        dentry: pointer!(ctx, 3),
    };
    attempt(&ctx, NAME_RENAME, ctx.arg::<u64>(4) as u32, With::Entry(to));
    0
}

/// Threads that are in a call which makes a file without opening it. Every open that may make one asks
/// `security_path_mknod` as well.
#[btf_map]
static MAKING: HashMap<u32, u8, 16384> = HashMap::new();

/// Kernel: `int security_path_mknod(const struct path *dir, struct dentry *dentry, umode_t mode, unsigned int dev)`.
#[fentry(function = "security_path_mknod")]
pub fn path_mknod(ctx: FEntryContext) -> i32 {
    // SAFETY: only the presence counts.
    if unsafe { MAKING.get(kernel::ids().1) }.is_some() {
        attempt(&ctx, NAME_MKNOD, ctx.arg::<u64>(2) as u32, With::Nothing);
    }
    0
}

#[inline(always)]
fn attempt(ctx: &FEntryContext, op: u16, arg: u32, with: With) {
    let entry = Entry {
        dir: pointer!(ctx, 0),
        dentry: pointer!(ctx, 1),
    };
    name::attempted::<Pool>(op, arg, entry, with);
}

/// Kernel: `int do_mknodat(int dfd, struct filename *name, umode_t mode, unsigned int dev)`.
#[fentry(function = "do_mknodat")]
pub fn mknod(_ctx: FEntryContext) -> i32 {
    making();
    0
}

/// Kernel: `int bpf_obj_pin_user(u32 ufd, …)`.
#[fentry(function = "bpf_obj_pin_user")]
pub fn pin(_ctx: FEntryContext) -> i32 {
    making();
    0
}

#[inline(always)]
fn making() {
    if let Some(slot) = scope::current()
        && MAKING.insert(kernel::ids().1, 1, 0).is_err()
    {
        name::overlooked(slot);
    }
}

#[inline(always)]
fn made(ctx: &FExitContext) {
    // Not there for threads of no job.
    if MAKING.remove(kernel::ids().1).is_ok() && returned(ctx) == 0 {
        name::done(NAME_MKNOD);
    }
}

// Names: what came of the attempts.

/// Kernel: as at the entry.
#[fexit(function = "do_mknodat")]
pub fn mknod_done(ctx: FExitContext) -> i32 {
    made(&ctx);
    0
}

/// Kernel: as at the entry.
#[fexit(function = "bpf_obj_pin_user")]
pub fn pin_done(ctx: FExitContext) -> i32 {
    made(&ctx);
    0
}

macro_rules! done {
    ($($program:ident = $function:literal, $op:ident, $prototype:literal;)+) => {
        $(
            #[doc = concat!("Kernel: `", $prototype, "`.")]
            #[fexit(function = $function)]
            pub fn $program(ctx: FExitContext) -> i32 {
                if returned(&ctx) == 0 {
                    name::done($op);
                }
                0
            }
        )+
    };
}

done! {
    mkdir_done = "do_mkdirat", NAME_MKDIR, "int do_mkdirat(int dfd, struct filename *name, umode_t mode)";
    rmdir_done = "do_rmdir", NAME_RMDIR, "int do_rmdir(int dfd, struct filename *name)";
    unlink_done = "do_unlinkat", NAME_UNLINK, "int do_unlinkat(int dfd, struct filename *name)";
    symlink_done = "do_symlinkat", NAME_SYMLINK, "int do_symlinkat(struct filename *from, int newdfd, struct filename *to)";
    link_done = "do_linkat", NAME_LINK, "int do_linkat(int olddfd, struct filename *old, int newdfd, struct filename *new, int flags)";
    rename_done = "do_renameat2", NAME_RENAME, "int do_renameat2(int olddfd, struct filename *from, int newdfd, struct filename *to, unsigned int flags)";
}

// Mode, owner and attributes: evidence.

/// Kernel: `int chmod_common(const struct path *path, umode_t mode)`.
#[fexit(function = "chmod_common")]
pub fn chmod(ctx: FExitContext) -> i32 {
    if returned(&ctx) == 0 {
        let mode = ctx.arg::<u64>(1) as u32;
        name::changed::<Pool>(NAME_CHMOD, mode, Place::Path(pointer!(ctx, 0)));
    }
    0
}

/// Kernel: `int chown_common(const struct path *path, uid_t user, gid_t group)`.
#[fexit(function = "chown_common")]
pub fn chown(ctx: FExitContext) -> i32 {
    if returned(&ctx) == 0 {
        name::changed::<Pool>(NAME_CHOWN, 0, Place::Path(pointer!(ctx, 0)));
    }
    0
}

/// Kernel: `int vfs_setxattr(struct mnt_idmap *, struct dentry *dentry, const char *name, const void *value, size_t size,
/// int flags)`; the first argument is a `struct user_namespace *` before 6.3.
#[fexit(function = "vfs_setxattr")]
pub fn setxattr(ctx: FExitContext) -> i32 {
    attribute(&ctx);
    0
}

/// Kernel: `int vfs_removexattr(struct mnt_idmap *, struct dentry *dentry, const char *name)`, likewise.
#[fexit(function = "vfs_removexattr")]
pub fn removexattr(ctx: FExitContext) -> i32 {
    attribute(&ctx);
    0
}

#[inline(always)]
fn attribute(ctx: &FExitContext) {
    if returned(ctx) == 0 {
        name::changed::<Pool>(NAME_XATTR, 0, Place::Dentry(pointer!(ctx, 1)));
    }
}

// Sockets.

/// The address of bind and connect, copied in: their second and third arguments.
#[inline(always)]
fn address(ctx: &FExitContext) -> Given {
    Given::in_kernel_memory(pointer!(ctx, 1), ctx.arg::<u64>(2) & 0xffff_ffff)
}

/// Kernel: `int security_socket_post_create(struct socket *sock, int family, int type, int protocol, int kern)`.
#[fentry(function = "security_socket_post_create")]
pub fn socket_create(ctx: FEntryContext) -> i32 {
    let (family, sock_type) = (ctx.arg::<u64>(1) as u16, ctx.arg::<u64>(2) as u32);
    let (protocol, by_kernel) = (ctx.arg::<u64>(3) as u16, ctx.arg::<u64>(4) as u32 != 0);
    if !by_kernel && let Some(slot) = scope::current() {
        socket::created(slot, family, sock_type, protocol, 0);
    }
    0
}

/// Kernel: `int security_socket_connect(struct socket *sock, struct sockaddr *address, int addrlen)`, the address copied in. Unix
/// sockets are looked at when they have connected; here are those that may not even try, and families without a hook of their own.
#[fexit(function = "security_socket_connect")]
pub fn socket_connect(ctx: FExitContext) -> i32 {
    if let Some(sock) = socket::of(pointer!(ctx, 0)) {
        let given = address(&ctx);
        let ret = i64::from(returned(&ctx));
        if ret != 0 {
            socket::unix_tried::<Pool>(sock, ret, given, true);
        }
        socket::used::<Pool>(sock, SOCKET_CONNECT, ret, given);
    }
    0
}

/// Kernel: `int security_socket_bind(struct socket *sock, struct sockaddr *address, int addrlen)`, likewise.
#[fexit(function = "security_socket_bind")]
pub fn socket_bind(ctx: FExitContext) -> i32 {
    if returned(&ctx) == 0
        && let Some(sock) = socket::of(pointer!(ctx, 0))
    {
        let given = address(&ctx);
        socket::used::<Pool>(sock, SOCKET_BIND, 0, given);
    }
    0
}

/// Kernel: `int security_socket_sendmsg(struct socket *sock, struct msghdr *msg, int size)`, the address copied in.
#[fentry(function = "security_socket_sendmsg")]
pub fn socket_sendmsg(ctx: FEntryContext) -> i32 {
    if let Some(given) = socket::destination(pointer!(ctx, 1))
        && let Some(sock) = socket::of(pointer!(ctx, 0))
    {
        socket::used::<Pool>(sock, SOCKET_SEND, 0, given);
    }
    0
}

/// Kernel: `int unix_stream_connect(struct socket *sock, struct sockaddr *uaddr, int addr_len, int flags)`.
#[fexit(function = "unix_stream_connect")]
pub fn unix_stream_connect(ctx: FExitContext) -> i32 {
    unix_connected(&ctx);
    0
}

/// Kernel: `int unix_dgram_connect(struct socket *sock, struct sockaddr *addr, int alen, int flags)`.
#[fexit(function = "unix_dgram_connect")]
pub fn unix_dgram_connect(ctx: FExitContext) -> i32 {
    unix_connected(&ctx);
    0
}

#[inline(always)]
fn unix_connected(ctx: &FExitContext) {
    if let Some(sock) = socket::of(pointer!(ctx, 0)) {
        let given = address(ctx);
        socket::unix_tried::<Pool>(sock, i64::from(returned(ctx)), given, true);
    }
}

/// Kernel: `int unix_dgram_sendmsg(struct socket *sock, struct msghdr *msg, size_t len)`: what did not get as far as a peer.
#[fexit(function = "unix_dgram_sendmsg")]
pub fn unix_dgram_sendmsg(ctx: FExitContext) -> i32 {
    let ret = returned(&ctx);
    if ret < 0
        && let Some(given) = socket::destination(pointer!(ctx, 1))
        && let Some(sock) = socket::of(pointer!(ctx, 0))
    {
        socket::unix_tried::<Pool>(sock, i64::from(ret), given, false);
    }
    0
}

/// Kernel: `int security_unix_may_send(struct socket *sock, struct socket *other)`.
#[fentry(function = "security_unix_may_send")]
pub fn unix_may_send(ctx: FEntryContext) -> i32 {
    socket::unix_sending::<Pool>(pointer!(ctx, 0), pointer!(ctx, 1));
    0
}

/// Kernel: `static int unix_bind(struct socket *sock, struct sockaddr *uaddr, int addr_len)`.
#[fexit(function = "unix_bind")]
pub fn unix_bind(ctx: FExitContext) -> i32 {
    if returned(&ctx) == 0
        && let Some(slot) = scope::current()
        && let Some(sock) = socket::of(pointer!(ctx, 0))
    {
        socket::unix_bound::<Pool>(slot, sock);
    }
    0
}

/// Kernel: `int inet_bind(struct socket *sock, struct sockaddr *uaddr, int addr_len)`.
#[fexit(function = "inet_bind")]
pub fn inet_bind(ctx: FExitContext) -> i32 {
    bound(&ctx, INET_BIND);
    0
}

/// Kernel: `int inet6_bind(struct socket *sock, struct sockaddr *uaddr, int addr_len)`.
#[fexit(function = "inet6_bind")]
pub fn inet6_bind(ctx: FExitContext) -> i32 {
    bound(&ctx, INET_BIND);
    0
}

/// Kernel: `int inet_listen(struct socket *sock, int backlog)`.
#[fexit(function = "inet_listen")]
pub fn inet_listen(ctx: FExitContext) -> i32 {
    bound(&ctx, INET_LISTEN);
    0
}

/// Kernel, where it has MPTCP: `static int mptcp_listen(struct socket *sock, int backlog)`.
#[fexit(function = "mptcp_listen")]
pub fn mptcp_listen(ctx: FExitContext) -> i32 {
    bound(&ctx, INET_LISTEN);
    0
}

#[inline(always)]
fn bound(ctx: &FExitContext, op: u16) {
    if returned(ctx) == 0
        && let Some(slot) = scope::current()
        && let Some(sock) = socket::of(pointer!(ctx, 0))
    {
        socket::has_address(slot, sock, op);
    }
}

// Processes.

/// Kernel: `trace_sched_process_fork(struct task_struct *parent, struct task_struct *child)`.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn sched_process_fork(ctx: BtfTracePointContext) -> i32 {
    if let Some(slot) = scope::current() {
        process::forked::<false>(slot, Address(ctx.arg::<u64>(1)));
    }
    0
}

/// Kernel: `int security_bprm_check(struct linux_binprm *bprm)`: once for the file named, and for each interpreter.
#[fentry(function = "security_bprm_check")]
pub fn bprm_check(ctx: FEntryContext) -> i32 {
    exec::checked::<Pool>(pointer!(ctx, 0));
    0
}

/// Kernel: `int security_ptrace_access_check(struct task_struct *child, unsigned int mode)`, when credentials allow the access.
#[fentry(function = "security_ptrace_access_check")]
pub fn ptrace_access_check(ctx: FEntryContext) -> i32 {
    if let Some(slot) = scope::current() {
        process::reaching(slot, pointer!(ctx, 0), ctx.arg::<u64>(1) as u32);
    }
    0
}

/// Kernel: `int cgroup_attach_task(struct cgroup *dst_cgrp, struct task_struct *leader, bool threadgroup)`.
#[fentry(function = "cgroup_attach_task")]
pub fn cgroup_attach(ctx: FEntryContext) -> i32 {
    process::moving(pointer!(ctx, 0), pointer!(ctx, 1));
    0
}
