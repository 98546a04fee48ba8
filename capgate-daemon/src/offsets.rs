//! Where the running kernel keeps its struct members, from BTF. A member that is missing is an error at start.

use std::path::{Path, PathBuf};

use btf_rs::{Btf, Struct, Type};
use capgate_common::event::Offsets;

/// The running kernel's own type information.
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// The member that tells a 32-bit call, as the probes of the architecture read it.
#[cfg(target_arch = "aarch64")]
const COMPAT_WORD: &str = "thread_info.flags";
#[cfg(target_arch = "x86_64")]
const COMPAT_WORD: &str = "thread_info.status";

/// What was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Member offsets.
    pub offsets: Offsets,
    /// The kernel has `tp_btf/io_uring_submit_req`, so each io_uring operation can be told.
    pub io_uring_ops: bool,
    /// The kernel has `mptcp_listen`: CONFIG_MPTCP.
    pub mptcp: bool,
}

/// Why offsets could not be had.
#[derive(Debug, thiserror::Error)]
pub enum OffsetsError {
    /// No BTF, or not readable.
    #[error(
        "cannot read the kernel's type information at {path}: {cause} (capgated needs a kernel built with CONFIG_DEBUG_INFO_BTF)"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: btf_rs::Error,
    },
    /// The kernel has no such member.
    #[error("this kernel is not supported: its BTF has no member `{member}` in `struct {of}`")]
    Missing {
        /// The struct.
        of: &'static str,
        /// The member, with dots for nested ones.
        member: &'static str,
    },
    /// Two members are not where the probes read them together.
    #[error("this kernel is not supported: {0}")]
    Layout(&'static str),
}

macro_rules! offsets {
    ($btf:expr; $($field:ident: $of:literal . $member:tt $(or $absent:literal)?,)+) => {
        Offsets { $($field: offsets!(@ member($btf, $of, $member) $(, $absent)?),)+ }
    };
    (@ $found:expr) => { $found? };
    // What older kernels lack and the probes can do without.
    (@ $found:expr, $absent:literal) => { $found.unwrap_or($absent) };
}

/// Reads the offsets of the kernel whose BTF is at `path`.
///
/// # Errors
/// When the file cannot be read, or a member that the probes need is not there.
pub fn read(path: &Path) -> Result<Found, OffsetsError> {
    let btf = Btf::from_file(path).map_err(|cause| OffsetsError::Unreadable {
        path: path.to_path_buf(),
        cause,
    })?;
    let io_uring_ops = btf
        .resolve_types_by_name("btf_trace_io_uring_submit_req")
        .is_ok_and(|types| !types.is_empty());
    let mptcp = btf
        .resolve_types_by_name("mptcp_listen")
        .is_ok_and(|types| !types.is_empty());
    let offsets = offsets! { &btf;
        file_f_path: "file"."f_path",
        file_f_mode: "file"."f_mode",
        file_f_flags: "file"."f_flags",
        file_f_inode: "file"."f_inode",
        file_private_data: "file"."private_data",
        path_mnt: "path"."mnt",
        path_dentry: "path"."dentry",
        dentry_d_parent: "dentry"."d_parent",
        dentry_d_name_len: "dentry"."d_name.len",
        dentry_d_name_name: "dentry"."d_name.name",
        dentry_d_pprev: "dentry"."d_hash.pprev",
        dentry_d_inode: "dentry"."d_inode",
        dentry_d_sb: "dentry"."d_sb",
        vfsmount_mnt_root: "vfsmount"."mnt_root",
        mount_mnt: "mount"."mnt",
        mount_mnt_parent: "mount"."mnt_parent",
        mount_mnt_mountpoint: "mount"."mnt_mountpoint",
        mount_mnt_ns: "mount"."mnt_ns",
        mount_mnt_id: "mount"."mnt_id",
        mount_mnt_id_unique: "mount"."mnt_id_unique" or 0,
        inode_i_mode: "inode"."i_mode",
        inode_i_ino: "inode"."i_ino",
        inode_i_generation: "inode"."i_generation",
        inode_i_nlink: "inode"."i_nlink",
        inode_i_rdev: "inode"."i_rdev",
        inode_i_size: "inode"."i_size",
        filename_name: "filename"."name",
        open_flags_open_flag: "open_flags"."open_flag",
        open_flags_acc_mode: "open_flags"."acc_mode",
        inode_i_sb: "inode"."i_sb",
        super_block_s_dev: "super_block"."s_dev",
        super_block_s_magic: "super_block"."s_magic",
        task_struct_tgid: "task_struct"."tgid",
        task_struct_pid: "task_struct"."pid",
        task_struct_group_leader: "task_struct"."group_leader",
        task_struct_start_boottime: "task_struct"."start_boottime",
        task_struct_files: "task_struct"."files",
        task_struct_fs: "task_struct"."fs",
        task_struct_nsproxy: "task_struct"."nsproxy",
        task_struct_cgroups: "task_struct"."cgroups",
        task_struct_mm: "task_struct"."mm",
        task_struct_exit_code: "task_struct"."exit_code",
        task_struct_signal: "task_struct"."signal",
        signal_struct_live: "signal_struct"."live",
        task_struct_thread_info_compat: "task_struct".COMPAT_WORD,
        files_struct_fdt: "files_struct"."fdt",
        fdtable_max_fds: "fdtable"."max_fds",
        fdtable_fd: "fdtable"."fd",
        fs_struct_root: "fs_struct"."root",
        fs_struct_pwd: "fs_struct"."pwd",
        nsproxy_mnt_ns: "nsproxy"."mnt_ns",
        mnt_namespace_ns_inum: "mnt_namespace"."ns.inum",
        css_set_dfl_cgrp: "css_set"."dfl_cgrp",
        cgroup_level: "cgroup"."level",
        cgroup_ancestors: "cgroup"."ancestors",
        cgroup_kn: "cgroup"."kn",
        cgroup_root: "cgroup"."root",
        cgroup_root_hierarchy_id: "cgroup_root"."hierarchy_id",
        kernfs_node_id: "kernfs_node"."id",
        mm_struct_arg_start: "mm_struct"."arg_start",
        mm_struct_arg_end: "mm_struct"."arg_end",
        linux_binprm_file: "linux_binprm"."file",
        linux_binprm_filename: "linux_binprm"."filename",
        linux_binprm_interp: "linux_binprm"."interp",
        linux_binprm_buf: "linux_binprm"."buf",
        msghdr_msg_name: "msghdr"."msg_name",
        msghdr_msg_namelen: "msghdr"."msg_namelen",
        socket_sk: "socket"."sk",
        sock_common_skc_family: "sock_common"."skc_family",
        sock_common_skc_num: "sock_common"."skc_num",
        sock_common_skc_rcv_saddr: "sock_common"."skc_rcv_saddr",
        sock_common_skc_v6_rcv_saddr: "sock_common"."skc_v6_rcv_saddr",
        sock_common_skc_net: "sock_common"."skc_net.net",
        sock_sk_protocol: "sock"."sk_protocol",
        sock_sk_type: "sock"."sk_type",
        sock_sk_peer_pid: "sock"."sk_peer_pid",
        net_net_cookie: "net"."net_cookie",
        unix_sock_peer: "unix_sock"."peer",
        unix_sock_path: "unix_sock"."path",
        unix_sock_addr: "unix_sock"."addr",
        unix_address_len: "unix_address"."len",
        unix_address_name: "unix_address"."name",
        bpf_sock_addr_kern_uaddr: "bpf_sock_addr_kern"."uaddr",
        task_struct_thread_pid: "task_struct"."thread_pid",
        pid_level: "pid"."level",
        pid_numbers: "pid"."numbers",
        upid_nr: "upid"."nr",
        io_kiocb_opcode: "io_kiocb"."opcode",
        sock_sk_cgrp_data_cgroup: "sock"."sk_cgrp_data.cgroup",
        sk_buff_transport_header: "sk_buff"."transport_header",
        sk_buff_network_header: "sk_buff"."network_header",
    };
    if offsets.dentry_d_name_len != offsets.dentry_d_parent + 12
        || offsets.dentry_d_name_name != offsets.dentry_d_parent + 16
    {
        return Err(OffsetsError::Layout(
            "`d_parent` and `d_name` of its `struct dentry` do not stand side by side (a randomised layout?)",
        ));
    }
    Ok(Found {
        offsets,
        io_uring_ops,
        mptcp,
    })
}

