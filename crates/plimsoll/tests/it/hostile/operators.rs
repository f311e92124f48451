//! The operators' door: who speaks in the clear, who stands between, whose token has run out, what lies open in a home, and
//! who comes and says nothing.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_model::{CellId, NodeId};
use plimsoll_peer::pki::{Authority, Credentials, Identity, Login, NODE_LIFETIME};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{
    AGENT, ANSWER, code, exchange, mallory, operators, read_answer, say_tcp, secured, token,
    with_agent,
};
use crate::cell_people::Going;
use crate::harness::{Cell, Site, loopback};
use crate::run::{Ran, binary, run_in};

/// Longer than a daemon waits for anybody who says nothing.
const SILENCE: Duration = Duration::from_secs(90);

/// The command line of somebody with this home.
fn at_home(cell: &Cell, home: &Path, args: &str, env: &[(&str, &str)]) -> Ran {
    let config = home.to_str().unwrap();
    let env: Vec<_> =
        [("XDG_CONFIG_HOME", config)].into_iter().chain(env.iter().copied()).collect();
    run_in(cell.dir.path(), args, "", &env)
}

/// What `token create` prints.
fn login(cell: &Cell, args: &str) -> String {
    let made = cell.run(0, &format!("token create {args}"));
    assert_eq!(made.code(), 0, "{}", made.text());
    made.stdout().trim().to_owned()
}

fn cell_of_one() -> Cell {
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    cell
}

/// A node knows its own address in the state.
fn until_listed(cell: &Cell) {
    cell.until("the API's address is in the state", |cell| {
        let who = cell.get(0, "/v1/whoami").unwrap_or_default();
        who["addresses"].as_array().is_some_and(|all| !all.is_empty())
    });
}

#[test]
fn nothing_is_served_in_the_clear_and_a_nodes_certificate_grants_nothing() {
    let cell = with_agent();
    let admin = token(&cell, "boss", "admin");
    let bearer = format!("Bearer {admin}");
    for at in [0, AGENT] {
        for (line, body) in [
            ("GET /v1/status", Vec::new()),
            ("GET /healthz", Vec::new()),
            ("GET /metrics", Vec::new()),
            ("POST /v1/operators", mallory()),
        ] {
            let stream = TcpStream::connect(cell.api(at).unwrap()).unwrap();
            let headers = [("authorization", bearer.as_str())];
            let (status, said) = exchange(stream, line, &headers, &body).unwrap();
            assert_eq!(status, 400, "{line}: {said}");
            assert!(said.contains("https") && said.contains("plimsoll login"), "{said}");
            assert!(!said.contains("ash") && !said.contains("shop"), "{said}");
        }
        let headers = [("authorization", bearer.as_str())];
        cell.until("under TLS the token is good", |cell| {
            say_tcp(cell, at, "GET /v1/nodes", &headers, b"").is_some_and(|it| it.0 == 200)
        });
        // A certificate is worth what an admin enrolled its key for: a node's is worth nothing.
        let node = Identity::load(&cell.path(1)).unwrap().unwrap();
        let expected = NodeId::new(plimsoll_lab::NAMES[at]).unwrap();
        let mut tls = Credentials::new(&node).unwrap().client_config(&expected).unwrap();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(cell.api(at).unwrap()).unwrap();
        let stream = secured(stream, Arc::new(tls)).unwrap();
        let answer = exchange(stream, "GET /v1/nodes", &[], b"").unwrap();
        assert_eq!((answer.0, code(&answer).as_str()), (401, "unauthorized"), "{}", answer.1);
    }
    assert_eq!(operators(&cell), ["boss"]);
}

