//! A user of the host, without any right, who wants what a daemon of root keeps: its files, its socket, and root's hand
//! through a link.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::geteuid;
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::harness::{Cell, Site};
use crate::run::binary;

/// Nobody, and a group of nobody's.
const NOBODY: u32 = 65_534;
const OPS: u32 = 65_432;

/// How long an API may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Two services with a secret and a config each: one of a user that the host does not know, one of root.
const SHOP: &str = r#"
name: shop
services:
  web:
    image: any
    user: "12345"
    command: [sh, -c, 'umask > umask; touch made; exec sleep 1000']
    secrets: [key]
    configs: [{source: conf, target: /etc/conf}]
    volumes: ["data:/data"]
  root:
    image: any
    command: [sh, -c, 'exec sleep 1000']
    secrets: [key]
secrets: {key: {environment: KEY}}
configs: {conf: {content: plain}}
volumes: {data: {}}
"#;

/// Puts a link where a directory of ours was, and ends: the next start finds it.
const TRAP: &str = r#"
name: trap
services:
  web:
    image: any
    user: "12345"
    command: [sh, -c, '[ -e old ] && exec sleep 1000; mv run old; ln -s OUTSIDE run; exit 1']
    configs: [{source: conf, target: /run/app/conf}]
  guest:
    image: any
    user: "12345"
    command: [sh, -c, 'mv data/way data/old; ln -s OUTSIDE data/way; exit 1']
    volumes:
      - "data:/data"
      - {type: volume, source: data, target: /sub, volume: {subpath: way/in}}
configs: {conf: {content: evil}}
volumes: {data: {}}
"#;

/// Does it as a stranger of this host, with this group. Users are a thread's own to the kernel.
fn as_stranger<T: Send + 'static>(gid: u32, work: impl FnOnce() -> T + Send + 'static) -> T {
    let stranger = thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(gid));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        work()
    });
    stranger.join().unwrap()
}

/// Everything below a directory, links not followed.
fn all(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir()) {
            found.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|it| it.path()));
        }
    }
    found
}

