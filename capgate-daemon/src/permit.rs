//! What an enforced job may reach, as rules for the kernel. Pure.
//!
//! The kernel takes the rule of the longest prefix alone, so that each rule has the ports of all networks around its own.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    ops::RangeInclusive,
};

use capgate_common::{
    contract::Contract,
    enforce::{ANY_SCOPE, KIND_LOCAL, KIND_PORTS, KIND_RAW, MAX_RANGES, Ports},
    netpattern::reach::{Addresses, Reach, is_link_local},
};
use capgate_common::{hostname::HostName, netpattern::NetPattern, refuse::Refusal};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// What the kernel cannot refuse to a job, a phrase each.
pub const NOT_DENIED: [&str; 5] = [
    "unix, packet and virtual (vsock) sockets",
    "sockets that were connected before the job got them",
    "raw IP sockets that were made outside the job",
    "connections that the kernel makes by itself: network file systems, further paths of MPTCP",
    "datagrams to a loopback port that nobody was bound to when the socket was connected",
];

/// Port of a resolver.
const DOMAIN: u16 = 53;
/// Most addresses of one job that answers of resolvers give.
const MOST_ANSWERED: usize = 16 * 1024;

/// Why there can be no such rules.
#[derive(Debug, thiserror::Error)]
pub enum PermitError {
    /// More than [`MAX_RANGES`].
    #[error(
        "the contract allows {ranges} separate ranges of ports at {net}, and the kernel is told of at most {MAX_RANGES}: write wider ranges"
    )]
    Ranges {
        /// Where.
        net: IpNet,
        /// How many.
        ranges: usize,
    },
    /// More than [`MOST_ANSWERED`].
    #[error(
        "the names that the contract allows have more than {MOST_ANSWERED} addresses in this job"
    )]
    Answers,
}

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it holds.
    pub place: Place,
    /// What it permits.
    pub ports: Ports,
}

/// Where a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// A `KIND_` value.
    pub kind: u16,
    /// The network.
    pub net: IpNet,
    /// Interface index, or [`ANY_SCOPE`].
    pub scope: u32,
}

/// Ports, by the places that name them themselves.
type Places = HashMap<Place, Vec<RangeInclusive<u16>>>;

/// What is permitted where, and what is refused whatever is permitted.
#[derive(Clone, Debug, Default)]
pub struct Permits {
    /// What each place permits by itself.
    own: Places,
    /// What each place refuses by itself.
    refused: Places,
    /// Patterns over host names.
    names: Vec<NetPattern>,
    /// The same of what is refused.
    refused_names: Vec<NetPattern>,
    /// Places that answers of resolvers gave.
    answered: usize,
}

impl Permits {
    /// What a contract permits by address. `interface` gives the index of a network interface by its name.
    #[must_use]
    pub fn of_contract(contract: &Contract, interface: impl Fn(&str) -> Option<u32>) -> Self {
        let refused: Vec<&NetPattern> = contract.refuse.iter().filter_map(Refusal::net).collect();
        let named = refused.iter().filter(|it| it.names_hosts());
        let mut permits = Self {
            refused_names: named.map(|&it| it.clone()).collect(),
            ..Self::default()
        };
        permits.take(&refused, &interface);
        permits.refused = std::mem::take(&mut permits.own);
        let names = contract.allow_net.iter().filter(|it| it.names_hosts());
        permits.names.extend(names.cloned());
        let allowed: Vec<&NetPattern> = contract.allow_net.iter().collect();
        permits.take(&allowed, &interface);
        permits
    }

    /// Takes in what patterns name by address.
    fn take(&mut self, patterns: &[&NetPattern], interface: &impl Fn(&str) -> Option<u32>) {
        for reach in patterns.iter().filter_map(|pattern| pattern.reach()) {
            match reach {
                Reach::Ports(addresses, ports) => {
                    self.permit_at(KIND_PORTS, &addresses, interface, ports);
                }
                Reach::Raw(addresses, protocol) => {
                    let Some(protocol) = u8::try_from(protocol).ok() else {
                        continue;
                    };
                    let kind = KIND_RAW + u16::from(protocol);
                    let anywhere = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
                        .map(|net| Addresses { net, zone: None });
                    for addresses in addresses
                        .as_ref()
                        .map_or(&anywhere[..], std::slice::from_ref)
                    {
                        self.permit_at(kind, addresses, interface, 0..=0);
                    }
                }
            }
        }
    }

