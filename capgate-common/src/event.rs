//! Wire records: what the probes write into a job's ring.
//!
//! Integers and byte arrays only, native byte order, layout asserted below. A record is a
//! fixed struct that begins with a [`Header`], followed by `header.data_len` bytes of variable
//! data in the order in which the struct's length fields name it. Kinds and flags are plain
//! integers: what arrives is checked by the decoder, never transmuted.

/// A record that was cut short: some of its data is missing, so it must count as lost.
pub const REC_TRUNCATED: u16 = 1 << 0;
/// Memory that the record needs could not be read; must count as lost.
pub const REC_FAULT: u16 = 1 << 1;
/// What an [`InetRecord`] tells of was refused: the call failed with EPERM.
pub const REC_DENIED: u16 = 1 << 2;

/// [`Header::kind`]: a file came into the job's hands, writable, created or truncated ([`FileRecord`]).
pub const KIND_FILE: u16 = 1;
/// [`Header::kind`]: a call that names files in user memory succeeded ([`NameRecord`]).
pub const KIND_NAME: u16 = 2;
/// [`Header::kind`]: an inet connect, send, or datagram on its way ([`InetRecord`]).
pub const KIND_INET: u16 = 3;
/// [`Header::kind`]: a unix socket connected or sent to ([`UnixRecord`]).
pub const KIND_UNIX: u16 = 4;
/// [`Header::kind`]: a socket was created, bound, listened on, connected or sent to, by raw address ([`SocketRecord`]).
pub const KIND_SOCKET: u16 = 5;
/// [`Header::kind`]: a program started ([`ExecRecord`]).
pub const KIND_EXEC: u16 = 6;
/// [`Header::kind`]: a process was made ([`ForkRecord`]).
pub const KIND_FORK: u16 = 7;
/// [`Header::kind`]: a process ended ([`ExitRecord`]). May come twice when its last threads end at the same moment.
pub const KIND_EXIT: u16 = 8;
/// [`Header::kind`]: a process joined or left the job's cgroup ([`MoveRecord`]).
pub const KIND_MOVE: u16 = 9;
/// [`Header::kind`]: something happened that this probe set cannot record ([`UnseenRecord`]).
pub const KIND_UNSEEN: u16 = 10;
/// [`Header::kind`]: access to another process' memory or control ([`PtraceRecord`]).
pub const KIND_PTRACE: u16 = 11;
/// [`Header::kind`]: what a thread attempted last has succeeded ([`DoneRecord`]).
pub const KIND_DONE: u16 = 12;
/// [`Header::kind`]: a packet between a socket of the job and port 53 of a resolver that it is configured for ([`DnsRecord`]).
pub const KIND_DNS: u16 = 13;
/// One past the last kind; kinds index the counters of [`Counters`].
pub const KIND_END: u16 = 14;

/// Length of the per-kind counter arrays (index 0 is unused).
pub const KINDS: usize = KIND_END as usize;

/// The name of each kind, as `lost`, `tail --kind` and metrics show it; indexed by kind.
pub const KIND_NAMES: [&str; KINDS] = [
    "none", "file", "name", "inet", "unix", "socket", "exec", "fork", "exit", "move", "unseen",
    "ptrace", "done", "dns",
];

/// The head of every record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// One of the `KIND_` values.
    pub kind: u16,
    /// `REC_` bits.
    pub flags: u16,
    /// Bytes of variable data behind the fixed struct.
    pub data_len: u32,
    /// Nanoseconds since boot, suspended time included (`bpf_ktime_get_boot_ns`).
    pub time_ns: u64,
    /// When the process began, nanoseconds since boot (`task_struct.group_leader.start_boottime`);
    /// with `tgid` the identity of a process.
    pub start_ns: u64,
    /// Process id in the initial pid namespace (`task_struct.tgid`).
    pub tgid: u32,
    /// Thread id in the initial pid namespace (`task_struct.pid`).
    pub tid: u32,
    /// Inode number of the task's mount namespace (`nsproxy.mnt_ns.ns.inum`), 0 when unknown.
    pub mnt_ns: u32,
    /// Reserved, 0.
    pub pad: u32,
}