/// What of all this a stranger can read or list.
fn readable(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    as_stranger(NOBODY, move || {
        let can = |path: &PathBuf| match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => fs::read_dir(path).is_ok(),
            Ok(found) if found.is_file() => fs::read(path).is_ok(),
            _ => false,
        };
        paths.into_iter().filter(can).collect()
    })
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The status that a daemon answers with at its socket.
fn asked(socket: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(b"GET /v1/nodes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_whitespace().nth(1).unwrap_or_default().to_owned())
}

fn asked_by(gid: u32, socket: &Path) -> io::Result<String> {
    let socket = socket.to_owned();
    as_stranger(gid, move || asked(&socket))
}

/// A daemon of root in a directory that strangers can get to; none where the tests are not root's.
fn daemon(args: &[&str]) -> Option<Cell> {
    if !geteuid().is_root() {
        return None;
    }
    let mut cell = Cell::idle(Site::Loopback);
    set_mode(cell.dir.path(), 0o755);
    cell.setups[0].args = args.iter().map(|arg| (*arg).to_owned()).collect();
    cell.up(0, None);
    Some(cell)
}

/// Runs a command against the daemon, and says what it printed and how it exited.
fn ran(cell: &Cell, args: &[&str]) -> (String, Option<i32>) {
    let mut command = binary();
    command.args(args).current_dir(cell.dir.path());
    command.env("PLIMSOLL_HOST", cell.socket(0)).env("KEY", "s3cret");
    let ended = command.output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (String::from_utf8_lossy(&said).into_owned(), ended.status.code())
}

fn write_compose(cell: &Cell, text: &str) {
    fs::write(cell.dir.path().join("compose.yaml"), text).unwrap();
}

fn printed_by_web(cell: &Cell, script: &str) -> String {
    ran(cell, &["exec", "shop-web-1", "--", "sh", "-c", script]).0
}

#[test]
fn a_stranger_reads_nothing_of_what_a_daemon_keeps() {
    let Some(mut cell) = daemon(&[]) else { return };
    write_compose(&cell, SHOP);
    for args in [&["apply", "-f", "compose.yaml"][..], &["backup", "cell.backup"]] {
        let (said, code) = ran(&cell, args);
        assert_eq!(code, Some(0), "{said}");
    }
    let mut kept = all(&cell.path(0));
    kept.push(cell.dir.path().join("cell.backup"));
    for name in ["store", "tls/node.pem", "node.json", "term"] {
        assert!(kept.contains(&cell.path(0).join(name)), "no {name} in {kept:#?}");
    }
    for end in ["run/secrets/key", "etc/conf", "launch.json", "volumes/shop/data", "work/made"] {
        assert!(kept.iter().any(|path| path.ends_with(end)), "no {end} in {kept:#?}");
    }
    // Secrets lie in memory, where links lead to.
    let linked = kept.iter().filter_map(|path| fs::read_link(path).ok());
    let in_memory: Vec<PathBuf> = linked.filter(|path| !path.starts_with(cell.path(0))).collect();
    assert_eq!(in_memory.len(), 2, "{in_memory:?}");
    assert!(in_memory.iter().all(|path| fs::read(path).unwrap() == b"s3cret"));
    kept.extend(in_memory.iter().flat_map(|path| all(path.parent().unwrap().parent().unwrap())));
    assert_eq!(readable(kept), [] as [PathBuf; 0]);

    // The services themselves lack nothing.
    for (script, printed) in [
        (
            "cat run/secrets/key etc/conf; stat -L -c :%a:%u run/secrets/key",
            "s3cretplain:400:12345\n",
        ),
        ("id -u; id -g; id -G", "12345\n65534\n65534\n"),
        ("cat umask; touch data/x; stat -c %a made", "0022\n644\n"),
    ] {
        assert_eq!(printed_by_web(&cell, script), printed);
    }

    // What a hand, or an older release, left open is closed at the next start.
    cell.stop(0);
    for path in all(&cell.path(0)) {
        let is_of_services = path.iter().any(|part| part == "work" || part == "volumes");
        let found = fs::symlink_metadata(&path).unwrap();
        if !is_of_services && !found.is_symlink() {
            set_mode(&path, if found.is_dir() { 0o755 } else { 0o644 });
        }
    }
    assert!(readable(all(&cell.path(0))).len() > 10, "it was open");
    let before = cell.said(0).len();
    cell.up(0, None);
    assert_eq!(readable(all(&cell.path(0))), [] as [PathBuf; 0]);
    let said = &cell.said(0)[before..];
    let told = "other users could read or enter files of this node";
    assert_eq!(said.matches(told).count(), 1, "{said}");
    assert_eq!(printed_by_web(&cell, "cat run/secrets/key"), "s3cret");
}

#[test]
fn a_stranger_gets_no_answer_from_the_socket() {
    let Some(cell) = daemon(&[]) else { return };
    let socket = cell.socket(0);
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    assert_eq!(asked(&socket).unwrap(), "200");
    assert_eq!(asked_by(NOBODY, &socket).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    // Where somebody opened the way, the kernel still says who comes.
    set_mode(&cell.path(0), 0o777);
    set_mode(&socket, 0o777);
    assert_eq!(asked_by(NOBODY, &socket).unwrap(), "403");
    assert_eq!(asked_by(0, &socket).unwrap(), "403", "root's group is not root");
}

#[test]
fn a_group_that_is_named_may_use_the_socket_and_no_other() {
    let Some(cell) = daemon(&["--socket-group", &OPS.to_string()]) else { return };
    let socket = cell.socket(0);
    let found = fs::metadata(&socket).unwrap();
    assert_eq!((found.mode() & 0o777, found.gid()), (0o660, OPS));
    assert_eq!(asked_by(OPS, &socket).unwrap(), "200");
    assert_eq!(asked_by(NOBODY, &socket).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    set_mode(&socket, 0o777);
    assert_eq!(asked_by(NOBODY, &socket).unwrap(), "403");
    assert_eq!(readable(all(&cell.path(0))), [] as [PathBuf; 0]);
}

#[test]
fn no_link_of_a_service_has_root_write_elsewhere() {
    let Some(cell) = daemon(&[]) else { return };
    let outside = cell.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    // It must be able to get there itself, or the link would not lead anywhere for it.
    set_mode(&outside, 0o755);
    write_compose(&cell, &TRAP.replace("OUTSIDE", outside.to_str().unwrap()));
    ran(&cell, &["apply", "-f", "compose.yaml", "--detach"]);
    for service in ["web", "guest"] {
        let mut said = String::new();
        cell.until("the link is found", |cell| {
            said = ran(cell, &["explain", &format!("trap-{service}-1")]).0;
            let written = all(&outside);
            assert_eq!(written.len(), 1, "root followed a link: {written:?}");
            said.contains("is not a directory but a link or a file")
        });
    }
    let found = fs::metadata(&outside).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o755), "nor was it given away");
}

#[test]
fn a_daemon_of_root_runs_no_processes_unless_told_to() {
    if !geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let engine = format!("unix://{}", dir.path().join("no.sock").display());
    let mut command = binary();
    command.args(["up", "--data-dir"]).arg(dir.path().join("node")).env("DOCKER_HOST", engine);
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    let next = "start the engine, name its socket with --docker-socket, or use --runtime process";
    assert!(said.contains("no Docker Engine answers") && said.contains(next), "{said}");
    assert!(!dir.path().join("node/store").exists(), "nothing was begun");
}
