//! Whether a job's network is enforced, and what it may reach then. Settled before the job begins, or the job does not begin.

use std::{io, net::IpAddr};

use capgate_common::{
    contract::Contract,
    ledger::{Enforcement, Reach},
    netpattern::{NetPattern, reach::is_link_local},
    protocol::Start,
};
use nix::net::if_::if_nametoindex;

use crate::{
    forwarder::{self, Ready},
    netns,
    permit::{NOT_DENIED, PermitError, Permits, Rule},
};

/// Why a job's network cannot be enforced.
#[derive(Debug, thiserror::Error)]
pub enum EnforcementError {
    /// Nothing says what it may reach.
    #[error(
        "cannot enforce the network of a job without a contract, whose `allow_net` says what it may reach: --no-network needs none"
    )]
    NoContract,
    /// The client's network namespace.
    #[error(
        "cannot enforce the job's network: its network namespace cannot be looked at: {0} (entering another one takes CAP_SYS_ADMIN there)"
    )]
    Namespace(io::Error),
    /// The stand-ins.
    #[error(
        "cannot enforce the job's network, whose contract allows hosts by name: capgated cannot stand in for the job's resolvers on the loopback addresses of its network namespace: {0} (is `lo` up there?)"
    )]
    Forwarder(io::Error),
    /// The rules.
    #[error("cannot enforce the job's network: {0}")]
    Rules(#[from] PermitError),
}

/// How a job's network is enforced.
pub struct Plan {
    /// What it may reach.
    pub reach: Reach,
    /// Cookie of the network namespace that it begins in.
    pub netns: u64,
    /// The same as it is permitted by addresses, and by names whose addresses are not known yet.
    pub permits: Permits,
    /// The same for the kernel.
    pub rules: Vec<Rule>,
    /// What stands in for the job's resolvers; `None` where no name needs it.
    pub forwarder: Option<Ready>,
}

impl Plan {
    /// What the request and the contract ask for; `None`: nothing is refused. `client` is a process of the namespace in which the job
    /// will begin, which is to ask `resolvers`.
    ///
    /// # Errors
    /// When it is asked for and cannot be done.
    pub fn make(
        start: &Start,
        contract: Option<&Contract>,
        client: i32,
        resolvers: &[IpAddr],
    ) -> Result<Option<Self>, EnforcementError> {
        // A job that is only recorded is to show what it does: then the contract's word is not enough.
        let asked = contract.is_some_and(|contract| contract.enforce) && !start.record;
        let (reach, contract) = match contract {
            _ if start.no_network => (Reach::Itself, None),
            Some(contract) if start.enforce || asked => (Reach::AllowNet, Some(contract)),
            None if start.enforce => return Err(EnforcementError::NoContract),
            _ => return Ok(None),
        };
        // One that needs an interface with its address is not asked, and the job goes on to the next one.
        let asks = contract.is_some_and(|it| it.allow_net.iter().any(NetPattern::is_resolver));
        let resolvers: Vec<IpAddr> = resolvers
            .iter()
            .copied()
            .filter(|&resolver| asks && !is_link_local(resolver))
            .collect();
        let (netns, mut permits) = netns::within(client, || {
            let interface = |name: &str| if_nametoindex(name).ok();
            let mut permits = contract
                .map(|contract| Permits::of_contract(contract, interface))
                .unwrap_or_default();
            permits.local(netns::addresses()?);
            Ok((netns::cookie()?, permits))
        })
        .map_err(EnforcementError::Namespace)?;
        resolvers
            .iter()
            .for_each(|&resolver| permits.resolver(resolver));
        let forwarder = if permits.has_names() && !resolvers.is_empty() {
            let ready = forwarder::prepare(client, &resolvers);
            Some(ready.map_err(EnforcementError::Forwarder)?)
        } else {
            None
        };
        Ok(Some(Self {
            reach,
            netns,
            rules: permits.rules()?,
            permits,
            forwarder,
        }))
    }

    /// What the ledger says of it.
    #[must_use]
    pub fn sealed(&self) -> Enforcement {
        Enforcement {
            reach: self.reach,
            not_denied: NOT_DENIED.iter().map(|&phrase| phrase.to_owned()).collect(),
        }
    }
}
