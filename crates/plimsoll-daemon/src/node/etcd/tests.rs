use super::*;

fn endpoints(at: &[&str]) -> EtcdOptions {
    EtcdOptions {
        endpoints: at.iter().map(|at| (*at).to_owned()).collect(),
        ..EtcdOptions::default()
    }
}

fn memory(etcd: Option<EtcdRecord>) -> NodeFile {
    NodeFile {
        name: "ash".parse().unwrap(),
        runtime: None,
        joined: None,
        join_token: None,
        incarnation: plimsoll_store::Incarnation::default(),
        etcd,
    }
}

fn kept() -> EtcdRecord {
    let options = EtcdOptions {
        prefix: Some("/cells/home".into()),
        ttl_seconds: Some(5),
        ca: Some("/etc/ca.pem".into()),
        certificate: Some("/etc/old.pem".into()),
        key: Some("/etc/old.key".into()),
        user: Some("plimsoll".into()),
        ..endpoints(&["https://a:2379"])
    };
    EtcdRecord { cell_id: "home".parse().unwrap(), server: 7, options }
}

#[test]
fn what_was_said_once_is_kept_but_for_the_password() {
    let password = Some(Password("sesame".into()));
    let options = EtcdOptions { password, ..kept().options };
    let before = NodeFile { etcd: Some(EtcdRecord { options, ..kept() }), ..memory(None) };
    let text = serde_json::to_string(&before).unwrap();
    assert!(text.contains("https://a:2379") && !text.contains("sesame"), "{text}");
    assert!(!format!("{before:?}").contains("sesame"));
    let read: NodeFile = serde_json::from_str(&text).unwrap();
    assert_eq!(read.etcd, Some(kept()));

    let said = EtcdOptions {
        ttl_seconds: Some(9),
        certificate: Some("/etc/new.pem".into()),
        ..endpoints(&["https://b:2379"])
    };
    let both = said.or(&kept().options);
    assert_eq!(
        (both.endpoints.as_slice(), both.ttl_seconds),
        (&["https://b:2379".into()][..], Some(9))
    );
    assert_eq!(both.prefix_of(&kept().cell_id), "/cells/home/");
    assert_eq!(both.key, None, "a key goes with its certificate");
    assert_eq!(EtcdOptions::default().or(&kept().options), kept().options);
    assert_eq!(said.prefix_of(&kept().cell_id), "/plimsoll/home/");
}

#[test]
fn settings_that_do_not_go_together_are_named_before_anything_is_tried() {
    let one = |change: &dyn Fn(&mut EtcdOptions)| {
        let mut options = endpoints(&["http://127.0.0.1:2379"]);
        change(&mut options);
        options.config().unwrap_err().to_string()
    };
    let user = |it: &mut EtcdOptions| it.user = Some("ash".into());
    let file = |it: &mut EtcdOptions| it.password_file = Some("/nonexistent".into());
    for (change, says) in [
        (&user as &dyn Fn(&mut EtcdOptions), "--etcd-user takes a password"),
        (&file, "--etcd-password-file goes with --etcd-user"),
        (
            &|it| {
                user(it);
                file(it);
            },
            "cannot read the password in /nonexistent",
        ),
        (&|it| it.key = Some("/k".into()), "--etcd-cert and --etcd-key go together"),
        (
            &|it| {
                it.key = Some("/k".into());
                it.certificate = Some("/c".into());
            },
            "--etcd-ca",
        ),
        (&|it| it.ca = Some("/nonexistent/ca.pem".into()), "/nonexistent/ca.pem"),
        (
            &|it| it.endpoints.push("http://10.0.0.1:2379".into()),
            "http://10.0.0.1:2379 is not encrypted and not on this host",
        ),
    ] {
        let said = one(change);
        assert!(said.contains(says), "{said}");
    }
    let told = EtcdOptions { allow_plaintext: true, ..endpoints(&["http://10.0.0.1:2379"]) };
    assert!(told.config().is_ok());
    assert!(EtcdOptions::default().or(&told).config().is_ok(), "what was said once is kept");
}

#[test]
fn a_data_directory_stays_with_its_engine() {
    let dir = tempfile::tempdir().unwrap();
    let asked = |engine: Option<EngineKind>, etcd: EtcdOptions| NodeOptions {
        data_dir: dir.path().to_owned(),
        engine,
        etcd,
        ..NodeOptions::default()
    };
    let (silent, given) = (EtcdOptions::default, || endpoints(&["http://a:2379"]));
    let (embedded, etcd) = (Some(EngineKind::Embedded), Some(EngineKind::Etcd));
    let on_etcd = memory(Some(kept()));
    let cell_id = "home".parse().unwrap();
    let joined = NodeFile { joined: Some((cell_id, 2)), ..memory(None) };
    for (case, engine, options, memory, chosen) in [
        ("nothing said", None, silent(), None, Ok(EngineKind::Embedded)),
        ("endpoints say it", None, given(), None, Ok(EngineKind::Etcd)),
        ("it is remembered", None, silent(), Some(&on_etcd), Ok(EngineKind::Etcd)),
        ("said again", etcd, given(), Some(&on_etcd), Ok(EngineKind::Etcd)),
        ("from etcd to embedded", embedded, silent(), Some(&on_etcd), Err("plimsoll migrate")),
        ("from embedded to etcd", etcd, given(), Some(&joined), Err("plimsoll migrate")),
        ("by endpoints alone", None, given(), Some(&joined), Err("plimsoll migrate")),
        ("both", embedded, given(), None, Err("go with --engine etcd")),
    ] {
        let found = choose(&asked(engine, options), memory);
        match (found, chosen) {
            (Ok(found), Ok(chosen)) => assert_eq!(found, chosen, "{case}"),
            (Err(error), Err(says)) => assert!(error.to_string().contains(says), "{case}: {error}"),
            (found, _) => panic!("{case}: {found:?}"),
        }
    }
}
