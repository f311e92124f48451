//! Who is at the other end of a connection.

use std::sync::Arc;

use plimsoll_model::access::{Digest, Role};

use super::local_users::user_name;
use crate::operations::Caller;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Requester {
    /// A process of this host, by the user it runs as.
    Local { uid: u32 },
    /// Somebody who has this daemon's token.
    Token,
    /// Somebody who has a token of the cell.
    Operator { name: Arc<str>, role: Role, token: Digest },
    /// Somebody with a token that this node cannot check: it holds no log. Whoever answers must.
    Unchecked,
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
            // Who has the files of a node has the node.
            Self::Token => Caller::new("token", Role::Admin),
            Self::Local { uid } => {
                let name = user_name(*uid).unwrap_or_else(|| uid.to_string());
                Caller::new(&format!("unix:{name}"), Role::Admin)
            }
        }
    }
}
