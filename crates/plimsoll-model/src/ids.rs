//! The names things go by. A name is checked once, where it enters; behind that door the type is the proof.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidName {
    #[error("a {kind} name cannot be empty")]
    Empty { kind: &'static str },
    #[error("{kind} name {name:?} has {len} characters; at most {max} are allowed")]
    TooLong { kind: &'static str, name: String, len: usize, max: usize },
    #[error("{kind} name {name:?} has {found:?}; use {allowed}")]
    Character { kind: &'static str, name: String, found: char, allowed: &'static str },
}

/// What a kind of name may consist of.
struct NameRule {
    kind: &'static str,
    max: usize,
    allowed: &'static str,
    first: fn(char) -> bool,
    rest: fn(char) -> bool,
}

impl NameRule {
    fn check(&self, name: &str) -> Result<(), InvalidName> {
        let mut chars = name.chars();
        let Some(first) = chars.next() else { return Err(InvalidName::Empty { kind: self.kind }) };
        let len = name.chars().count();
        if len > self.max {
            let name: String = name.chars().take(32).collect();
            return Err(InvalidName::TooLong { kind: self.kind, name, len, max: self.max });
        }
        let wrong =
            if (self.first)(first) { chars.find(|c| !(self.rest)(*c)) } else { Some(first) };
        match wrong {
            None => Ok(()),
            Some(found) => Err(InvalidName::Character {
                kind: self.kind,
                name: name.to_owned(),
                found,
                allowed: self.allowed,
            }),
        }
    }
}

fn is_lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $rule:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
                const RULE: NameRule = $rule;
                RULE.check(name.as_ref())?;
                Ok(Self(Arc::from(name.as_ref())))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;
            fn try_from(name: String) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;
            fn from_str(name: &str) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(
    /// The cell's own name, carried in the labels of every container it starts.
    CellId,
    NameRule {
        kind: "cell",
        max: 63,
        allowed: "lower-case letters, digits, '-' and '_', starting with a letter or digit",
        first: is_lower,
        rest: |c| is_lower(c) || matches!(c, '-' | '_'),
    }
);

name!(
    /// A host that runs replicas, usually under its hostname.
    NodeId,
    NameRule {
        kind: "node",
        max: 253,
        allowed: "letters, digits, '-', '_' and '.', starting with a letter or digit",
        first: |c| c.is_ascii_alphanumeric(),
        rest: |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'),
    }
);

name!(
    /// One applied compose file. The rule is Compose's own for project names.
    DeploymentName,
    NameRule {
        kind: "deployment",
        max: 63,
        allowed: "lower-case letters, digits, '-' and '_', starting with a letter or digit",
        first: is_lower,
        rest: |c| is_lower(c) || matches!(c, '-' | '_'),
    }
);

name!(
    /// A service within its deployment. The rule is Compose's own for service keys.
    ServiceName,
    NameRule {
        kind: "service",
        max: 63,
        allowed: "letters, digits, '-', '_' and '.', starting with a letter or digit",
        first: |c| c.is_ascii_alphanumeric(),
        rest: |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'),
    }
);

name!(
    /// A secret or config that the cell keeps. The rule is Swarm's own.
    FileName,
    NameRule {
        kind: "secret or config",
        max: 64,
        allowed: "letters, digits, '-', '_' and '.', starting with a letter or digit",
        first: |c| c.is_ascii_alphanumeric(),
        rest: |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'),
    }
);

name!(
    /// A registry of images: a host, and a port where it is not the usual one.
    RegistryHost,
    NameRule {
        kind: "registry",
        max: 260,
        allowed: "a host and perhaps a port: lower-case letters, digits, '-', '_', '.' and ':'",
        first: is_lower,
        rest: |c| is_lower(c) || matches!(c, '-' | '_' | '.' | ':'),
    }
);

name!(
    /// A failure domain above the node. Nodes that name none share one unnamed zone.
    Zone,
    NameRule {
        kind: "zone",
        max: 63,
        allowed: "letters, digits, '-', '_' and '.', starting with a letter or digit",
        first: |c| c.is_ascii_alphanumeric(),
        rest: |c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'),
    }
);

/// A service, named across the cell.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    pub deployment: DeploymentName,
    pub service: ServiceName,
}

