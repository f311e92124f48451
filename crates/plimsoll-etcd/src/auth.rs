//! The token that goes with every request where etcd asks who we are. It is fetched when it is first needed, and again
//! when etcd no longer takes it.

use std::time::Instant;

use tokio::sync::Mutex;
use tonic::metadata::{Ascii, MetadataValue};

use crate::access::{Effect, EtcdClient, Want};
use crate::config::EtcdCredentials;
use crate::error::{CallFault, Error};
use crate::proto::AuthenticateRequest;
use crate::proto::auth_client::AuthClient;

pub(crate) type Token = Option<MetadataValue<Ascii>>;

/// What we show etcd.
#[derive(Debug, Default)]
pub(crate) struct AuthSession {
    held: Mutex<HeldToken>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct HeldToken {
    pub(crate) token: Token,
    /// How often a token was asked for; with it the one who finds it expired tells whether it was renewed since.
    pub(crate) nth: u64,
}

impl AuthSession {
    pub(crate) async fn token(
        &self,
        client: &EtcdClient,
        until: Instant,
    ) -> Result<HeldToken, Error> {
        let mut held = self.held.lock().await;
        if let Some(credentials) = client.credentials()
            && held.nth == 0
        {
            renew(&mut held, client, credentials, until).await?;
        }
        Ok(held.clone())
    }

    /// Etcd did not take this one. If another was fetched meanwhile, that one is tried first.
    pub(crate) async fn renewed(
        &self,
        client: &EtcdClient,
        stale: u64,
        until: Instant,
    ) -> Result<HeldToken, Error> {
        let Some(credentials) = client.credentials() else {
            return Err(Error::AuthFailed { action: "use etcd", user: None });
        };
        let mut held = self.held.lock().await;
        if held.nth == stale {
            renew(&mut held, client, credentials, until).await?;
        }
        Ok(held.clone())
    }
}

async fn renew(
    held: &mut HeldToken,
    client: &EtcdClient,
    credentials: &EtcdCredentials,
    until: Instant,
) -> Result<(), Error> {
    let EtcdCredentials { user, password } = credentials.clone();
    let message = AuthenticateRequest { name: user.clone(), password };
    let want = Want { action: "authenticate", effect: Effect::None, until };
    let bare = HeldToken::default();
    let asked = client.reach(&want, &bare, message, |channel, request| {
        Box::pin(async move { AuthClient::new(channel).authenticate(request).await })
    });
    held.token = match asked.await {
        Ok(answer) => {
            let unfit =
                |_| Error::Refused { action: "authenticate", why: "its token is no text".into() };
            Some(answer.token.parse().map_err(unfit)?)
        }
        // A cluster that asks nobody takes those with credentials too.
        Err((CallFault::NoAuth, _)) => None,
        Err((CallFault::Credentials, _)) => {
            return Err(Error::AuthFailed { action: "authenticate", user: Some(user) });
        }
        Err((_, error)) => return Err(error),
    };
    held.nth += 1;
    Ok(())
}
