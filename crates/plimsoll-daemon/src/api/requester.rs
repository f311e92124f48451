//! Who is at the other end of a connection.

use std::fs;
use std::sync::Arc;

use plimsoll_model::access::{Digest, Role};

use crate::operations::Caller;

/// The user database of this host.
const USERS: &str = "/etc/passwd";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Requester {
    /// A process of this host, by the user it runs as. None: the kernel would not say.
    Local { uid: Option<u32> },
    /// Somebody who has this daemon's token.
    Token,
    /// Somebody who has a token of the cell.
    Operator { name: Arc<str>, role: Role, token: Digest },
    /// Somebody with a token that this node cannot check: it holds no log, or has yet to read it. Whoever answers must.
    Unchecked,
    /// Somebody without a token on a node that cannot check anything. It asks for them as itself, for what any node may.
    ThisNode,
    /// Somebody who asks for what is nobody's secret.
    Anyone,
    /// Another node of the cell, for somebody who asked it.
    Node { identity: Arc<str>, role: Role },
}

impl Requester {
    /// As the audit names them: `unix:alice`, `unix:1000`, `token`.
    pub(super) fn caller(&self) -> Caller {
        match self {
            Self::Node { identity, role } => Caller::new(identity, *role),
            Self::Anyone => Caller::new("anyone", Role::Read),
            Self::Operator { name, role, .. } => Caller::new(&format!("token:{name}"), *role),
            // Nothing is done for it here.
            Self::Unchecked => Caller::new("token", Role::Read),
            Self::ThisNode => Caller::new("node", Role::Read),
            // Who has the files of a node has the node.
            Self::Token => Caller::new("token", Role::Admin),
            Self::Local { uid: None } => Caller::new("unix", Role::Admin),
            Self::Local { uid: Some(uid) } => {
                let users = fs::read_to_string(USERS).unwrap_or_default();
                let name = user(&users, *uid).map_or_else(|| uid.to_string(), str::to_owned);
                Caller::new(&format!("unix:{name}"), Role::Admin)
            }
        }
    }
}

fn user(users: &str, uid: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\n\n+\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        assert_eq!(user(users, 1000), Some("alice"));
        assert_eq!(user(users, 0), Some("root"));
        assert_eq!(user(users, 7), None);
    }
}
