//! The cell's account at an authority: its key is in the log before the authority hears of it, so that whoever leads next
//! has the same account.

use instant_acme::{Account, Key};
use plimsoll_model::acme::{AcmeAccount, AcmeChange, AcmeFailureKind, AcmeSettings, SecretKey};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::client::AcmeHttp;
use super::order::{failure, local};
use super::{Asking, StepEnd, StepFailure};

/// Sees to it that there is one. Who asks for it agrees to the authority's terms of service, as `--acme-email` says.
pub(super) async fn ensure(asking: &Asking) -> Result<(), StepEnd> {
    let Some((settings, known)) = asking.settings() else { return Ok(()) };
    let known = match known {
        Some(AcmeAccount { url: Some(_), .. }) => return Ok(()),
        Some(known) => known,
        None => {
            let (_, key) = Key::generate_pkcs8().map_err(|error| local(&error))?;
            let key = SecretKey::new(key.secret_pkcs8_der().to_vec());
            let directory = settings.directory.clone();
            let account = AcmeAccount { directory, key, url: None };
            asking.write(AcmeChange::SetAccount { account: account.clone() }).await?;
            account
        }
    };
    let http = AcmeHttp::new(&settings).map_err(|why| local(&why))?;
    let failed = |error: instant_acme::Error| failure(&error, &http);
    let der = PrivatePkcs8KeyDer::from(known.key.expose().to_vec());
    let key = Key::from_pkcs8_der(der.clone_key()).map_err(|error| local(&error))?;
    let builder = Account::builder_with_http(Box::new(http.clone()));
    let made =
        builder.create_from_key((key, PrivateKeyDer::Pkcs8(der)), settings.directory.clone());
    let (account, _) = made.await.map_err(failed)?;
    account.update_contacts(&[&format!("mailto:{}", settings.email)]).await.map_err(failed)?;
    let account = AcmeAccount { url: Some(account.id().to_owned()), ..known };
    asking.write(AcmeChange::SetAccount { account }).await?;
    Ok(())
}

/// The account as it can be asked with.
pub(super) async fn open(
    settings: &AcmeSettings,
    known: &AcmeAccount,
    http: &AcmeHttp,
) -> Result<Account, StepFailure> {
    let Some(url) = &known.url else {
        let text = "the account is not made yet".to_owned();
        return Err(StepFailure { kind: AcmeFailureKind::Unavailable, text, retry_after: None });
    };
    let key = PrivatePkcs8KeyDer::from(known.key.expose());
    let builder = Account::builder_with_http(Box::new(http.clone()));
    let opened = builder.from_parts(url.clone(), key, settings.directory.clone()).await;
    opened.map_err(|error| failure(&error, http))
}
