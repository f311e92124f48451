//! Copies volumes from another node, over the peer port: what is in each comes as one stream with its checksum, into a volume
//! that was not there before. Whatever goes wrong, nothing of it stays.
//!
//! Before a volume is made, a note on disk says for which move. By it a daemon that was killed half-way knows what is its own
//! to clear away, and that another volume of the name is not.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::{Method, Request, StatusCode};
use plimsoll_model::Generation;
use plimsoll_peer::{PeerClient, Target};
use plimsoll_runtime::{Runtime, VolumeRef, chain};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::cell::ANSWER;
use crate::volume_archive::{self, VolumeTotals};
use crate::volume_orders::VolumeCopy;
use crate::volume_stream::{PieceReader, feed};

/// Where a node lets another read a volume.
pub(crate) const CONTENT: &str = "/peer/volume/content";

/// Where a node says how much is in its volumes.
pub(crate) const SIZE: &str = "/peer/volume/size";

/// How long the other node may take to hear of the move as well.
const UNTOLD: Duration = Duration::from_secs(30);

pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Which volume is to be read, for which move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AskedContent {
    pub(crate) volume: VolumeRef,
    pub(crate) order: Generation,
}

/// Where a node notes which volumes it made for which move.
#[derive(Debug, Clone, Default)]
pub(crate) struct CopyNotes {
    /// None where nothing is kept: then nothing that is there is taken for its own.
    dir: Option<PathBuf>,
}

impl CopyNotes {
    pub(crate) fn below(data_dir: &Path) -> Self {
        Self { dir: Some(data_dir.join("volume-copies")) }
    }

    fn path(&self, order: Generation) -> Option<PathBuf> {
        self.dir.as_ref().map(|dir| dir.join(format!("{order}.json")))
    }

