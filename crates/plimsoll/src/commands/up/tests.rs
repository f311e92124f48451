use clap::Parser;
use expect_test::expect;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn parsed(line: &str) -> NodeOptions {
    let who = Who { is_root: true, ..Who::default() };
    let words = std::iter::once("up").chain(line.split_whitespace());
    options(&Line::try_parse_from(words).unwrap().args, &who)
}

#[test]
fn a_directory_of_its_own_has_a_socket_of_its_own() {
    for (line, data_dir, socket) in [
        ("", "/var/lib/plimsoll", "/run/plimsoll/plimsoll.sock"),
        ("--data-dir /srv/a", "/srv/a", "/srv/a/plimsoll.sock"),
        ("--data-dir /srv/a --socket /run/b", "/srv/a", "/run/b"),
    ] {
        let options = parsed(line);
        assert_eq!(options.data_dir, Path::new(data_dir), "{line}");
        assert_eq!(options.socket, Path::new(socket), "{line}");
    }
}

#[test]
fn what_is_typed_is_what_is_asked_for() {
    let options = parsed("--runtime process --name ash --zone north --label a=1 --label b=x=y");
    assert_eq!(options.runtime, Some(RuntimeKind::Process));
    assert_eq!(options.name.unwrap().as_str(), "ash");
    assert_eq!(options.zone.unwrap().as_str(), "north");
    assert_eq!(options.labels["a"], "1");
    assert_eq!(options.labels["b"], "x=y");
    assert_eq!(parsed("").runtime, None);
}

#[test]
fn a_join_token_comes_from_where_others_cannot_see_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |line: &str, given: Option<&str>| {
        let words = std::iter::once("up").chain(line.split_whitespace());
        let args = Line::try_parse_from(words).unwrap().args;
        join_address(&args, dir.path(), given.map(str::to_owned))
    };
    let fingerprint = plimsoll_peer::pki::Fingerprint::of(b"a certificate");
    let token = plimsoll_peer::pki::JoinToken::new(fingerprint).unwrap();
    let text = format!("{token}@10.0.0.1:7117");
    let file = dir.path().join("join");
    let from_file = format!("--join-file {}", file.display());
    assert!(at("", None).unwrap().is_none());
    let refused = format!("{:?}", at(&from_file, None).unwrap_err());
    assert!(refused.contains("cannot read"), "{refused}");
    std::fs::write(&file, format!("{text}\n")).unwrap();
    for (case, line, given) in [
        ("typed", format!("--join {text}"), None),
        ("from a file", from_file.clone(), None),
        ("from the environment", String::new(), Some(text.as_str())),
        ("a file comes before the environment", from_file.clone(), Some("nonsense")),
    ] {
        assert_eq!(at(&line, given).unwrap().unwrap().to_string(), text, "{case}");
    }
    let refused = format!("{:?}", at("", Some("nonsense")).unwrap_err());
    assert!(refused.contains("PLIMSOLL_JOIN holds no join token: "), "{refused}");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(dir.path().join("node.json"), "{}").unwrap();
    assert!(at(&from_file, None).unwrap().is_none(), "it has joined: the file may go");
}

#[test]
fn trusted_proxies_are_blocks_of_addresses() {
    let options = parsed("--trusted-proxies 10.0.0.0/8,192.0.2.7 --trusted-proxies fd00::/8");
    let expected = ["10.0.0.0/8", "192.0.2.7", "fd00::/8"].map(|block| block.parse().unwrap());
    assert_eq!(options.trusted_proxies, expected);
    let refused = Line::try_parse_from(["up", "--trusted-proxies", "10.0.0.1/8"]).unwrap_err();
    assert!(refused.to_string().contains("is not a block of addresses"), "{refused}");
}

#[test]
fn the_first_words_say_all_there_is_to_know() {
    let options = parsed("--data-dir /srv/node --listen 10.0.0.5:7654");
    let runtime = Description {
        name: "process",
        version: "0.1.0".into(),
        limits: vec!["services see the host's files".into(), "images are not used".into()],
    };
    let started =
        Started { node: "ash", options: &options, runtime: Some(&runtime), is_default: false };
    expect![[r#"
        node ash is up
          data      /srv/node
          runtime   process 0.1.0
                    - services see the host's files
                    - images are not used
          socket    /srv/node/plimsoll.sock
          listens   https://10.0.0.5:7654
                    for another machine: plimsoll token create NAME, and there plimsoll login STRING

          export PLIMSOLL_HOST=/srv/node/plimsoll.sock

        Next: plimsoll apply -f compose.yaml"#]]
    .assert_eq(&started.text());
    let options = parsed("");
    let started = Started { node: "ash", options: &options, runtime: None, is_default: true };
    expect![[r#"
        node ash is up
          data      /var/lib/plimsoll
          runtime   does not answer yet; retrying
          socket    /run/plimsoll/plimsoll.sock

        Next: plimsoll apply -f compose.yaml"#]]
    .assert_eq(&started.text());
}

#[test]
fn the_unit_keeps_files_closed_starts_again_for_ever_and_takes_rights_away() {
    let unit = include_str!("../../../../../packaging/plimsoll.service");
    let (head, service) = unit.split_once("[Service]").unwrap();
    assert!(head.lines().any(|line| line == "StartLimitIntervalSec=0"), "systemd reads it there");
    for line in [
        "UMask=0077",
        "Restart=on-failure",
        "KillMode=process",
        "ProtectSystem=full",
        "ProtectKernelLogs=yes",
        "LockPersonality=yes",
        "KeyringMode=private",
    ] {
        assert!(service.lines().any(|it| it == line), "{line}");
    }
    let watchdog = service.lines().find_map(|line| line.strip_prefix("WatchdogSec="));
    assert!(watchdog.is_some_and(|seconds| seconds.parse::<u32>().is_ok_and(|it| it >= 30)));
    let bounds = service.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=~"));
    for capability in ["CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_BOOT", "CAP_SYSLOG"] {
        assert!(bounds.unwrap().split(' ').any(|it| it == capability), "{capability}");
    }
}
