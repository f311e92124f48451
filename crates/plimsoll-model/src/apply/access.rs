//! Changes to who may be of the cell and who may ask it for things.

use super::Txn;
use crate::access::{
    Access, Authority, BackupKey, BackupKeyStep, Digest, JoinCheck, JoinToken, KEY_MEMORY,
    KeyBytes, MAX_PATTERNS, MAX_TOKENS, Operator, Role, Scope, TOKEN_MEMORY,
};
use crate::audit::AuditKind;
use crate::command::Refusal;
use crate::ids::NodeId;
use crate::node::{Node, NodeFacts, NodeStatus};
use crate::state::State;
use crate::units::Timestamp;

impl Txn<'_> {
    /// The first node makes the cell its own. It is there already, as a cell of one before it had an authority.
    pub(super) fn found(
        &mut self,
        authority: &Authority,
        node: &NodeId,
        key: Digest,
    ) -> Result<(), Refusal> {
        let access = &self.state.access;
        if let Some(old) = &access.authority {
            if old != authority {
                return Err(Refusal::Founded);
            }
            // The node may have come by a new key, as from a backup.
            let known = self.node(node)?;
            return match known.server {
                Some(server) if known.key != Some(key) => self.enroll(node, key, server),
                _ => Ok(()),
            };
        }
        let next_server = access.next_server.max(2);
        let access = Access { authority: Some(authority.clone()), next_server, ..access.clone() };
        self.set_access(access);
        self.enroll(node, key, 1)
    }

    /// The first one, which comes with the cell. Of two servers that make one at the same time the first was quicker, and
    /// backups may have been taken since.
    pub(super) fn create_backup_key(&mut self, secret: KeyBytes) {
        if self.state.access.backup_key.is_none() {
            self.set_backup_key(secret);
        }
    }

    pub(super) fn rotate_backup_key(&mut self, secret: KeyBytes) {
        let known = self.state.access.backup_key.as_ref();
        if known.is_none_or(|known| known.secret != secret) {
            self.set_backup_key(secret);
            self.audit(AuditKind::BackupKey { step: BackupKeyStep::Rotated });
        }
    }

    fn set_backup_key(&mut self, secret: KeyBytes) {
        let key = BackupKey { secret, created_at: self.at };
        self.set_access(Access { backup_key: Some(key), ..self.state.access.clone() });
    }

    pub(super) fn create_join_token(
        &mut self,
        name: &str,
        token: Digest,
        expires_at: Timestamp,
    ) -> Result<(), Refusal> {
        let mut access = self.state.access.clone();
        if access.join_tokens.contains_key(&token) {
            return Ok(());
        }
        if access.join_tokens.values().any(|old| old.name == name && old.is_good(self.at)) {
            return Err(Refusal::JoinTokenExists { name: name.to_owned() });
        }
        access.join_tokens.retain(|_, old| self.at.since(old.expires_at) < TOKEN_MEMORY);
        check_room("join tokens", access.join_tokens.len())?;
        let (name, created_at) = (name.to_owned(), self.at);
        let (used_by, revoked_at) = (None, None);
        let fresh = JoinToken { name: name.clone(), created_at, expires_at, used_by, revoked_at };
        access.join_tokens.insert(token, fresh);
        self.set_access(access);
        self.audit(AuditKind::JoinTokenCreated { name, expires_at });
        Ok(())
    }

    /// It stays in the state a while, so that its bearer is told what became of it.
    pub(super) fn revoke_join_token(&mut self, name: &str) -> Result<(), Refusal> {
        let mut access = self.state.access.clone();
        let at = self.at;
        let mut known = access.join_tokens.values_mut();
        let good = known.find(|token| token.name == name && token.is_good(at));
        let good = good.ok_or_else(|| Refusal::NoSuchJoinToken { name: name.to_owned() })?;
        good.revoked_at = Some(at);
        self.set_access(access);
        self.audit(AuditKind::JoinTokenRevoked { name: name.to_owned() });
        Ok(())
    }

    /// Uses up the token and takes the node in. One that is down may come back under its name with nothing left.
    pub(super) fn join(
        &mut self,
        token: &Digest,
        node: &NodeId,
        facts: &NodeFacts,
        key: Digest,
    ) -> Result<(), Refusal> {
        if self.state.may_join(token, node, key, self.at)? == JoinCheck::Repeated {
            return Ok(());
        }
        let mut access = self.state.access.clone();
        let used = access.join_tokens.get_mut(token).ok_or(Refusal::TokenUnknown)?;
        used.used_by = Some(node.clone());
        let (server, name) = (access.next_server, used.name.clone());
        access.next_server += 1;
        self.set_access(access);
        self.put_node(node, facts)?;
        self.welcome(node)?;
        self.machine_joined(&name, node);
        self.enroll(node, key, server)
    }

    /// Takes in a node that holds a certificate of the cell. A name goes over to another key when its holder is down, and
    /// when it is found at the same address: then that was an earlier life of it.
    pub(super) fn take_in(
        &mut self,
        id: &NodeId,
        facts: &NodeFacts,
        key: Digest,
    ) -> Result<(), Refusal> {
        if self.state.access.revoked.contains_key(&key) {
            return Err(Refusal::KeyRevoked { node: id.clone() });
        }
        let known = self.state.nodes.get(id);
        let held = known.and_then(|known| known.key).filter(|held| *held != key);
        let is_elsewhere = known.is_some_and(|known| known.facts.address != facts.address);
        let is_ready = known.is_some_and(|known| known.status == NodeStatus::Ready);
        if held.is_some() && is_elsewhere && is_ready {
            return Err(Refusal::NameTaken { node: id.clone() });
        }
        let (number, is_enrolled) =
            known.map_or((None, false), |known| (known.server, known.key == Some(key)));
        self.put_node(id, facts)?;
        if is_enrolled {
            return Ok(());
        }
        self.welcome(id)?;
        let number = number.unwrap_or_else(|| self.next_number());
        self.enroll(id, key, number)
    }

    fn next_number(&mut self) -> u64 {
        let mut access = self.state.access.clone();
        let number = access.next_server.max(1);
        access.next_server = number + 1;
        self.set_access(access);
        number
    }

    /// A node that lost its disk is a new one with an old name: ready, as all that join are, until it is silent. It can
    /// only speak to a leader once it has the log, and gets the log only while it is ready.
    fn welcome(&mut self, id: &NodeId) -> Result<(), Refusal> {
        let node = self.node(id)?;
        if node.status == NodeStatus::Down {
            let (status, at) = (NodeStatus::Ready, self.at);
            let node =
                Node { status, status_since: at, joined_at: at, outage: None, ..node.clone() };
            self.set_node(id, Some(node));
            self.audit(AuditKind::NodeJoined { node: id.clone() });
        }
        Ok(())
    }

    pub(super) fn put_operator(
        &mut self,
        name: &str,
        token: Digest,
        role: Role,
        scope: &Scope,
        expires_at: Option<Timestamp>,
    ) -> Result<(), Refusal> {
        let mut access = self.state.access.clone();
        if let Some(known) = access.operators.get(name) {
            let is_alike = known.role == role && known.scope == *scope;
            if is_alike && known.token == token && known.expires_at == expires_at {
                return Ok(());
            }
            // One that has run out is of no use to anybody, and makes way.
            if !known.has_expired(self.at) {
                return Err(Refusal::OperatorExists { name: name.to_owned() });
            }
            access.operators.remove(name);
        }
        // One key is one identity: under two names nobody could say who it was.
        let mut others = access.operators.iter().filter(|(_, it)| !it.has_expired(self.at));
        if let Some((name, _)) = others.find(|(_, it)| it.token == token) {
            return Err(Refusal::OperatorExists { name: name.clone() });
        }
        check_room("operator tokens", access.operators.len())?;
        let found = scope.patterns().len();
        if found > MAX_PATTERNS {
            let what = "deployments that a token is bound to".to_owned();
            return Err(Refusal::TooMany { what, found, max: MAX_PATTERNS });
        }
        let (created_at, scope) = (self.at, scope.clone());
        let operator = Operator { token, role, created_at, scope: scope.clone(), expires_at };
        access.operators.insert(name.to_owned(), operator);
        self.set_access(access);
        self.audit(AuditKind::OperatorAdded { name: name.to_owned(), role, scope });
        Ok(())
    }

    pub(super) fn revoke_operator(&mut self, name: &str) -> Result<(), Refusal> {
        let mut access = self.state.access.clone();
        if access.operators.remove(name).is_none() {
            return Err(Refusal::NoSuchOperator { name: name.to_owned() });
        }
        self.set_access(access);
        self.audit(AuditKind::OperatorRevoked { name: name.to_owned() });
        Ok(())
    }

    fn enroll(&mut self, id: &NodeId, key: Digest, server: u64) -> Result<(), Refusal> {
        let mut node = self.node(id)?.clone();
        let old = node.key.replace(key);
        node.server = Some(server);
        self.set_node(id, Some(node));
        if old != Some(key) {
            self.forget_rotated(id);
        }
        self.revoke_key(old.filter(|old| *old != key));
        Ok(())
    }

    /// Whoever holds this key is not of the cell any more, whatever its certificate says.
    pub(super) fn revoke_key(&mut self, key: Option<Digest>) {
        let Some(key) = key else { return };
        let mut access = self.state.access.clone();
        access.revoked.retain(|_, since| self.at.since(*since) < KEY_MEMORY);
        access.revoked.insert(key, self.at);
        self.set_access(access);
    }
}

