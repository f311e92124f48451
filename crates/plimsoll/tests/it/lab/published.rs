//! A published port while replicas come and go behind it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::compose::{sh, web};
use super::harness::Lab;

/// Enough to meet every moment of an update.
const REQUESTS: usize = 300;

/// A server that ends what it has begun before it goes.
fn file(port: u16, version: u32) -> String {
    let script = "echo $$VERSION > /tmp/index.html; trap 'sleep 1; exit 0' TERM; httpd -f -p 80 -h /tmp & wait";
    let lines = [
        sh(script),
        format!("environment: {{VERSION: '{version}'}}"),
        format!("ports: ['{port}:80']"),
        "networks: [default]".to_owned(),
        "healthcheck: {test: [CMD, wget, -q, -O, /dev/null, 'http://127.0.0.1/'], interval: 1s, start_period: 30s, start_interval: 100ms}".to_owned(),
        "deploy: {replicas: 2}".to_owned(),
    ];
    web(&lines.each_ref().map(String::as_str))
}

fn get(port: u16) -> Result<String, String> {
    let get = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let text = get().map_err(|error| error.to_string())?;
    if !text.starts_with("HTTP/1.0 200") && !text.starts_with("HTTP/1.1 200") {
        return Err(format!("{text:?}"));
    }
    Ok(text.lines().last().unwrap_or_default().to_owned())
}

pub(super) fn free_port() -> u16 {
    TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_published_port_answers_every_request_of_a_rolling_update() {
    let Some(lab) = Lab::docker() else { return };
    let (shop, port) = (lab.name.clone(), free_port());
    lab.settle(&shop, &file(port, 1));
    lab.wait_for("the port answers", || get(port).is_ok());
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut version = 1;
    let answers = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut answers: Vec<Result<String, String>> = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                answers.push(get(port));
                asked.fetch_add(1, Ordering::Relaxed);
                // Other tests want the processor as well.
                thread::sleep(Duration::from_millis(5));
            }
            answers
        });
        while version < 3 || asked.load(Ordering::Relaxed) < REQUESTS {
            version += 1;
            lab.settle(&shop, &file(port, version));
        }
        lab.run(&format!("scale {shop} web=1")).done();
        lab.run(&format!("restart {shop}")).done();
        is_over.store(true, Ordering::Relaxed);
        asking.join().unwrap()
    });
    let failed: Vec<_> = answers.iter().enumerate().filter(|(_, it)| it.is_err()).collect();
    assert!(failed.is_empty(), "{} of {}: {failed:?}\n{}", failed.len(), answers.len(), lab.said());
    assert_eq!(get(port).unwrap(), version.to_string());
    let of = |version: &str| answers.iter().filter(|it| it.as_deref() == Ok(version)).count();
    assert!(of("1") > 0 && of("2") > 0, "{} {}", of("1"), of("2"));
    println!("{} requests, none failed", answers.len());
}