/// Somebody in the way of clients, and all they came to know.
struct Eavesdropper {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Eavesdropper {
    /// With a certificate of an authority of its own for the same cell and node, and `shown` behind it.
    fn new(cell: &Cell, shown: &[CertificateDer<'static>]) -> Self {
        let name = cell.json(0, "cell status -o json")["name"].as_str().unwrap().to_owned();
        let cell_id = CellId::new(&name).unwrap();
        let now = plimsoll_daemon::context::now();
        let authority = Authority::found(&cell_id, now).unwrap();
        let (key, csr) = Identity::new_key().unwrap();
        let node = NodeId::new("ash").unwrap();
        let certificate = authority.issue(&csr, &node, now, NODE_LIFETIME).unwrap();
        let identity = Identity::new(key, certificate, authority.certificate().clone()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        identity.store(dir.path()).unwrap();
        let key = PrivateKeyDer::from_pem_file(Identity::file(dir.path())).unwrap();
        let mut chain = vec![identity.certificate().clone()];
        chain.extend(shown.iter().cloned());
        chain.push(authority.certificate().clone());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self::listen(Arc::new(tls))
    }

    fn listen(tls: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let notes = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let connection = ServerConnection::new(Arc::clone(&tls)).unwrap();
                let mut stream = StreamOwned::new(connection, stream);
                let mut piece = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    notes.lock().unwrap().extend_from_slice(&piece[..read]);
                }
            }
        });
        Self { address, heard }
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }
}

#[test]
fn somebody_in_the_middle_is_refused_before_the_token_is_sent() {
    let cell = cell_of_one();
    until_listed(&cell);
    let home = tempfile::tempdir().unwrap();
    let login = login(&cell, "ci --role deploy");
    let own = Identity::load(&cell.path(0)).unwrap().unwrap().authority().clone();
    for (case, shown) in [
        ("an authority of its own", Vec::new()),
        ("the cell's own authority, which did not sign it", vec![own]),
    ] {
        let between = Eavesdropper::new(&cell, &shown);
        let host = format!("https://{}", between.address);
        let env = [("PLIMSOLL_HOST", host.as_str()), ("PLIMSOLL_TOKEN", &login)];
        let refused = at_home(&cell, home.path(), "status", &env);
        assert_eq!(refused.code(), 2, "{case}: {}", refused.text());
        let said = refused.stderr();
        assert!(said.contains("nothing was sent"), "{case}: {said}");
        assert!(said.contains("(PLIMSOLL_HOST)"), "it says where that came from: {said}");
        assert_eq!(between.heard(), "", "{case}");

        // Where another node of the cell answers, that one is asked, and nobody in between hears anything.
        let mut parts: Login = login.parse().unwrap();
        parts.addresses.insert(0, between.address.to_string());
        let string = Login::new(parts.token, parts.fingerprints, parts.addresses).to_string();
        let logged_in = at_home(&cell, home.path(), &format!("login {string}"), &[]);
        assert_eq!(logged_in.code(), 0, "{case}: {}", logged_in.text());
        let listed = at_home(&cell, home.path(), "node list", &[]);
        assert!(listed.stdout().contains("ash"), "{case}: {}", listed.text());
        assert_eq!(between.heard(), "", "{case}");
    }
    // Without anything to recognise the cell by nothing is tried at all.
    let between = Eavesdropper::new(&cell, &[]);
    let host = format!("https://{}", between.address);
    let secret = login.parse::<Login>().unwrap().token.to_string();
    let env = [("PLIMSOLL_HOST", host.as_str()), ("PLIMSOLL_TOKEN", &secret)];
    let refused = at_home(&cell, home.path(), "status", &env);
    assert!(refused.stderr().contains("none is given"), "{}", refused.text());
    let plain = format!("http://{}", cell.api(0).unwrap());
    let env = [("PLIMSOLL_HOST", plain.as_str()), ("PLIMSOLL_TOKEN", &secret)];
    let refused = at_home(&cell, home.path(), "status", &env);
    assert!(refused.stderr().contains("the API speaks TLS only"), "{}", refused.text());
    assert_eq!(between.heard(), "");
    // The cell's certificate in a file is as good as its fingerprint.
    let file = home.path().join("ca.pem");
    fs::write(&file, cell.run(0, "cell authority").stdout()).unwrap();
    let (host, file) = (format!("https://{}", cell.api(0).unwrap()), file.to_str().unwrap());
    for authority in [file, &cell.authority().to_string()] {
        let env = [
            ("PLIMSOLL_HOST", host.as_str()),
            ("PLIMSOLL_TOKEN", &secret),
            ("PLIMSOLL_AUTHORITY", authority),
        ];
        let listed = at_home(&cell, home.path(), "node list", &env);
        assert!(listed.stdout().contains("ash"), "{}", listed.text());
    }
}