/// The walk reached the global root of the mount tree.
pub const PATH_ABSOLUTE: u16 = 1 << 0;
/// The walk ended in a mount that is not part of any namespace: memfd, pipe, socket, detached.
pub const PATH_INTERNAL: u16 = 1 << 1;
/// The leaf has been removed from its directory, or never was in one (`d_unhashed`).
pub const PATH_UNHASHED: u16 = 1 << 2;
/// The walk or string ran out of room.
pub const PATH_TRUNCATED: u16 = 1 << 3;
/// A pointer on the way could not be read.
pub const PATH_FAULT: u16 = 1 << 4;

/// The walk met the job's root directory, by identity: the components are relative to it.
pub const PATH_ROOTED: u16 = 1 << 5;
/// The mount was not in the mount namespace that the job began in, or not yet: the components lead up to the top of the file
/// system, and one more of eight bytes holds its `super_block.s_dev` and the lower half of its `s_magic`.
pub const PATH_DEVICE: u16 = 1 << 6;
/// With [`PATH_DEVICE`]: the mount is in the namespace that the job began in, and newer than the job.
pub const PATH_NEWER: u16 = 1 << 7;

/// A walked path: `len` bytes of the variable data, as components from the leaf to the root, each
/// one length byte and that many name bytes (`NAME_MAX` is 255, limits.h). No component: `/`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Encoded bytes.
    pub len: u16,
    /// `PATH_` bits.
    pub flags: u16,
}

/// [`FileRecord::op`]: open, openat, openat2, creat, open_by_handle_at.
pub const FILE_OPEN: u16 = 1;
/// [`FileRecord::op`]: the descriptor came from another process (`SCM_RIGHTS`, pidfd_getfd).
pub const FILE_RECEIVED: u16 = 2;

/// [`FileRecord::how`]: opened for writing (`FMODE_WRITE`, fs.h).
pub const HOW_WRITE: u16 = 1 << 0;
/// [`FileRecord::how`]: this open made the file (`FMODE_CREATED`, fs.h).
pub const HOW_CREATED: u16 = 1 << 1;
/// [`FileRecord::how`]: the call asked for truncation (`O_TRUNC`).
pub const HOW_TRUNCATE: u16 = 1 << 2;

/// A file that the job may write to. Data: the path.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRecord {
    /// The head.
    pub header: Header,
    /// Inode number.
    pub ino: u64,
    /// `super_block.s_dev`: major << 20 | minor.
    pub dev: u32,
    /// `inode.i_generation`, tells a re-used inode number from its predecessor.
    pub generation: u32,
    /// `inode.i_mode`: type and permissions.
    pub mode: u32,
    /// `inode.i_nlink`.
    pub nlink: u32,
    /// The walked path.
    pub path: Walked,
    /// `FILE_` value.
    pub op: u16,
    /// `HOW_` bits.
    pub how: u16,
    /// Device number of a device node (`inode.i_rdev`).
    pub rdev: u32,
    /// Reserved, 0.
    pub pad: u32,
}

/// [`NameRecord::op`]: rename, renameat, renameat2. First name: old, second: new.
pub const NAME_RENAME: u16 = 1;
/// [`NameRecord::op`]: unlink, unlinkat.
pub const NAME_UNLINK: u16 = 2;
/// [`NameRecord::op`]: rmdir, unlinkat with `AT_REMOVEDIR`.
pub const NAME_RMDIR: u16 = 3;
/// [`NameRecord::op`]: link, linkat. First name: the existing file, second: the new name.
pub const NAME_LINK: u16 = 4;
/// [`NameRecord::op`]: symlink, symlinkat. First name: the target text (no base), second: the link.
pub const NAME_SYMLINK: u16 = 5;
/// [`NameRecord::op`]: mknod, mknodat.
pub const NAME_MKNOD: u16 = 6;
/// [`NameRecord::op`]: mkdir, mkdirat.
pub const NAME_MKDIR: u16 = 7;
/// [`NameRecord::op`]: truncate.
pub const NAME_TRUNCATE: u16 = 8;
/// [`NameRecord::op`]: bind of a unix socket to a path.
pub const NAME_BIND: u16 = 9;
/// [`NameRecord::op`]: chmod, fchmodat, fchmodat2.
pub const NAME_CHMOD: u16 = 10;
/// [`NameRecord::op`]: chown, lchown, fchownat.
pub const NAME_CHOWN: u16 = 11;
/// [`NameRecord::op`]: setxattr, lsetxattr, removexattr, lremovexattr.
pub const NAME_XATTR: u16 = 12;

