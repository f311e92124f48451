//! The process that stays with a service: it starts it, writes down what it prints, and says how it ended. There is
//! one for every running replica, so that a daemon can be killed and replaced and no service notices.
//!
//! It is our own program under other words: `run DIR TICKET` supervises, `enter` becomes the service. Whoever builds a
//! program around [`ProcessRuntime`](super::ProcessRuntime) hands those words to [`main`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_files::modes;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    set_child_subreaper, setsid, wait,
};
use serde::{Deserialize, Serialize};

use super::cgroup;
use super::enter::{self, EnterRequest};
use super::journal::{Journal, MAX_LINE};
use super::launch::Launch;
use super::paths::{RunDir, absent_is_fine, write_json};
use super::record::{EndRecord, Record};
use super::table::{ProcessIdentity, ProcessTable};
use crate::logs::Output;
use crate::runtime::{Exit, wall_clock};

/// How long to wait for a lock that another may be looking at just now.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// How long the last of a service's processes may take to die once killed. Only one stuck in the kernel takes longer.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// How long to wait for the end of its output once all of it is dead: someone else may hold the other end.
const OUTPUT_WAIT: Duration = Duration::from_secs(2);

/// What the daemon is told about a start.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum StartReport {
    Started,
    /// Another supervisor has this directory, or will have it.
    Taken,
    Failed(String),
}

/// Does what the words say. `run` ends with the service, `enter` only in failure.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    let result = match words.as_slice() {
        [word, dir, ticket] if word == "run" => run(&RunDir(PathBuf::from(dir)), ticket),
        [word] if word == "enter" => enter::main(),
        _ => Err("this is for plimsoll itself: run DIR TICKET, or enter".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "plimsoll supervisor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &RunDir, ticket: &OsStr) -> Result<(), String> {
    // Already the leader of a session when started by hand, which is as good.
    let _ = setsid();
    let lock =
        plimsoll_files::create(&dir.lock(), modes::FILE).map_err(|error| error.to_string())?;
    if !take(&lock) {
        report(&StartReport::Taken);
        return Ok(());
    }
    match start(dir, ticket) {
        Err(LaunchRefusal::Late) => {
            report(&StartReport::Taken);
            Ok(())
        }
        Ok(running) => {
            report(&StartReport::Started);
            running.finish(dir).map_err(|error| format!("cannot write the exit record: {error}"))
        }
        Err(LaunchRefusal::Failed(error)) => {
            let _ = absent_is_fine(std::fs::remove_file(dir.record()));
            report(&StartReport::Failed(error));
            Ok(())
        }
    }
}

