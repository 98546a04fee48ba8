//! The grammar of network patterns.

use std::{net::IpAddr, ops::RangeInclusive, str::FromStr};

use ipnet::IpNet;

use super::{Hosts, Kind, Names};
use crate::{
    address::{AddressError, Host, Piece, RESOLVER},
    hostname,
};

/// What a whole pattern permits.
pub(super) fn pattern(piece: Piece<'_>) -> Result<Kind, AddressError> {
    let text = piece.text();
    if let Some(bad) = text.find(|c: char| c.is_ascii_control()) {
        return Err(piece.skip(bad).error("a control character"));
    }
    if let Some(path) = piece.after("unix:") {
        return unix(path);
    }
    if let Some(rest) = piece.after("vsock:") {
        let (cid, ports) = rest
            .split_once_last(':')
            .ok_or_else(|| rest.error("`vsock:CID:PORT` is expected"))?;
        return Ok(Kind::Vsock {
            cid: number(cid, "a context id")?,
            ports: range(ports)?,
        });
    }
    if let Some(rest) = piece.after("raw:") {
        let (hosts, protocol) = rest
            .split_once_last('/')
            .ok_or_else(|| rest.error("`raw:ADDRESS/PROTOCOL` is expected"))?;
        return Ok(Kind::Raw {
            hosts: match hosts.text() {
                "*" => None,
                _ => Some(addresses(hosts)?),
            },
            protocol: number(protocol, "an IP protocol number")?,
        });
    }
    if let Some(interface) = piece.after("packet:") {
        return match interface.text() {
            "*" => Ok(Kind::Packet(None)),
            "" => Err(interface.error("the name of an interface, or `*`, is expected")),
            name => Ok(Kind::Packet(Some(name.to_owned()))),
        };
    }
    if let Some(name) = piece.after("dns:") {
        return Ok(Kind::Lookup(names(name)?));
    }
    if let Some(port) = piece.after("resolver:") {
        return match piece.text() {
            RESOLVER => Ok(Kind::Resolver),
            _ => Err(port
                .error("`resolver:53` is expected: the resolvers that the job is configured for")),
        };
    }
    if piece.text() == "self" {
        return Ok(Kind::Own);
    }
    inet(piece)
}

fn inet(piece: Piece<'_>) -> Result<Kind, AddressError> {
    let missing = || piece.error("`HOST:PORT` is expected; the port may be `*` or a range `A-B`");
    let (host, port) = piece.split_once_last(':').ok_or_else(missing)?;
    // The last colon of `[2001:db8::1]` is not the one before a port.
    if port.text().ends_with(']') || host.text().is_empty() {
        return Err(missing());
    }
    let ports = range(port)?;
    // No top-level domain is a number: `10.0.0:80` is a mistyped address, not a name.
    let last_label = host.text().rsplit('.').next().unwrap_or_default();
    let looks_like_address = host.text().contains(['[', ':', '/'])
        || last_label.bytes().all(|byte| byte.is_ascii_digit());
    if !looks_like_address {
        let names = names(host)?;
        return Ok(Kind::Name { names, ports });
    }
    let hosts = addresses(host)?;
    if hosts.is_every_address() && *ports.start() <= 1 && *ports.end() == u16::MAX {
        return Err(
            piece.error("this permits every address and port; name the network or the port")
        );
    }
    Ok(Kind::Inet { hosts, ports })
}

/// `192.0.2.1`, `[2001:db8::1]`, `[fe80::1%eth0]`, `192.0.2.0/24`, `[2001:db8::/32]`.
fn addresses(piece: Piece<'_>) -> Result<Hosts, AddressError> {
    let Some(rest) = piece.after("[") else {
        if piece.text().contains(':') {
            return Err(piece.error("an IPv6 address is written in brackets: `[2001:db8::1]`"));
        }
        return hosts(piece, |address| address.is_ipv4(), "an IPv4 address");
    };
    let inner = rest
        .before("]")
        .ok_or_else(|| piece.error("the bracket is not closed"))?;
    let Some((address, zone)) = inner.split_once('%') else {
        return hosts(inner, |address| address.is_ipv6(), "an IPv6 address");
    };
    let parsed: std::net::Ipv6Addr = address
        .text()
        .parse()
        .map_err(|_| address.error("an IPv6 address is expected"))?;
    if zone.text().is_empty() || zone.text().contains(['/', ':']) {
        return Err(zone.error("the name of an interface is expected after `%`"));
    }
    Ok(Hosts::One(Host::scoped_text(
        parsed,
        zone.text().to_owned(),
    )))
}

