//! Users, passwords and permissions.

use plimsoll_etcd::testkit::EtcdLab;
use plimsoll_etcd::{Error, EtcdClient, EtcdConfig, EtcdCredentials, Keys};

/// A cluster where `ash` may write below `/ash/`.
fn guarded(flags: &[&str]) -> Option<EtcdLab> {
    let lab = EtcdLab::start(1, flags)?;
    lab.ctl(&["user", "add", "root:secret"]);
    lab.ctl(&["user", "grant-role", "root", "root"]);
    lab.ctl(&["user", "add", "ash:birch"]);
    lab.ctl(&["role", "add", "writer"]);
    lab.ctl(&["role", "grant-permission", "writer", "--prefix=true", "readwrite", "/ash/"]);
    lab.ctl(&["user", "grant-role", "ash", "writer"]);
    lab.ctl(&["auth", "enable"]);
    Some(lab)
}

fn user(lab: &EtcdLab, user: &str, password: &str) -> EtcdClient {
    let credentials = EtcdCredentials { user: user.into(), password: password.into() };
    EtcdClient::new(EtcdConfig { credentials: Some(credentials), ..lab.config() }).unwrap()
}

#[tokio::test]
async fn a_user_writes_where_its_role_allows_and_is_told_where_it_does_not() {
    let Some(lab) = guarded(&[]) else { return };
    let client = user(&lab, "ash", "birch");
    let revision = client.put("/ash/a", "x").await.unwrap();
    assert!(client.get("/ash/a").await.unwrap().is_some());
    let error = client.put("/cedar/a", "x").await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    let mut watching = client.watch(Keys::prefix("/ash/"), revision).await.unwrap();
    assert_eq!(watching.next().await.unwrap().changes.len(), 1);
    let error = client.watch(Keys::prefix("/cedar/"), revision).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_one_are_named_and_nothing_is_written() {
    let Some(lab) = guarded(&[]) else { return };
    for (client, says) in [
        (user(&lab, "ash", "wrong"), "etcd rejected user ash or its password"),
        (user(&lab, "nobody", "birch"), "etcd rejected user nobody or its password"),
        (EtcdClient::new(lab.config()).unwrap(), "etcd requires a user name and a password"),
    ] {
        let error = client.put("/ash/a", "x").await.unwrap_err();
        assert!(matches!(error, Error::AuthFailed { .. }), "{error}");
        assert!(error.to_string().ends_with(says), "{error}");
        assert!(client.get("/ash/a").await.is_err());
    }
    assert_eq!(user(&lab, "ash", "birch").get("/ash/a").await.unwrap(), None);
}

#[tokio::test]
async fn a_token_that_expired_is_renewed_unseen() {
    let Some(lab) = guarded(&["--auth-token-ttl", "1"]) else { return };
    let client = user(&lab, "ash", "birch");
    client.put("/ash/a", "x").await.unwrap();
    // Nothing tells when etcd has forgotten it, so we wait out its time.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    client.put("/ash/a", "y").await.unwrap();
    // A role that changed makes every token old as well.
    let root = ["--user", "root:secret"];
    lab.ctl(&[&root[..], &["role", "add", "reader"]].concat());
    lab.ctl(&[&root[..], &["user", "grant-role", "ash", "reader"]].concat());
    client.put("/ash/a", "z").await.unwrap();
}

#[tokio::test]
async fn credentials_do_no_harm_where_nobody_asks_for_them_and_serve_when_somebody_does() {
    let Some(lab) = EtcdLab::start(1, &[]) else { return };
    let client = user(&lab, "root", "secret");
    client.put("/a", "x").await.unwrap();
    lab.ctl(&["user", "add", "root:secret"]);
    lab.ctl(&["user", "grant-role", "root", "root"]);
    lab.ctl(&["auth", "enable"]);
    client.put("/a", "y").await.unwrap();
}
