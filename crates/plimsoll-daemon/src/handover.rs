//! What two processes of one node say to each other while the second takes the place of the first, and the sockets that go
//! from one to the other with it.
//!
//! ```text
//! predecessor                        successor
//!    (starts it)
//!                      <- Hello        it can read its arguments and its data directory
//!    Socket, each with its descriptor ->
//!    Elder, each with its channel ->   those before it that still have clients
//!    Go ->                             the data directory is free
//!                      <- Ready        it routes, and lets clients in
//!    (lets nobody in any more)
//!                      <- Bye          it was told to stop, and so the other one is
//! ```
//!
//! They speak over a pair of sockets, of which the successor has one as its standard input: so nobody else can speak to
//! either, nothing is left behind, and no path can be too long.

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use plimsoll_model::Level;
use plimsoll_router::sockets::SocketName;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The longest message: a path has at most 4,096 bytes.
const LONGEST: usize = 8 << 10;

/// What is said. See the module's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoverMessage {
    /// With the newest level that the successor can read, and its version.
    Hello {
        reads: Level,
        version: String,
    },
    Socket(SocketName),
    Elder,
    Go,
    Ready,
    Bye,
}

/// One end. It tells messages apart, and closes when the other end does.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    /// Our end, and that for the standard input of a successor.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (near, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self::on(near)?, far))
    }

    pub fn on(end: OwnedFd) -> io::Result<Self> {
        let end = std::os::unix::net::UnixStream::from(end);
        end.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(end)?))
    }

    pub async fn say(&self, word: &HandoverMessage) -> io::Result<()> {
        self.send(word, None).await
    }

    /// Gives the other end a socket, and its name with it.
    pub async fn give(&self, name: &SocketName, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.send(&HandoverMessage::Socket(name.clone()), Some(socket)).await
    }

    /// Gives the other end the channel to a process that handed over before, and still has clients.
    pub async fn give_elder(&self, elder: &Self) -> io::Result<()> {
        self.send(&HandoverMessage::Elder, Some(elder.0.as_fd())).await
    }

    /// Whether the other end is known to have closed. Only for who hears nothing from it any more.
    pub fn is_closed(&self) -> bool {
        matches!(self.0.try_read(&mut [0]), Ok(0))
    }

    async fn send(&self, word: &HandoverMessage, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = encode(word);
        let send = || {
            let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut with = SendAncillaryBuffer::new(&mut space);
            if !sockets.is_empty() && !with.push(SendAncillaryMessage::ScmRights(&sockets)) {
                return Err(io::Error::other("there is no room for a descriptor"));
            }
            Ok(sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut with, SendFlags::NOSIGNAL)?)
        };
        self.0.async_io(Interest::WRITABLE, send).await.map(drop)
    }

    /// What the other end says next, and the socket that comes with it; none if it has closed.
    pub async fn hear(&self) -> io::Result<Option<(HandoverMessage, Option<OwnedFd>)>> {
        let receive = || {
            let mut bytes = vec![0; LONGEST];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut with = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let received = recvmsg(&self.0, &mut slices, &mut with, RecvFlags::CMSG_CLOEXEC);
            let length = match received {
                Ok(received) => received.bytes,
                // It closed before it had heard all that was said: an end like any other.
                Err(rustix::io::Errno::CONNRESET) => 0,
                Err(error) => return Err(error.into()),
            };
            let socket = with.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
                _ => None,
            });
            bytes.truncate(length);
            Ok((bytes, socket))
        };
        let (bytes, socket) = self.0.async_io(Interest::READABLE, receive).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let word = decode(&bytes).ok_or_else(|| {
            let said = String::from_utf8_lossy(&bytes).into_owned();
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{said:?} is no word of a hand-over"),
            )
        })?;
        Ok(Some((word, socket)))
    }
}

/// A word, a space, and what belongs to it.
fn encode(word: &HandoverMessage) -> Vec<u8> {
    let text = match word {
        HandoverMessage::Hello { reads: Level(level), version } => {
            format!("hello {level} {version}")
        }
        HandoverMessage::Socket(SocketName::Tcp(address)) => format!("tcp {address}"),
        HandoverMessage::Socket(SocketName::Udp(address)) => format!("udp {address}"),
        HandoverMessage::Socket(SocketName::Unix(path)) => {
            return [b"unix ", path.as_os_str().as_bytes()].concat();
        }
        HandoverMessage::Elder => "elder".to_owned(),
        HandoverMessage::Go => "go".to_owned(),
        HandoverMessage::Ready => "ready".to_owned(),
        HandoverMessage::Bye => "bye".to_owned(),
    };
    text.into_bytes()
}