    /// Addresses of the host itself.
    pub fn local(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        for address in addresses {
            self.permit(KIND_LOCAL, IpNet::from(address), ANY_SCOPE, 0..=0);
        }
    }

    /// A resolver that may be asked.
    pub fn resolver(&mut self, resolver: IpAddr) {
        self.permit(
            KIND_PORTS,
            IpNet::from(resolver),
            ANY_SCOPE,
            DOMAIN..=DOMAIN,
        );
    }

    /// Whether hosts are permitted by their names.
    #[must_use]
    pub fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Takes in that these are addresses of a host. The rules are those that are new.
    ///
    /// # Errors
    /// When there are too many addresses, or one of them has too many ranges of ports.
    pub fn answer(
        &mut self,
        name: &HostName,
        addresses: &[IpAddr],
    ) -> Result<Vec<Rule>, PermitError> {
        let ports: Vec<_> = self
            .names
            .iter()
            .filter_map(|it| it.ports_at(name))
            .collect();
        let refused = self.refused_names.iter();
        let refused = refused.filter_map(|it| it.ports_at(name)).collect();
        let ports = without(merge(ports), &merge(refused));
        if ports.is_empty() {
            return Ok(Vec::new());
        }
        let mut rules = Vec::new();
        for &address in addresses.iter().filter(|&&it| !is_link_local(it)) {
            let place = Place {
                kind: KIND_PORTS,
                net: IpNet::from(address.to_canonical()),
                scope: ANY_SCOPE,
            };
            let known = self.own.get(&place);
            if known.is_some_and(|known| ports.iter().all(|ports| known.contains(ports))) {
                continue;
            }
            if known.is_none() {
                if self.answered >= MOST_ANSWERED {
                    return Err(PermitError::Answers);
                }
                self.answered += 1;
            }
            let own = self.own.entry(place).or_default();
            own.extend(ports.iter().cloned());
            *own = merge(std::mem::take(own));
            rules.push(self.rule(place)?);
        }
        Ok(rules)
    }

    fn permit_at(
        &mut self,
        kind: u16,
        addresses: &Addresses,
        interface: impl Fn(&str) -> Option<u32>,
        ports: RangeInclusive<u16>,
    ) {
        let net = addresses.net;
        let scope = match &addresses.zone {
            // An interface that is not there yet cannot be named to the kernel.
            Some(zone) => match zone.parse().ok().or_else(|| interface(zone)) {
                Some(index) => index,
                None => return,
            },
            None if is_whole(net) && is_link_local(net.addr()) => 0,
            None => ANY_SCOPE,
        };
        self.permit(kind, net, scope, ports);
    }

    fn permit(&mut self, kind: u16, net: IpNet, scope: u32, ports: RangeInclusive<u16>) {
        let place = Place { kind, net, scope };
        self.own.entry(place).or_default().push(ports);
    }

    /// All rules.
    ///
    /// # Errors
    /// When one of them has too many ranges of ports.
    pub fn rules(&self) -> Result<Vec<Rule>, PermitError> {
        let places: HashSet<&Place> = self.own.keys().chain(self.refused.keys()).collect();
        places.into_iter().map(|&place| self.rule(place)).collect()
    }

    /// The rule of one place, with what the networks around it permit, less what they refuse.
    fn rule(&self, place: Place) -> Result<Rule, PermitError> {
        let (mut ranges, mut refused) = (Vec::new(), Vec::new());
        for len in 0..=place.net.prefix_len() {
            let Ok(around) = IpNet::new(place.net.addr(), len) else {
                continue;
            };
            let around = Place {
                net: around.trunc(),
                ..place
            };
            ranges.extend(self.own.get(&around).into_iter().flatten().cloned());
            refused.extend(self.refused.get(&around).into_iter().flatten().cloned());
        }
        let merged = without(merge(ranges), &merge(refused));
        let mut ports = Ports::default();
        if merged.len() > MAX_RANGES {
            return Err(PermitError::Ranges {
                net: place.net,
                ranges: merged.len(),
            });
        }
        for (slot, range) in ports.ranges.iter_mut().zip(&merged) {
            *slot = [*range.start(), *range.end()];
            ports.count += 1;
        }
        Ok(Rule { place, ports })
    }
}

