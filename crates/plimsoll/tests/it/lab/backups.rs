//! The whole state in one file, and back.

use std::fs;

use super::compose::compose;
use super::harness::{Lab, Said};
use crate::run::binary;

#[test]
fn what_was_deleted_comes_back_from_a_backup() {
    let mut lab = Lab::process();
    let network = "networks: [default]";
    let file = compose(&[("web", &[network, "deploy: {replicas: 2}"]), ("db", &[network])]);
    let revision = lab.apply("shop", &file);
    lab.apply("blog", &compose(&[("web", &[network])]));
    lab.steady("blog");
    lab.steady_at("shop", revision);
    lab.run("backup cell.backup").done();
    let key = lab.run("cell backup-key").done();
    fs::write(lab.path("backup.key"), key.stdout).unwrap();
    for name in ["shop", "blog"] {
        lab.run(&format!("delete {name}")).done();
        lab.gone(name);
    }
    lab.stop();

    let run = |args: &str| {
        let mut command = binary();
        command.args(args.split_whitespace()).current_dir(lab.path("."));
        Said::of(&command.output().unwrap())
    };
    let said = run("restore cell.backup --data-dir node");
    assert_eq!(said.code, 1, "{said:#?}");
    assert!(said.stderr.contains("is not empty"), "{said:#?}");
    let whole = fs::read(lab.path("cell.backup")).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (case, bytes) in [("cut", &whole[..whole.len() / 2]), ("flipped", &flipped), ("empty", &[])]
    {
        fs::write(lab.path("bad.backup"), bytes).unwrap();
        let said = run("restore bad.backup --key-file backup.key --data-dir new");
        assert_eq!(said.code, 1, "{case}: {said:#?}");
        assert!(said.stderr.contains("bad.backup"), "{case}: {said:#?}");
        assert!(!lab.path("new/store/identity").exists(), "{case}: nothing is begun");
    }
    let _ = fs::remove_dir_all(lab.path("new"));
    let said = run("restore cell.backup --key-file backup.key --data-dir new");
    assert_eq!(said.code, 0, "{said:#?}");

    let back = Lab::beside(&lab, "new");
    back.steady_at("shop", revision);
    back.steady("blog");
    let found = back.runs(4);
    back.settle("shop", &file);
    back.still_has(&found, "it is what the file says");
}
