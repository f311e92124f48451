//! What can be asked without a daemon is built without what a daemon is built of.

use std::collections::BTreeSet;
use std::process::Command;

/// The HTTP server, the replicated log, the container engine, and what they and clients of theirs run on.
const BARRED: [&str; 8] =
    ["axum", "bollard", "hyper", "openraft", "plimsoll-daemon", "rustls", "tokio", "tonic"];

#[test]
fn the_workbench_compiles_without_a_server_a_log_or_an_engine() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--manifest-path", manifest])
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).unwrap();
    let packages: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(packages.contains("plimsoll-kernel"), "{packages:?}");
    let found: Vec<&str> = BARRED.into_iter().filter(|name| packages.contains(name)).collect();
    assert!(found.is_empty(), "the workbench is compiled with {found:?}");
}