/// Ascending ranges less other ones.
fn without(
    ranges: Vec<RangeInclusive<u16>>,
    less: &[RangeInclusive<u16>],
) -> Vec<RangeInclusive<u16>> {
    less.iter().fold(ranges, |ranges, less| {
        let parts = ranges.into_iter().flat_map(|range| {
            let before = less.start().checked_sub(1);
            let before = before.map(|last| *range.start()..=last.min(*range.end()));
            let after = less.end().checked_add(1);
            let after = after.map(|first| first.max(*range.start())..=*range.end());
            [before, after].into_iter().flatten()
        });
        parts.filter(|part| !part.is_empty()).collect()
    })
}

fn is_whole(net: IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

/// The same ports in ascending ranges that do not touch.
fn merge(mut ranges: Vec<RangeInclusive<u16>>) -> Vec<RangeInclusive<u16>> {
    ranges.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u16>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract(allow_net: &[&str], refuse: &[&str]) -> Contract {
        let text = serde_json::json!({
            "allow_net": allow_net, "refuse": refuse, "cpu_budget": 1, "writes": capgate_common::ledger::EMPTY_DIGEST,
        });
        Contract::from_json(text.to_string().as_bytes()).unwrap()
    }

    /// Rules as text: kind, network, interface, ports.
    fn rules(allow_net: &[&str]) -> Vec<String> {
        rules_but(allow_net, &[])
    }

    /// The same, less what is refused.
    fn rules_but(allow_net: &[&str], refuse: &[&str]) -> Vec<String> {
        let interface = |name: &str| (name == "eth0").then_some(2);
        let permits = Permits::of_contract(&contract(allow_net, refuse), interface);
        let mut rules: Vec<String> = permits
            .rules()
            .unwrap()
            .iter()
            .map(|Rule { place, ports }| {
                let Place { kind, net, scope } = place;
                let scope = match *scope {
                    ANY_SCOPE => String::new(),
                    index => format!("%{index}"),
                };
                let ports: Vec<String> = ports.ranges[..ports.count as usize]
                    .iter()
                    .map(|[first, last]| format!("{first}-{last}"))
                    .collect();
                format!("{kind} {net}{scope} {}", ports.join(","))
            })
            .collect();
        rules.sort();
        rules
    }

    #[test]
    fn a_rule_has_the_ports_of_the_networks_around_it() {
        assert_eq!(
            rules(&[
                "10.0.0.0/8:443",
                "10.1.0.0/16:80",
                "10.1.2.3:81",
                "10.1.2.3:79-80",
                "192.0.2.1:1"
            ]),
            [
                "0 10.0.0.0/8 443-443",
                "0 10.1.0.0/16 80-80,443-443",
                "0 10.1.2.3/32 79-81,443-443",
                "0 192.0.2.1/32 1-1"
            ]
        );
    }

    #[test]
    fn what_is_refused_is_taken_out_of_what_is_allowed() {
        assert_eq!(
            rules_but(
                &["169.254.0.0/16:*", "169.254.169.254:80", "192.0.2.1:80"],
                &["net:169.254.169.254:*", "net:192.0.2.0/24:80-90", "exec:az"]
            ),
            [
                "0 169.254.0.0/16 0-65535",
                "0 169.254.169.254/32 ",
                "0 192.0.2.0/24 ",
                "0 192.0.2.1/32 "
            ]
        );
        assert_eq!(
            rules_but(&["192.0.2.1:*"], &["net:192.0.2.1:80", "net:192.0.2.1:0"]),
            ["0 192.0.2.1/32 1-79,81-65535"]
        );
        assert_eq!(
            rules_but(&["192.0.2.1:1-9"], &["net:192.0.2.1:5-65535"]),
            ["0 192.0.2.1/32 1-4"]
        );
    }

    #[test]
    fn an_answer_permits_nothing_that_is_refused_by_name_or_address() {
        let contract = contract(
            &["*.example.org:80-90"],
            &["net:www.example.org:85-99", "net:192.0.2.2:*"],
        );
        let mut permits = Permits::of_contract(&contract, |_| None);
        let mut ports = |name: &str, address: &str| {
            let name = name.parse().unwrap();
            let rules = permits.answer(&name, &[address.parse().unwrap()]).unwrap();
            let ports: Vec<_> = rules.iter().flat_map(|it| it.ports.ranges).collect();
            ports.into_iter().find(|range| *range != [0, 0])
        };
        assert_eq!(ports("a.example.org", "192.0.2.1"), Some([80, 90]));
        assert_eq!(ports("a.example.org", "192.0.2.2"), None);
        assert_eq!(ports("www.example.org", "192.0.2.3"), Some([80, 84]));
    }

    #[test]
    fn every_port_is_one_range() {
        assert_eq!(
            rules(&["192.0.2.1:*", "192.0.2.1:80"]),
            ["0 192.0.2.1/32 0-65535"]
        );
        assert_eq!(
            rules(&["192.0.2.1:65535", "192.0.2.1:65534-65535"]),
            ["0 192.0.2.1/32 65534-65535"]
        );
    }

    #[test]
    fn an_interface_belongs_to_an_address_of_one_link() {
        assert_eq!(rules(&["[fe80::1%eth0]:53"]), ["0 fe80::1/128%2 53-53"]);
        assert_eq!(rules(&["[fe80::1%7]:53"]), ["0 fe80::1/128%7 53-53"]);
        assert_eq!(rules(&["[fe80::1]:53"]), ["0 fe80::1/128%0 53-53"]);
        assert_eq!(rules(&["[fe80::/10]:53"]), ["0 fe80::/10 53-53"]);
        assert!(rules(&["[fe80::1%eth9]:53"]).is_empty());
    }

    #[test]
    fn raw_packets_have_rules_of_their_own() {
        assert_eq!(rules(&["raw:192.0.2.0/24/1"]), ["257 192.0.2.0/24 0-0"]);
        assert_eq!(rules(&["raw:*/1"]), ["257 0.0.0.0/0 0-0", "257 ::/0 0-0"]);
    }

    #[test]
    fn what_is_no_address_has_no_rule() {
        assert!(
            rules(&[
                "unix:/run/x",
                "packet:*",
                "vsock:2:1",
                "www.example.org:443"
            ])
            .is_empty()
        );
    }

    #[test]
    fn an_answer_permits_the_ports_of_its_name_and_those_around() {
        let contract = contract(
            &[
                "*.example.org:443",
                "www.example.org:8000-8001",
                "192.0.2.0/24:80",
            ],
            &[],
        );
        let mut permits = Permits::of_contract(&contract, |_| None);
        let mut answer = |name: &str, address: &str| -> Vec<Vec<[u16; 2]>> {
            let addresses: Vec<IpAddr> = address.split(' ').map(|it| it.parse().unwrap()).collect();
            let rules = permits.answer(&name.parse().unwrap(), &addresses).unwrap();
            rules
                .iter()
                .map(|rule| rule.ports.ranges[..rule.ports.count as usize].to_vec())
                .collect()
        };
        assert_eq!(
            answer("www.example.org", "192.0.2.1"),
            [[[80, 80], [443, 443], [8000, 8001]]]
        );
        assert_eq!(answer("a.b.example.org", "198.51.100.1"), [[[443, 443]]]);
        // What is known is not told again.
        assert!(answer("www.example.org", "192.0.2.1").is_empty());
        // Another name of the same address adds to it.
        assert_eq!(
            answer("www.example.org", "198.51.100.1"),
            [[[443, 443], [8000, 8001]]]
        );
        for name in ["example.org", "xexample.org", "www.example.com"] {
            assert!(answer(name, "203.0.113.1").is_empty(), "{name}");
        }
        assert!(answer("www.example.org", "fe80::1").is_empty());
    }

    #[test]
    fn too_many_ranges_are_refused_by_name() {
        let patterns: Vec<String> = (0..=MAX_RANGES)
            .map(|n| format!("192.0.2.1:{}", n * 2))
            .collect();
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let permits = Permits::of_contract(&contract(&patterns, &[]), |_| None);
        let error = permits.rules().unwrap_err().to_string();
        assert!(
            error.contains("192.0.2.1/32") && error.contains("65"),
            "{error}"
        );
    }
}
