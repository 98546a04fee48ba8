//! One job's enforcement while it goes on: what its forwarder may do.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use capgate_common::ledger::Enforcement;

use super::{Shared, sentence};
use crate::{
    dns::message,
    enforcement::Plan,
    forwarder::{Forwarder, Gate},
    permit::Permits,
    probes::JobSlot,
    proc,
};

/// How long ago a socket of the job can have asked what the forwarder reads now.
const ASKED_NS: u64 = 30_000_000_000;

/// The enforcement of a job's network that goes on.
pub(super) struct Enforced {
    sealed: Enforcement,
    gate: Option<(Arc<JobGate>, Forwarder)>,
}

impl Enforced {
    pub(super) fn begin(plan: Plan, shared: &Arc<Shared>, slot: JobSlot) -> Self {
        let sealed = plan.sealed();
        let gate = plan.forwarder.map(|ready| {
            let gate = Arc::new(JobGate {
                shared: Arc::clone(shared),
                open: Mutex::new(Some((slot, plan.permits))),
            });
            let forwarder = ready.serve(Arc::clone(&gate) as Arc<dyn Gate>);
            (gate, forwarder)
        });
        Self { sealed, gate }
    }

    /// Nothing is permitted any more. Before the job's slot is given away.
    pub(super) fn end(self) -> Enforcement {
        if let Some((gate, _forwarder)) = &self.gate {
            gate.lock().take();
        }
        self.sealed
    }
}

/// What a forwarder may do for one job.
struct JobGate {
    shared: Arc<Shared>,
    /// `None` once the job has ended.
    open: Mutex<Option<(JobSlot, Permits)>>,
}

impl JobGate {
    fn lock(&self) -> MutexGuard<'_, Option<(JobSlot, Permits)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for JobGate {
    fn is_asker(&self, to: SocketAddr, from: u16, is_tcp: bool) -> bool {
        let open = self.lock();
        let Some((slot, _)) = &*open else {
            return false;
        };
        match self.shared.kernel().probes.asked(slot, to, from, is_tcp) {
            Ok(Some(when)) => proc::now_ns().saturating_sub(when) <= ASKED_NS,
            Ok(None) => false,
            Err(error) => {
                tracing::error!(%error, "a query of a job is not forwarded");
                false
            }
        }
    }

    fn let_through(&self, answer: &[u8]) -> bool {
        // What is not understood here permits nothing.
        let Ok(message) = message::parse(answer) else {
            return true;
        };
        let Some(question) = message.question.filter(|_| message.response) else {
            return true;
        };
        let mut open = self.lock();
        let Some((slot, permits)) = &mut *open else {
            return false;
        };
        let permitted = permits
            .answer(&question.name, &message.addresses)
            .map_err(sentence)
            .and_then(|rules| {
                if rules.is_empty() {
                    return Ok(());
                }
                let mut kernel = self.shared.kernel();
                kernel.probes.permit(slot, &rules).map_err(sentence)
            });
        if let Err(error) = &permitted {
            tracing::error!(%error, "an answer of a resolver is kept from a job");
        }
        permitted.is_ok()
    }
}
