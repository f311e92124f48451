//! The script that starts the clusters: whoever runs a command with it must learn how that ended.

use std::process::Command;

#[test]
fn the_lab_ends_as_the_command_ends_that_it_was_asked_to_run() {
    let Some(script) = std::env::var_os("PLIMSOLL_LAB_ETCD").filter(|script| !script.is_empty())
    else {
        return;
    };
    let lab = tempfile::tempdir().unwrap();
    for (command, expected) in [("true", 0), ("false", 1)] {
        let mut with = Command::new(&script);
        let ended = with.args(["with", command]).env("PLIMSOLL_LAB", lab.path()).status().unwrap();
        assert_eq!(ended.code(), Some(expected), "{command}");
    }
}
