//! The daemon as a whole: what is needed, in the order in which it is needed, and back.

use std::{io::Write as _, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use nix::sys::{
    resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit},
    stat::{Mode, umask},
};
use tokio::{
    net::UnixListener,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use crate::{
    args::Args,
    cgroup::Hierarchy,
    config::Config,
    jobs::Jobs,
    listen::{self, Socket},
    log, memory, notify,
    peer::Home,
    privileges,
    probes::Probes,
    recording::ProbeRecorder,
    server::{self, Admission, Context},
    store::Store,
    support::Host,
};

/// Threads that serve connections; what takes long has threads of its own.
const SERVING_THREADS: usize = 2;
/// How long threads may take to end when the daemon stops.
const THREAD_PATIENCE: Duration = Duration::from_secs(2);

/// Serves until it is told to end.
///
/// # Errors
/// When something is missing that it needs: one sentence.
pub fn run(args: &Args) -> Result<()> {
    memory::bound();
    let mut config = load_config(args)?;
    log::start(&config.log)?;
    let host = Host::look().context("cannot look at this host")?;
    let hierarchy = hierarchy(&host)?;
    raise_limits();

    let admission = admission(args, &config)?;
    // The socket's mode is what the umask leaves of it; there is no other thread yet that makes files.
    umask(Mode::empty());
    let socket = match admission {
        Admission::Service { gid } => listen::service(&args.socket, gid),
        Admission::Private { uid } => listen::private(&args.socket, uid),
    };
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    let mut socket = socket?;
    let store = match admission {
        Admission::Service { .. } => Store::open(&args.store)?,
        Admission::Private { .. } => Store::ephemeral(&args.store)?,
    };
    if let Admission::Private { .. } = admission {
        config.max_jobs = 1;
    }
    let probes = Probes::load(args.probe_set.into(), hierarchy.root(), config.ring_bytes)?;
    clean_up(&hierarchy);
    // Before there are other threads, so that none keeps more.
    privileges::drop_unneeded()
        .context("cannot give up the privileges that serving does not need")?;
    let recorder = Box::new(ProbeRecorder::new(probes, config.ring_bytes, &args.socket));
    let jobs = Jobs::new(config, hierarchy, host.kernel, store, recorder)?;
    let home = Home::look().context("cannot look at the daemon's own namespaces")?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SERVING_THREADS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(&mut socket, &jobs, home, admission))?;
    // What still hangs in somebody's file system is not waited for.
    runtime.shutdown_timeout(THREAD_PATIENCE);
    drop(socket);
    tracing::info!("stopped");
    Ok(jobs.close()?)
}

/// Whom this daemon serves.
fn admission(args: &Args, config: &Config) -> Result<Admission> {
    if let Some(uid) = args.private {
        return Ok(Admission::Private { uid });
    }
    let gid = listen::group(&config.group)
        .with_context(|| format!("cannot look up the group {}", config.group))?;
    if gid.is_none() {
        tracing::warn!(group = config.group, "no such group: only root may record");
    }
    Ok(Admission::Service { gid })
}

/// Serves until a signal.
async fn serve(
    socket: &mut Socket,
    jobs: &std::sync::Arc<Jobs>,
    home: Home,
    admission: Admission,
) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let private = matches!(admission, Admission::Private { .. });
    let (end_of_stdin, stdin_ended) = oneshot::channel();
    if private {
        await_stdin(end_of_stdin)?;
    }
    let stop = async {
        let cause = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            Ok(()) = stdin_ended => "its client has ended",
        };
        tracing::info!(cause, "stopping");
    };
    let listener = socket
        .listener()
        .context("the socket is listened on already")?;
    let listener = UnixListener::from_std(listener).context("cannot listen")?;
    let context = Context::new(std::sync::Arc::clone(jobs), home, admission);
    let status = jobs.status();
    tracing::info!(
        version = status.program,
        probe_set = status.probe_set,
        cgroup_root = status.cgroup_root,
        store = status.store,
        "serving"
    );
    notify::ready();
    if private {
        let mut stdout = std::io::stdout();
        writeln!(stdout, "ready")
            .and_then(|()| stdout.flush())
            .context("cannot tell the client that it is served")?;
    }
    server::run(listener, context, stop).await;
    Ok(())
}

/// Says when stdin has ended. The thread waits for as long as the process runs.
fn await_stdin(ended: oneshot::Sender<()>) -> Result<()> {
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            // An error is an end, too.
            let _read = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            // The daemon ends already when nobody listens.
            let _unheard = ended.send(());
        })
        .context("cannot wait for the end of stdin")?;
    Ok(())
}

fn load_config(args: &Args) -> Result<Config> {
    let (path, named) = args.config_file();
    let mut config = Config::load(&path, named)?;
    if args.private.is_some() {
        // Its stderr is the terminal of somebody who wants to see a job and not its recorder.
        config.log.to = crate::config::LogTarget::Stderr;
        if config.log.filter == Config::default().log.filter {
            "warn".clone_into(&mut config.log.filter);
        }
    }
    Ok(config)
}

/// The cgroup hierarchy, on a host that can record.
fn hierarchy(host: &Host) -> Result<Hierarchy> {
    if !nix::unistd::geteuid().is_root() {
        bail!("needs root: start it as a service, or let capgate run --local use sudo");
    }
    let Some(root) = &host.cgroup2 else {
        bail!(
            "this host has only cgroup v1: mount the v2 hierarchy, as by booting with systemd.unified_cgroup_hierarchy=1"
        );
    };
    if !host.initial_cgroup_ns || !host.initial_pid_ns {
        bail!(
            "runs in a container: it needs the host's own pid and cgroup namespaces (docker run --pid=host --cgroupns=host)"
        );
    }
    let hierarchy = Hierarchy::new(root);
    let own = crate::proc::cgroup(std::process::id().try_into()?)
        .context("cannot tell the daemon's own cgroup")?;
    if hierarchy.inside_job(&own) {
        bail!("runs inside a job: no job can be recorded from inside another");
    }
    Ok(hierarchy)
}

/// Raises what would limit the number of jobs. Where that is refused, what there is has to do.
fn raise_limits() {
    // Kernels before 5.11 charge maps to it.
    if let Err(error) = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY) {
        tracing::debug!(%error, "cannot raise the limit on locked memory");
    }
    // A job takes about ten descriptors, a connection two.
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
}

/// Removes what a daemon that crashed left of its jobs. The kernel has detached its probes by itself.
fn clean_up(hierarchy: &Hierarchy) {
    match hierarchy.clean_up() {
        Ok(orphans) => {
            for orphan in orphans {
                let path: &Path = &orphan.path;
                let (cgroup, job) = (path.display(), orphan.job.unwrap_or_default());
                match orphan.removed {
                    Ok(()) => {
                        tracing::warn!(%cgroup, job, "killed and removed a job of a daemon that crashed");
                    }
                    Err(error) => {
                        tracing::error!(%cgroup, job, %error, "a job of a daemon that crashed stays");
                    }
                }
            }
        }
        Err(error) => {
            tracing::error!(%error, "cannot look for jobs of a daemon that crashed");
        }
    }
}
