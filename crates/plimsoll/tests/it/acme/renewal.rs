//! A certificate is replaced while clients come and go.

use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

#[test]
fn a_certificate_is_renewed_and_no_handshake_fails_meanwhile() {
    let Some(pebble) = Pebble::start(&[("PEBBLE_VA_NOSLEEP", "1")]) else { return };
    // Its certificates are good for five years: they age as if it were half a minute.
    let cell = cell(1, &pebble, &["--http", "--https"], &["--renewal-haste", "4000000"]);
    apply(&cell, &[("shop.example", "auto")]);
    until_shown(&cell, &[0], "shop.example", &pebble);
    let first = shown(0, "shop.example", pebble.roots()).unwrap();
    let (is_over, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let roots = pebble.roots();
                    while !is_over.load(Ordering::Relaxed) {
                        shown(0, "shop.example", roots.clone()).expect("every handshake succeeds");
                        tried.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        cell.until("another certificate is shown", |_| {
            clients.iter().any(thread::ScopedJoinHandle::is_finished)
                || shown(0, "shop.example", pebble.roots()).is_ok_and(|now| now != first)
        });
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(tried.load(Ordering::Relaxed) > 10 && pebble.issued() >= 2);
}