fn take(lock: &File) -> bool {
    let begin = Instant::now();
    while lock.try_lock().is_err() {
        if begin.elapsed() > LOCK_WAIT {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Tells the daemon, and lets go of it: an end of this output is how it knows that there is nothing more to hear.
fn report(report: &StartReport) {
    let text = serde_json::to_vec(report).unwrap_or_default();
    // A daemon that died meanwhile reads the record instead.
    let _ = io::stdout().write_all(&text);
    let _ = io::stdout().flush();
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

/// A service and what listens to it.
struct Running {
    launch: Launch,
    service: Pid,
    readers: Vec<JoinHandle<()>>,
    oom_kills: u64,
}

enum LaunchRefusal {
    /// A later start has taken this one's place.
    Late,
    Failed(String),
}

impl From<String> for LaunchRefusal {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<&str> for LaunchRefusal {
    fn from(text: &str) -> Self {
        Self::Failed(text.to_owned())
    }
}

fn start(dir: &RunDir, ticket: &OsStr) -> Result<Running, LaunchRefusal> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let launch = dir.read_launch().map_err(failed("cannot read the launch record"))?;
    let launch = launch.ok_or("no launch record")?;
    if *ticket != *launch.ticket {
        return Err(LaunchRefusal::Late);
    }
    absent_is_fine(std::fs::remove_file(dir.record())).map_err(failed("cannot begin a record"))?;
    absent_is_fine(std::fs::remove_file(dir.exit())).map_err(failed("cannot begin a record"))?;
    let supervisor = ProcessIdentity::of(getpid()).ok_or("/proc is not readable")?;
    let mut record = Record { since: wall_clock(), supervisor, service: None };
    write_json(&dir.record(), &record).map_err(failed("cannot write a record"))?;
    // Whatever the service starts and abandons becomes a child of this process, so nothing of it gets away.
    set_child_subreaper(Some(getpid())).map_err(|error| format!("cannot adopt: {error}"))?;
    let journal = Journal::open(&dir.log(), launch.log).map_err(failed("cannot write logs"))?;
    let oom_kills = cgroup::oom_kills(&launch.entry.cgroups);

    let (ours, theirs) = UnixStream::pair().map_err(failed("cannot make a socket"))?;
    let (program, words) = launch.supervisor.split_first().ok_or("no program to start it with")?;
    let mut child = Command::new(program)
        .args(words)
        .arg("enter")
        .arg0("plimsoll")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed("cannot start a process"))?;
    let brief =
        EnterRequest { entry: launch.entry.clone(), parent: std::process::id(), input: None };
    let entered = enter::brief(ours, &brief);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    if let Err(failure) = entered {
        let _ = child.wait();
        return Err(failure.text.into());
    }
    let service = Pid::from_child(&child);
    // One that ended at once leaves no identity, and needs none.
    record.service = ProcessIdentity::of(service);
    write_json(&dir.record(), &record).map_err(failed("cannot write a record"))?;
    let journal = Arc::new(Mutex::new(journal));
    let readers = vec![
        listen(stdout, Output::Stdout, Arc::clone(&journal)),
        listen(stderr, Output::Stderr, journal),
    ];
    Ok(Running { launch, service, readers, oom_kills })
}

impl Running {
    /// Waits for the end, sees to it that it is the end of everything, and writes it down.
    fn finish(self, dir: &RunDir) -> io::Result<()> {
        let status = self.wait();
        clear(self.service);
        let begin = Instant::now();
        while self.readers.iter().any(|reader| !reader.is_finished())
            && begin.elapsed() < OUTPUT_WAIT
        {
            thread::sleep(Duration::from_millis(2));
        }
        let oom = cgroup::oom_kills(&self.launch.entry.cgroups) > self.oom_kills;
        let exit = Exit { status, oom };
        write_json(&dir.exit(), &EndRecord { at: wall_clock(), exit })
    }

    /// Collects everything that ends until the service does.
    fn wait(&self) -> Option<i32> {
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid == self.service => return shell_status(status),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

/// As a shell counts.
fn shell_status(status: WaitStatus) -> Option<i32> {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal))
}

/// Kills what the service leaves behind: its group at once, and then whatever became a child of this process, until
/// there is none.
fn clear(service: Pid) {
    let _ = kill_process_group(service, Signal::KILL);
    let begin = Instant::now();
    while begin.elapsed() < KILL_WAIT {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => continue,
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        // Children are not collected by anyone else, so their ids are theirs until we do.
        for stat in ProcessTable::read().descendants(getpid().as_raw_pid()) {
            if let Some(pid) = Pid::from_raw(stat.pid).filter(|_| !stat.has_ended()) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Reads one output to its end, line by line.
fn listen(
    source: Option<impl Read + Send + 'static>,
    from: Output,
    journal: Arc<Mutex<Journal>>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let Some(mut source) = source else { return };
        let mut chunk = vec![0; 64 << 10];
        let mut line = Vec::new();
        loop {
            let read = match source.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let at = wall_clock();
            let mut journal = journal.lock().expect("the other listener does not panic");
            for piece in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
                let (text, is_whole) = match piece.strip_suffix(b"\n") {
                    Some(text) => (text, true),
                    None => (piece, false),
                };
                line.extend_from_slice(text);
                while line.len() > MAX_LINE {
                    let rest = line.split_off(MAX_LINE);
                    journal.line(at, from, &line);
                    line = rest;
                }
                if is_whole {
                    journal.line(at, from, &line);
                    line.clear();
                }
            }
            journal.flush(at);
        }
        if !line.is_empty() {
            let mut journal = journal.lock().expect("the other listener does not panic");
            journal.line(wall_clock(), from, &line);
            journal.flush(wall_clock());
        }
    })
}
