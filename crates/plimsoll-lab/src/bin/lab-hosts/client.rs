//! The side of whoever types: asks the process that holds the hosts, and starts it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Between two looks at whether the hosts are there.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What was said, if it was not a refusal. Words are one to a line.
pub(crate) fn ask(socket: &Path, words: &[String]) -> Result<String, String> {
    let down = |_| "no hosts are up; create some with `lab/hosts up 3`".to_owned();
    let mut stream = UnixStream::connect(socket).map_err(down)?;
    let broken = |error| format!("the hosts do not answer: {error}");
    stream.write_all(words.join("\n").as_bytes()).map_err(broken)?;
    stream.shutdown(Shutdown::Write).map_err(broken)?;
    let mut said = String::new();
    stream.read_to_string(&mut said).map_err(broken)?;
    match said.strip_prefix("error ") {
        Some(error) => Err(error.trim().to_owned()),
        None => Ok(said),
    }
}

pub(crate) fn up(
    dir: &Path,
    engine: &Path,
    socket: &Path,
    count: usize,
    docker: bool,
) -> Result<(), String> {
    let list = ["list".to_owned()];
    if ask(socket, &list).is_ok() {
        return Err("hosts are up already; stop them with `lab/hosts down`".to_owned());
    }
    if let Some(missing) = plimsoll_lab::missing() {
        return Err(missing);
    }
    let log = dir.join("hosts.log");
    let file = fs::create_dir_all(dir).and_then(|()| File::create(&log));
    let file = file.map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("setsid");
    command.arg(this).arg("--dir").arg(dir).arg("--engine").arg(engine);
    command.arg("serve").arg(count.to_string()).args(docker.then_some("--docker"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    let mut serving = command.spawn().map_err(|error| format!("cannot run setsid: {error}"))?;
    loop {
        if let Ok(said) = ask(socket, &list) {
            print!("{said}");
            return Ok(());
        }
        if serving.try_wait().is_ok_and(|ended| ended.is_some()) {
            return Err(fs::read_to_string(&log).unwrap_or_default().trim().to_owned());
        }
        sleep(LOOK_AGAIN);
    }
}

/// Becomes the command, on the host.
pub(crate) fn exec(socket: &Path, host: &str, command: &[String]) -> Result<(), String> {
    let said = ask(socket, &["enter".to_owned(), host.to_owned()])?;
    let mut lines = said.lines();
    let namespaces = lines.next().unwrap_or_default();
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    let mut nsenter = Command::new("nsenter");
    for (kind, file) in [("net", "net"), ("mount", "mnt"), ("pid", "pid")] {
        nsenter.arg(format!("--{kind}={namespaces}/{file}"));
    }
    // Another view of the mounts has a place of its own to stand.
    nsenter.args(["--", "sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(here).args(command);
    nsenter.envs(lines.filter_map(|line| line.split_once('=')));
    Err(format!("cannot run nsenter: {}", nsenter.exec()))
}
