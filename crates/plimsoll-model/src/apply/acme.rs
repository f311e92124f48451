//! Changes to whom the cell asks for certificates, to orders, and to what was issued.

use super::Txn;
use crate::acme::{
    Acme, AcmeAccount, AcmeChallenge, AcmeChange, AcmeFailure, AcmeFailureKind, AcmeOrder,
    AcmeSettings, HostCertificate, IssuedCertificate, MAX_CELL_ORDERS, MAX_CHAIN, MAX_ERROR,
    MAX_HOST_ORDERS, MAX_HOSTS, MAX_TEXT, is_recent,
};
use crate::audit::AuditKind;
use crate::command::{Event, Refusal};
use crate::units::Timestamp;

impl Txn<'_> {
    pub(super) fn acme(&mut self, change: &AcmeChange) -> Result<(), Refusal> {
        match change {
            AcmeChange::Configure { settings } => self.configure_acme(settings.as_ref()),
            AcmeChange::SetAccount { account } => self.set_acme_account(account),
            AcmeChange::Begin { host } => self.begin_order(host),
            AcmeChange::SetOrder { host, order } => self.set_order(host, order),
            AcmeChange::Issue { host, order, certificate } => self.issue(host, order, certificate),
            AcmeChange::Fail { host, kind, text, retry_at } => {
                self.fail_order(host, *kind, text, *retry_at)
            }
            AcmeChange::Forget { host } => {
                self.forget_host(host);
                Ok(())
            }
        }
    }

    /// An account of another authority is of no use at this one, and neither is what was ordered there.
    fn configure_acme(&mut self, settings: Option<&AcmeSettings>) -> Result<(), Refusal> {
        let acme = &self.state.acme;
        if acme.settings.as_ref() == settings {
            return Ok(());
        }
        if let Some(settings) = settings {
            bounded("the URL of the directory", settings.directory.len(), MAX_TEXT)?;
            bounded("the email address", settings.email.len(), MAX_TEXT)?;
            bounded(
                "the authority's certificates",
                settings.ca.as_deref().map_or(0, str::len),
                MAX_CHAIN,
            )?;
        }
        let directory = settings.map(|settings| settings.directory.clone());
        let account = acme.account.clone().filter(|it| Some(&it.directory) == directory.as_ref());
        let settings = settings.cloned();
        let mut hosts = acme.hosts.clone();
        for host in hosts.values_mut() {
            let is_kept = |order: &AcmeOrder| Some(&order.directory) == directory.as_ref();
            host.order = host.order.take().filter(is_kept);
        }
        self.set_acme(Acme { settings, account, hosts });
        self.audit(AuditKind::AcmeConfigured { directory });
        Ok(())
    }

    fn set_acme_account(&mut self, account: &AcmeAccount) -> Result<(), Refusal> {
        let acme = &self.state.acme;
        let is_asked =
            acme.settings.as_ref().is_some_and(|settings| settings.directory == account.directory);
        if !is_asked {
            return Err(Refusal::OtherDirectory { directory: account.directory.clone() });
        }
        bounded("the account's key", account.key.expose().len(), MAX_TEXT)?;
        bounded("the account's URL", account.url.as_deref().map_or(0, str::len), MAX_TEXT)?;
        // Another leader may have made one meanwhile: what it ordered is of that account.
        let is_other = |known: &AcmeAccount| known.key != account.key;
        if acme.account.as_ref().is_some_and(is_other) {
            return Err(Refusal::AccountExists);
        }
        if acme.account.as_ref() != Some(account) {
            self.set_acme(Acme { account: Some(account.clone()), ..acme.clone() });
        }
        Ok(())
    }

    /// The limits are kept here, so that no leader exceeds them together with the ones before it.
    fn begin_order(&mut self, host: &str) -> Result<(), Refusal> {
        self.check_hosts(host)?;
        let (acme, at) = (&self.state.acme, self.at);
        let known = acme.hosts.get(host);
        if known.is_some_and(|known| known.order.is_some()) {
            return Err(Refusal::OrderOpen { host: host.to_owned() });
        }
        let too_many = |what: String, max| Err(Refusal::TooMany { what, found: max + 1, max });
        if known.is_some_and(|known| known.recent_orders(at) >= MAX_HOST_ORDERS) {
            return too_many(format!("orders for {host} within an hour"), MAX_HOST_ORDERS);
        }
        if acme.recent_orders(at) >= MAX_CELL_ORDERS {
            return too_many("orders within an hour".to_owned(), MAX_CELL_ORDERS);
        }
        let mut fresh = known.cloned().unwrap_or_default();
        fresh.ordered_at.retain(|begun| is_recent(*begun, at));
        fresh.ordered_at.push(at);
        self.set_host(host, Some(fresh));
        Ok(())
    }

    fn set_order(&mut self, host: &str, order: &AcmeOrder) -> Result<(), Refusal> {
        bounded("the order's URL", order.url.len(), MAX_TEXT)?;
        bounded("the order's key", order.key.expose().len(), MAX_TEXT)?;
        if let Some(challenge) = &order.challenge {
            bounded("the challenge", challenge.key_authorization.len(), MAX_TEXT)?;
            if !AcmeChallenge::is_token(&challenge.token) {
                return Err(Refusal::BadChallenge { host: host.to_owned() });
            }
        }
        let known = self.ordered(host)?;
        if known.order.is_some() {
            return Err(Refusal::OrderOpen { host: host.to_owned() });
        }
        let fresh = HostCertificate { order: Some(order.clone()), ..known.clone() };
        self.set_host(host, Some(fresh));
        Ok(())
    }

    fn issue(
        &mut self,
        host: &str,
        order: &str,
        certificate: &IssuedCertificate,
    ) -> Result<(), Refusal> {
        let bytes = certificate.chain.iter().map(Vec::len).sum();
        bounded("the chain", bytes, MAX_CHAIN)?;
        bounded("the certificate's key", certificate.key.expose().len(), MAX_TEXT)?;
        bounded("the issuer's name", certificate.issuer.len(), MAX_TEXT)?;
        let known = self.ordered(host)?;
        if known.order.as_ref().is_none_or(|open| open.url != order) {
            return Err(Refusal::NotOrdered { host: host.to_owned() });
        }
        let ordered_at = known.ordered_at.clone();
        let fresh = Some(certificate.clone());
        self.set_host(
            host,
            Some(HostCertificate { issued: fresh, ordered_at, ..Default::default() }),
        );
        let (issuer, expires_at) = (certificate.issuer.clone(), certificate.not_after);
        self.audit(AuditKind::CertificateIssued { host: host.to_owned(), issuer, expires_at });
        Ok(())
    }

    fn fail_order(
        &mut self,
        host: &str,
        kind: AcmeFailureKind,
        text: &str,
        retry_at: Timestamp,
    ) -> Result<(), Refusal> {
        // What fails before an order is asked for is remembered too.
        self.check_hosts(host)?;
        let mut fresh = self.state.acme.hosts.get(host).cloned().unwrap_or_default();
        if !kind.keeps_order() {
            fresh.order = None;
        }
        fresh.failures = fresh.failures.saturating_add(1);
        let cut = (0..=MAX_ERROR.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        let text = text[..cut.unwrap_or(0)].to_owned();
        let is_new = fresh.failure.as_ref().is_none_or(|known| known.text != text);
        fresh.failure = Some(AcmeFailure { at: self.at, kind, text: text.clone() });
        fresh.retry_at = retry_at;
        self.set_host(host, Some(fresh));
        // What fails the same way again would fill the ring with itself.
        if is_new {
            self.audit(AuditKind::CertificateFailed { host: host.to_owned(), why: text });
        }
        Ok(())
    }

    fn forget_host(&mut self, host: &str) {
        if self.state.acme.hosts.contains_key(host) {
            self.set_host(host, None);
        }
    }

    fn check_hosts(&self, host: &str) -> Result<(), Refusal> {
        let hosts = &self.state.acme.hosts;
        if hosts.contains_key(host) || hosts.len() < MAX_HOSTS {
            return Ok(());
        }
        let what = "hosts with certificates of an ACME authority".to_owned();
        Err(Refusal::TooMany { what, found: MAX_HOSTS + 1, max: MAX_HOSTS })
    }

    fn ordered(&self, host: &str) -> Result<&HostCertificate, Refusal> {
        let known = self.state.acme.hosts.get(host);
        known.ok_or_else(|| Refusal::NotOrdered { host: host.to_owned() })
    }

    fn set_acme(&mut self, acme: Acme) {
        let old = std::mem::replace(&mut self.state.acme, acme);
        self.undo.push(super::undo::Undo::Acme(Box::new(old)));
        self.emit(Event::Certificates);
    }

    fn set_host(&mut self, host: &str, row: Option<HostCertificate>) {
        let hosts = &mut self.state.acme.hosts;
        let old = match row {
            Some(row) => hosts.insert(host.to_owned(), row),
            None => hosts.remove(host),
        };
        self.undo.push(super::undo::Undo::HostCertificate(host.to_owned(), old.map(Box::new)));
        self.emit(Event::Certificates);
    }
}

fn bounded(what: &str, found: usize, max: usize) -> Result<(), Refusal> {
    if found <= max {
        return Ok(());
    }
    let (found, max) = (found as u64, max as u64);
    Err(Refusal::TooMuch { what: what.to_owned(), found, max })
}
