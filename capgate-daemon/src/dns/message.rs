//! Bytes -> what a DNS message asks and answers. Pure.

use std::net::IpAddr;

use capgate_common::hostname::HostName;
use domain::{
    base::{
        Message as Wire, ParsedName,
        iana::{Class, Opcode, Rtype},
        name::ToLabelIter,
    },
    rdata::{A, Aaaa, Cname},
};

/// Most names of a chain of aliases that are followed, the first included. A chain that is longer gives no address.
const LONGEST_CHAIN: usize = 32;

/// What is asked: `TYPE` of a question (RFC 1035, 3.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub u16);

impl Kind {
    /// An IPv4 address.
    pub const A: Self = Self(1);
    /// An IPv6 address (RFC 3596).
    pub const AAAA: Self = Self(28);
    /// Whatever there is (`QTYPE *`).
    const ANY: Self = Self(255);

    fn takes(self, addr: IpAddr) -> bool {
        match self {
            Self::A => addr.is_ipv4(),
            Self::AAAA => addr.is_ipv6(),
            other => other == Self::ANY,
        }
    }
}

/// A question of class `IN`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The name asked for.
    pub name: HostName,
    /// What of it.
    pub kind: Kind,
}

/// A query or an answer to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number that an answer has from its query.
    pub id: u16,
    /// An answer; else a query.
    pub response: bool,
    /// The rest did not fit, and may be asked for over TCP.
    pub truncated: bool,
    /// Result of an answer (`RCODE`): 0 without an error, 3 for a name that does not exist.
    pub rcode: u8,
    /// What is asked; `None` when there is no question, or it is of another class than `IN`.
    pub question: Option<Question>,
    /// The addresses that the answer gives for the question, in its order: of the name asked for, or of what that is an alias for.
    pub addresses: Vec<IpAddr>,
}

/// Bytes that are no message of the kind that is understood here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Too short, or with names or records that are cut or malformed.
    #[error("malformed")]
    Malformed,
    /// Not a standard query or its answer, but an update, a notification or the like.
    #[error("not a standard query")]
    Opcode,
    /// Several questions.
    #[error("several questions")]
    Questions,
}

/// Reads a message without the length in front of it that it has over TCP.
///
/// # Errors
/// When it is malformed up to the end of its answers, or something else than a standard query.
pub fn parse(bytes: &[u8]) -> Result<Message, MessageError> {
    let malformed = |_| MessageError::Malformed;
    let wire = Wire::from_slice(bytes).map_err(|_| MessageError::Malformed)?;
    let header = wire.header();
    if header.opcode() != Opcode::QUERY {
        return Err(MessageError::Opcode);
    }
    if wire.header_counts().qdcount() > 1 {
        return Err(MessageError::Questions);
    }
    let asked = wire
        .question()
        .next()
        .transpose()
        .map_err(|_| MessageError::Malformed)?;
    let question = asked
        .filter(|asked| asked.qclass() == Class::IN)
        .map(|asked| Question {
            name: host_name(asked.qname()),
            kind: Kind(asked.qtype().to_int()),
        });
    let response = header.qr();
    let addresses = match &question {
        Some(question) if response => answered(wire, question).map_err(malformed)?,
        _ => Vec::new(),
    };
    Ok(Message {
        id: header.id(),
        response,
        truncated: header.tc(),
        rcode: header.rcode().to_int(),
        question,
        addresses,
    })
}

/// A record of an answer that matters.
struct Given {
    of: HostName,
    what: What,
}

enum What {
    Address(IpAddr),
    Alias(HostName),
}

/// The addresses that an answer has for its question. In whichever order the aliases come.
fn answered(
    wire: &Wire<[u8]>,
    question: &Question,
) -> Result<Vec<IpAddr>, domain::base::wire::ParseError> {
    let mut given = Vec::new();
    for record in wire.answer()? {
        let record = record?;
        if record.class() != Class::IN {
            continue;
        }
        let what = match record.rtype() {
            Rtype::A => record
                .to_record::<A>()?
                .map(|a| What::Address(a.data().addr().into())),
            Rtype::AAAA => record
                .to_record::<Aaaa>()?
                .map(|aaaa| What::Address(aaaa.data().addr().into())),
            Rtype::CNAME => record
                .to_record::<Cname<ParsedName<_>>>()?
                .map(|cname| What::Alias(host_name(cname.data().cname()))),
            _ => None,
        };
        let takes =
            |what: &What| !matches!(what, What::Address(addr) if !question.kind.takes(*addr));
        if let Some(what) = what.filter(takes) {
            given.push(Given {
                of: host_name(&record.owner()),
                what,
            });
        }
    }
    let mut chain = vec![&question.name];
    // A name has at most one alias (RFC 2181, 10.1); of several the first is followed.
    while let Some(target) = given.iter().find_map(|given| match &given.what {
        What::Alias(target) if Some(&&given.of) == chain.last() => Some(target),
        _ => None,
    }) {
        if chain.contains(&target) || chain.len() == LONGEST_CHAIN {
            return Ok(Vec::new());
        }
        chain.push(target);
    }
    let addresses = given.iter().filter_map(|given| match given.what {
        What::Address(addr) if chain.contains(&&given.of) => Some(addr.to_canonical()),
        _ => None,
    });
    Ok(addresses.collect())
}

fn host_name(name: &(impl ToLabelIter + ?Sized)) -> HostName {
    let labels = name.iter_labels().filter(|label| !label.is_root());
    HostName::from_labels(labels.map(|label| label.as_slice()))
}

#[cfg(test)]
mod tests;