fn hosts(
    piece: Piece<'_>,
    is_family: fn(&IpAddr) -> bool,
    expected: &str,
) -> Result<Hosts, AddressError> {
    let wrong = || {
        piece.error(&format!(
            "{expected} or a network `ADDRESS/PREFIX` is expected"
        ))
    };
    if !piece.text().contains('/') {
        let address: IpAddr = piece.text().parse().map_err(|_| wrong())?;
        return if is_family(&address) {
            Ok(Hosts::One(Host::new(address)))
        } else {
            Err(wrong())
        };
    }
    let net: IpNet = piece.text().parse().map_err(|_| wrong())?;
    if !is_family(&net.addr()) {
        return Err(wrong());
    }
    if net.trunc() != net {
        return Err(piece.error(&format!(
            "the network has bits beyond its prefix; write `{}`",
            net.trunc()
        )));
    }
    // Entries hold IPv4-mapped addresses as IPv4, so that such a network could never match.
    if net.addr() != net.addr().to_canonical() {
        return Err(piece.error("an IPv4-mapped network is written as an IPv4 network"));
    }
    Ok(Hosts::Net(net))
}

/// `www.example.org`, `*.example.org`.
fn names(piece: Piece<'_>) -> Result<Names, AddressError> {
    if piece.text() == "*" {
        return Err(piece.error(
            "`*` is no host; name a network (`192.0.2.0/24:443`) or a domain (`*.example.org:443`)",
        ));
    }
    let (below, name) = match piece.after("*.") {
        Some(domain) => (true, domain),
        None => (false, piece),
    };
    if let Some(star) = name.text().find('*') {
        return Err(name
            .skip(star)
            .error("`*` may stand for the first labels of a host name only: `*.example.org`"));
    }
    let name = hostname::read(name)?;
    Ok(if below {
        Names::Below(name)
    } else {
        Names::One(name)
    })
}

fn unix(piece: Piece<'_>) -> Result<Kind, AddressError> {
    if let Some(name) = piece.after("@") {
        return Ok(Kind::UnixAbstract(name.text().to_owned()));
    }
    let text = piece.text();
    if text.starts_with('/') || text.starts_with("./") || text == "~" || text.starts_with("~/") {
        return Ok(Kind::UnixPath(text.to_owned()));
    }
    Err(piece.error(
        "`unix:/PATH`, `unix:~/PATH`, `unix:./PATH` (in the root) or `unix:@NAME` is expected",
    ))
}

/// `443`, `*`, `8000-8999`.
fn range<T>(piece: Piece<'_>) -> Result<RangeInclusive<T>, AddressError>
where
    T: FromStr + PartialOrd + Copy + Bounds,
{
    const PORT: &str = "a port, `*` or a range `A-B`";
    if piece.text() == "*" {
        return Ok(T::LOWEST..=T::HIGHEST);
    }
    let Some((first, last)) = piece.split_once('-') else {
        let port = number(piece, PORT)?;
        return Ok(port..=port);
    };
    let (first, last) = (number(first, PORT)?, number(last, PORT)?);
    if first > last {
        return Err(piece.error("the range ends before it begins"));
    }
    Ok(first..=last)
}

/// Decimal digits without sign or leading zeros, so that a number has one spelling.
fn number<T: FromStr + Bounds>(piece: Piece<'_>, expected: &str) -> Result<T, AddressError> {
    let text = piece.text();
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain).ok_or_else(|| {
        piece.error(&format!(
            "{expected} is expected (at most {})",
            T::HIGHEST_TEXT
        ))
    })
}

/// The range of an unsigned number.
trait Bounds {
    const LOWEST: Self;
    const HIGHEST: Self;
    const HIGHEST_TEXT: &'static str;
}

impl Bounds for u16 {
    const LOWEST: Self = 0;
    const HIGHEST: Self = Self::MAX;
    const HIGHEST_TEXT: &'static str = "65535";
}

impl Bounds for u32 {
    const LOWEST: Self = 0;
    const HIGHEST: Self = Self::MAX;
    const HIGHEST_TEXT: &'static str = "4294967295";
}