#[test]
fn a_token_that_has_expired_and_one_that_was_revoked_are_refused_each_with_its_reason() {
    let cell = cell_of_one();
    until_listed(&cell);
    let home = tempfile::tempdir().unwrap();
    let ask =
        |token: &str, args: &str| at_home(&cell, home.path(), args, &[("PLIMSOLL_TOKEN", token)]);
    let short = login(&cell, "short --role admin --expires 4s");
    let (host, config) =
        (format!("https://{}", cell.api(0).unwrap()), home.path().to_str().unwrap());
    let env =
        [("PLIMSOLL_HOST", host.as_str()), ("PLIMSOLL_TOKEN", &short), ("XDG_CONFIG_HOME", config)];
    let mut stream = Going::asking(&cell, "audit -f", &env);
    cell.until("it is good for a while", |_| !stream.said().is_empty());
    cell.until("it runs out", |_| ask(&short, "node list").code() != 0);
    let refused = ask(&short, "node list");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    assert!(refused.stderr().contains("token short expired"), "{}", refused.text());
    cell.until("its streams end", |_| stream.ended().is_some());
    assert!(stream.complained().contains("expired"), "{}", stream.complained());
    let refused = ask(&short, "token create mallory --role admin");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    let refused = ask("", &format!("login {short}"));
    assert!(refused.stderr().contains("expired"), "{}", refused.text());

    let long = login(&cell, "long --role admin --expires 1d");
    assert_eq!(ask(&long, "node list").code(), 0);
    let listed = cell.run(0, "token list").stdout();
    assert!(listed.contains("expired") && listed.contains("in 1d"), "{listed}");
    assert!(cell.json(0, "token list -o json")[0]["last_used"].is_string(), "{listed}");
    assert_eq!(cell.run(0, "token revoke long").code(), 0);
    let refused = ask(&long, "node list");
    assert_eq!(refused.code(), 1, "{}", refused.text());
    assert!(refused.stderr().contains("or it was revoked"), "{}", refused.text());
    // The name of one that has run out is free again, and the old one stays void.
    login(&cell, "short --role read");
    assert_eq!(ask(&short, "node list").code(), 1);
    assert_eq!(operators(&cell), ["short"]);
}

#[test]
fn a_join_token_is_named_listed_and_void_once_it_is_revoked() {
    let cell = cell_of_one();
    let made = cell.run(0, "token create-join elm --expires 1h");
    assert_eq!(made.code(), 0, "{}", made.text());
    let join = made.stdout().trim().to_owned();
    let again = cell.run(0, "token create-join elm");
    assert_eq!(again.code(), 1, "{}", again.text());
    let listed = cell.json(0, "token list --join -o json");
    assert_eq!((&listed[0]["name"], &listed[0]["state"]), (&"elm".into(), &"good".into()));
    assert!(!listed.to_string().contains(&join[4..20]));
    let revoked = cell.run(0, "token revoke elm --join");
    assert_eq!(revoked.code(), 0, "{}", revoked.text());
    assert_eq!(cell.json(0, "token list --join -o json")[0]["state"], "revoked");
    let mut command = binary();
    command.args(["up", "--runtime", "process", "--name", "elm", "--address", &loopback(2)]);
    command.args(["--join", &join, "--data-dir"]).arg(cell.dir.path().join("refused"));
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains("this join token was revoked"), "{said}");
    assert_eq!(cell.run(0, "token revoke elm --join").code(), 1, "it is not good any more");
}

