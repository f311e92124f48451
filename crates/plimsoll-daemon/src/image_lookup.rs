//! Asks registries which images tags stand for, through a container engine: this node's own, or that of another node where
//! this one has none. What comes of the answers is settled in [`operations`](crate::operations).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use hyper::Method;
use plimsoll_model::registries::RegistryAuth;
use plimsoll_model::spec::{PullPolicy, UnpinnedImage, is_digest};
use plimsoll_model::{ContainerSpec, NodeId, ServiceName, ServiceSpec};
use plimsoll_peer::{PeerClient, Target};
use plimsoll_runtime::{ImageResolution, Pull, PullError, Runtime, chain};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::context::NodeContext;
use crate::operations::{ImageKey, ResolvedImage, ResolvedImages};

/// How long registries may take, all together. Whoever applies a file waits for it, and a node that passes their request on
/// waits ten seconds.
pub const LOOKUP_WAIT: Duration = Duration::from_secs(6);

/// Where a node answers for its engine.
pub(crate) const RESOLVE: &str = "/peer/resolve";

/// How many registries are asked at once. An engine asks each of them over connections of its own.
const AT_ONCE: usize = 16;

/// How many other nodes are tried where this one has no engine that answers.
const MAX_NODES: usize = 3;

/// An image to look up, with what to show its registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageQuestion {
    pub key: ImageKey,
    pub auth: Option<RegistryAuth>,
}

impl ImageQuestion {
    fn pull(&self) -> Pull {
        let pull = if self.key.is_always_pulled { PullPolicy::Always } else { PullPolicy::Missing };
        let image = self.key.image.clone();
        let container = ContainerSpec { image, pull: Some(pull), ..ContainerSpec::default() };
        Pull::of(&container).with_auth(self.auth.clone().map(Arc::new))
    }
}

/// Looks up every image of these services. It has an answer for each, unless no node of the cell has to do with images.
pub async fn resolve(
    cell: &NodeContext,
    client: Option<&PeerClient>,
    services: &BTreeMap<ServiceName, Arc<ServiceSpec>>,
) -> ResolvedImages {
    let questions = questions(cell, services);
    if questions.is_empty() {
        return ResolvedImages::default();
    }
    let deadline = Instant::now() + LOOKUP_WAIT;
    let mut found = None;
    if pulls_images(cell.runtime.as_ref()) {
        let answers = ask(&cell.runtime, &questions, deadline).await;
        found = Some(answers);
    }
    let is_answered = |answers: &[ResolvedImage]| {
        answers.iter().any(|it| it.unpinned != Some(UnpinnedImage::NoEngine))
    };
    let others = elsewhere(cell);
    let has_engines = found.is_some() || !others.is_empty();
    if !found.as_deref().is_some_and(is_answered) {
        for (node, address) in others.into_iter().take(MAX_NODES) {
            let (Some(client), target) = (client, Target { node, address }) else { break };
            match timeout_at(deadline, ask_node(client, &target, &questions)).await {
                Ok(Ok(answers)) if is_answered(&answers) => {
                    found = Some(answers);
                    break;
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::debug!(node = %target.node, error, "images not looked up");
                }
                Err(_) => break,
            }
        }
    }
    let found = match found {
        Some(found) => found,
        None if has_engines => vec![no_engine("no node answered"); questions.len()],
        None => return ResolvedImages::default(),
    };
    let keys = questions.into_iter().map(|question| question.key);
    let known = keys.zip(found).filter(|(_, found)| *found != ResolvedImage::default());
    ResolvedImages(known.collect())
}

/// Asks another node, which has an answer for each question.
async fn ask_node(
    client: &PeerClient,
    to: &Target,
    questions: &[ImageQuestion],
) -> Result<Vec<ResolvedImage>, String> {
    let body = serde_json::to_vec(questions).expect("a question has string keys only").into();
    let answer = client.call(to, Method::POST, RESOLVE, body, LOOKUP_WAIT).await;
    let answer = answer.map_err(|error| chain(&error))?;
    let found: Option<Vec<ResolvedImage>> = serde_json::from_slice(&answer.body).ok();
    let is_plausible = |found: &ResolvedImage| found.digest.as_deref().is_none_or(is_digest);
    let found = found.filter(|found| {
        answer.status.is_success()
            && found.len() == questions.len()
            && found.iter().all(is_plausible)
    });
    found.ok_or_else(|| format!("{to} answered something else"))
}

