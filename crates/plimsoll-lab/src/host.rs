//! One host: a network namespace with a device that leads to the wire, and, while it is switched on, a [`RunningHost`].

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::error::Error;
use crate::process::Process;
use crate::running_host::{Processes, RunningHost, run};

/// As on an Ethernet.
pub(crate) const MTU: u16 = 1_500;

/// All hosts of a lab are in one network of this size.
const PREFIX: u8 = 24;

#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    /// Holds the network namespace, also while nothing runs in it.
    network: File,
    processes: Processes,
    /// None while it is switched off.
    machine: Mutex<Option<RunningHost>>,
}

impl Host {
    /// A host that is switched on, and its end of the wire.
    pub(crate) fn new(
        name: &str,
        address: Ipv4Addr,
        processes: Processes,
    ) -> Result<(Self, SyncDevice), Error> {
        let failed = |what, source| Error::Host { what, host: name.to_owned(), source };
        // A thread that enters a namespace stays there, so it is one that does nothing else.
        let made = thread::spawn(move || network(address)).join();
        let made = made.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
        let (network, device) = made.map_err(|error| failed("make a network", error))?;
        let machine = RunningHost::start(&network, processes);
        let machine = Mutex::new(Some(machine.map_err(|error| failed("start an init", error))?));
        Ok((Self { name: name.to_owned(), address, network, processes, machine }, device))
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Starts a process on the host. It ends with the host, and the host with whoever made it.
    pub fn spawn(&self, command: Command) -> Result<Process, Error> {
        let mut machine = self.machine();
        let machine = machine.as_mut().ok_or_else(|| Error::Off { host: self.name.clone() })?;
        let failed =
            |source| Error::Host { what: "start a process", host: self.name.clone(), source };
        machine.spawn(command).map_err(failed)
    }

    /// Does something on the host's network, on a thread of its own. Sockets that it makes stay there.
    pub fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> Result<T, Error> {
        within(&self.network, run).map_err(|source| Error::Host {
            what: "enter the network",
            host: self.name.clone(),
            source: source.into(),
        })
    }

    /// Ends every process of the host at once, as a power cut does.
    pub fn switch_off(&self) {
        self.machine().take();
    }

    pub fn switch_on(&self) -> Result<(), Error> {
        let mut machine = self.machine();
        if machine.is_none() {
            let failed =
                |source| Error::Host { what: "start an init", host: self.name.clone(), source };
            *machine = Some(RunningHost::start(&self.network, self.processes).map_err(failed)?);
        }
        Ok(())
    }

    /// Its network, by a name that others can open while this process lives, also while the host is switched off.
    pub fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.network.as_raw_fd()))
    }

    /// The directory of its namespaces, for those who want to enter them; none while it is switched off.
    pub fn namespaces(&self) -> Option<PathBuf> {
        let machine = self.machine();
        machine.as_ref().map(|machine| PathBuf::from(format!("/proc/{}/ns", machine.init())))
    }

    fn machine(&self) -> MutexGuard<'_, Option<RunningHost>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a network namespace, and in it a device with this address.
fn network(address: Ipv4Addr) -> io::Result<(File, SyncDevice)> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    run(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let device = DeviceBuilder::new().name("wire").ipv4(address, PREFIX, None).mtu(MTU);
    let device = device.build_sync()?;
    Ok((File::open("/proc/thread-self/ns/net")?, device))
}

/// Does something in a network namespace, on a thread of its own. Sockets that it makes stay there.
pub fn within<T: Send>(network: &File, run: impl FnOnce() -> T + Send) -> Result<T, Errno> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            setns(network, CloneFlags::CLONE_NEWNET)?;
            Ok(run())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
