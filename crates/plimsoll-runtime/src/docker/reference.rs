//! An image's name, taken apart as far as a pull needs it.

/// `registry.example.org/team/app:1` or the same with a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    /// None for the engine's own registry.
    pub(super) registry: Option<String>,
    /// Everything before the tag.
    pub(super) name: String,
    /// A tag or a digest. Without one the engine would pull all there are.
    pub(super) tag: String,
}

impl Reference {
    pub(super) fn parse(image: &str) -> Self {
        let registry = image.split_once('/').map(|(first, _)| first).filter(|first| {
            // As engines tell a host from a user: it has a dot, a port, or is this very machine.
            first.contains(['.', ':']) || *first == "localhost"
        });
        let (name, tag) = match image.split_once('@') {
            Some((name, digest)) => (without_tag(name).0, digest),
            None => without_tag(image),
        };
        Self {
            registry: registry.map(str::to_owned),
            name: name.to_owned(),
            tag: if tag.is_empty() { "latest".to_owned() } else { tag.to_owned() },
        }
    }
}

/// A colon before the last slash belongs to a port.
fn without_tag(name: &str) -> (&str, &str) {
    match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (name, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart() {
        for (image, registry, name, tag) in [
            ("app", None, "app", "latest"),
            ("app:1", None, "app", "1"),
            ("team/app:1", None, "team/app", "1"),
            (
                "registry.example.org/app",
                Some("registry.example.org"),
                "registry.example.org/app",
                "latest",
            ),
            ("localhost/app:1", Some("localhost"), "localhost/app", "1"),
            ("127.0.0.1:5000/a/b:1", Some("127.0.0.1:5000"), "127.0.0.1:5000/a/b", "1"),
            ("127.0.0.1:5000/app", Some("127.0.0.1:5000"), "127.0.0.1:5000/app", "latest"),
            ("app@sha256:ab", None, "app", "sha256:ab"),
            ("app:1@sha256:ab", None, "app", "sha256:ab"),
        ] {
            let registry = registry.map(str::to_owned);
            let expected = Reference { registry, name: name.into(), tag: tag.into() };
            assert_eq!(Reference::parse(image), expected, "{image}");
        }
    }
}
