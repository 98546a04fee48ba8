//! What `/proc` says about one process. Every answer is about whoever has the id at that moment: a caller
//! that must know that it is still the same process holds a pidfd and looks at that afterwards.

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::time::{ClockId, clock_gettime};

/// Bytes of a process' argv that are read: it is shown to people, and may be megabytes.
const ARGV_READ: usize = 4096;

/// Kernel clock ticks in a second as `/proc` counts them (`USER_HZ`, the same on every architecture that the
/// daemon runs on).
const TICKS: u64 = 100;

/// Nanoseconds in one tick.
const TICK_NS: u64 = 1_000_000_000 / TICKS;

/// An error of `/proc` that says what was not understood.
fn odd(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{what} has an unknown form"),
    )
}

/// Now, in clock ticks since boot, suspended time included.
#[must_use]
pub fn now_ticks() -> u64 {
    now_ns() / TICK_NS
}

/// Now, in nanoseconds since boot, suspended time included: the clock of the wire records.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// When a process began, in clock ticks since boot (`starttime`, field 22 of proc_pid_stat(5)).
///
/// # Errors
/// When there is no such process.
pub fn start_ticks(pid: i32) -> io::Result<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    start_ticks_of(&stat).ok_or_else(|| odd("/proc/PID/stat"))
}

/// The start time in the text of a `stat` file. The program's name, in parentheses, can hold anything, so
/// counting begins behind the last one.
fn start_ticks_of(stat: &[u8]) -> Option<u64> {
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    // The field behind the name is number 3.
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Real, effective, saved and file system uid of a process.
///
/// # Errors
/// When there is no such process.
pub fn uids(pid: i32) -> io::Result<[u32; 4]> {
    let status = fs::read(format!("/proc/{pid}/status"))?;
    uids_of(&status).ok_or_else(|| odd("/proc/PID/status"))
}

/// The uids in the text of a `status` file.
fn uids_of(status: &[u8]) -> Option<[u32; 4]> {
    let line = status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Uid:"))?;
    let mut uids = [0; 4];
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    for uid in &mut uids {
        *uid = fields.next()?.parse().ok()?;
    }
    Some(uids)
}

/// The cgroup of a process in the v2 hierarchy: a path from the hierarchy's top.
///
/// # Errors
/// When there is no such process, its cgroup has been removed, or lies outside the daemon's namespace.
pub fn cgroup(pid: i32) -> io::Result<PathBuf> {
    let text = fs::read(format!("/proc/{pid}/cgroup"))?;
    cgroup_of(&text).ok_or_else(|| odd("/proc/PID/cgroup"))
}

/// The v2 path in the text of a `cgroup` file (cgroups(7)).
fn cgroup_of(text: &[u8]) -> Option<PathBuf> {
    let path = text
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))?;
    // `/..` begins the path of a cgroup outside the reader's cgroup namespace.
    if !path.starts_with(b"/") || path.starts_with(b"/..") || path.ends_with(b" (deleted)") {
        return None;
    }
    Some(PathBuf::from(OsString::from_vec(path.to_vec())))
}

/// The program that a process runs, `None` when that cannot be told any more.
#[must_use]
pub fn exe(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The arguments of a process, at most the first few thousand bytes; empty when they cannot be read.
#[must_use]
pub fn argv(pid: i32) -> Vec<Vec<u8>> {
    use io::Read;
    let mut bytes = Vec::new();
    let read = fs::File::open(format!("/proc/{pid}/cmdline"))
        .and_then(|file| file.take(ARGV_READ as u64).read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
}

/// The environment that a process began with: `NAME=value`, a NUL after each.
///
/// # Errors
/// When there is no such process, or the caller may not ask.
pub fn environ(pid: i32) -> io::Result<Vec<u8>> {
    // The kernel gives arguments and environment 6 MiB at most together (`bprm_stack_limits`).
    fs::read(format!("/proc/{pid}/environ"))
}

/// The processes that listen on some TCP ports of this process' network namespace, as far as they can be told.
#[must_use]
pub fn listeners(ports: &BTreeSet<u16>) -> Vec<(u16, i32)> {
    let mut inodes = HashMap::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // Without IPv6 there is no such table.
        let text = fs::read_to_string(table).unwrap_or_default();
        let found = text.lines().filter_map(listening);
        inodes.extend(
            found
                .filter(|(port, _)| ports.contains(port))
                .map(|(port, inode)| (inode, port)),
        );
    }
    let mut found = Vec::new();
    if inodes.is_empty() {
        return found;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // One that ended meanwhile listens no more.
        let descriptors = fs::read_dir(process.path().join("fd"));
        for descriptor in descriptors.into_iter().flatten().flatten() {
            let port = fs::read_link(descriptor.path()).ok().and_then(|target| {
                let inode = target
                    .to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?;
                inodes.get(&inode.parse().ok()?)
            });
            found.extend(port.map(|&port| (port, pid)));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Port and inode of a listening socket, from its line in `/proc/net/tcp` (proc_net_tcp(5)).
fn listening(line: &str) -> Option<(u16, u64)> {
    /// `TCP_LISTEN` (include/net/tcp_states.h).
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace();
    let (_, port) = fields.nth(1)?.rsplit_once(':')?;
    // The address of the other end is between the socket's own and its state.
    (fields.nth(1)? == LISTEN).then_some(())?;
    let inode = fields.nth(5)?.parse().ok()?;
    Some((u16::from_str_radix(port, 16).ok()?, inode))
}

/// A descriptor that a process could write through, now and after it executed a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritableFd {
    /// Its number.
    pub fd: i32,
    /// What it is, as the kernel names it: a path, or `pipe:[123]`, `socket:[123]`, `anon_inode:…`.
    pub target: PathBuf,
}

/// The descriptors of a process that are open for writing and not closed on exec, sockets and pipes included.
///
/// # Errors
/// When there is no such process.
pub fn writable_fds(pid: i32) -> io::Result<Vec<WritableFd>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let Some(fd) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A descriptor that was closed in between is not an inherited one any more.
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        let Ok(info) = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")) else {
            continue;
        };
        if stays_writable(&info) {
            found.push(WritableFd { fd, target });
        }
    }
    found.sort_by_key(|writable| writable.fd);
    Ok(found)
}