/// A base directory and a string from user memory, as one call named a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Where the string starts from: the working directory, a descriptor's path, or for an absolute
    /// string the task's root. Empty with an absolute string means the global root.
    pub base: Walked,
    /// Bytes of the string, without the closing NUL.
    pub len: u16,
    /// `PATH_TRUNCATED` and `PATH_FAULT` of the string.
    pub flags: u16,
}

/// [`NameRecord::op`]: open, openat, openat2, creat of a file for writing. Refused ones only: see [`NAME_REFUSED`].
pub const NAME_OPEN: u16 = 13;
/// [`NameRecord::op`]: execve, execveat. Refused ones only.
pub const NAME_EXEC: u16 = 14;

/// [`NameRecord::how`]: recorded before the kernel acts. It counts when a [`DoneRecord`] of the same thread follows it.
pub const NAME_ATTEMPT: u16 = 1 << 0;
/// [`NameRecord::how`]: the kernel refused the call, so nothing changed: it tells what the job reached for.
pub const NAME_REFUSED: u16 = 1 << 1;

/// A call that names files by string, or a change of names with the directory as base and one component as string. Data: first
/// base, first string, second base, second string.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameRecord {
    /// The head.
    pub header: Header,
    /// `NAME_` value.
    pub op: u16,
    /// [`NAME_ATTEMPT`], [`NAME_REFUSED`] or 0.
    pub how: u16,
    /// The call's flags: `RENAME_`, `AT_` values, or the mode of mknod, mkdir and chmod.
    pub arg: u32,
    /// First name.
    pub first: Named,
    /// Second name, of rename, link and symlink.
    pub second: Named,
}

/// [`InetRecord::op`]: connect, seen before the kernel acts on it.
pub const INET_CONNECT: u16 = 1;
/// [`InetRecord::op`]: a datagram with an explicit destination, before it is sent.
pub const INET_SENDMSG: u16 = 2;
/// [`InetRecord::op`]: a packet leaves a socket of the job: UDP, or not TCP.
pub const INET_EGRESS: u16 = 3;
/// [`InetRecord::op`]: listen succeeded; `addr` and `port` are the socket's own.
pub const INET_LISTEN: u16 = 4;
/// [`InetRecord::op`]: bind of a datagram socket succeeded; `addr` and `port` are the socket's own.
pub const INET_BIND: u16 = 5;

/// The change of names that a thread attempted last has succeeded. No data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoneRecord {
    /// The head.
    pub header: Header,
    /// `NAME_` value of the attempt.
    pub op: u16,
    /// Reserved, 0.
    pub pad: [u16; 3],
}

/// One inet address that a job used. No data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InetRecord {
    /// The head.
    pub header: Header,
    /// `net.net_cookie` of the socket's network namespace.
    pub netns: u64,
    /// Remote address (local one for listen and bind); IPv4 in the first four bytes. Network order.
    pub addr: [u8; 16],
    /// Local address of an egress record.
    pub local: [u8; 16],
    /// IPv6 scope: interface index (`sin6_scope_id`).
    pub scope_id: u32,
    /// Remote port (local one for listen and bind), host order.
    pub port: u16,
    /// Local port of an egress record, host order.
    pub local_port: u16,
    /// `AF_INET` or `AF_INET6`.
    pub family: u16,
    /// `SOCK_` type, 0 when unknown.
    pub sock_type: u16,
    /// `IPPROTO_` value, of the packet for egress.
    pub protocol: u16,
    /// `INET_` value.
    pub op: u16,
}

/// [`DnsRecord::op`]: from the job to a resolver.
pub const DNS_QUERY: u16 = 1;
/// [`DnsRecord::op`]: from a resolver to the job.
pub const DNS_ANSWER: u16 = 2;

/// Bytes of a packet's payload in one [`DnsRecord`]; a longer one comes in several, in order.
pub const DNS_PIECE: usize = 4096;