#[test]
fn a_login_string_that_is_cut_or_mistyped_says_so_and_what_is_kept_is_the_owners() {
    let cell = cell_of_one();
    until_listed(&cell);
    let home = tempfile::tempdir().unwrap();
    let run = |args: &str, env: &[(&str, &str)]| at_home(&cell, home.path(), args, env);
    let string = login(&cell, "ci --role deploy");
    let cut = run(&format!("login {}", &string[..string.len() - 9]), &[]);
    assert_eq!(cut.code(), 1, "{}", cut.text());
    assert!(cut.stderr().contains("cut off"), "{}", cut.text());
    let last = if string.ends_with('7') { '8' } else { '7' };
    let wrong = run(&format!("login {}{last}", &string[..string.len() - 1]), &[]);
    assert!(wrong.stderr().contains("mistyped"), "{}", wrong.text());
    assert!(!home.path().join("plimsoll").exists(), "nothing is kept of either");

    let logged_in = run(&format!("login {string} --name prod"), &[]);
    assert_eq!(logged_in.code(), 0, "{}", logged_in.text());
    assert!(!logged_in.text().contains(&string[10..40]));
    let file = home.path().join("plimsoll/contexts/prod.json");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert_eq!(mode(&home.path().join("plimsoll")), 0o700);
    let shown = run("context show", &[]);
    assert!(shown.stdout().contains("token:ci") && shown.stdout().contains("prod"));
    assert!(!shown.stdout().contains("plo_"), "{}", shown.text());
    assert_eq!(run("scale shop web=2 -d", &[]).code(), 1, "it is the cell that says no");

    // Whoever opened it to others is told, and nothing is asked in its name.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = run("node list", &[]);
    assert_eq!(refused.code(), 2, "{}", refused.text());
    assert!(refused.stderr().contains("(mode 0644)"), "{}", refused.text());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let elsewhere = home.path().join("elsewhere.json");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    let refused = run("node list", &[]);
    assert!(refused.stderr().contains("symbolic link"), "{}", refused.text());
    fs::rename(&elsewhere, &file).unwrap();
    assert_eq!(run("node list", &[]).code(), 0);

    // Where a command goes, and that an error says why it went there.
    let socket = cell.socket(0);
    let socket = socket.to_str().unwrap();
    let nowhere = "/nonexistent/plimsoll.sock";
    for (case, args, env, by) in [
        ("--host first", format!("--host {nowhere} status"), vec![], "(--host)"),
        (
            "--context before the environment",
            "--context default status".to_owned(),
            vec![("PLIMSOLL_HOST", socket)],
            "(context default, from --context)",
        ),
        (
            "a host before a context, in the environment",
            "status".to_owned(),
            vec![("PLIMSOLL_HOST", nowhere), ("PLIMSOLL_CONTEXT", "prod")],
            "(PLIMSOLL_HOST)",
        ),
        (
            "the environment before the current one",
            "status".to_owned(),
            vec![("PLIMSOLL_CONTEXT", "default")],
            "(context default, from PLIMSOLL_CONTEXT)",
        ),
    ] {
        let env: Vec<_> = [("XDG_RUNTIME_DIR", "/nonexistent"), ("HOME", "/nonexistent")]
            .into_iter()
            .chain(env)
            .collect();
        let refused = run(&args, &env);
        // A machine may have a daemon of its own where the default is; then it answers.
        let said = refused.stderr();
        let answered = refused.code() == 0 && case.contains("before");
        assert!(answered || said.contains(by), "{case}: {}", refused.text());
    }
    let both = run(&format!("--host {socket} --context prod status"), &[]);
    assert_eq!(both.code(), 1, "{}", both.text());
    let unknown = run("--context nobody status", &[]);
    assert!(unknown.stderr().contains("there is no context nobody"), "{}", unknown.text());
    assert_eq!(run("context rm prod", &[]).code(), 1, "it is the current one");
    assert_eq!(run("context use default", &[]).code(), 0);
    assert_eq!(run("context rm prod", &[]).code(), 0);
    assert!(!file.exists());
}

/// A hello of TLS 1.2: no supported versions in it.
fn old_hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0]);
    let extensions =
        [&[0, 10, 0, 4, 0, 2, 0, 23][..], &[0, 11, 0, 2, 1, 0], &[0, 13, 0, 4, 0, 2, 4, 3]]
            .concat();
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let mut message = vec![1, 0];
    message.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend(body);
    let mut record = vec![22, 3, 1];
    record.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
    record.extend(message);
    record
}

