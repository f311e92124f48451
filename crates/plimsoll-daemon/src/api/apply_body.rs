//! The body of an apply: a file as its client read it, or a revision as `GET …/revisions/{revision}` shows it. That has
//! `null` for every value that might be a secret; each is put back from the revision that the body names, in its own place
//! only. Whoever may apply may also roll back, so nobody learns or uses a value that was not theirs to use.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_model::units::Revision;
use plimsoll_model::{ServiceName, ServiceSpec};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::ErrorResponse;
use super::extract::{parse, parse_value};
use crate::views::bare;
use plimsoll_api::view::Apply;

/// What a revision has beside what can be applied.
const OF_A_REVISION: [&str; 4] = ["revision", "at", "by", "is_current"];

#[derive(Deserialize)]
struct Origin {
    revision: Option<u32>,
}

/// `kept` has the services of a revision of this deployment, if that is still there.
pub(super) fn read(
    body: &[u8],
    kept: impl FnOnce(Revision) -> Option<BTreeMap<ServiceName, Arc<ServiceSpec>>>,
) -> Result<Apply, ErrorResponse> {
    let origin = serde_json::from_slice(body).ok().and_then(|it: Origin| it.revision);
    let Some(revision) = origin else { return parse(body) };
    let mut asked: Map<String, Value> = parse(body)?;
    asked.retain(|field, _| !OF_A_REVISION.contains(&field.as_str()));
    // One that is not kept any more has nothing to put back, and what is left of `null` is refused where it stands.
    let kept = kept(Revision(revision)).unwrap_or_default();
    if let Some(Value::Object(asked)) = asked.get_mut("services") {
        for (service, spec) in &kept {
            if let Some(asked) = asked.get_mut(service.as_str()) {
                let kept = serde_json::to_value(&**spec).expect("a spec has string keys only");
                restore(asked, &bare(spec), &kept);
            }
        }
    }
    parse_value(Value::Object(asked))
}

/// Puts back what stands in `kept` wherever `shown` and `asked` both have `null` for it. Of a list only what is as it was
/// shown is known again: in any other order a secret would get into another's place.
fn restore(asked: &mut Value, shown: &Value, kept: &Value) {
    match (asked, shown, kept) {
        (asked @ Value::Null, Value::Null, kept) => asked.clone_from(kept),
        (Value::Object(asked), Value::Object(shown), Value::Object(kept)) => {
            for (field, asked) in asked {
                if let (Some(shown), Some(kept)) = (shown.get(field), kept.get(field)) {
                    restore(asked, shown, kept);
                }
            }
        }
        (Value::Array(asked), Value::Array(shown), Value::Array(kept)) => {
            for asked in asked {
                if let Some(at) = shown.iter().position(|shown| shown == asked) {
                    restore(asked, &shown[at], &kept[at]);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hidden_value_comes_back_to_its_own_place_only() {
        let shown = json!({"env": {"A": null, "B": null}, "files": [{"name": "x", "is": null}, {"name": "y", "is": null}]});
        let kept = json!({"env": {"A": "1", "B": "2"}, "files": [{"name": "x", "is": "X"}, {"name": "y", "is": "Y"}]});
        for (case, asked, restored) in [
            ("as it was shown", shown.clone(), kept.clone()),
            (
                "with other values and others left out",
                json!({"env": {"B": null, "C": "3"}}),
                json!({"env": {"B": "2", "C": "3"}}),
            ),
            (
                "in another order",
                json!({"files": [{"name": "y", "is": null}]}),
                json!({"files": [{"name": "y", "is": "Y"}]}),
            ),
            (
                "what is called otherwise has no value",
                json!({"env": {"C": null}, "files": [{"name": "z", "is": null}]}),
                json!({"env": {"C": null}, "files": [{"name": "z", "is": null}]}),
            ),
        ] {
            let mut asked = asked;
            restore(&mut asked, &shown, &kept);
            assert_eq!(asked, restored, "{case}");
        }
    }
}