/// [`DnsRecord::tcp_flags`]: the stream begins (RFC 9293, 3.1).
pub const TCP_SYN: u16 = 1 << 1;

/// A piece of what a packet between the job and a resolver carries. Data: the piece.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnsRecord {
    /// The head; its task is 0 when another one than the job's happened to run. All pieces of a packet have the same time.
    pub header: Header,
    /// `net.net_cookie` of the socket's network namespace.
    pub netns: u64,
    /// The socket (`bpf_get_socket_cookie`): no other one of this boot has the same.
    pub cookie: u64,
    /// The resolver's address; IPv4 in the first four bytes. Network order.
    pub remote: [u8; 16],
    /// The job's own address, likewise.
    pub local: [u8; 16],
    /// TCP: sequence number of the packet's first byte; 0 for UDP.
    pub seq: u32,
    /// Where in the packet's payload the piece begins.
    pub at: u32,
    /// Bytes of the packet's payload.
    pub total: u32,
    /// The job's own port, host order.
    pub local_port: u16,
    /// `AF_INET` or `AF_INET6`.
    pub family: u16,
    /// `IPPROTO_TCP` or `IPPROTO_UDP`.
    pub protocol: u16,
    /// TCP: the flags of the packet; 0 for UDP.
    pub tcp_flags: u16,
    /// `DNS_` value.
    pub op: u16,
    /// Reserved, 0.
    pub pad: u16,
}

/// [`UnixRecord::op`]: connect.
pub const UNIX_CONNECT: u16 = 1;
/// [`UnixRecord::op`]: a message with an explicit destination.
pub const UNIX_SEND: u16 = 2;

/// A unix socket connected or sent to. Data: the peer's bound path (walk), the base directory (walk),
/// the address string (`sun_path`, without the closing NUL; abstract names begin with NUL).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixRecord {
    /// The head.
    pub header: Header,
    /// The call's result: 0 or more, or a negative errno.
    pub ret: i32,
    /// Process id of the peer's creator (`sock.sk_peer_pid`, initial pid namespace), 0 when unknown.
    pub peer_pid: u32,
    /// The peer's bound path as the kernel resolved it; empty when unknown.
    pub peer: Walked,
    /// The caller's base directory and string.
    pub name: Named,
    /// `UNIX_` value.
    pub op: u16,
    /// `SOCK_` type.
    pub sock_type: u16,
}

/// [`SocketRecord::op`]: socket() succeeded.
pub const SOCKET_CREATE: u16 = 1;
/// [`SocketRecord::op`]: bind succeeded.
pub const SOCKET_BIND: u16 = 2;
/// [`SocketRecord::op`]: connect, any result.
pub const SOCKET_CONNECT: u16 = 3;
/// [`SocketRecord::op`]: a message with an explicit destination, any result.
pub const SOCKET_SEND: u16 = 4;

/// A socket of a family that has no record of its own: raw, packet, vsock and the rest. Data: the
/// address as the caller gave it (`struct sockaddr_*`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketRecord {
    /// The head.
    pub header: Header,
    /// The socket's network namespace (`net.net_cookie`); 0 when it was only made.
    pub netns: u64,
    /// The call's result.
    pub ret: i32,
    /// `AF_` value.
    pub family: u16,
    /// `SOCK_` type without flags.
    pub sock_type: u16,
    /// Protocol number as the caller or socket has it.
    pub protocol: u16,
    /// `SOCKET_` value.
    pub op: u16,
    /// Reserved, 0.
    pub pad: u32,
}

/// [`ExecRecord::how`]: the kernel ran an interpreter for the file named (`#!`, binfmt_misc).
pub const EXEC_SCRIPT: u16 = 1 << 0;
/// [`ExecRecord::how`]: argv was cut at `ARGV_CAP`.
pub const EXEC_ARGV_CUT: u16 = 1 << 1;

/// [`ExecRecord::how`]: a script that the kernel is about to read the interpreter of. It ran when a record without this bit, whose
/// [`ExecRecord::was`] is the same thread, follows. Data: its path.
pub const EXEC_ATTEMPT: u16 = 1 << 2;
/// [`ExecRecord::how`]: the first file of an exec; what the thread attempted before has failed.
pub const EXEC_FIRST: u16 = 1 << 3;

