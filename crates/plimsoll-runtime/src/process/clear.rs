//! The end of a cell on this host: everything of it is stopped and cleared away, also what no daemon knows of.

use super::cgroup::Cgroups;
use super::{ProcessInner, ProcessRuntime};
use crate::error::Result;
use crate::runtime::Runtime;

impl ProcessRuntime {
    /// Stops all of the cell's services, each with its own grace, and removes them. For whoever will not need the cell
    /// again, with no daemon left that would start them anew.
    pub async fn clear(&self) -> Result<()> {
        let tags: Vec<_> = self.list().await?.into_iter().map(|found| found.tag).collect();
        let stops = tags.iter().map(|tag| {
            let (inner, tag) = (std::sync::Arc::clone(&self.0), tag.clone());
            tokio::spawn(async move { end(&inner, &tag).await })
        });
        // All are told before any is waited for: their graces pass side by side.
        let stops: Vec<_> = stops.collect();
        for (stop, tag) in stops.into_iter().zip(&tags) {
            let failed = |error| crate::Error::failed(crate::Operation::Stop, tag, error);
            stop.await.map_err(failed)??;
        }
        self.0.cgroups.forget();
        Ok(())
    }
}

async fn end(inner: &ProcessInner, tag: &crate::Tag) -> Result<()> {
    inner.stop(tag).await?;
    inner.remove(tag).await
}

impl Cgroups {
    /// Gives up the cell's own, if nothing is in it any more.
    fn forget(&self) {
        let ours = match self {
            Self::None => &[],
            Self::V2(ours) => std::slice::from_ref(ours),
            Self::V1(ours) => ours.as_slice(),
        };
        for dir in ours {
            let _ = std::fs::remove_dir(dir);
        }
    }
}
