//! Two network namespaces with a cable between them, so that a test sees what arrives on the other side.

use std::{fs::File, process::Command, sync::mpsc, thread};

use nix::{
    sched::{CloneFlags, setns, unshare},
    unistd::gettid,
};

use crate::service::succeed;

/// A network namespace of the test's own, which goes with it.
struct Namespace(File);

impl Namespace {
    fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        let namespace = Self(made.join().unwrap());
        namespace.within(|| ip("link set lo up"));
        namespace
    }

    /// Does something in it, in a thread of its own.
    fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let entered = || {
                setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            };
            scope.spawn(entered).join().unwrap()
        })
    }
}

/// Jobs run on the near side. The far side has every address of [`FAR`] and [`FAR_V6`].
pub(crate) struct Network {
    near: Namespace,
    far: Namespace,
}

/// What is on the far side.
const FAR: &str = "10.77.0.0/16";
const FAR_V6: &str = "2001:db8:77::/64";

impl Network {
    pub(crate) fn new() -> Self {
        let (near, far) = (Namespace::new(), Namespace::new());
        near.within(|| ip("link add near type veth peer name far"));
        let (tell, told) = mpsc::channel();
        let near_side = &near;
        thread::scope(|scope| {
            scope.spawn(move || {
                let tid = told.recv().unwrap();
                near_side.within(|| ip(&format!("link set far netns {tid}")));
            });
            far.within(move || {
                tell.send(gettid()).unwrap();
                // The interface comes while this thread, by which it finds the namespace, is here.
                while !succeed(Command::new("ip").args(["-o", "link"])).contains("far") {
                    thread::yield_now();
                }
            });
        });
        near.within(|| {
            ip("addr add 10.76.0.1/24 dev near");
            ip("link set near up");
            ip(&format!("route add {FAR} via 10.76.0.2"));
            ip("addr add 2001:db8:76::1/64 dev near nodad");
            ip(&format!("route add {FAR_V6} via 2001:db8:76::2"));
        });
        far.within(|| {
            ip("addr add 10.76.0.2/24 dev far");
            ip("link set far up");
            ip(&format!("route add local {FAR} dev lo"));
            ip("addr add 2001:db8:76::2/64 dev far nodad");
            ip(&format!("route add local {FAR_V6} dev lo"));
        });
        Self { near, far }
    }

    /// Does something where jobs run.
    pub(crate) fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.near.within(work)
    }

    /// Does something on the other side.
    pub(crate) fn far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.far.within(work)
    }
}

fn ip(arguments: &str) {
    succeed(Command::new("ip").args(arguments.split(' ')));
}