/// A program that started. Data: path of the program that runs (walk), where the name starts from (walk), the name
/// as the caller gave it (`linux_binprm.filename`), the working directory (walk), argv with NULs between.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecRecord {
    /// The head.
    pub header: Header,
    /// Inode number of the program that runs.
    pub ino: u64,
    /// Bytes of it (`inode.i_size`).
    pub size: u64,
    /// Device of it.
    pub dev: u32,
    /// `EXEC_` bits.
    pub how: u16,
    /// Bytes of argv.
    pub argv_len: u16,
    /// Path of the program that runs.
    pub exe: Walked,
    /// Working directory and file name.
    pub name: Named,
    /// Thread id before the exec: the thread that executes takes the id of its process.
    pub was: u32,
    /// Working directory, when the name does not start from it.
    pub cwd: Walked,
    /// Reserved, 0.
    pub pad: u32,
}

/// A process that was made. No data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkRecord {
    /// The head; the parent is the task in it.
    pub header: Header,
    /// When the child began.
    pub child_start_ns: u64,
    /// Process id of the child.
    pub child_tgid: u32,
    /// 1 when the child is outside the job's cgroup (`CLONE_INTO_CGROUP`).
    pub outside: u32,
}

/// A process that ended. No data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitRecord {
    /// The head.
    pub header: Header,
    /// `task_struct.exit_code` of the last thread: status << 8 | 0x80 when the kernel wrote a core | signal.
    pub exit_code: u32,
    /// Reserved, 0.
    pub pad: u32,
}

/// A process that was moved between cgroups. No data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveRecord {
    /// The head; its task is the mover.
    pub header: Header,
    /// Id of the cgroup that the process is in now.
    pub cgroup: u64,
    /// The moved process.
    pub moved_tgid: u32,
    /// 1: it left the job; 0: it joined.
    pub left: u32,
}

/// [`UnseenRecord::what`]: a 32-bit or x32 system call; `arg` is its number.
pub const UNSEEN_COMPAT: u32 = 1;
/// [`UnseenRecord::what`]: an io_uring operation that acts outside known descriptors; `arg` is the opcode, or 255 for a ring whose operations cannot be told apart.
pub const UNSEEN_IO_URING: u32 = 2;
/// [`UnseenRecord::what`]: the job changed its mount table; `arg` is the call's number.
pub const UNSEEN_MOUNT: u32 = 3;
/// [`UnseenRecord::what`]: descriptors were received that could not be looked at; `arg` is how many.
pub const UNSEEN_FD: u32 = 4;
/// [`UnseenRecord::what`]: a message list too long to read in full; `arg` is its length.
pub const UNSEEN_MESSAGES: u32 = 5;
/// [`UnseenRecord::what`]: the job set something up that lets the kernel write to files by itself; `arg` is the call's number.
pub const UNSEEN_KERNEL: u32 = 6;
/// One past the last of them.
pub const UNSEEN_END: u32 = 7;

/// The name of each blind spot, as `coverage.unseen` and `allow_unseen` spell it; indexed by `UNSEEN_` value.
pub const UNSEEN_NAMES: [&str; UNSEEN_END as usize] = [
    "none",
    "compat",
    "io_uring",
    "mount",
    "fd_receive",
    "messages",
    "kernel_writes",
];

/// Something happened that the probe set cannot record. No data. Sent once per job and `what`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnseenRecord {
    /// The head.
    pub header: Header,
    /// Detail, see the `UNSEEN_` values.
    pub arg: u64,
    /// `UNSEEN_` value.
    pub what: u32,
    /// Reserved, 0.
    pub pad: u32,
}

/// [`PtraceRecord::op`]: ptrace attach or seize.
pub const PTRACE_ATTACH: u32 = 1;
/// [`PtraceRecord::op`]: process_vm_writev or process_vm_readv.
pub const PTRACE_VM: u32 = 2;
/// [`PtraceRecord::op`]: pidfd_getfd.
pub const PTRACE_GETFD: u32 = 3;

