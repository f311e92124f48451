//! A process that a test started, on a host or beside it.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// Shared with the host it runs on, which collects it when it is switched off.
#[derive(Debug, Clone)]
pub struct Process {
    child: Arc<Mutex<Child>>,
    pid: Pid,
}

impl Process {
    pub fn new(child: Child) -> Self {
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("the kernel's own number"));
        Self { child: Arc::new(Mutex::new(child)), pid }
    }

    /// Its number, as seen from outside its host.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// None while it runs.
    pub fn ended(&self) -> io::Result<Option<ExitStatus>> {
        self.child().try_wait()
    }

    pub fn wait(&self) -> io::Result<ExitStatus> {
        self.child().wait()
    }

    /// Ends it at once, and collects it. One that has ended already is fine.
    pub fn kill(&self) {
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Asks it to end.
    pub fn terminate(&self) -> io::Result<()> {
        self.send(Signal::SIGTERM)
    }

    /// It stands still, as a machine does that is paused, until [`resume`](Self::resume).
    pub fn pause(&self) -> io::Result<()> {
        self.send(Signal::SIGSTOP)
    }

    pub fn resume(&self) -> io::Result<()> {
        self.send(Signal::SIGCONT)
    }

    fn send(&self, signal: Signal) -> io::Result<()> {
        // While the lock is held nobody collects it, so the number is not another's.
        let mut child = self.child();
        if child.try_wait()?.is_some() {
            return Err(Errno::ESRCH.into());
        }
        Ok(signal::kill(self.pid, signal)?)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