    fn volumes(&self, order: Generation) -> BTreeSet<String> {
        let read = self.path(order).and_then(|path| std::fs::read(path).ok());
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Whether the volume was made here for the move.
    pub(crate) fn has(&self, order: Generation, volume: &str) -> bool {
        self.volumes(order).contains(volume)
    }

    pub(crate) fn add(&self, order: Generation, volume: &str) -> io::Result<()> {
        let (Some(dir), Some(path)) = (&self.dir, self.path(order)) else { return Ok(()) };
        let mut volumes = self.volumes(order);
        volumes.insert(volume.to_owned());
        if !dir.is_dir() {
            plimsoll_files::create_dir(dir, plimsoll_files::modes::DIR)?;
        }
        let bytes = serde_json::to_vec(&volumes).expect("names can be written");
        plimsoll_files::write(&path, &bytes, plimsoll_files::modes::FILE)
    }

    pub(crate) fn forget(&self, order: Generation) {
        if let Some(path) = self.path(order) {
            // A note too many costs a few bytes.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Copies all of the volumes, or none.
pub(crate) async fn copy(
    runtime: &Arc<dyn Runtime>,
    client: Option<&PeerClient>,
    notes: &CopyNotes,
    order: Generation,
    asked: &VolumeCopy,
) -> Result<VolumeTotals, String> {
    let client = client.ok_or("this node reaches no other node")?.apart();
    let from = Target { node: asked.src.clone(), address: asked.address.clone() };
    let mut totals = VolumeTotals::default();
    let mut made = Vec::new();
    for name in &asked.volumes {
        let volume = VolumeRef::new(&asked.deployment, name);
        let copied = copy_one(runtime, &client, notes, order, &from, &volume).await;
        // Also of what failed half-way something may be there.
        if notes.has(order, name) || copied.is_ok() {
            made.push(volume);
        }
        match copied {
            Ok(copied) => {
                totals.files += copied.files;
                totals.bytes += copied.bytes;
            }
            Err(why) => {
                for volume in made {
                    if let Err(error) = runtime.remove_volume(&volume).await {
                        let error = chain(&error);
                        tracing::warn!(%volume, error, "cannot remove half a copy; retrying later");
                    }
                }
                return Err(format!("{name}: {why}"));
            }
        }
    }
    Ok(totals)
}

async fn copy_one(
    runtime: &Arc<dyn Runtime>,
    client: &PeerClient,
    notes: &CopyNotes,
    order: Generation,
    from: &Target,
    volume: &VolumeRef,
) -> Result<VolumeTotals, String> {
    let told = |error: plimsoll_runtime::Error| chain(&error);
    if runtime.volume_dir(volume).await.map_err(told)?.is_some() {
        if !notes.has(order, &volume.name) {
            return Err("a volume of this name is here already".to_owned());
        }
        // An earlier daemon came no further.
        runtime.remove_volume(volume).await.map_err(told)?;
    }
    notes.add(order, &volume.name).map_err(|error| format!("cannot note the copy: {error}"))?;
    let dir = runtime.create_volume(volume).await.map_err(told)?;
    let answer = ask_content(client, from, &AskedContent { volume: volume.clone(), order }).await?;
    let (pieces, reader) = PieceReader::new();
    let reading = tokio::task::spawn_blocking(move || volume_archive::read(&dir, reader));
    feed(Body::new(answer.into_body()), from.node.as_str(), pieces).await;
    match reading.await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err("it broke off".to_owned()),
    }
}

/// Asks the other node for what is in the volume. Both were told of the move, and this one may have heard of it first.
async fn ask_content(
    client: &PeerClient,
    from: &Target,
    asked: &AskedContent,
) -> Result<hyper::Response<Body>, String> {
    let body = Bytes::from(serde_json::to_vec(asked).expect("a question has string keys only"));
    let deadline = Instant::now() + UNTOLD;
    loop {
        let mut request = Request::new(Body::from(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = CONTENT.parse().expect("the endpoint has a good path");
        let answer = client.forward(from, request, ANSWER).await;
        let answer = answer
            .map_err(|error| format!("{} cannot be reached: {}", from.node, chain(&error)))?;
        match answer.status() {
            StatusCode::OK => return Ok(answer),
            StatusCode::FORBIDDEN if Instant::now() < deadline => sleep(ASK_AGAIN).await,
            StatusCode::NOT_FOUND => {
                return Err(format!("{} has no volume of this name", from.node));
            }
            status => return Err(format!("{} answered with status {status}", from.node)),
        }
    }
}

/// How much is in a volume of this node; none where it has none.
pub(crate) async fn size(
    runtime: &Arc<dyn Runtime>,
    volume: &VolumeRef,
) -> Result<Option<VolumeTotals>, String> {
    let dir = runtime.volume_dir(volume).await.map_err(|error| chain(&error))?;
    let Some(dir) = dir else { return Ok(None) };
    let measured = tokio::task::spawn_blocking(move || volume_archive::measure(&dir)).await;
    match measured {
        Ok(totals) => totals.map(Some).map_err(|error| error.to_string()),
        Err(_) => Err("it broke off".to_owned()),
    }
}

/// Asks another node how much is in a volume of it.
pub(crate) async fn ask_size(
    client: &PeerClient,
    to: &Target,
    volume: &VolumeRef,
    within: Duration,
) -> Result<Option<VolumeTotals>, String> {
    let body = serde_json::to_vec(volume).expect("a question has string keys only").into();
    let answer = client.call(to, Method::POST, SIZE, body, within).await;
    let answer =
        answer.map_err(|error| format!("{} cannot be reached: {}", to.node, chain(&error)))?;
    if !answer.status.is_success() {
        return Err(format!("{} answered with status {}", to.node, answer.status));
    }
    let read: Result<Result<Option<VolumeTotals>, String>, _> =
        serde_json::from_slice(&answer.body);
    read.unwrap_or_else(|_| Err(format!("{} answered something else", to.node)))
}