/// [`PtraceRecord::inside`]: a member of the same job.
pub const PTRACE_INSIDE: u32 = 1;
/// [`PtraceRecord::inside`]: no member.
pub const PTRACE_OUTSIDE: u32 = 2;

/// Access to another process. No data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PtraceRecord {
    /// The head.
    pub header: Header,
    /// `PTRACE_` value.
    pub op: u32,
    /// The target as the caller named it, in the caller's pid namespace; 0 for a pidfd.
    pub target: u32,
    /// `PTRACE_INSIDE`, `PTRACE_OUTSIDE`, or 0 when unknown.
    pub inside: u32,
    /// Reserved, 0.
    pub pad: u32,
}

/// Where a cgroup id leads: the job's slot and which of the slot's jobs it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Index into the per-job arrays.
    pub index: u32,
    /// Counts the jobs that the slot has had, so that what is kept of one is not taken for another's.
    pub generation: u32,
}

/// Where a job began, by identity: addresses of the kernel, to be compared only.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The root directory's `struct dentry`. The daemon holds the directory open, so nothing else gets this address.
    pub dentry: u64,
    /// The client's `struct mnt_namespace`, held likewise by a descriptor of its `/`.
    pub namespace: u64,
    /// The newest mount that there was, by its number that is never used again (`mount.mnt_id_unique`, since 6.8); 0 when not known.
    pub newest_mount: u64,
}

/// A mount that was there when the job in a slot began.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountKey {
    /// The job's slot.
    pub slot: u32,
    /// `mount.mnt_id`.
    pub mount: u32,
}

/// Bytes of a directory's name by which a mount is recognised, with a closing NUL.
pub const MOUNT_NAME: usize = 16;

/// What a mount is recognised by beside its id, which the kernel gives to the next one when it is gone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mounted {
    /// The mount that it is mounted in: `mount.mnt_parent->mnt_id`.
    pub parent: u32,
    /// How the name of the directory begins that it is mounted on, with zeroes behind.
    pub name: [u8; MOUNT_NAME],
}

/// A resolver that the job in a slot is configured for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResolverKey {
    /// Its address, IPv4 in IPv6 (`::ffff:192.0.2.1`). Network order.
    pub addr: [u8; 16],
    /// The job's slot.
    pub slot: u32,
    /// Reserved, 0.
    pub pad: u32,
}

/// Jobs that are found by comparing, without a hash lookup.
pub const NEAR_JOBS: usize = 8;

/// Which cgroups are jobs. A reader never locks: places keep their index while they are in use, so that an update
/// leaves every other job's place as it is at each moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Depths at which jobs' cgroups are, each once; 0 is a free place (the root is never a job).
    pub levels: [u8; crate::limits::MAX_LEVELS],
    /// Cgroup ids of jobs; 0 is a free place.
    pub ids: [u64; NEAR_JOBS],
    /// The slots of those.
    pub slots: [Slot; NEAR_JOBS],
    /// Not 0 when there are more jobs, in the hash map.
    pub more: u64,
}

/// What the kernel counted for one job, per kind: `attempted = emitted + deduplicated + lost`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Facts that a probe set out to record.
    pub attempted: [u64; KINDS],
    /// Records that went into the ring.
    pub emitted: [u64; KINDS],
    /// Facts that are equal to an earlier record of the job in all that counts.
    pub deduplicated: [u64; KINDS],
    /// Records for which the ring had no room, or that a failing read cut off.
    pub lost: [u64; KINDS],
    /// Bit `1 << what` for each `UNSEEN_` value already reported.
    pub unseen: u64,
    /// Highest fill of the ring seen, in bytes.
    pub high_water: u64,
}

macro_rules! assert_layout {
    ($($name:ident = $size:literal),+ $(,)?) => {
        $(const _: () = {
            assert!(core::mem::size_of::<$name>() == $size);
            assert!(core::mem::align_of::<$name>() == 8);
        };)+
    };
}

assert_layout! {
    Header = 40, FileRecord = 80, NameRecord = 64, InetRecord = 96, UnixRecord = 64, SocketRecord = 64,
    ExecRecord = 88, ForkRecord = 56, ExitRecord = 48, MoveRecord = 56, UnseenRecord = 56, PtraceRecord = 56, DoneRecord = 48, DnsRecord = 112,
}