impl ServiceKey {
    pub fn new(deployment: DeploymentName, service: ServiceName) -> Self {
        Self { deployment, service }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.deployment, self.service))
    }
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ServiceKey {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let (deployment, service) =
            text.split_once('/').ok_or_else(|| InvalidId::Shape(text.to_owned()))?;
        Ok(Self::new(deployment.parse()?, service.parse()?))
    }
}

/// Which copy of its service a replica is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// From the service's counter, which only ever grows.
    Index(u32),
    /// The one copy that a `global` service has on this node.
    Node(NodeId),
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Node(node) => write!(f, "{node}"),
        }
    }
}

/// One copy of a service, named for life: it keeps its id wherever it moves.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId {
    pub service: ServiceKey,
    pub slot: Slot,
}

impl ReplicaId {
    pub fn new(service: ServiceKey, slot: Slot) -> Self {
        Self { service, slot }
    }

    pub fn indexed(service: &ServiceKey, index: u32) -> Self {
        Self::new(service.clone(), Slot::Index(index))
    }
}

/// People read `shop-web-2`. That text can name two replicas in rare cells (`a-b`/`c` and `a`/`b-c`), so
/// `apply` refuses the second one and nothing is ever looked up by parsing it apart in one way only.
impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}-{}", self.service.deployment, self.service.service, self.slot))
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a text is not an id of the written form.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidId {
    #[error("{0:?} is not of the form deployment/service or deployment/service/slot")]
    Shape(String),
    #[error("{0}")]
    Name(#[from] InvalidName),
    #[error("{0:?} is not a replica index")]
    Index(String),
}

// Written forms, also used as map keys: `shop/web`, `3`, `@ash`, `shop/web/3`, `shop/web/@ash`. The `@` keeps
// a node called `3` apart from the index 3.

impl FromStr for Slot {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        match text.strip_prefix('@') {
            Some(node) => Ok(Self::Node(node.parse()?)),
            None => text.parse().map(Self::Index).map_err(|_| InvalidId::Index(text.to_owned())),
        }
    }
}

impl Slot {
    fn written(&self) -> String {
        match self {
            Self::Index(index) => index.to_string(),
            Self::Node(node) => format!("@{node}"),
        }
    }
}

impl FromStr for ReplicaId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let (service, slot) =
            text.rsplit_once('/').ok_or_else(|| InvalidId::Shape(text.to_owned()))?;
        Ok(Self::new(service.parse()?, slot.parse()?))
    }
}

macro_rules! written {
    ($type:ident, |$id:ident| $text:expr) => {
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $id = self;
                serializer.collect_str(&$text)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                String::deserialize(source)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

written!(ServiceKey, |id| id);
written!(Slot, |id| id.written());
written!(ReplicaId, |id| format_args!("{}/{}", id.service, id.slot.written()));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_enter() {
        for (case, name, error) in [
            ("empty", "", "a deployment name cannot be empty"),
            (
                "upper case",
                "Shop",
                "deployment name \"Shop\" has 'S'; use lower-case letters, digits, '-' and '_', \
                 starting with a letter or digit",
            ),
            (
                "a leading dash",
                "-shop",
                "deployment name \"-shop\" has '-'; use lower-case letters, digits, '-' and '_', \
                 starting with a letter or digit",
            ),
        ] {
            assert_eq!(DeploymentName::new(name).unwrap_err().to_string(), error, "{case}");
        }
        let long = "x".repeat(64);
        assert!(DeploymentName::new(&long).unwrap_err().to_string().contains("64 characters"));
        assert!(serde_json::from_str::<NodeId>("\"a b\"").is_err(), "also when read from a file");
    }

    #[test]
    fn a_node_called_three_is_not_the_index_three() {
        let service: ServiceKey = "shop/web".parse().unwrap();
        let by_index = ReplicaId::indexed(&service, 3);
        let by_node = ReplicaId::new(service, Slot::Node(NodeId::new("3").unwrap()));
        assert_eq!(by_index.to_string(), by_node.to_string(), "people read the same");
        for id in [by_index, by_node] {
            let text = serde_json::to_string(&id).unwrap();
            assert_eq!(serde_json::from_str::<ReplicaId>(&text).unwrap(), id, "{text}");
        }
    }
}
