use std::time::Duration;

use hyper::StatusCode;
use plimsoll_model::Millis;
use tokio::sync::watch;

use super::kit::{PATIENCE, Served, ask, text};
use crate::pki::testkit::{cell, now};
use crate::pki::{Authority, Caller, CertificateRefusal, Credentials, NODE_LIFETIME};
use crate::{Error, Limits, PeerClient, PeerServer, raft_router};

#[tokio::test]
async fn a_node_is_known_by_its_certificate() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let birch = PeerClient::new(blue.node("birch"));
    assert_eq!(text(&birch, &ash.target, "/who").await, "birch of cell blue");
    assert_eq!(text(&birch, &ash.target, "/known").await, "birch");
}

#[tokio::test]
async fn a_node_that_is_not_the_one_that_was_meant_is_not_spoken_to() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let birch = PeerClient::new(blue.node("birch"));
    for name in ["cedar", "Ash"] {
        let error = ask(&birch, &ash.as_if(name), "/who").await.unwrap_err();
        let Error::Refused { source: CertificateRefusal::WrongNode { expected, found }, .. } =
            error
        else {
            panic!("{error}");
        };
        assert_eq!((expected.as_str(), found.node.as_str()), (name, "ash"));
    }
}

#[tokio::test]
async fn a_certificate_of_another_cell_is_refused_on_both_sides() {
    // Also of one that goes by the same name.
    for name in ["green", "blue"] {
        let (blue, other) = (cell("blue"), cell(name));
        let ash = Served::new(&blue.node("ash"));
        let stranger = PeerClient::new(other.node("birch"));
        let error = ask(&stranger, &ash.target, "/who").await.unwrap_err();
        let says = Caller::new(blue.cell_id(), &ash.target.node);
        let expected = CertificateRefusal::WrongCell { says };
        assert!(
            matches!(&error, Error::Refused { source, .. } if *source == expected),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_server_refuses_a_certificate_of_another_cell_even_if_the_client_trusts_it() {
    let (blue, green) = (cell("blue"), cell("green"));
    let ash = Served::new(&blue.node("ash"));
    // A thief of a sort: it knows the blue cell, and shows what the green one signed.
    let mixed = green.node("birch").trusting(&blue);
    let error = ask(&PeerClient::new(mixed), &ash.target, "/who").await.unwrap_err();
    let Error::RefusedByPeer { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*source, CertificateRefusal::UnknownAuthority);
    assert!(!error.is_passing());
}

#[tokio::test]
async fn an_expired_certificate_is_refused_on_both_sides() {
    let blue = cell("blue");
    let ash = Served::new(&blue.node("ash"));
    let error =
        ask(&PeerClient::new(blue.expired("birch")), &ash.target, "/who").await.unwrap_err();
    assert!(
        matches!(&error, Error::RefusedByPeer { source: CertificateRefusal::Expired, .. }),
        "{error:?}"
    );
    let stale = Served::new(&blue.expired("cedar"));
    let error = ask(&PeerClient::new(blue.node("birch")), &stale.target, "/who").await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { source: CertificateRefusal::Expired, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_renewed_certificate_is_used_by_the_next_connection_and_open_ones_go_on() {
    let blue = cell("blue");
    let (ash, birch) = (blue.expired("ash"), blue.expired("birch"));
    let served = Served::new(&ash);
    let client = PeerClient::new(birch.clone());
    ask(&client, &served.target, "/who").await.unwrap_err();
    ash.renew(&blue.identity("ash", now(), NODE_LIFETIME)).unwrap();
    birch.renew(&blue.identity("birch", now(), NODE_LIFETIME)).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(text(&client, &served.target, "/known").await, "birch");

    let waiting = {
        let (client, target) = (client.clone(), served.target.clone());
        tokio::spawn(async move { text(&client, &target, "/wait").await })
    };
    served.until_waiting(1).await;
    ash.renew(&blue.identity("ash", now(), NODE_LIFETIME)).unwrap();
    served.counts.release.notify_one();
    assert_eq!(waiting.await.unwrap(), "released");
}

#[tokio::test]
async fn a_connection_ends_with_the_certificate_it_was_opened_with() {
    let blue = cell("blue");
    let served = Served::new(&blue.node("ash"));
    let short = blue.identity("birch", now(), Millis::seconds(2));
    let birch = Credentials::new(&short).unwrap();
    let client = PeerClient::new(birch.clone());
    assert_eq!(text(&client, &served.target, "/known").await, "birch");
    tokio::time::sleep(Duration::from_millis(3_200)).await;
    let error = ask(&client, &served.target, "/known").await.unwrap_err();
    assert!(
        matches!(&error, Error::RefusedByPeer { source: CertificateRefusal::Expired, .. }),
        "{error:?}"
    );
    birch.renew(&blue.identity("birch", now(), NODE_LIFETIME)).unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(text(&client, &served.target, "/known").await, "birch");
}

#[tokio::test]
async fn an_authority_is_rotated_under_requests_and_what_it_vouched_for_ends_with_it() {
    let (old, new) = (cell("blue"), cell("blue"));
    let both = || [old.certificate().clone(), new.certificate().clone()];
    let of = |authority: &Authority, name: &str| authority.identity(name, now(), NODE_LIFETIME);
    let (ash, birch) = (old.node("ash"), old.node("birch"));
    let (served, client) = (Served::new(&ash), PeerClient::new(birch.clone()));
    let served_by_birch = Served::new(&birch);
    let back = PeerClient::new(ash.clone());
    let thief = PeerClient::new(old.node("birch"));
    let all = async || {
        assert_eq!(text(&client, &served.target, "/known").await, "birch");
        assert_eq!(text(&back, &served_by_birch.target, "/known").await, "ash");
    };
    all().await;
    assert_eq!(text(&thief, &served.target, "/known").await, "birch");
    let waiting = {
        let (client, target) = (client.clone(), served.target.clone());
        tokio::spawn(async move { text(&client, &target, "/wait").await })
    };
    served.until_waiting(1).await;
    for (name, credentials) in [("ash", &ash), ("birch", &birch)] {
        credentials.renew(&of(&old, name).trusting(both(), 1)).unwrap();
        all().await;
    }
    for (name, credentials) in [("birch", &birch), ("ash", &ash)] {
        credentials.renew(&of(&new, name).trusting(both(), 2)).unwrap();
        all().await;
    }
    // A newcomer of the next authority and one that has not renewed yet are both let in.
    assert_eq!(text(&PeerClient::new(new.node("elm")), &served.target, "/known").await, "elm");
    assert_eq!(text(&thief, &served.target, "/known").await, "birch");
    for (name, credentials) in [("ash", &ash), ("birch", &birch)] {
        credentials.renew(&of(&new, name).trusting([new.certificate().clone()], 3)).unwrap();
        all().await;
    }
    served.counts.release.notify_one();
    assert_eq!(waiting.await.unwrap(), "released", "what was under way came to its end");

    // Its open connection does not help, nor does another.
    let refused = async || loop {
        match ask(&thief, &served.target, "/known").await {
            Err(error @ (Error::Refused { .. } | Error::RefusedByPeer { .. })) => return error,
            // Its connection is closing; what is asked meanwhile is not answered.
            Err(Error::Closed { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    let says = Caller::new(new.cell_id(), &served.target.node);
    let error = refused().await;
    assert!(
        matches!(&error, Error::Refused { source: CertificateRefusal::WrongCell { says: found }, .. } if *found == says),
        "{error:?}"
    );
    let knowing = PeerClient::new(old.node("birch").trusting(&new));
    let error = ask(&knowing, &served.target, "/known").await.unwrap_err();
    let Error::RefusedByPeer { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*source, CertificateRefusal::UnknownAuthority);
}

#[tokio::test]
async fn who_has_no_certificate_is_told_that_one_is_needed() {
    let blue = cell("blue");
    let address = "127.0.0.1:0".parse().unwrap();
    let server = PeerServer::bind(address, &blue.node("ash"), Limits::default()).unwrap();
    let address = server.local_addr().unwrap().to_string();
    let (_end, ending) = watch::channel(false);
    tokio::spawn(server.serve(raft_router(|_, message| async move { message.into() }), ending));
    let asked = crate::ask(blue.fingerprint(), &address, "/peer/raft", "vote".into(), PATIENCE);
    let response = asked.await.unwrap().response;
    assert_eq!(response.status, StatusCode::UNAUTHORIZED);
    assert_eq!(response.body, "a node's certificate is needed here");
}

#[tokio::test]
async fn a_shard_is_a_stranger_to_nodes_and_no_server_to_anybody() {
    let blue = cell("blue");
    // It goes by the name of a node, which makes it none.
    let shard = blue.shard("ash");
    let ash = Served::new(&blue.node("ash"));
    let client = PeerClient::new(shard.clone());
    assert_eq!(text(&client, &ash.target, "/who").await, "nobody");
    let known = ask(&client, &ash.target, "/known").await.unwrap();
    assert_eq!(known.status, StatusCode::UNAUTHORIZED);
    // A node that would serve with it, in the place of the node whose name it has.
    let thief = Served::new(&shard);
    let birch = PeerClient::new(blue.node("birch"));
    let error = ask(&birch, &thief.target, "/who").await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    let joining = crate::meet(blue.fingerprint(), &thief.target.address, PATIENCE).await;
    assert!(matches!(joining, Err(Error::Refused { .. })), "{joining:?}");
}