#[test]
fn old_tls_and_garbage_are_turned_away_and_others_are_served_on() {
    let cell = cell_of_one();
    let admin = token(&cell, "boss", "admin");
    let mut noise = vec![22, 3, 1, 2, 0];
    noise.extend((0..600_u32).map(|nth| u8::try_from(nth * 7919 % 251).unwrap()));
    let mut announced = vec![22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    announced.extend(vec![1; 1 << 17]);
    for (case, bytes) in [
        ("TLS 1.2", old_hello()),
        ("noise that begins as TLS does", noise),
        ("a hello of sixteen megabytes", announced),
        ("noise", vec![0xff; 4096]),
        ("one byte", vec![0]),
    ] {
        let mut stream = TcpStream::connect(cell.api(0).unwrap()).unwrap();
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        let _ = stream.write_all(&bytes);
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer);
        let is_reset = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
        assert!(ended.as_ref().is_ok() || ended.as_ref().is_err_and(is_reset), "{case}: {ended:?}");
        // An alert at most: nothing that was asked for.
        assert!(answer.is_empty() || (answer[0] == 21 && answer.len() < 16), "{case}: {answer:?}");
        let bearer = format!("Bearer {admin}");
        let served = say_tcp(&cell, 0, "GET /v1/nodes", &[("authorization", &bearer)], b"");
        assert_eq!(served.unwrap().0, 200, "{case}");
    }
    let mut hello = TcpStream::connect(cell.api(0).unwrap()).unwrap();
    hello.set_read_timeout(Some(ANSWER)).unwrap();
    hello.write_all(&old_hello()).unwrap();
    let mut answer = Vec::new();
    let _ = hello.read_to_end(&mut answer);
    assert_eq!(answer.get(5..7), Some(&[2, 70][..]), "protocol_version: {answer:?}");
}

/// Connections from an address of this host, which nobody else comes from.
fn from(source: &str, to: &str, count: usize) -> Vec<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (source, to): (SocketAddr, SocketAddr) = (source.parse().unwrap(), to.parse().unwrap());
    runtime.block_on(async {
        let mut all = Vec::new();
        for _ in 0..count {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(source).unwrap();
            let stream = socket.connect(to).await.unwrap().into_std().unwrap();
            stream.set_nonblocking(false).unwrap();
            all.push(stream);
        }
        all
    })
}

fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(read) => read == 0 || is_closed(stream, within),
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

#[test]
fn who_opens_a_connection_and_says_nothing_is_cut_and_keeps_nobody_out() {
    let cell = cell_of_one();
    until_listed(&cell);
    let home = tempfile::tempdir().unwrap();
    let string = login(&cell, "ci --role read");
    let api = cell.api(0).unwrap();
    // One that has finished its handshake, and two addresses that do not even begin.
    let tls = plimsoll_peer::pki::operator_client_config(&[cell.authority()]).unwrap();
    let mut idle = secured(from("127.0.0.77:0", &api, 1).remove(0), tls).unwrap();
    idle.conn.complete_io(&mut idle.sock).unwrap();
    let mut silent = from("127.0.0.66:0", &api, 300);
    silent.extend(from("127.0.0.67:0", &api, 200));
    for stream in silent.iter_mut().step_by(2) {
        let _ = stream.write_all(&[22, 3, 1]);
    }
    let begun = Instant::now();
    let asked = at_home(&cell, home.path(), "node list", &[("PLIMSOLL_TOKEN", &string)]);
    assert_eq!(asked.code(), 0, "others come in meanwhile: {}", asked.text());
    // Of one address there are so many, and no more.
    let refused = silent[..300]
        .iter_mut()
        .filter_map(|stream| is_closed(stream, Duration::from_millis(1)).then_some(()));
    assert!(refused.count() >= 300 - 256);
    for stream in &mut silent {
        assert!(is_closed(stream, SILENCE), "after {:?}", begun.elapsed());
    }
    let closed = read_answer(&mut idle);
    assert!(closed.is_none_or(|(status, _)| status == 408), "it is told nothing");
    assert!(begun.elapsed() < SILENCE, "{:?}", begun.elapsed());
    cell.must_live();
}

#[test]
fn an_etcd_on_another_host_is_not_spoken_to_in_the_clear() {
    let dir = tempfile::tempdir().unwrap();
    let args = "up --cell home --runtime process --data-dir node --engine etcd --etcd-endpoints";
    let refused = run_in(dir.path(), &format!("{args} http://192.0.2.1:2379"), "", &[]);
    assert_eq!(refused.code(), 1, "{}", refused.text());
    let said = refused.stderr();
    assert!(said.contains("not encrypted") && said.contains("--etcd-allow-plaintext"), "{said}");
}
