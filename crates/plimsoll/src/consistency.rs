//! How fresh a read must be, as it is typed, and what is said of one that is not.

use plimsoll_api::client::Client;
use plimsoll_api::view::Freshness;
use plimsoll_api::view::freshness::MAX_LAG;
use plimsoll_model::Millis;

use crate::output::note;
use plimsoll_workbench::text::elapsed;

/// How fresh a read must be.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct ConsistencyArgs {
    /// Fail instead of showing data that may be stale
    #[arg(long)]
    consistent: bool,
}

impl ConsistencyArgs {
    pub(crate) fn of(self, client: Client) -> Client {
        client.consistent(self.consistent)
    }
}

/// Says of the last answer what whoever reads it should know.
pub(crate) fn remark(client: &Client) {
    if let Some(text) = client.freshness().as_ref().and_then(stale) {
        note(&text);
    }
}

/// Why an answer may be out of date; none for one that is not.
pub(crate) fn stale(fresh: &Freshness) -> Option<String> {
    let node = &fresh.node;
    match (&fresh.leader, fresh.heard_ms) {
        (None, Some(ago)) => {
            let ago = elapsed(Millis(ago));
            Some(format!("as of {ago} ago: {node} has had no leader since then"))
        }
        (None, None) => Some(format!("of unknown age: {node} has had no leader since it started")),
        (Some(_), _) if fresh.lag > MAX_LAG => {
            let lag = fresh.lag;
            Some(format!("out of date: {node} is {lag} entries behind and catching up"))
        }
        (Some(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_may_be_old_says_how_old() {
        let fresh = |leader: Option<&str>, heard_ms, lag| Freshness {
            node: "ash".into(),
            leader: leader.map(str::to_owned),
            heard_ms,
            lag,
            ..Freshness::default()
        };
        for (answer, said) in [
            (fresh(Some("ash"), Some(40), 0), None),
            (fresh(Some("birch"), Some(90), MAX_LAG), None),
            (fresh(None, Some(12_400), 0), Some("as of 12s ago: ash has had no leader since then")),
            (fresh(None, None, 0), Some("of unknown age: ash has had no leader since it started")),
            (
                fresh(Some("birch"), Some(90), 1_234),
                Some("out of date: ash is 1234 entries behind and catching up"),
            ),
        ] {
            assert_eq!(stale(&answer).as_deref(), said);
        }
    }
}
