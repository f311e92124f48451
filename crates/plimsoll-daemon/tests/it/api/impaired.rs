//! A log that takes no writes says so before anybody tries, wherever one looks.

use std::path::Path;
use std::sync::Arc;

use plimsoll_api::view::{ProblemCode, ReasonCode};
use plimsoll_store::Error;

use super::faulty_engine::Fault;
use super::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_takes_no_writes_is_not_ready_and_says_why_also_while_somebody_leads() {
    let (daemon, engine) = daemon_with_faults().await;
    let client = &daemon.client;
    let ready = client.ready(false).await.unwrap();
    assert!(ready.is_ready && ready.health.trouble.is_none(), "{ready:?}");
    assert_eq!(client.status().await.unwrap().cell.trouble, None);
    for (error, code, reason) in [
        (
            Error::DiskFull { dir: Arc::from(Path::new("/data")) },
            ProblemCode::DiskFull,
            ReasonCode::DiskFull,
        ),
        (Error::StoreFull("etcd".into()), ProblemCode::StoreFull, ReasonCode::StoreFull),
        (Error::LogLost("entry 5".into()), ProblemCode::LogLost, ReasonCode::LogLost),
        (Error::Disk("it is gone".into()), ProblemCode::Disk, ReasonCode::DiskFailed),
    ] {
        let message = error.to_string();
        engine.set(Some(Fault::Impaired(error)));
        let ready = client.ready(false).await.unwrap();
        assert!(!ready.is_ready && ready.health.trouble == Some(code), "{ready:?}");
        assert_eq!((ready.why[0].word, &ready.why[0].text), (reason, &message));
        let problem = client.status().await.unwrap().cell.trouble.unwrap();
        assert_eq!((problem.code, &problem.message), (code, &message));
        assert!(problem.hint.is_some(), "{problem:?}");
        assert_eq!(client.cell().await.unwrap().trouble.map(|it| it.code), Some(code));
    }
    engine.set(None);
    assert!(client.ready(false).await.unwrap().is_ready);
}
