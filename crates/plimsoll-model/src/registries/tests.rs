use super::*;
use crate::audit::AuditKind;
use crate::command::{Change, Refusal};
use crate::spec::PullPolicy;
use crate::testkit::{Cell, cell, cpus};
use crate::transition::Writer;

fn login(registry: &str, user: &str, password: &str) -> Change {
    Change::LoginRegistry {
        registry: RegistryHost::parse(registry).unwrap(),
        user: user.to_owned(),
        password: RegistryPassword::new(password),
    }
}

fn logout(registry: &str) -> Change {
    Change::LogoutRegistry { registry: RegistryHost::parse(registry).unwrap() }
}

fn container(image: &str) -> ContainerSpec {
    ContainerSpec { image: image.to_owned(), ..ContainerSpec::default() }
}

/// Why it was refused, if it was.
fn refused(cell: &mut Cell, change: Change) -> Option<Refusal> {
    cell.apply(Writer::Operator, vec![change.free()]).err().map(|rejection| rejection.reason)
}

fn after<const N: usize>(changes: [Change; N]) -> Cell {
    let mut cell = cell().node("ash", cpus(4));
    for change in changes {
        assert_eq!(refused(&mut cell, change), None);
    }
    cell
}

fn told(cell: &Cell) -> Vec<String> {
    let is_it = |kind: &AuditKind| kind.word().starts_with("registry_");
    let events = cell.state.audit().events().filter(|event| is_it(&event.what));
    events.map(|event| event.what.to_string()).collect()
}

#[test]
fn a_registry_goes_by_its_host() {
    for (text, host) in [
        ("registry.example.org", "registry.example.org"),
        ("Registry.Example.Org:5000", "registry.example.org:5000"),
        ("https://registry.example.org/v2/", "registry.example.org"),
        ("https://index.docker.io/v1/", "docker.io"),
        ("docker.io", "docker.io"),
    ] {
        assert_eq!(RegistryHost::parse(text).unwrap().as_str(), host, "{text}");
    }
    for text in ["", "https://", "a b", "-x", "host?x=1"] {
        assert!(RegistryHost::parse(text).is_err(), "{text}");
    }
}

#[test]
fn credentials_go_with_the_images_of_their_registry_alone() {
    let cell = after([login("127.0.0.1:5000", "ash", "one"), login("docker.io", "elm", "two")]);
    let user = |container: &ContainerSpec| cell.state.registry_auth(container).map(|it| it.user);
    for (image, expected) in [
        ("127.0.0.1:5000/app:1", Some("ash")),
        ("127.0.0.1:5001/app:1", None),
        ("127.0.0.1:5000.example.org/app:1", None),
        ("nginx", Some("elm")),
        ("docker.io/library/nginx:1", Some("elm")),
        ("team/app", Some("elm")),
        ("", None),
    ] {
        assert_eq!(user(&container(image)).as_deref(), expected, "{image}");
    }
    let never = ContainerSpec { pull: Some(PullPolicy::Never), ..container("nginx") };
    assert_eq!(user(&never), None, "what is not pulled needs none");
}

#[test]
fn a_login_replaces_the_one_before_and_a_logout_ends_it() {
    let mut cell = after([login("r.example", "ash", "one"), login("r.example", "elm", "two")]);
    let auth = cell.state.registry_auth(&container("r.example/app")).unwrap();
    assert_eq!((auth.user.as_str(), auth.password.expose()), ("elm", "two"));
    assert_eq!(refused(&mut cell, logout("r.example")), None);
    assert!(cell.state.registries().is_empty());
    assert_eq!(
        told(&cell),
        [
            "logged in to registry r.example as ash",
            "logged in to registry r.example as elm",
            "logged out of registry r.example",
        ]
    );
    let registry = RegistryHost::parse("r.example").unwrap();
    let missing = Refusal::NoSuchRegistry { registry };
    assert_eq!(refused(&mut cell, logout("r.example")), Some(missing));
}

#[test]
fn what_no_registry_takes_is_refused() {
    let mut cell = after([]);
    let long = "x".repeat(MAX_CREDENTIAL + 1);
    for (user, password) in [("", "p"), ("u", ""), (&long, "p"), ("u", &long)] {
        assert!(refused(&mut cell, login("r.example", user, password)).is_some());
    }
    assert!(cell.state.registries().is_empty());
}

#[test]
fn a_password_is_in_no_print() {
    let cell = after([login("r.example", "ash", "hunter2")]);
    let auth = cell.state.registry_auth(&container("r.example/app"));
    let printed = format!("{:?} {auth:?} {:?}", cell.state, login("r.example", "ash", "hunter2"));
    assert!(!printed.contains("hunter2") && printed.contains("r.example"), "{printed}");
}
