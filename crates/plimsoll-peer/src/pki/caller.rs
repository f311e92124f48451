//! Who a certificate is for. The name is compared as it is written: a node `Ash` is not the node `ash`, although the
//! name system would take one for the other, and an asterisk is no name at all.

use std::fmt;

use plimsoll_model::access::Digest;
use plimsoll_model::{CellId, NodeId, Timestamp};
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Error;

/// What every name in a certificate ends with. `.internal` is never given to anybody in public.
const DOMAIN: &str = ".plimsoll.internal";

/// What the names of shards end with. No cell's name begins with an underscore, so no node's name does.
const SHARD_DOMAIN: &str = "._shard.plimsoll.internal";

/// Whether a name is among those that certificates give to nodes, however it is written.
pub fn is_reserved(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host.ends_with(DOMAIN) || host == DOMAIN[1..]
}

/// The name that the certificates of all nodes of a cell have in common.
pub fn server_name(cell_id: &CellId) -> String {
    format!("{cell_id}{DOMAIN}")
}

/// A node of a cell, as its certificate names it; or another cell, which is a shard of the fleet that the cell coordinates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    pub cell_id: CellId,
    pub node: NodeId,
    kind: CallerKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CallerKind {
    Node,
    Shard,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of cell {}", self.node, self.cell_id)
    }
}

impl Caller {
    pub fn new(cell_id: &CellId, node: &NodeId) -> Self {
        Self { cell_id: cell_id.clone(), node: node.clone(), kind: CallerKind::Node }
    }

    /// A shard of the fleet that the cell coordinates.
    pub(super) fn shard(cell_id: &CellId, shard: &NodeId) -> Self {
        Self { kind: CallerKind::Shard, ..Self::new(cell_id, shard) }
    }

    /// Whether it is no node, but a shard: it may report to the coordinator, and nothing else.
    pub fn is_shard(&self) -> bool {
        self.kind == CallerKind::Shard
    }

    /// The name as it stands in the certificate.
    pub(super) fn name(&self) -> String {
        let domain = if self.is_shard() { SHARD_DOMAIN } else { DOMAIN };
        format!("{}.{}{domain}", self.node, self.cell_id)
    }

    /// What stands beside it, the same for every node of the cell: who scrapes them all expects one name. It is no node's,
    /// since it lacks the part before the cell's.
    pub(super) fn cell_name(&self) -> String {
        server_name(&self.cell_id)
    }

    /// A cell's name has no dot in it, so the last one parts the two.
    fn named(name: &str) -> Option<Self> {
        let (rest, kind) = match name.strip_suffix(SHARD_DOMAIN) {
            Some(rest) => (rest, CallerKind::Shard),
            None => (name.strip_suffix(DOMAIN)?, CallerKind::Node),
        };
        let (node, cell_id) = rest.rsplit_once('.')?;
        Some(Self { cell_id: CellId::new(cell_id).ok()?, node: NodeId::new(node).ok()?, kind })
    }

    /// Whom a certificate names. That it may is for the caller of this to have made sure of.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        let parsed = parse(certificate)?;
        let bad = |why| Error::BadCertificate { why };
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.ok_or_else(|| bad("it names nobody"))?;
        let (name, of_cell) = match names.value.general_names.as_slice() {
            [GeneralName::DNSName(name)] => (name, None),
            [GeneralName::DNSName(name), GeneralName::DNSName(of_cell)] => (name, Some(of_cell)),
            _ => return Err(bad("it must have one name")),
        };
        let caller = Self::named(name).ok_or_else(|| bad("its name is not a node's"))?;
        if of_cell.is_some_and(|of_cell| *of_cell != caller.cell_name()) {
            return Err(bad("its second name is not its cell's"));
        }
        Ok(caller)
    }
}

/// The key that a certificate is for, by which its holder is known when the certificate is another.
pub(super) fn key(certificate: &CertificateDer<'_>) -> Result<Digest, Error> {
    Ok(Digest(Sha256::digest(parse(certificate)?.public_key().raw).into()))
}

/// The same key, as signatures are checked with it.
pub(super) fn public_key(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, Error> {
    Ok(parse(certificate)?.public_key().subject_public_key.data.to_vec())
}

/// From when to when a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

impl Validity {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        let parsed = parse(certificate)?;
        let millis = |seconds: i64| Timestamp(u64::try_from(seconds).unwrap_or(0) * 1_000);
        let validity = parsed.validity();
        Ok(Self {
            from: millis(validity.not_before.timestamp()),
            until: millis(validity.not_after.timestamp()),
        })
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    match X509Certificate::from_der(certificate) {
        Ok(([], parsed)) => Ok(parsed),
        _ => Err(Error::BadCertificate { why: "it is not a certificate" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_its_last_dot_and_must_be_a_nodes() {
        let caller = |cell_id: &str, node: &str| {
            Caller::new(&CellId::new(cell_id).unwrap(), &NodeId::new(node).unwrap())
        };
        for node in ["ash", "Ash", "rack-1.ash_2.example.org", "trailing-", "dot."] {
            let caller = caller("blue", node);
            assert_eq!(Caller::named(&caller.name()), Some(caller.clone()));
            let shard = Caller::shard(&caller.cell_id, &caller.node);
            assert_eq!(Caller::named(&shard.name()), Some(shard.clone()));
            assert_ne!(shard, caller, "a shard is no node of that name");
        }
        for (case, name) in [
            ("no node", ".blue.plimsoll.internal"),
            ("no cell", "ash.plimsoll.internal"),
            ("no cell's name", "ash.Blue.plimsoll.internal"),
            ("a shard without a cell", "ash._shard.plimsoll.internal"),
            ("a pattern", "*.blue.plimsoll.internal"),
            ("another domain", "ash.blue.plimsoll.example"),
            ("another ending", "ash.blue.plimsoll.internal."),
            ("nothing", ""),
        ] {
            assert_eq!(Caller::named(name), None, "{case}");
        }
    }
}