/// The offset of one member in bytes.
fn member(btf: &Btf, of: &'static str, member: &'static str) -> Result<u32, OffsetsError> {
    // A name can stand for several types; the one that has the member is meant.
    btf.resolve_types_by_name(of)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|candidate| match candidate {
            Type::Struct(s) => nested(btf, &s, member),
            _ => None,
        })
        .next()
        .ok_or(OffsetsError::Missing { of, member })
}

/// Follows `a.b.c` through nested structs.
fn nested(btf: &Btf, of: &Struct, path: &str) -> Option<u32> {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    let (offset, inner) = direct(btf, of, name)?;
    match rest {
        None => Some(offset),
        Some(rest) => Some(offset + nested(btf, &aggregate(btf, inner)?, rest)?),
    }
}

/// A member of a struct, or of an unnamed struct or union in it.
fn direct(btf: &Btf, of: &Struct, name: &str) -> Option<(u32, Type)> {
    of.members.iter().find_map(|member| {
        let found = btf.resolve_name(member).unwrap_or_default();
        let inner = btf.resolve_chained_type(member).ok()?;
        let offset = member.bit_offset() / 8;
        if found == name {
            Some((offset, inner))
        } else if found.is_empty() {
            let (deeper, found) = direct(btf, &aggregate(btf, inner)?, name)?;
            Some((offset + deeper, found))
        } else {
            None
        }
    })
}

/// The struct or union behind typedefs and qualifiers.
fn aggregate(btf: &Btf, mut of: Type) -> Option<Struct> {
    loop {
        of = match of {
            Type::Struct(s) | Type::Union(s) => return Some(s),
            Type::Const(q) | Type::Volatile(q) => btf.resolve_chained_type(&q).ok()?,
            Type::Typedef(t) => btf.resolve_chained_type(&t).ok()?,
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_every_member() {
        let found = read(Path::new(KERNEL_BTF)).unwrap_or_else(|e| panic!("{e}"));
        assert_ne!(found.offsets.task_struct_files, 0);
        assert_eq!(
            found.offsets.dentry_d_name_len,
            found.offsets.dentry_d_parent + 12
        );
    }

    #[test]
    fn a_kernel_without_btf_is_refused_in_one_sentence() {
        let error = read(Path::new("/nonexistent/vmlinux"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nonexistent/vmlinux"), "{error}");
        assert!(error.contains("CONFIG_DEBUG_INFO_BTF"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn a_missing_member_is_named() {
        let btf = Btf::from_file(KERNEL_BTF).unwrap();
        let error = member(&btf, "file", "f_nonsense").unwrap_err().to_string();
        assert!(error.contains("`f_nonsense` in `struct file`"), "{error}");
    }
}
