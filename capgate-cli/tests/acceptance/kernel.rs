//! What a daemon has in the kernel, asked of the kernel itself.

use std::{collections::BTreeSet, fs, io};

use nix::libc;

/// Commands of bpf(2), from include/uapi/linux/bpf.h.
const MAP_GET_NEXT_KEY: u32 = 4;
const PROG_GET_FD_BY_ID: u32 = 13;
const MAP_GET_FD_BY_ID: u32 = 14;
const OBJ_GET_INFO_BY_FD: u32 = 15;
const LINK_GET_FD_BY_ID: u32 = 30;

/// Most maps that one program of ours can use.
const MOST_MAPS: usize = 64;

/// A kind of BPF object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Program,
    Map,
    Link,
}

/// A BPF object. The kernel gives each id once in a very long time.
pub(crate) type Object = (Kind, u32);

/// The part of `struct bpf_prog_info` up to the ids of its maps.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_len: u32,
    xlated_len: u32,
    jited: u64,
    xlated: u64,
    load_time: u64,
    uid: u32,
    map_count: u32,
    maps: u64,
}

/// The part of `struct bpf_map_info` up to the name.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    name: [u8; 16],
}

/// An object's descriptor, closed in the end.
struct Held(i32);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own, and closed once.
        unsafe { libc::close(self.0) };
    }
}

/// bpf(2) with an attribute of this layout.
fn bpf<T>(command: u32, attribute: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes at most the attribute's size, and the buffers that the callers put into it are alive
    // and as long as they say.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attribute),
            size_of::<T>(),
        )
    };
    match i32::try_from(answer).unwrap() {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

/// Opens an object, if it is still there.
fn hold((kind, id): Object) -> Option<Held> {
    let command = match kind {
        Kind::Program => PROG_GET_FD_BY_ID,
        Kind::Map => MAP_GET_FD_BY_ID,
        Kind::Link => LINK_GET_FD_BY_ID,
    };
    match bpf(command, &mut [id, 0, 0]) {
        Ok(fd) => Some(Held(fd)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => None,
        Err(error) => panic!("cannot look for {kind:?} {id}: {error}"),
    }
}

fn info<T>(object: &Held, info: &mut T) {
    #[repr(C)]
    struct Attribute {
        fd: u32,
        len: u32,
        info: u64,
    }
    let mut attribute = Attribute {
        fd: u32::try_from(object.0).unwrap(),
        len: u32::try_from(size_of::<T>()).unwrap(),
        info: std::ptr::from_mut(info) as u64,
    };
    bpf(OBJ_GET_INFO_BY_FD, &mut attribute).unwrap();
}

/// Whether an object is still there.
pub(crate) fn exists(object: Object) -> bool {
    hold(object).is_some()
}

/// Everything that a process holds: by its own descriptors, and by the maps of its programs.
pub(crate) fn objects(pid: i32) -> BTreeSet<Object> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        // A descriptor can be closed at any time.
        let Ok(text) = fs::read_to_string(entry.unwrap().path()) else {
            continue;
        };
        for line in text.lines() {
            let kind = match line.split(':').next() {
                Some("prog_id") => Kind::Program,
                Some("map_id") => Kind::Map,
                Some("link_id") => Kind::Link,
                _ => continue,
            };
            let id = line.split(':').nth(1).unwrap().trim().parse().unwrap();
            found.insert((kind, id));
        }
    }
    let programs: Vec<Object> = found
        .iter()
        .copied()
        .filter(|&(kind, _)| kind == Kind::Program)
        .collect();
    for program in programs {
        let mut maps = [0; MOST_MAPS];
        let mut about = ProgramInfo {
            map_count: u32::try_from(MOST_MAPS).unwrap(),
            maps: maps.as_mut_ptr() as u64,
            ..ProgramInfo::default()
        };
        let Some(held) = hold(program) else { continue };
        info(&held, &mut about);
        let count = usize::try_from(about.map_count).unwrap();
        found.extend(maps[..count].iter().map(|&id| (Kind::Map, id)));
    }
    found
}

/// How many of them are of a kind.
pub(crate) fn count(objects: &BTreeSet<Object>, kind: Kind) -> usize {
    objects.iter().filter(|(it, _)| *it == kind).count()
}

/// Whether a map of a process, by its name, has no entry.
pub(crate) fn is_empty(pid: i32, name: &str) -> bool {
    #[repr(C)]
    struct Attribute {
        fd: u64,
        key: u64,
        next: u64,
    }
    let maps = objects(pid);
    let mut maps = maps.iter().filter(|(kind, _)| *kind == Kind::Map);
    let (map, about) = maps
        .find_map(|&map| {
            let held = hold(map)?;
            let mut about = MapInfo::default();
            info(&held, &mut about);
            let end = about.name.iter().position(|&byte| byte == 0)?;
            (&about.name[..end] == name.as_bytes()).then_some((held, about))
        })
        .unwrap_or_else(|| panic!("the daemon has no map called {name}"));
    let mut key = vec![0u8; usize::try_from(about.key_size).unwrap()];
    let mut attribute = Attribute {
        fd: u64::try_from(map.0).unwrap(),
        key: 0,
        next: key.as_mut_ptr() as u64,
    };
    match bpf(MAP_GET_NEXT_KEY, &mut attribute) {
        Ok(_) => false,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
        Err(error) => panic!("cannot look into {name}: {error}"),
    }
}