const _: () = assert!(core::mem::size_of::<ResolverKey>() == 24);

/// Member offsets of kernel structs, in bytes, read from the running kernel's BTF at start and given to
/// the probes as a frozen global. Field `a_b` is member `b` of `struct a`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each field is named after the kernel member that it locates"
)]
pub struct Offsets {
    pub file_f_path: u32,
    pub file_f_mode: u32,
    pub file_f_flags: u32,
    pub file_f_inode: u32,
    pub file_private_data: u32,
    pub path_mnt: u32,
    pub path_dentry: u32,
    pub dentry_d_parent: u32,
    pub dentry_d_name_len: u32,
    pub dentry_d_name_name: u32,
    pub dentry_d_pprev: u32,
    pub dentry_d_sb: u32,
    pub vfsmount_mnt_root: u32,
    pub mount_mnt: u32,
    pub mount_mnt_parent: u32,
    pub mount_mnt_mountpoint: u32,
    pub mount_mnt_ns: u32,
    pub mount_mnt_id: u32,
    /// 0 where the kernel has no such member (before 6.8).
    pub mount_mnt_id_unique: u32,
    pub inode_i_mode: u32,
    pub inode_i_ino: u32,
    pub inode_i_generation: u32,
    pub inode_i_nlink: u32,
    pub inode_i_rdev: u32,
    pub inode_i_size: u32,
    pub filename_name: u32,
    pub open_flags_open_flag: u32,
    pub open_flags_acc_mode: u32,
    pub inode_i_sb: u32,
    pub super_block_s_dev: u32,
    pub super_block_s_magic: u32,
    pub task_struct_tgid: u32,
    pub task_struct_pid: u32,
    pub task_struct_group_leader: u32,
    pub task_struct_start_boottime: u32,
    pub task_struct_files: u32,
    pub task_struct_fs: u32,
    pub task_struct_nsproxy: u32,
    pub task_struct_cgroups: u32,
    pub task_struct_mm: u32,
    pub task_struct_exit_code: u32,
    pub task_struct_signal: u32,
    pub signal_struct_live: u32,
    pub task_struct_thread_info_compat: u32,
    pub files_struct_fdt: u32,
    pub fdtable_max_fds: u32,
    pub fdtable_fd: u32,
    pub fs_struct_root: u32,
    pub fs_struct_pwd: u32,
    pub nsproxy_mnt_ns: u32,
    pub mnt_namespace_ns_inum: u32,
    pub css_set_dfl_cgrp: u32,
    pub cgroup_level: u32,
    pub cgroup_ancestors: u32,
    pub cgroup_kn: u32,
    pub cgroup_root: u32,
    pub cgroup_root_hierarchy_id: u32,
    pub kernfs_node_id: u32,
    pub mm_struct_arg_start: u32,
    pub mm_struct_arg_end: u32,
    pub linux_binprm_file: u32,
    pub linux_binprm_filename: u32,
    pub linux_binprm_interp: u32,
    pub linux_binprm_buf: u32,
    pub msghdr_msg_name: u32,
    pub msghdr_msg_namelen: u32,
    pub dentry_d_inode: u32,
    pub socket_sk: u32,
    pub sock_common_skc_family: u32,
    pub sock_common_skc_num: u32,
    pub sock_common_skc_rcv_saddr: u32,
    pub sock_common_skc_v6_rcv_saddr: u32,
    pub sock_common_skc_net: u32,
    pub sock_sk_protocol: u32,
    pub sock_sk_type: u32,
    pub sock_sk_peer_pid: u32,
    pub net_net_cookie: u32,
    pub unix_sock_peer: u32,
    pub unix_sock_path: u32,
    pub unix_sock_addr: u32,
    pub unix_address_len: u32,
    pub unix_address_name: u32,
    pub bpf_sock_addr_kern_uaddr: u32,
    pub task_struct_thread_pid: u32,
    pub pid_level: u32,
    pub pid_numbers: u32,
    pub upid_nr: u32,
    pub io_kiocb_opcode: u32,
    pub sock_sk_cgrp_data_cgroup: u32,
    pub sk_buff_transport_header: u32,
    pub sk_buff_network_header: u32,
}