fn decode(bytes: &[u8]) -> Option<HandoverMessage> {
    if let Some(path) = bytes.strip_prefix(b"unix ") {
        return Some(HandoverMessage::Socket(SocketName::Unix(PathBuf::from(OsStr::from_bytes(
            path,
        )))));
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match word {
        "hello" => {
            let (level, version) = rest.split_once(' ')?;
            HandoverMessage::Hello {
                reads: Level(level.parse().ok()?),
                version: version.to_owned(),
            }
        }
        "tcp" => HandoverMessage::Socket(SocketName::Tcp(rest.parse().ok()?)),
        "udp" => HandoverMessage::Socket(SocketName::Udp(rest.parse().ok()?)),
        "elder" => HandoverMessage::Elder,
        "go" => HandoverMessage::Go,
        "ready" => HandoverMessage::Ready,
        "bye" => HandoverMessage::Bye,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_router::Sockets;
    use rustix::io::{FdFlags, fcntl_getfd};

    fn pair() -> (Channel, Channel) {
        let (near, far) = Channel::pair().unwrap();
        (near, Channel::on(far).unwrap())
    }

    #[tokio::test]
    async fn every_word_is_heard_as_it_was_said_and_then_the_end() {
        let (near, far) = pair();
        let words = [
            HandoverMessage::Hello { reads: Level(7), version: "0.1.0 of today".to_owned() },
            HandoverMessage::Socket(SocketName::Tcp("[::]:8080".parse().unwrap())),
            HandoverMessage::Socket(SocketName::Udp("127.0.0.1:53".parse().unwrap())),
            HandoverMessage::Socket(SocketName::Unix(
                OsStr::from_bytes(b"/run/a b\xff.sock").into(),
            )),
            HandoverMessage::Elder,
            HandoverMessage::Go,
            HandoverMessage::Ready,
            HandoverMessage::Bye,
        ];
        for word in &words {
            near.say(word).await.unwrap();
        }
        drop(near);
        for word in words {
            let (heard, socket) = far.hear().await.unwrap().unwrap();
            assert_eq!((heard, socket.is_none()), (word, true));
        }
        assert!(far.hear().await.unwrap().is_none());
        assert!(far.say(&HandoverMessage::Ready).await.is_err(), "nobody is there");
    }

    #[tokio::test]
    async fn a_channel_that_was_given_on_leads_where_it_led() {
        let ((first, second), (near, far)) = (pair(), pair());
        near.give_elder(&second).await.unwrap();
        drop(second);
        let (word, elder) = far.hear().await.unwrap().unwrap();
        let elder = Channel::on(elder.unwrap()).unwrap();
        elder.say(&HandoverMessage::Bye).await.unwrap();
        assert_eq!(
            (word, first.hear().await.unwrap().unwrap().0),
            (HandoverMessage::Elder, HandoverMessage::Bye)
        );
        assert!(!elder.is_closed());
        drop(first);
        while !elder.is_closed() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_nobody_says_is_an_error() {
        let (near, far) = Channel::pair().unwrap();
        sendmsg(
            &far,
            &[IoSlice::new(b"good day")],
            &mut SendAncillaryBuffer::default(),
            SendFlags::empty(),
        )
        .unwrap();
        let error = near.hear().await.unwrap_err().to_string();
        assert_eq!(error, "\"good day\" is no word of a hand-over");
    }

    #[tokio::test]
    async fn sockets_come_with_their_names_and_go_to_no_child() {
        let (near, far) = pair();
        let (before, any) = (Sockets::default(), "127.0.0.1:0".parse().unwrap());
        // More than one message can carry.
        let held: Vec<_> =
            (0..300).map(|_| before.tcp(any, plimsoll_router::bind).unwrap()).collect();
        let mut ports: Vec<_> = held.iter().map(|it| it.local_addr().unwrap().port()).collect();
        let giving = async {
            for (name, socket) in before.hand_over() {
                near.give(&name, socket.as_fd()).await.unwrap();
            }
            near.say(&HandoverMessage::Go).await.unwrap();
        };
        let taking = async {
            let mut taken = Vec::new();
            while let (HandoverMessage::Socket(name), socket) = far.hear().await.unwrap().unwrap() {
                let socket = socket.unwrap();
                assert!(fcntl_getfd(&socket).unwrap().contains(FdFlags::CLOEXEC));
                taken.push((name, socket));
            }
            Sockets::inherited(taken)
        };
        let ((), after) = tokio::join!(giving, taking);
        let again: Vec<_> =
            (0..300).map(|_| after.tcp(any, |_| panic!("it was given")).unwrap()).collect();
        let mut found: Vec<_> = again.iter().map(|it| it.local_addr().unwrap().port()).collect();
        ports.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, ports);
    }
}
