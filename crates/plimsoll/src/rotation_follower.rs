//! A client that recognises the cell by its authority, and the cell that changes it: the next authority is believed on the word of
//! one that is known already, which has signed it. It counts at once, and is kept in the context.

use std::sync::Mutex;

use plimsoll_api::client::Client;
use plimsoll_api::view::AuthorityNotice;
use plimsoll_peer::pki::{Fingerprint, OperatorCertificate, has_signed};
use rustls::pki_types::CertificateDer;

use crate::contexts::ContextStore;
use crate::live;
use crate::output::note;

/// Where what was heard is kept.
#[derive(Debug, Clone)]
pub(crate) struct KeptContext {
    pub(crate) store: ContextStore,
    pub(crate) name: String,
}

/// What is known so far.
#[derive(Debug)]
struct Known {
    /// None until a node has said.
    epoch: Option<u64>,
    authorities: Vec<Fingerprint>,
}

impl Known {
    /// The authorities that count from now on; none where the notice says nothing new, or nobody who is known vouches for it.
    fn hear(
        &mut self,
        notice: &AuthorityNotice,
        shown: &[CertificateDer<'_>],
    ) -> Option<Vec<Fingerprint>> {
        // A node that lags says what was. Of an older epoch nothing is taken back.
        if self.epoch.is_some_and(|known| notice.epoch <= known) {
            return None;
        }
        if !shown.iter().any(|certificate| self.has_signed(certificate, notice)) {
            return None;
        }
        let told = notice.fingerprints.iter().map(|print| print.parse().ok());
        let told: Vec<Fingerprint> = told.collect::<Option<_>>()?;
        self.epoch = Some(notice.epoch);
        self.authorities.clone_from(&told);
        Some(told)
    }

    /// Whether the certificate is that of an authority that is known, which has signed the notice. That the node has a
    /// certificate of it is not enough: any node has, also one that was taken over.
    fn has_signed(&self, certificate: &CertificateDer<'_>, notice: &AuthorityNotice) -> bool {
        let print = Fingerprint::of(certificate);
        let text = AuthorityNotice::text(notice.epoch, &notice.fingerprints);
        let signature = notice.signature_of(&print.to_string());
        self.authorities.contains(&print)
            && signature.is_some_and(|it| has_signed(certificate, text.as_bytes(), it))
    }
}

/// The client, which follows its cell from one authority to the next. Without a context what it hears is forgotten with it.
pub(crate) fn following(
    client: Client,
    authorities: &[Fingerprint],
    certificate: Option<OperatorCertificate>,
    epoch: Option<u64>,
    kept: Option<KeptContext>,
) -> Client {
    let known = Mutex::new(Known { epoch, authorities: authorities.to_vec() });
    client.following(move |notice, shown| {
        let mut known = known.lock().expect("no holder of it panics");
        let before = known.authorities.clone();
        let told = known.hear(notice, shown)?;
        let is_other = told.len() != before.len() || told.iter().any(|it| !before.contains(it));
        if let Some(kept) = &kept {
            keep(kept, notice, is_other);
        }
        is_other.then(|| live::tls(&told, certificate.as_ref()).ok()).flatten()
    })
}

fn keep(KeptContext { store, name }: &KeptContext, notice: &AuthorityNotice, is_other: bool) {
    let kept = store.load(name).and_then(|context| {
        let Some(mut context) = context else { return Ok(()) };
        // Another command may have heard more meanwhile.
        if context.authority_epoch.is_some_and(|known| notice.epoch <= known) {
            return Ok(());
        }
        context.authority_epoch = Some(notice.epoch);
        context.authorities.clone_from(&notice.fingerprints);
        store.save(&context)
    });
    match kept {
        Ok(()) if is_other => {
            note(&format!("context {name} follows the cell to its next certificate authority"));
        }
        Ok(()) => {}
        Err(error) => note(&format!(
            "the cell changes its certificate authority, and context {name} cannot follow: {}",
            error.first_line()
        )),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{CellId, Timestamp};
    use plimsoll_peer::pki::Authority;

    use super::*;

    fn found() -> Authority {
        Authority::found(&CellId::new("home").unwrap(), Timestamp(1_700_000_000_000)).unwrap()
    }

    /// What a server of the cell would say, with the authorities that sign it.
    fn notice(epoch: u64, told: &[&Authority], signers: &[&Authority]) -> AuthorityNotice {
        let fingerprints: Vec<String> =
            told.iter().map(|it| it.fingerprint().to_string()).collect();
        let text = AuthorityNotice::text(epoch, &fingerprints);
        let signatures = signers.iter().map(|it| it.sign(text.as_bytes()).unwrap()).collect();
        AuthorityNotice { epoch, fingerprints, signatures }
    }

    #[test]
    fn the_latest_word_of_a_known_authority_counts_and_nobody_elses() {
        let [old, new, evil] = [found(), found(), found()];
        let prints = |all: &[&Authority]| -> Option<Vec<Fingerprint>> {
            Some(all.iter().map(|it| it.fingerprint()).collect())
        };
        let shows = |of: &Authority| [of.certificate().clone()];
        let mut known = Known { epoch: None, authorities: vec![old.fingerprint()] };
        let first = notice(0, &[&old], &[&old]);
        assert_eq!(known.hear(&first, &shows(&old)), prints(&[&old]), "which epoch it is");
        for (case, wrong, shown) in [
            ("signed by nobody who is known", notice(9, &[&evil], &[&evil]), &evil),
            ("in the name of one", notice(9, &[&old, &evil], &[&evil, &evil]), &old),
            ("without a signature", notice(9, &[&old, &evil], &[]), &old),
            ("signed as another epoch", AuthorityNotice { epoch: 9, ..first.clone() }, &old),
            ("shown by another", notice(9, &[&old, &evil], &[&old, &evil]), &evil),
        ] {
            assert_eq!(known.hear(&wrong, &shows(shown)), None, "{case}");
        }
        let both = notice(1, &[&old, &new], &[&old, &new]);
        assert_eq!(known.hear(&both, &shows(&old)), prints(&[&old, &new]));
        assert_eq!(known.hear(&first, &shows(&old)), None, "a node that lags");
        assert_eq!(known.hear(&both, &shows(&old)), None, "no epoch is told twice");
        let alone = notice(3, &[&new], &[&new]);
        assert_eq!(known.hear(&alone, &shows(&new)), prints(&[&new]), "the former is dropped");
        let back = notice(4, &[&old], &[&old]);
        assert_eq!(known.hear(&back, &shows(&old)), None, "and has no say any more");
    }
}
