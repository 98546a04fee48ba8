//! Events: what the rest of the daemon works with. Owned values, made by `decode` from wire records.

use capgate_common::event as wire;

/// One fact from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since boot.
    pub time_ns: u64,
    /// Who did it.
    pub task: Task,
    /// Inode number of the task's mount namespace; 0 when unknown.
    pub mnt_ns: u32,
    /// Some data of the record is missing: the event counts as lost, and what is there is still used.
    pub damaged: bool,
    /// What happened.
    pub fact: Fact,
}

/// Identity of a process, in the initial pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// Process id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// When the process began, nanoseconds since boot.
    pub start_ns: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A file that the job may write to.
    File(File),
    /// A change of names: a call that succeeded, or an attempt.
    Name(Name),
    /// What the thread attempted last has succeeded.
    Done(NameOp),
    /// An inet address.
    Inet(Inet),
    /// A piece of what a packet between the job and a resolver carries.
    Dns(Dns),
    /// A unix socket connected or sent to.
    Unix(Unix),
    /// A socket of another family, or a raw one.
    Socket(Socket),
    /// A program started.
    Exec(Exec),
    /// A process was made.
    Fork {
        /// The child; its `tid` equals its `tgid`.
        child: Task,
        /// The child is outside the job's cgroup.
        outside: bool,
    },
    /// A process ended.
    Exit {
        /// `status << 8 | 0x80 when the kernel wrote a core | signal`.
        code: u32,
    },
    /// A process was moved between cgroups.
    Move {
        /// The moved process.
        tgid: u32,
        /// It left the job; else it joined.
        left: bool,
        /// Cgroup that it is in now.
        cgroup: u64,
    },
    /// Something that the probe set cannot record.
    Unseen {
        /// An `UNSEEN_` value of the wire format; known.
        what: u32,
        /// Detail.
        arg: u64,
    },
    /// Access to another process.
    Ptrace {
        /// A `PTRACE_` value of the wire format.
        op: u32,
        /// Target in the caller's pid namespace, 0 for a pidfd.
        target: u32,
        /// Where the target is.
        target_is: Membership,
    },
}

/// Whether a process belongs to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Known member.
    Inside,
    /// Known not to be one.
    Outside,
    /// Cannot be told.
    Unknown,
}

/// A path as the kernel's dentries and mounts give it: symlinks resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelPath {
    /// `/a/b`, or `/`. Raw bytes, from where `top` says.
    pub bytes: Vec<u8>,
    /// Where it begins.
    pub top: Top,
    /// The leaf is not in its directory (removed, `O_TMPFILE`).
    pub unhashed: bool,
    /// Cut or unreadable: not to be used as a name.
    pub broken: bool,
}

/// Where a [`KernelPath`] begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Top {
    /// In no mount tree: the file was found by its handle, or the mount was taken away.
    #[default]
    Nowhere,
    /// At the global root of the mount namespace that the job began in.
    Namespace,
    /// At the job's root directory, whatever mounts lead there.
    Root,
    /// At the top of a file system; the mount is of no or of another namespace, or newer than the job.
    Device(FileSystem),
    /// In a mount of the kernel's own (memfd, pipe, socket).
    Internal,
}

/// A file system that is reached through a mount which nobody else may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// `super_block.s_dev`.
    pub device: u32,
    /// Lower half of `super_block.s_magic`.
    pub magic: u32,
    /// The mount is in the namespace that the job began in.
    pub newer: bool,
}

/// See [`wire::FileRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The kernel's path.
    pub path: KernelPath,
    /// Which inode.
    pub id: FileId,
    /// Type and permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Opened for writing.
    pub write: bool,
    /// Made by this open.
    pub created: bool,
    /// Truncated by this open.
    pub truncate: bool,
    /// Came from another process.
    pub received: bool,
}

/// Identity of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Kernel device number, major << 20 | minor.
    pub dev: u32,
    /// Inode number.
    pub ino: u64,
    /// Tells a re-used inode number apart.
    pub generation: u32,
}

/// See [`wire::NameRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The operation.
    pub op: NameOp,
    /// It counts when [`Fact::Done`] of the same thread follows.
    pub attempt: bool,
    /// The kernel refused it: nothing changed.
    pub refused: bool,
    /// Flags or mode of the call.
    pub arg: u32,
    /// First name.
    pub first: Named,
    /// Second name; empty for calls with one.
    pub second: Named,
}

/// The call behind a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOp {
    /// First name renamed to second; `arg` holds `RENAME_` flags.
    Rename,
    /// Removed.
    Unlink,
    /// Directory removed.
    Rmdir,
    /// Second name made for the file of the first; `arg` holds `AT_` flags.
    Link,
    /// Second name made, with the text of the first.
    Symlink,
    /// Device, fifo, socket or file made; `arg` is the mode.
    Mknod,
    /// Directory made.
    Mkdir,
    /// Cut or extended, symlinks followed.
    Truncate,
    /// Unix socket bound.
    Bind,
    /// Mode changed; `arg` is the mode.
    Chmod,
    /// Owner changed; `arg` holds `AT_` flags (`AT_SYMLINK_NOFOLLOW` for lchown).
    Chown,
    /// Extended attribute changed; `arg` as for `Chown`.
    Xattr,
    /// Opened for writing; refused ones only.
    Open,
    /// Executed; refused ones only.
    Exec,
}

