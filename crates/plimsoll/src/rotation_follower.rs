//! A client that recognises the cell by its authority, and the cell that changes it: what a node says of the next authority is
//! believed because that node was recognised by one that is known already. It counts at once, and is kept in the context.

use std::sync::Mutex;

use plimsoll_api::client::Client;
use plimsoll_api::view::AuthorityNotice;
use plimsoll_peer::pki::Fingerprint;

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
    /// The authorities that count from now on; none where the notice says nothing new.
    fn hear(&mut self, notice: &AuthorityNotice) -> Option<Vec<Fingerprint>> {
        // A node that lags says what was. Of an older epoch nothing is taken back.
        if self.epoch.is_some_and(|known| notice.epoch <= known) {
            return None;
        }
        let told = notice.fingerprints.iter().map(|print| print.parse().ok());
        let told: Vec<Fingerprint> = told.collect::<Option<_>>()?;
        self.epoch = Some(notice.epoch);
        self.authorities.clone_from(&told);
        Some(told)
    }
}

/// The client, which follows its cell from one authority to the next. Without a context what it hears is forgotten with it.
pub(crate) fn following(
    client: Client,
    authorities: &[Fingerprint],
    epoch: Option<u64>,
    kept: Option<KeptContext>,
) -> Client {
    let known = Mutex::new(Known { epoch, authorities: authorities.to_vec() });
    client.following(move |notice| {
        let mut known = known.lock().expect("no holder of it panics");
        let before = known.authorities.clone();
        let told = known.hear(notice)?;
        let is_other = told.len() != before.len() || told.iter().any(|it| !before.contains(it));
        if let Some(kept) = &kept {
            keep(kept, notice, is_other);
        }
        // The connection that this was heard on was made with what was known before.
        is_other.then(|| live::tls(&told).ok()).flatten()
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
    use super::*;

    fn print(byte: u8) -> Fingerprint {
        Fingerprint::of(&[byte])
    }

    fn notice(epoch: u64, prints: &[u8]) -> AuthorityNotice {
        let fingerprints = prints.iter().map(|byte| print(*byte).to_string()).collect();
        AuthorityNotice { epoch, fingerprints }
    }

    #[test]
    fn the_latest_word_counts_and_an_older_one_takes_nothing_back() {
        let mut known = Known { epoch: None, authorities: vec![print(1)] };
        assert_eq!(known.hear(&notice(0, &[1])), Some(vec![print(1)]), "which epoch it is");
        assert_eq!(known.hear(&notice(1, &[1, 2])), Some(vec![print(1), print(2)]));
        assert_eq!(known.hear(&notice(0, &[1])), None, "a node that lags");
        assert_eq!(known.hear(&notice(1, &[3])), None, "no epoch is told twice");
        assert_eq!(known.hear(&notice(3, &[2])), Some(vec![print(2)]), "the former is dropped");
        let mut garbled = notice(4, &[2]);
        garbled.fingerprints[0].replace_range(..2, "zz");
        assert_eq!(known.hear(&garbled), None);
        assert_eq!((known.epoch, known.authorities), (Some(3), vec![print(2)]));
    }
}
