//! Which kernel modules a machine gets, in the order in which they load.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::debian::Kernel;
use crate::workspace;

/// What scenarios and the machine itself need. Kernels have some of them built in.
const WANTED: [&str; 12] = [
    // The disk on which the ledgers leave the machine.
    "virtio_pci",
    "virtio_blk",
    "overlay",
    "loop",
    "xfs",
    "btrfs",
    "fuse",
    "veth",
    "vsock_loopback",
    "tun",
    "binfmt_misc",
    "udp_diag",
];

/// Where modules are below `lib/modules/RELEASE`, by name: `modules.dep` as depmod writes it.
struct Dependencies<'a>(HashMap<String, (&'a str, Vec<&'a str>)>);

impl<'a> Dependencies<'a> {
    /// Reads `PATH: PATH…` lines.
    fn read(text: &'a str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let (path, needs) = line.split_once(':')?;
            Some((name_of(path), (path, needs.split_whitespace().collect())))
        });
        Self(lines.collect())
    }

    /// The paths of these modules and of what they need, each once and behind what it needs itself. Names in `builtin`,
    /// `modules.builtin` of the kernel, need none; a name that nobody knows is an error.
    fn order(&self, wanted: &[&str], builtin: &str) -> Result<Vec<&'a str>> {
        let mut order = Vec::new();
        for name in wanted {
            match self.0.get(*name) {
                Some((path, _)) => self.visit(path, &mut order),
                None if builtin.lines().any(|path| name_of(path) == *name) => {}
                None => bail!("the kernel has no module {name}"),
            }
        }
        Ok(order)
    }

    /// Adds a module behind what it needs. depmod lists all of that, but in an order that its callers need not know.
    fn visit(&self, path: &'a str, order: &mut Vec<&'a str>) {
        if order.contains(&path) {
            return;
        }
        if let Some((_, needs)) = self.0.get(&name_of(path)) {
            for need in needs {
                self.visit(need, order);
            }
        }
        order.push(path);
    }
}

/// A module's name, from its path.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split(".ko").next().unwrap_or(file);
    stem.replace('-', "_")
}

/// Copies what a machine needs into `into`, uncompressed and named in the order of loading.
pub(crate) fn install(kernel: &Kernel, into: &Path) -> Result<()> {
    let dir = kernel.root.join("lib/modules").join(&kernel.release);
    let list = dir.join("modules.dep");
    if !list.exists() {
        // Its package leaves that to the system on which it is installed.
        let mut depmod = Command::new(program("depmod")?);
        depmod.arg("-b").arg(&kernel.root).arg(&kernel.release);
        workspace::said(&mut depmod)?;
    }
    let read = |path: PathBuf| {
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (dependencies, builtin) = (read(list)?, read(dir.join("modules.builtin"))?);
    let order = Dependencies::read(&dependencies)
        .order(&WANTED, &builtin)
        .with_context(|| format!("kernel {}", kernel.release))?;
    fs::create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
    for (place, path) in order.iter().enumerate() {
        let from = dir.join(path);
        let to = into.join(format!("{place:02}-{}.ko", name_of(path)));
        let mut bytes =
            fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        if path.ends_with(".xz") {
            let mut unpack = Command::new(program("xz")?);
            unpack.args(["--decompress", "--stdout"]).arg(&from);
            let output = unpack
                .output()
                .with_context(|| format!("cannot run {}", workspace::show(&unpack)))?;
            if !output.status.success() {
                bail!("{} ended with {}", workspace::show(&unpack), output.status);
            }
            bytes = output.stdout;
        }
        fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

/// The path of a program that was installed for this.
fn program(name: &str) -> Result<PathBuf> {
    workspace::which(name).with_context(|| format!("there is no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As depmod writes it; dependencies of dependencies are listed too.
    const LIST: &str = "kernel/lib/raid6/raid6_pq.ko.xz:\n\
        kernel/crypto/xor.ko.xz:\n\
        kernel/fs/btrfs/btrfs.ko.xz: kernel/crypto/xor.ko.xz kernel/lib/raid6/raid6_pq.ko.xz\n\
        kernel/net/vmw_vsock/vsock.ko:\n\
        kernel/net/vmw_vsock/vmw_vsock_virtio_transport_common.ko: kernel/net/vmw_vsock/vsock.ko\n\
        kernel/net/vmw_vsock/vsock-loopback.ko: kernel/net/vmw_vsock/vmw_vsock_virtio_transport_common.ko kernel/net/vmw_vsock/vsock.ko\n";
    const BUILTIN: &str = "kernel/fs/fuse/fuse.ko\nkernel/fs/ext4/ext4.ko\n";

    fn check(wanted: &[&str], expect: Result<&[&str], &str>) {
        let order = Dependencies::read(LIST).order(wanted, BUILTIN);
        let names = order.map(|order| order.iter().map(|path| name_of(path)).collect::<Vec<_>>());
        match (names, expect) {
            (Ok(names), Ok(expect)) => assert_eq!(names, expect),
            (Err(error), Err(expect)) => assert_eq!(error.to_string(), expect),
            (names, _) => panic!("{wanted:?}: {names:?}"),
        }
    }

    #[test]
    fn a_module_stands_behind_what_it_needs_and_only_once() {
        check(&["btrfs"], Ok(&["xor", "raid6_pq", "btrfs"]));
        check(
            &["vsock_loopback", "vsock", "xor"],
            Ok(&[
                "vsock",
                "vmw_vsock_virtio_transport_common",
                "vsock_loopback",
                "xor",
            ]),
        );
    }

    #[test]
    fn what_is_built_in_is_not_loaded_and_what_is_nowhere_is_an_error() {
        check(&["fuse"], Ok(&[]));
        check(&["fuse", "9p"], Err("the kernel has no module 9p"));
    }
}
