//! A volume that this client backs up or restores. While it is held, what uses it is stopped; so it is let go whatever happens, also
//! when somebody presses Ctrl-C.

use std::time::Duration;

use plimsoll_api::client::Client;
use plimsoll_api::view::{HoldPurpose, HoldVolume, ProblemCode, VolumeHold};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::error::CliError;
use crate::output::note;

/// How often the cell is told that this client is there: several times before it would be given up.
const RENEW: Duration = Duration::from_secs(10);

const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A hold, and what renews it.
#[derive(Debug)]
pub(super) struct Held {
    client: Client,
    deployment: String,
    volume: String,
    pub(super) hold: VolumeHold,
    renewing: JoinHandle<()>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

pub(super) fn noun(purpose: HoldPurpose) -> &'static str {
    match purpose {
        HoldPurpose::Backup => "backup",
        HoldPurpose::LiveBackup => "live backup",
        HoldPurpose::Restore => "restore",
    }
}

impl Held {
    pub(super) async fn begin(
        client: &Client,
        deployment: &str,
        volume: &str,
        asked: &HoldVolume,
    ) -> Result<Self, CliError> {
        let hold = client.hold_volume(deployment, volume, asked).await?;
        let (client, deployment, volume) =
            (client.clone(), deployment.to_owned(), volume.to_owned());
        let renewing = {
            let (client, deployment, volume) = (client.clone(), deployment.clone(), volume.clone());
            let order = hold.order;
            tokio::spawn(async move {
                loop {
                    sleep(RENEW).await;
                    // A daemon that is away may be back in time; a hold that is lost is noticed at the end.
                    let _ = client.renew_volume_hold(&deployment, &volume, order).await;
                }
            })
        };
        Ok(Self { client, deployment, volume, hold, renewing })
    }

    /// Does the work once nothing uses the volume. What goes wrong ends the hold, with the reason in the audit.
    pub(super) async fn during<T>(
        self,
        work: impl AsyncFnOnce(&Self) -> Result<T, CliError>,
    ) -> Result<(Self, T), CliError> {
        let done = tokio::select! {
            done = async { self.until_open().await?; work(&self).await } => done,
            () = interrupted() => Err(CliError::interrupted("interrupted: nothing came of it\n")),
        };
        match done {
            Ok(done) => Ok((self, done)),
            Err(error) => {
                let why = error.first_line();
                let ended = self.client.end_volume_hold(
                    &self.deployment,
                    &self.volume,
                    self.hold.order,
                    Some(&why),
                );
                // If nobody hears it, the cell ends it by itself after a minute.
                let _ = ended.await;
                Err(error)
            }
        }
    }

    /// Lets go of the volume, and says whether it was held all the time.
    pub(super) async fn end(&self) -> Result<(), CliError> {
        let Self { client, deployment, volume, hold, .. } = self;
        client.end_volume_hold(deployment, volume, hold.order, None).await?;
        Ok(())
    }

    async fn until_open(&self) -> Result<(), CliError> {
        let Self { client, deployment, volume, hold, .. } = self;
        if !hold.services.is_empty() && hold.phase == "stopping" {
            note(&format!("stopping {} for the {}", hold.services.join(", "), noun(hold.purpose)));
        }
        loop {
            match client.volume_hold(deployment, volume, hold.order).await {
                Ok(seen) if seen.phase == "open" => return Ok(()),
                Ok(_) => sleep(LOOK_AGAIN).await,
                Err(error) if error.code() == Some(ProblemCode::VolumeNotHeld) => {
                    return Err(CliError::failed(format!("the hold on {volume} is over"))
                        .hint("`plimsoll audit` says why"));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns when somebody wants it to end.
async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
