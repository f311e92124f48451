//! A door to etcd that can be stalled, as if the network were, or slammed.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    address: String,
    stalled: watch::Sender<bool>,
    /// Connections of an older generation end.
    generation: Arc<watch::Sender<u64>>,
}

impl Proxy {
    pub(crate) async fn to(endpoint: &str) -> Self {
        let target = endpoint.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stalled = watch::Sender::new(false);
        let generation = Arc::new(watch::Sender::new(0));
        let (gate, current) = (stalled.subscribe(), Arc::clone(&generation));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                for (source, sink) in [(from_client, to_server), (from_server, to_client)] {
                    tokio::spawn(pump(source, sink, gate.clone(), current.subscribe()));
                }
            }
        });
        Self { address, stalled, generation }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Nothing passes, and nobody is told.
    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// Ends every connection there is.
    pub(crate) fn cut(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}

async fn pump(
    mut source: OwnedReadHalf,
    mut sink: OwnedWriteHalf,
    mut gate: watch::Receiver<bool>,
    mut generation: watch::Receiver<u64>,
) {
    let mut buffer = vec![0; 16 << 10];
    let passed = async {
        loop {
            gate.wait_for(|stalled| !stalled).await.ok()?;
            let count = source.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
            gate.wait_for(|stalled| !stalled).await.ok()?;
            sink.write_all(&buffer[..count]).await.ok()?;
        }
    };
    // What was held back goes with a connection that is cut.
    tokio::select! {
        biased;
        _ = generation.changed() => {}
        None::<()> = passed => {}
        else => {}
    }
}