/// A base directory and a string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Where the string starts: working directory, descriptor, or for an absolute string the task's root.
    pub base: KernelPath,
    /// The string as user memory held it at the end of the call, without NUL; or an entry's name, from the kernel. Empty when the
    /// base is the file itself.
    pub string: Vec<u8>,
    /// Cut or unreadable.
    pub broken: bool,
}

/// See [`wire::InetRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inet {
    /// The operation.
    pub op: InetOp,
    /// Cookie of the network namespace, 0 when unknown.
    pub netns: u64,
    /// Remote address; the socket's own for listen and bind.
    pub addr: std::net::IpAddr,
    /// Remote port; own for listen and bind.
    pub port: u16,
    /// IPv6 scope.
    pub scope_id: u32,
    /// Local address of an egress packet.
    pub local: std::net::IpAddr,
    /// Local port of an egress packet.
    pub local_port: u16,
    /// `SOCK_` type, 0 when unknown.
    pub sock_type: u16,
    /// `IPPROTO_` value.
    pub protocol: u16,
    /// The kernel was told to refuse it.
    pub denied: bool,
}

/// The operation behind an [`Inet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InetOp {
    /// connect.
    Connect,
    /// Datagram with a destination.
    Send,
    /// A packet that left.
    Egress,
    /// listen.
    Listen,
    /// bind of a datagram socket.
    Bind,
}

/// See [`wire::DnsRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// Between which sockets.
    pub flow: Flow,
    /// From the resolver; else to it.
    pub answer: bool,
    /// TCP: sequence number of the packet's first byte.
    pub seq: u32,
    /// TCP: the stream begins with this packet.
    pub syn: bool,
    /// Where in the packet's payload the piece begins.
    pub at: u32,
    /// Bytes of the packet's payload.
    pub total: u32,
    /// The piece.
    pub piece: Vec<u8>,
}

/// A socket of the job and port 53 of a resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Cookie of the network namespace, 0 when unknown.
    pub netns: u64,
    /// The socket: no other one of this boot has the same number.
    pub socket: u64,
    /// The resolver's address.
    pub resolver: std::net::IpAddr,
    /// The job's own address.
    pub local: std::net::IpAddr,
    /// The job's own port.
    pub local_port: u16,
    /// TCP; else UDP.
    pub tcp: bool,
}

/// See [`wire::UnixRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unix {
    /// connect, else a message with a destination.
    pub connect: bool,
    /// 0 or more, or a negative errno.
    pub ret: i32,
    /// Process that made the peer socket, 0 when unknown.
    pub peer_pid: u32,
    /// The peer's bound path, when the kernel knew it.
    pub peer: Option<KernelPath>,
    /// Base directory and `sun_path`; an abstract name begins with NUL.
    pub name: Named,
    /// `SOCK_` type.
    pub sock_type: u16,
}

/// See [`wire::SocketRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The operation.
    pub op: SocketOp,
    /// Cookie of the socket's network namespace; 0 when it was only made.
    pub netns: u64,
    /// The call's result.
    pub ret: i32,
    /// `AF_` value.
    pub family: u16,
    /// `SOCK_` type.
    pub sock_type: u16,
    /// Protocol number.
    pub protocol: u16,
    /// Raw address, family included.
    pub addr: Vec<u8>,
}

/// The operation behind a [`Socket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOp {
    /// socket.
    Create,
    /// bind.
    Bind,
    /// connect.
    Connect,
    /// Message with a destination.
    Send,
}

/// See [`wire::ExecRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// The program that runs: for a script its interpreter.
    pub exe: KernelPath,
    /// Which inode; generation 0.
    pub id: FileId,
    /// Bytes of it.
    pub size: u64,
    /// Working directory and name as the caller gave it: for a script the script.
    pub name: Named,
    /// Working directory, when the name does not start from it.
    pub cwd: Option<KernelPath>,
    /// An interpreter runs for the named file.
    pub script: bool,
    /// Not a program that runs, but a script whose interpreter the kernel looks for.
    pub attempt: bool,
    /// Of an attempt: the file named by the call, not an interpreter that is a script too.
    pub first: bool,
    /// Thread id before the exec.
    pub was: u32,
    /// Arguments, possibly cut.
    pub argv: Vec<Vec<u8>>,
    /// `argv` was cut.
    pub argv_cut: bool,
}

impl Event {
    /// The wire kind of this event, an index into [`wire::KIND_NAMES`].
    #[must_use]
    pub fn kind(&self) -> u16 {
        match self.fact {
            Fact::File(_) => wire::KIND_FILE,
            Fact::Name(_) => wire::KIND_NAME,
            Fact::Done(_) => wire::KIND_DONE,
            Fact::Inet(_) => wire::KIND_INET,
            Fact::Dns(_) => wire::KIND_DNS,
            Fact::Unix(_) => wire::KIND_UNIX,
            Fact::Socket(_) => wire::KIND_SOCKET,
            Fact::Exec(_) => wire::KIND_EXEC,
            Fact::Fork { .. } => wire::KIND_FORK,
            Fact::Exit { .. } => wire::KIND_EXIT,
            Fact::Move { .. } => wire::KIND_MOVE,
            Fact::Unseen { .. } => wire::KIND_UNSEEN,
            Fact::Ptrace { .. } => wire::KIND_PTRACE,
        }
    }
}
