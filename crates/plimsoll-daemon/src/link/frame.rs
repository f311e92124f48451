//! What a node and its leader say to each other: messages in frames of four bytes of length and a body. A frame that is
//! too long, cut or garbled ends the link; nothing of it is believed.

use std::collections::BTreeSet;
use std::io;

use plimsoll_model::{
    DeploymentName, Generation, Millis, NodeFacts, NodeId, ObservedCode, ObservedState, ReplicaId,
    Revision, ServiceKey, SpecHash, Term,
};
use plimsoll_runtime::VolumeRef;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::authorities::CellAuthorities;
use crate::dispatcher::AssignmentUpdate;
use crate::measurements::{NodeMeasurement, ReplicaMeasurement};
use crate::route_certificates::{HttpListeners, RouteCertificates};
use crate::servers::ServerList;
use plimsoll_kernel::endpoints::EndpointsUpdate;

/// The form this build writes. It is raised with the level, and then written from that level on.
pub const VERSION: u32 = 1;

/// The forms it reads.
pub const READ: std::ops::RangeInclusive<u32> = 1..=VERSION;

/// The most bytes one frame may have: the orders of a full node are a tenth of it.
pub const MAX_FRAME: usize = 64 << 20;

/// From a node to its leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up {
    Hello {
        version: u32,
        node: NodeId,
        /// The newest term whose orders it has taken.
        seen: Term,
        /// What it offers, which may have changed since it was last here.
        facts: Box<NodeFacts>,
        /// Where it takes requests for routes, and so which certificates it needs.
        listeners: HttpListeners,
    },
    /// It lives, and is so busy.
    Beat {
        node: Box<NodeMeasurement>,
        /// How long ago it was measured: clocks may differ, spans do not.
        measured: Option<Millis>,
        replicas: Vec<((ReplicaId, Generation), ReplicaMeasurement)>,
    },
    /// What it saw; kept until it is acknowledged.
    Reports { seq: u64, reports: Vec<Report> },
}

/// One thing a node saw or did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    Seen(Seen),
    Cleared(Cleared),
    Served(Served),
    /// A copy of a volume is gone, as this order asked.
    VolumeRemoved {
        volume: VolumeRef,
        order: Generation,
    },
    /// The volumes of a move are all here, or none of them is, and why.
    VolumesCopied {
        deployment: DeploymentName,
        order: Generation,
        error: Option<String>,
    },
    /// It has done what this epoch of the authority asks of it.
    Followed {
        epoch: u64,
    },
    Declared(Declared),
}

/// A node's word on where the image of a spec declares volumes that the file does not mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    pub service: ServiceKey,
    pub spec: SpecHash,
    pub paths: BTreeSet<String>,
}

/// A node's word that it ran a command for a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    pub replica: ReplicaId,
    /// Who asked, by the word of the server.
    pub asked_by: String,
    /// The server, by its certificate.
    pub through: NodeId,
}

/// A node's word that the volumes of a deployment are gone from it, as was asked when that ended at this revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleared {
    pub deployment: DeploymentName,
    pub revision: Revision,
}

/// A node's word on one of its containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub replica: ReplicaId,
    pub generation: Generation,
    pub state: ObservedState,
    pub code: Option<ObservedCode>,
}

/// From a leader to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// Who holds the log: first of all, and when it changes.
    Servers {
        term: Term,
        roll: ServerList,
    },
    Orders {
        term: Term,
        update: AssignmentUpdate,
    },
    /// Everything up to this report is written.
    Written {
        seq: u64,
    },
    /// What routers go by, to a node that cannot read it off the log: all of it first, and then what changes.
    Endpoints {
        term: Term,
        update: EndpointsUpdate,
    },
    /// Which authorities the cell has: at first, and when it changes.
    Authorities {
        term: Term,
        authorities: CellAuthorities,
    },
    /// What it shows for routes and cannot make by itself: all of it, whenever some of it changes. Keys are among it.
    Certificates {
        term: Term,
        certificates: RouteCertificates,
    },
}

/// A message as it travels.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = postcard::to_extend(message, vec![0; 4]).expect("every message can be written");
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Puts frames together from whatever pieces they arrive in.
#[derive(Debug, Default)]
pub struct Frames {
    pending: Vec<u8>,
}

impl Frames {
    pub fn push(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
    }

    /// The next message, if all of it is there.
    pub fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let Some((head, rest)) = self.pending.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MAX_FRAME {
            return Err(wrong(format!(
                "a frame of {length} bytes, at most {MAX_FRAME} are allowed"
            )));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = postcard::from_bytes(body)
            .map_err(|error| wrong(format!("a message that cannot be understood ({error})")))?;
        self.pending.drain(..4 + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_they_were_cut() {
        let sent: Vec<Down> = (0..5).map(|seq| Down::Written { seq }).collect();
        let bytes: Vec<u8> = sent.iter().flat_map(encode).collect();
        for cut in 1..=bytes.len() {
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(cut) {
                frames.push(piece);
                while let Some(message) = frames.take::<Down>().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, sent, "in pieces of {cut}");
        }
    }

    #[test]
    fn a_frame_that_is_too_long_or_garbled_is_refused_before_it_is_read() {
        let mut frames = Frames::default();
        frames.push(&u32::MAX.to_be_bytes());
        assert!(frames.take::<Down>().is_err());
        let mut frames = Frames::default();
        frames.push(&[0, 0, 0, 2, 255, 255]);
        assert!(frames.take::<Down>().is_err());
    }
}