impl State {
    /// Whether a node may join with this token. Asked before anything is written, and again when it is.
    pub fn may_join(
        &self,
        token: &Digest,
        node: &NodeId,
        key: Digest,
        at: Timestamp,
    ) -> Result<JoinCheck, Refusal> {
        let known = self.access.join_tokens.get(token).ok_or(Refusal::TokenUnknown)?;
        if let Some(by) = &known.used_by {
            // The answer to the first try may have been lost on the way.
            let is_again = by == node && self.nodes.get(node).is_some_and(|n| n.key == Some(key));
            let used = || Refusal::TokenUsed { by: by.clone() };
            return if is_again { Ok(JoinCheck::Repeated) } else { Err(used()) };
        }
        if known.revoked_at.is_some() {
            return Err(Refusal::TokenRevoked);
        }
        if known.expires_at <= at {
            return Err(Refusal::TokenExpired { ago: at.since(known.expires_at) });
        }
        if self.nodes.get(node).is_some_and(|known| known.status == NodeStatus::Ready) {
            return Err(Refusal::NameTaken { node: node.clone() });
        }
        Ok(JoinCheck::New)
    }
}

fn check_room(what: &str, found: usize) -> Result<(), Refusal> {
    if found < MAX_TOKENS {
        return Ok(());
    }
    Err(Refusal::TooMany { what: what.to_owned(), found: found + 1, max: MAX_TOKENS })
}
