//! The way to an ACME authority: HTTPS with the TLS that the rest of the daemon has, one connection a request. An authority
//! is asked a dozen times a certificate, so nothing is kept open.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{DATE, HOST, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use plimsoll_model::Millis;
use plimsoll_model::acme::AcmeSettings;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(30);

/// The most bytes of an answer: a chain is a tenth of it.
const MAX_ANSWER: usize = 1 << 20;

/// Where systems keep the certificates they trust.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

type Boxed = Box<dyn StdError + Send + Sync>;

/// Asks over HTTPS. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct AcmeHttp {
    tls: Arc<ClientConfig>,
    retry_after: Arc<Mutex<Option<Millis>>>,
}

impl AcmeHttp {
    pub(super) fn new(settings: &AcmeSettings) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        let pem = match &settings.ca {
            Some(pem) => pem.clone().into_bytes(),
            None => system_bundle()?,
        };
        for certificate in CertificateDer::pem_slice_iter(&pem).flatten() {
            // One that cannot be used is left out, as everybody does with what a system trusts.
            let _ = roots.add(certificate);
        }
        if roots.is_empty() {
            return Err(
                "there is no certificate to check the authority's server against".to_owned()
            );
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let tls = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        Ok(Self { tls, retry_after: Arc::default() })
    }

    /// How long the last refusal asked us to wait.
    pub(super) fn retry_after(&self) -> Option<Millis> {
        *self.retry_after.lock().expect("no holder panics")
    }

    async fn ask(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Boxed> {
        let response = timeout(ANSWER, self.send(request)).await??;
        if !response.status().is_success() {
            let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let date = response.headers().get(DATE).and_then(|value| value.to_str().ok());
            let wait = asked.and_then(|asked| wait(asked, date));
            *self.retry_after.lock().expect("no holder panics") = wait;
        }
        Ok(BytesResponse::from(response))
    }

    async fn send(
        &self,
        mut request: Request<BodyWrapper<Bytes>>,
    ) -> Result<Response<Full<Bytes>>, Boxed> {
        let (host, port, authority) = place(request.uri())?;
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        let name = ServerName::try_from(host)?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the sender, which is dropped with this.
        let driver = tokio::spawn(connection);
        request.headers_mut().insert(HOST, HeaderValue::from_str(&authority)?);
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse()?;
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
        driver.abort();
        Ok(Response::from_parts(parts, Full::new(body)))
    }
}

impl HttpClient for AcmeHttp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let asked = self.clone().ask(request);
        Box::pin(async move { asked.await.map_err(Error::Other) })
    }
}

/// The host, port and authority of a URL. In the clear nobody is asked: what is said there is believed.
fn place(uri: &Uri) -> Result<(String, u16, String), Boxed> {
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("https"));
    let authority = authority.ok_or_else(|| format!("{uri} is not an https:// URL"))?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    Ok((host, authority.port_u16().unwrap_or(443), authority.as_str().to_owned()))
}

/// Seconds, or a date, which counts from the date of the answer: our clock may be wrong.
fn wait(asked: &str, date: Option<&str>) -> Option<Millis> {
    if let Ok(seconds) = asked.trim().parse::<u64>() {
        return Some(Millis(seconds.saturating_mul(1_000)));
    }
    let seconds = |text: &str| {
        let parsed = jiff::fmt::rfc2822::parse(text).ok()?;
        u64::try_from(parsed.timestamp().as_second()).ok()
    };
    let left = seconds(asked)?.saturating_sub(seconds(date?)?);
    Some(Millis(left.saturating_mul(1_000)))
}

fn system_bundle() -> Result<Vec<u8>, String> {
    let named = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
    let paths = named.into_iter().chain(BUNDLES.map(std::path::PathBuf::from));
    for path in paths {
        match std::fs::read(&path) {
            Ok(pem) => return Ok(pem),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        }
    }
    Err("this machine has no list of trusted certificates; install ca-certificates, or name one with --acme-ca".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_asked_and_a_wait_is_seconds_or_a_date() {
        let place =
            |text: &str| place(&text.parse().unwrap()).ok().map(|(host, port, _)| (host, port));
        assert_eq!(place("https://ca.example/dir"), Some(("ca.example".to_owned(), 443)));
        assert_eq!(place("https://[::1]:14000/dir"), Some(("::1".to_owned(), 14_000)));
        assert_eq!(place("http://ca.example/dir"), None);
        let date = Some("Tue, 17 Nov 2026 12:00:00 GMT");
        for (asked, date, expected) in [
            ("120", None, Some(120)),
            ("Tue, 17 Nov 2026 12:01:00 GMT", date, Some(60)),
            ("Tue, 17 Nov 2026 11:01:00 GMT", date, Some(0)),
            ("soon", date, None),
            ("-5", None, None),
        ] {
            assert_eq!(wait(asked, date), expected.map(|it: u64| Millis(it * 1_000)), "{asked}");
        }
    }
}
