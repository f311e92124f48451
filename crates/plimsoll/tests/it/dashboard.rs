//! The dashboard in a real browser, on a cell of three: what it shows, that it follows what happens, who may do what from it, and that
//! nobody stumbles over it. Left out where there is no browser; `lab/browser with` and `./test` see to it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use plimsoll_lab::Process;

use crate::harness::{Cell, Site};
use crate::run::binary;

mod browser;

use browser::Browser;

const SHOP: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'while :; do echo "hello from <b>web</b>"; sleep 0.5; done']
    deploy: {replicas: 3}
"#;

fn cell() -> Cell {
    let cell = Cell::of_three(Site::Loopback);
    fs::write(cell.dir.path().join("compose.yaml"), SHOP).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    cell
}

/// The address that `plimsoll dashboard` prints, and the command while it runs.
fn dashboard(cell: &Cell) -> (String, Process) {
    let mut command: Command = binary();
    command.arg("--host").arg(cell.socket(0)).arg("dashboard");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (line.trim().to_owned(), Process::new(child))
}

/// Asked from outside a browser: the status alone.
fn status(url: &str, headers: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "10"]);
    for header in headers {
        curl.args(["-H", header]);
    }
    String::from_utf8(curl.arg(url).output().unwrap().stdout).unwrap()
}

#[test]
fn the_page_follows_the_cell_explains_it_and_lets_an_admin_drain() {
    let Some(browser) = Browser::open() else { return };
    let cell = cell();
    let (url, _running) = dashboard(&cell);
    browser.go(&url);
    browser.until("every node is a hull", "document.querySelectorAll('.node').length === 3");
    browser.until("with its cargo", "document.querySelectorAll('.cargo rect').length === 3");
    browser.until("the secret is not left in the address", "location.hash === '#/'");
    assert_eq!(browser.barriers(), [""; 0]);

    // A node is drained from its page, and the page follows.
    browser.eval("location.hash = '#/nodes/birch'");
    browser.until("why nothing leaves it", "/left alone|trigger/.test(document.body.innerText)");
    browser.eval("window.confirm = () => true; [...document.querySelectorAll('button')].find((it) => it.textContent === 'Drain').click()");
    browser.until("it drains", "document.body.innerText.includes('draining')");
    browser.eval("location.hash = '#/'");
    let birch =
        "[...document.querySelectorAll('.node')].find((it) => it.textContent.includes('birch'))";
    browser.until(
        "its cargo has gone",
        &format!("{birch}.querySelectorAll('.cargo rect').length === 0"),
    );
    browser.until(
        "nobody went missing",
        "document.body.innerText.includes('3 of 3 replicas running')",
    );
    assert_eq!(cell.json(0, "get nodes -o json")[1]["availability"], "draining");

    // What a service prints is text, whatever it looks like.
    browser.eval("location.hash = '#/replicas/shop-web-1'");
    browser.until(
        "its logs come",
        "document.querySelector('.logs')?.textContent.includes('<b>web</b>')",
    );
    browser.until("and why it is there", "document.body.innerText.includes('headroom')");
    assert_eq!(browser.barriers(), [""; 0]);

    browser.eval("location.hash = '#/what-if'");
    browser.until("it can be asked", "document.querySelector('#nodes')");
    browser.eval("document.querySelector('#nodes').value = 'ash'; document.querySelector('form button').click()");
    browser.until("what would come of it", "document.body.innerText.includes('moved')");
    for page in ["services", "services/shop/web", "moves", "audit", "what-if", ""] {
        browser.eval(&format!("location.hash = '#/{page}'"));
        browser.until("it is drawn", "document.querySelector('main h1, main .summary')");
        assert_eq!(browser.barriers(), [""; 0], "{page}");
    }
    assert_eq!(browser.errors(), [""; 0], "nothing went wrong in the page");
    assert!(browser.picture().starts_with(b"\x89PNG"));
}

#[test]
fn a_login_is_refused_with_a_bad_token_and_a_reader_is_offered_nothing_to_change() {
    let Some(browser) = Browser::open() else { return };
    let cell = cell();
    let at = cell.api(0).unwrap();
    let reader = cell.run(0, "token create eve --role read");
    assert_eq!(reader.code(), 0, "{}", reader.text());
    let log_in = |token: &str| {
        browser.until("it asks for a token", "document.querySelector('#token')");
        browser.eval(&format!(
            "document.querySelector('#token').value = '{token}'; document.querySelector('form button').click()"
        ));
    };
    browser.go(&format!("https://{at}/"));
    log_in("plo_nonsense");
    browser.until("it is refused", "document.body.innerText.includes('not a token of this cell')");
    // What `token create` prints can be pasted as it is.
    log_in(reader.stdout().trim());
    browser.until("it is let in", "document.querySelectorAll('.node').length === 3");
    assert!(browser.text().contains("token:eve (read)"), "{}", browser.text());
    for page in ["nodes/birch", "services/shop/web"] {
        browser.eval(&format!("location.hash = '#/{page}'"));
        browser.until("it is drawn", "document.querySelector('main h1')");
        let buttons = browser.eval("return document.querySelectorAll('main button').length");
        assert_eq!(buttons, 0, "{page}");
    }
    let refused = browser.eval(
        "const token = sessionStorage.getItem('plimsoll-token'); \
         const sent = await fetch('/v1/nodes/birch/drain', { method: 'POST', headers: { authorization: `Bearer ${token}` } }); \
         return sent.status",
    );
    assert_eq!(refused, 403, "the page offers nothing, and the node allows nothing");
    let cookies = browser.eval("return document.cookie");
    assert_eq!(cookies, "", "there is nothing that a browser would send by itself");
}

#[test]
fn the_local_port_answers_only_who_has_its_secret_and_means_it() {
    let cell = Cell::of_three(Site::Loopback);
    let (url, _running) = dashboard(&cell);
    let (base, secret) = url.split_once("#token=").unwrap();
    let bearer = format!("authorization: Bearer {secret}");
    let api = format!("{base}v1/status");
    for (case, url, headers, expected) in [
        ("its page", base, &["accept: text/html"][..], "200"),
        ("the cell without the secret", &api, &[], "401"),
        ("another secret", &api, &["authorization: Bearer plo_x"], "401"),
        ("a page of elsewhere whose name leads here", base, &["host: evil.example"], "421"),
        ("the same with the secret", &api, &["host: evil.example", &bearer], "421"),
        ("its own page", &api, &[&bearer], "200"),
    ] {
        assert_eq!(status(url, headers), expected, "{case}");
    }
    let large = format!("{base}v1/what-if");
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", "-H", &bearer]);
    let body = cell.dir.path().join("large");
    fs::write(&body, vec![b'x'; 20 << 20]).unwrap();
    curl.arg("--data-binary").arg(format!("@{}", body.display())).arg(large);
    let said = String::from_utf8(curl.output().unwrap().stdout).unwrap();
    assert_eq!(said, "413", "what is too large is not taken in");
}
