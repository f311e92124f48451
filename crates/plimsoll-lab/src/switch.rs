//! The wire between hosts: takes each packet off its sender's device and, if the rule of the pair lets it pass, puts it
//! on its receiver's. What is lost is lost: it is for those who talk to try again.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tun_rs::{InterruptEvent, SyncDevice};

use crate::error::Error;
use crate::rng::LabRng;
use crate::rule::LinkRules;

mod delay_queue;

use delay_queue::DelayQueue;

/// Larger than any packet of a device with [`MTU`](crate::host::MTU).
const ROOM: usize = 2_048;

#[derive(Debug)]
pub(crate) struct Switch {
    wire: Arc<Wire>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Wire {
    ports: Vec<SwitchPort>,
    rules: LinkRules,
    late: DelayQueue,
}

struct SwitchPort {
    device: SyncDevice,
    end: InterruptEvent,
}

impl std::fmt::Debug for SwitchPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SwitchPort").finish_non_exhaustive()
    }
}

impl Switch {
    pub(crate) fn start(devices: Vec<SyncDevice>, seed: u64) -> Result<Self, Error> {
        let rules = LinkRules::new(devices.len());
        let ports = devices.into_iter().map(SwitchPort::new).collect::<io::Result<_>>();
        let ports: Vec<SwitchPort> = ports.map_err(Error::Wire)?;
        let count = ports.len();
        let wire = Arc::new(Wire { ports, rules, late: DelayQueue::default() });
        let mut switch = Self { wire, threads: Vec::new() };
        for from in 0..count {
            let wire = Arc::clone(&switch.wire);
            let rng = LabRng::new(seed.wrapping_add(from as u64));
            switch.thread(move || wire.carry(from, rng))?;
        }
        let wire = Arc::clone(&switch.wire);
        switch.thread(move || wire.late.carry(|to, packet| wire.put(to, packet)))?;
        Ok(switch)
    }

    pub(crate) fn rules(&self) -> &LinkRules {
        &self.wire.rules
    }

    fn thread(&mut self, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let spawned = thread::Builder::new().name("wire".to_owned()).spawn(run);
        self.threads.push(spawned.map_err(Error::Wire)?);
        Ok(())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        for port in &self.wire.ports {
            let _ = port.end.trigger();
        }
        self.wire.late.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl SwitchPort {
    fn new(device: SyncDevice) -> io::Result<Self> {
        device.set_nonblocking(true)?;
        Ok(Self { device, end: InterruptEvent::new()? })
    }

    /// The next packet's length; none once the wire ends.
    fn take(&self, room: &mut [u8]) -> Option<usize> {
        loop {
            let taken = match self.device.recv(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.device.recv_intr(room, &self.end)
                }
                taken => taken,
            };
            match taken {
                Ok(length) => return Some(length),
                Err(_) if self.end.is_trigger() => return None,
                // A device that is down for a moment.
                Err(_) => thread::yield_now(),
            }
        }
    }
}

impl Wire {
    /// Carries what one host sends until the wire ends.
    fn carry(&self, from: usize, mut rng: LabRng) {
        let mut room = [0; ROOM];
        while let Some(length) = self.ports[from].take(&mut room) {
            let packet = &room[..length];
            let Some(to) = receiver(packet).filter(|to| *to < self.ports.len()) else { continue };
            let rule = self.rules.get(from, to);
            if rule.is_cut || (rule.loss_percent > 0 && rng.happens(rule.loss_percent)) {
                continue;
            }
            if rule.delay.is_zero() {
                self.put(to, packet);
            } else {
                self.late.push(to, packet, rule.delay);
            }
        }
    }

    fn put(&self, to: usize, packet: &[u8]) {
        // A receiver that has no room loses it, as any host would.
        let _ = self.ports[to].device.send(packet);
    }
}

/// Which host a packet is for: the last part of its IPv4 address, from 1. Others' packets have nowhere to go.
fn receiver(packet: &[u8]) -> Option<usize> {
    let is_ipv4 = packet.first()? >> 4 == 4;
    let address = packet.get(16..20)?;
    let is_ours = is_ipv4 && address[..3] == crate::address(0).octets()[..3];
    is_ours.then(|| usize::from(address[3]).checked_sub(1)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_goes_to_the_host_of_its_address_and_nowhere_else() {
        let packet = |version: u8, to: [u8; 4]| {
            let mut packet = [0; 20];
            packet[0] = version << 4 | 5;
            packet[16..].copy_from_slice(&to);
            packet
        };
        assert_eq!(receiver(&packet(4, crate::address(2).octets())), Some(2));
        assert_eq!(receiver(&packet(4, [10, 77, 0, 0])), None, "the network");
        assert_eq!(receiver(&packet(4, [192, 0, 2, 1])), None, "another network");
        assert_eq!(receiver(&packet(6, crate::address(2).octets())), None, "another protocol");
        assert_eq!(receiver(&[]), None);
    }
}