/// Whether the text of an `fdinfo` file is that of a descriptor open for writing that an exec does not close: octal `flags`
/// whose access mode is O_WRONLY or O_RDWR, without O_CLOEXEC. O_PATH descriptors have mode 0.
fn stays_writable(info: &str) -> bool {
    info.lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok())
        .is_some_and(|flags| flags & libc::O_ACCMODE != 0 && flags & libc::O_CLOEXEC == 0)
}

/// The process behind a pidfd of this process (`Pid` in its fdinfo): -1 when it has ended.
///
/// # Errors
/// When the descriptor is not a pidfd.
pub fn pid_of_pidfd(fd: i32) -> io::Result<i32> {
    let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(fd.to_string()))?;
    info.lines()
        .find_map(|line| line.strip_prefix("Pid:"))
        .and_then(|pid| pid.trim().parse().ok())
        .ok_or_else(|| odd("a pidfd's fdinfo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_read_from_its_line() {
        let listens = "   0: 0100007F:1082 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0";
        assert_eq!(listening(listens), Some((4226, 4711)));
        let connected = listens.replace(" 0A ", " 01 ");
        assert_eq!(listening(&connected), None);
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!(listening(head), None);
        let six = "   0: 00000000000000000000000001000000:1082 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1 0000000000000000 100 0 0 10 0";
        assert_eq!(listening(six), Some((4226, 7)));
    }

    #[test]
    fn the_process_behind_a_port_is_found() -> io::Result<()> {
        let socket = std::net::TcpListener::bind("127.0.0.1:0")?;
        let port = socket.local_addr()?.port();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        assert!(listeners(&[port].into()).contains(&(port, own)));
        assert_eq!(listeners(&BTreeSet::new()), []);
        Ok(())
    }

    #[test]
    fn a_program_name_with_parentheses_does_not_shift_the_start_time() {
        let stat = b"7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9\n";
        assert_eq!(start_ticks_of(stat), Some(4711));
        assert_eq!(start_ticks_of(b"7 (a) S 1 7\n"), None);
        assert_eq!(start_ticks_of(b""), None);
    }

    #[test]
    fn this_process_began_before_now() {
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        assert!(start_ticks(pid).is_ok_and(|start| start <= now_ticks()));
    }

    #[test]
    fn all_four_uids_are_read() {
        assert_eq!(
            uids_of(b"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t9\t9\t9\t9\n"),
            Some([1, 2, 3, 4])
        );
        assert_eq!(uids_of(b"Uid:\t1\t2\n"), None);
    }

    #[test]
    fn only_a_v2_path_inside_the_namespace_is_taken() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(cgroup_of(text.as_bytes()), expect.map(PathBuf::from));
        };
        check("0::/a/b\n", Some("/a/b"));
        check("9:name=systemd:/x\n0::/\n", Some("/"));
        check("9:name=systemd:/x\n", None);
        check("0::/../b\n", None);
        check("0::/a (deleted)\n", None);
    }

    #[test]
    fn access_modes_are_read_from_octal_flags() {
        assert!(!stays_writable("pos:\t0\nflags:\t0100000\nmnt_id:\t1\n"));
        assert!(stays_writable("pos:\t0\nflags:\t0100001\n"));
        assert!(stays_writable("flags:\t04002\n"));
        assert!(!stays_writable("flags:\t02004002\n"), "closed on exec");
        assert!(!stays_writable("flags:\t012000000\n"), "O_PATH");
        assert!(!stays_writable(""));
    }
}
