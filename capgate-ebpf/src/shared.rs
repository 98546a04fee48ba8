//! Programs that both probe sets have.

use aya_ebpf::{
    macros::{btf_tracepoint, cgroup_skb, cgroup_sock_addr, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext, SkBuffContext, SockAddrContext},
};
use capgate_common::event::{INET_CONNECT, INET_SENDMSG};
use capgate_ebpf::{
    dns, exec, forward,
    kernel::Address,
    net, process, root,
    socket::{AF_INET, AF_INET6},
};

/// Never attached: the daemon runs it (`BPF_PROG_TEST_RUN`) with a slot and two of its own descriptors when a job begins.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn adopt(ctx: RawTracePointContext) -> i32 {
    let (slot, root, slash) = (ctx.arg::<u64>(0), ctx.arg::<u64>(1), ctx.arg::<u64>(2));
    let newest = ctx.arg::<u64>(3);
    // What it did not find the daemon sees: the slot's place stays empty.
    let _: Option<()> = root::adopt(slot as u32, root as u32, slash as u32, newest);
    0
}

// A cgroup program answers 1 to let it pass, 0 to have the kernel refuse it with EPERM.

/// Kernel: `BPF_CGROUP_RUN_PROG_INET4_CONNECT`, in tcp, udp and ping `pre_connect`.
#[cgroup_sock_addr(connect4)]
pub fn connect4(ctx: SockAddrContext) -> i32 {
    i32::from(net::addressed(&ctx, AF_INET, INET_CONNECT))
}

/// Kernel: `BPF_CGROUP_RUN_PROG_INET6_CONNECT`, likewise.
#[cgroup_sock_addr(connect6)]
pub fn connect6(ctx: SockAddrContext) -> i32 {
    i32::from(net::addressed(&ctx, AF_INET6, INET_CONNECT))
}

/// Kernel: `BPF_CGROUP_RUN_PROG_UDP4_SENDMSG_LOCK`, in udp_sendmsg of an unconnected socket.
#[cgroup_sock_addr(sendmsg4)]
pub fn sendmsg4(ctx: SockAddrContext) -> i32 {
    i32::from(net::addressed(&ctx, AF_INET, INET_SENDMSG))
}

/// Kernel: `BPF_CGROUP_RUN_PROG_UDP6_SENDMSG_LOCK`, likewise.
#[cgroup_sock_addr(sendmsg6)]
pub fn sendmsg6(ctx: SockAddrContext) -> i32 {
    i32::from(net::addressed(&ctx, AF_INET6, INET_SENDMSG))
}

/// Kernel: `BPF_CGROUP_RUN_PROG_UDP4_RECVMSG_LOCK`, in udp_recvmsg of who asks for the sender. It must answer 1.
#[cgroup_sock_addr(recvmsg4)]
pub fn recvmsg4(ctx: SockAddrContext) -> i32 {
    forward::show(&ctx, AF_INET);
    1
}

/// Kernel: `BPF_CGROUP_RUN_PROG_UDP6_RECVMSG_LOCK`, likewise.
#[cgroup_sock_addr(recvmsg6)]
pub fn recvmsg6(ctx: SockAddrContext) -> i32 {
    forward::show(&ctx, AF_INET6);
    1
}

/// Kernel: `BPF_CGROUP_RUN_SA_PROG` of `CGROUP_INET4_GETPEERNAME`, in inet_getname. It must answer 1.
#[cgroup_sock_addr(getpeername4)]
pub fn getpeername4(ctx: SockAddrContext) -> i32 {
    forward::show(&ctx, AF_INET);
    1
}

/// Kernel: `BPF_CGROUP_RUN_SA_PROG` of `CGROUP_INET6_GETPEERNAME`, in inet6_getname, likewise.
#[cgroup_sock_addr(getpeername6)]
pub fn getpeername6(ctx: SockAddrContext) -> i32 {
    forward::show(&ctx, AF_INET6);
    1
}

/// Kernel: `BPF_CGROUP_RUN_PROG_INET_EGRESS`, in ip_finish_output and ip6_finish_output.
#[cgroup_skb(egress)]
pub fn egress(ctx: SkBuffContext) -> i32 {
    i32::from(net::egress(&ctx))
}

/// Kernel: as [`egress`].
#[cgroup_skb(egress)]
pub fn dns_egress(ctx: SkBuffContext) -> i32 {
    dns::sent(&ctx);
    1
}

/// Kernel: `BPF_CGROUP_RUN_PROG_INET_INGRESS`, in sk_filter_trim_cap: before the socket gets the packet.
#[cgroup_skb(ingress)]
pub fn dns_ingress(ctx: SkBuffContext) -> i32 {
    dns::received(&ctx);
    1
}

/// Kernel: `trace_sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
    exec::executed(ctx.arg::<u64>(1) as u32, Address(ctx.arg::<u64>(2)));
    0
}

/// Kernel: `trace_sched_process_exit(struct task_struct *p)`, in do_exit of each thread.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
    process::exited(Address(ctx.arg::<u64>(0)));
    0
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses programs that could get here.
    loop {}
}

/// Helpers that read kernel memory are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
