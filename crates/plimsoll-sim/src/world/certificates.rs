//! What the edge of a leader does for certificates, with an ACME authority that answers as it is told: one step of whatever
//! is due, written down as a daemon would.

use plimsoll_kernel::Policy;
use plimsoll_kernel::certificates::{CertificateStep, decide, retry_at};
use plimsoll_model::acme::{
    AcmeAccount, AcmeChallenge, AcmeChange, AcmeFailureKind, AcmeOrder, AcmeSettings,
    ChallengeKind, IssuedCertificate, SecretKey,
};
use plimsoll_model::spec::{RouteSpec, Tls};
use plimsoll_model::{Change, DeploymentName, Millis, Writer};

use super::World;
use crate::scenario::{AcmeAnswer, Services};

const DIRECTORY: &str = "https://ca.example/directory";

/// Short enough that a certificate is renewed, and forgotten, while chaos lasts.
const LIFETIME: Millis = Millis::minutes(6);

impl World<'_> {
    /// A deployment of a cell that asks an authority has a route that needs a certificate, for another host every now and
    /// then.
    pub(super) fn routes(&self, name: &DeploymentName, services: &Services) -> Vec<RouteSpec> {
        let is_asked = self.state.acme().settings.is_some();
        let revision = self.state.deployments().get(name).map_or(0, |it| it.revision.0);
        let first = services.keys().next().filter(|_| is_asked);
        let route = |service: &plimsoll_model::ServiceName| RouteSpec {
            host: Some(format!("{name}-{}.example", revision / 2 % 3)),
            path: "/".to_owned(),
            strip_path: false,
            service: service.clone(),
            port: 80,
            tls: Tls::Auto,
        };
        first.map(route).into_iter().collect()
    }

    pub(super) fn certify(&mut self, answer: AcmeAnswer) {
        let acme = self.state.acme();
        if acme.settings.is_none() {
            let (directory, email) = (DIRECTORY.to_owned(), "ops@example.org".to_owned());
            let settings = Some(AcmeSettings { directory, email, ca: None });
            return self.write_step(AcmeChange::Configure { settings });
        }
        if acme.account.is_none() {
            let key = SecretKey::new(vec![1]);
            let account = AcmeAccount { directory: DIRECTORY.to_owned(), key, url: None };
            return self.write_step(AcmeChange::SetAccount { account });
        }
        let decision = decide(&self.state, &Policy::default(), self.leader_time());
        for guarded in decision.batch {
            self.write(guarded.change);
        }
        for due in decision.due {
            match due.step {
                CertificateStep::Order => self.begin_order(due.host, answer),
                CertificateStep::Continue => self.go_on(due.host, answer),
            }
        }
    }

    fn begin_order(&mut self, host: String, answer: AcmeAnswer) {
        self.write_step(AcmeChange::Begin { host: host.clone() });
        match answer {
            AcmeAnswer::IsLost => {}
            AcmeAnswer::IsBusy => self.fail_step(host, AcmeFailureKind::RateLimited),
            AcmeAnswer::Issues | AcmeAnswer::Disbelieves => {
                let nth = self.number();
                let challenge = AcmeChallenge {
                    kind: ChallengeKind::Http01,
                    token: format!("token-{nth}"),
                    key_authorization: format!("token-{nth}.thumb"),
                };
                let order = AcmeOrder {
                    url: format!("https://ca.example/order/{nth}"),
                    directory: DIRECTORY.to_owned(),
                    key: SecretKey::new(vec![2]),
                    challenge: Some(challenge),
                    begun_at: self.leader_time(),
                };
                self.write_step(AcmeChange::SetOrder { host, order });
            }
        }
    }

    fn go_on(&mut self, host: String, answer: AcmeAnswer) {
        match answer {
            AcmeAnswer::IsLost => {}
            AcmeAnswer::IsBusy => self.fail_step(host, AcmeFailureKind::Unavailable),
            AcmeAnswer::Disbelieves => self.fail_step(host, AcmeFailureKind::Validation),
            AcmeAnswer::Issues => {
                let row = self.state.acme().hosts.get(&host);
                let Some(order) = row.and_then(|row| row.order.as_ref()) else { return };
                let (order, now) = (order.url.clone(), self.leader_time());
                let certificate = IssuedCertificate {
                    chain: vec![vec![3]],
                    key: SecretKey::new(vec![2]),
                    issuer: "a simulated authority".to_owned(),
                    not_before: now,
                    not_after: now.plus(LIFETIME),
                    directory: DIRECTORY.to_owned(),
                };
                self.write_step(AcmeChange::Issue { host, order, certificate });
            }
        }
    }

    fn fail_step(&mut self, host: String, kind: AcmeFailureKind) {
        let failures = self.state.acme().hosts.get(&host).map_or(0, |row| row.failures);
        let retry_at = retry_at(&host, failures, kind, None, self.leader_time());
        let text = "the authority said so".to_owned();
        self.write_step(AcmeChange::Fail { host, kind, text, retry_at });
    }

    fn write_step(&mut self, change: AcmeChange) {
        self.write(Change::Acme { change });
    }

    /// It was decided on this very state, so a refusal is a mistake of the decision.
    fn write(&mut self, change: Change) {
        let told = format!("{change:?}");
        if let Err(rejection) = self.apply(Writer::Scheduler, vec![change.free()]) {
            self.complaints.push(format!("{rejection}, of {told}"));
        }
    }
}
