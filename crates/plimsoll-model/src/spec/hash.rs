//! The spec hash: equal for equal containers, whatever the file looked like.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{ContainerSpec, FileContent, SpecHash};

impl SpecHash {
    /// SHA-256 over the canonical JSON of a container: keys sorted, and what is null or empty left out, so that a
    /// field added to plimsoll does not change the hash of a spec that does not use it. The content of a config or
    /// secret enters by its own SHA-256: as JSON, a megabyte would take a hundred.
    pub fn of(container: &ContainerSpec) -> Self {
        let mut container = container.clone();
        for file in container.configs.iter_mut().chain(&mut container.secrets) {
            if let FileContent::Inline(bytes) = &mut file.content {
                *bytes = Sha256::digest(&bytes).to_vec();
            }
        }
        let mut value =
            serde_json::to_value(container).expect("a container spec has string keys only");
        if let Value::Object(fields) = &mut value {
            fields.retain(|key, value| {
                // An empty command clears the image's own; only an absent one keeps it.
                let empty_counts = matches!(key.as_str(), "command" | "entrypoint");
                if empty_counts { !value.is_null() } else { prune(value) }
            });
        }
        let mut text = String::new();
        write(&value, &mut text);
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

/// Leaves out what is empty below, and says whether anything is left. Items of a list keep their places.
fn prune(value: &mut Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => {
            for item in items.iter_mut() {
                prune(item);
            }
            !items.is_empty()
        }
        Value::Object(fields) => {
            fields.retain(|_, value| prune(value));
            !fields.is_empty()
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// JSON without blanks. The keys are sorted here: whether `serde_json` sorts them is up to its features, which
/// any crate of the build may change.
fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::FileMount;
    use super::*;

    fn container() -> ContainerSpec {
        ContainerSpec { image: "nginx:1.27".to_owned(), ..ContainerSpec::default() }
    }

    #[test]
    fn the_hash_of_a_spec_never_changes() {
        let hash = SpecHash::of(&container()).to_string();
        assert_eq!(hash, "8d91e9ff126b7991a09c71362d1335bafa704d4168cb25652869678f13aedcf3");
    }

    #[test]
    fn the_content_of_a_file_counts() {
        let with = |content: &[u8]| {
            let file = FileMount {
                name: "site".to_owned(),
                target: "/site".to_owned(),
                content: FileContent::Inline(content.to_vec()),
                uid: None,
                gid: None,
                mode: None,
            };
            SpecHash::of(&ContainerSpec { configs: vec![file], ..container() })
        };
        assert_eq!(with(b"a"), with(b"a"));
        assert_ne!(with(b"a"), with(b"b"));
        assert_ne!(with(b""), with(b"b"));
    }

    #[test]
    fn a_cleared_command_is_not_an_absent_one() {
        let cleared = ContainerSpec { command: Some(Vec::new()), ..container() };
        assert_ne!(SpecHash::of(&cleared), SpecHash::of(&container()));
    }
}
