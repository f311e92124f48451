//! What changes the spec hash, and what does not.

use plimsoll_model::spec::SpecHash;

use crate::case::file;

fn hash(text: &str) -> SpecHash {
    file(text).service("web").hash
}

const BASE: &str = "\
services:
  web:
    image: nginx:1.27
    environment:
      A: '1'
      B: two
    ports: ['8080:80', '8443:443']
    volumes: [data:/data]
    labels: {team: shop}
    healthcheck: {test: curl localhost, interval: 5s}
volumes:
  data:
";

#[test]
fn reordering_keys_and_adding_comments_keeps_the_spec_hash_changing_one_env_value_changes_it() {
    let reordered = "\
# A comment.
volumes: {data: {}}
services:
  web:
    healthcheck:
      interval: '5000ms' # Another.
      test: [CMD-SHELL, curl localhost]
    labels: [team=shop]
    volumes:
      - {type: volume, source: data, target: /data/}
    ports:
      - {target: 443, published: '8443'}
      - '8080:80/tcp'
    environment:
      - B=two
      - A=1
    image: \"nginx:1.27\"
";
    assert_eq!(hash(BASE), hash(reordered));
    assert_ne!(hash(BASE), hash(&BASE.replace("A: '1'", "A: '2'")));
}

#[test]
fn what_a_container_is_made_from_changes_the_hash() {
    for (what, from, to) in [
        ("the image", "nginx:1.27", "nginx:1.28"),
        ("a mount", "data:/data", "data:/data:ro"),
        ("a label", "team: shop", "team: bank"),
        ("the healthcheck", "interval: 5s", "interval: 6s"),
        ("a port", "8443:443", "8444:443"),
        ("a new key", "    labels:", "    user: nobody\n    labels:"),
        ("a volume's driver", "  data:\n", "  data: {driver: nfs}\n"),
    ] {
        assert!(BASE.contains(from), "{what}");
        assert_ne!(hash(BASE), hash(&BASE.replace(from, to)), "{what}");
    }
}

#[test]
fn what_steers_plimsoll_keeps_the_hash() {
    for (what, keys) in [
        ("replicas", "deploy: {replicas: 5}"),
        ("placement", "deploy: {placement: {constraints: [node.labels.disk == ssd]}}"),
        ("a mode", "x-plimsoll: {placement: pack}"),
        ("the update policy", "deploy: {update_config: {order: stop-first}}"),
        ("priority", "x-plimsoll: {priority: 7}"),
        ("what is ignored", "restart: always"),
        ("an extension", "x-note: hello"),
        ("a key without a value", "command:"),
    ] {
        let text = BASE.replace("    labels:", &format!("    {keys}\n    labels:"));
        assert_eq!(hash(BASE), hash(&text), "{what}");
    }
}