/// Asks through an engine of this node, in the order of the questions.
pub async fn ask(
    runtime: &Arc<dyn Runtime>,
    questions: &[ImageQuestion],
    deadline: Instant,
) -> Vec<ResolvedImage> {
    let pulls: Vec<Pull> = questions.iter().map(ImageQuestion::pull).collect();
    let asked = pulls.into_iter().map(|pull| ask_one(Arc::clone(runtime), pull, deadline));
    futures_util::stream::iter(asked).buffered(AT_ONCE).collect().await
}

async fn ask_one(runtime: Arc<dyn Runtime>, pull: Pull, deadline: Instant) -> ResolvedImage {
    match timeout_at(deadline, runtime.resolve(&pull)).await {
        Ok(Ok(resolution)) => of_resolution(resolution),
        Ok(Err(error)) => failed(&error),
        Err(_) => ResolvedImage {
            digest: None,
            unpinned: Some(UnpinnedImage::Unreachable),
            trouble: Some(format!(
                "no answer from its registry within {} s",
                LOOKUP_WAIT.as_secs()
            )),
        },
    }
}

fn questions(
    cell: &NodeContext,
    services: &BTreeMap<ServiceName, Arc<ServiceSpec>>,
) -> Vec<ImageQuestion> {
    let keyed = services.values().filter_map(|spec| Some((ImageKey::of(&spec.container)?, spec)));
    let keyed: BTreeMap<ImageKey, &Arc<ServiceSpec>> = keyed.collect();
    cell.engine.machine().read(|state| {
        let question = |(key, spec): (ImageKey, &Arc<ServiceSpec>)| ImageQuestion {
            auth: state.registry_auth(&spec.container),
            key,
        };
        keyed.into_iter().map(question).collect()
    })
}

fn pulls_images(runtime: &dyn Runtime) -> bool {
    !runtime.lacks().contains(&plimsoll_model::Capability::ImageCommand)
}

/// Other nodes that have an engine and can be reached, ready ones only.
fn elsewhere(cell: &NodeContext) -> Vec<(NodeId, String)> {
    cell.engine.machine().read(|state| {
        let others = state.nodes().iter().filter(|(id, node)| {
            **id != cell.node
                && node.status == plimsoll_model::NodeStatus::Ready
                && node.facts.runtime.pulls_images()
        });
        let reached = others.filter_map(|(id, node)| {
            let address = node.facts.address.clone().filter(|address| !address.is_empty())?;
            Some((id.clone(), address))
        });
        reached.collect()
    })
}

fn of_resolution(resolution: ImageResolution) -> ResolvedImage {
    match resolution {
        ImageResolution::NoImages => ResolvedImage::default(),
        ImageResolution::Registry { digest } => {
            ResolvedImage { digest: Some(digest), ..ResolvedImage::default() }
        }
        ImageResolution::Node { digest, error } => {
            ResolvedImage { digest: Some(digest), unpinned: None, trouble: Some(error.to_string()) }
        }
        ImageResolution::Local => {
            ResolvedImage { unpinned: Some(UnpinnedImage::Local), ..ResolvedImage::default() }
        }
    }
}

fn failed(error: &PullError) -> ResolvedImage {
    let unpinned = match error {
        PullError::NotFound { .. } => UnpinnedImage::NotFound,
        PullError::Denied { .. } => UnpinnedImage::Denied,
        PullError::Unreachable { .. } => UnpinnedImage::Unreachable,
        PullError::Unavailable { .. } => return no_engine(&error.to_string()),
        PullError::NeverPulled { .. }
        | PullError::WrongPlatform { .. }
        | PullError::NoSpace { .. }
        | PullError::Other { .. } => UnpinnedImage::Failed,
    };
    ResolvedImage { digest: None, unpinned: Some(unpinned), trouble: Some(error.to_string()) }
}

fn no_engine(why: &str) -> ResolvedImage {
    let unpinned = Some(UnpinnedImage::NoEngine);
    ResolvedImage { digest: None, unpinned, trouble: Some(why.to_owned()) }
}
