//! `plimsoll top` in a real terminal (tmux), on a real node: what is on the screen, what keys do, that it goes on when the daemon comes
//! back, and that the terminal is given back whichever way it ends. Left out where there is no tmux; `./test` installs it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{Cell, Site};
use crate::run::{binary, run_in};

const SHOP: &str = r#"
name: shop
services:
  web:
    image: any
    command: [sh, -c, 'while :; do echo "hello from web"; sleep 0.2; done']
    deploy: {replicas: 2}
"#;

fn node() -> Option<Cell> {
    if Command::new("tmux").arg("-V").output().is_err() {
        println!("not checked: there is no tmux");
        return None;
    }
    let mut cell = Cell::idle(Site::Loopback);
    cell.up(0, None);
    fs::write(cell.dir.path().join("compose.yaml"), SHOP).unwrap();
    let applied = cell.run(0, "apply -f compose.yaml");
    assert_eq!(applied.code(), 0, "{}", applied.text());
    Some(cell)
}

/// A terminal with a shell in it that runs `top` once, and says how that ended and whether the terminal is as it was.
struct Pane<'c> {
    cell: &'c Cell,
    socket: String,
}

impl<'c> Pane<'c> {
    fn open(cell: &'c Cell, name: &str, args: &str) -> Self {
        let socket = cell.dir.path().join(name).to_str().unwrap().to_owned();
        let pane = Self { cell, socket };
        let program = binary();
        let script = format!(
            "echo BEFORE; before=$(stty -g); {} {args}; code=$?; \
             [ \"$(stty -g)\" = \"$before\" ] && kept=restored || kept=broken; echo ENDED $code $kept; exec cat",
            program.get_program().to_str().unwrap()
        );
        let mut command =
            pane.tmux(["-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "30"]);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let begun = command.args(["sh", "-c", &script]).output().unwrap();
        assert!(begun.status.success(), "{begun:?}");
        pane
    }

    /// One that was opened before.
    fn again(cell: &'c Cell, socket: &Path) -> Self {
        Self { cell, socket: socket.to_str().unwrap().to_owned() }
    }

    fn tmux<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket]).args(args).env_remove("TMUX");
        command
    }

    fn run<const N: usize>(&self, args: [&str; N]) -> Output {
        self.tmux(args).output().unwrap()
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.run(["capture-pane", "-p"]).stdout).into_owned()
    }

    fn press(&self, key: &str) {
        assert!(self.run(["send-keys", key]).status.success());
    }

    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut shown = String::new();
        self.cell.until(what, |_| {
            shown = self.screen();
            is_so(&shown)
        });
        shown
    }

    /// What the shell says once `top` is over; what was on the screen before is there again.
    #[track_caller]
    fn until_ended(&self, code: i32) -> String {
        let shown = self.until("it ends", |shown| shown.contains("ENDED"));
        assert!(shown.contains(&format!("ENDED {code} restored")), "{shown}");
        assert!(shown.starts_with("BEFORE\n"), "{shown}");
        assert!(!shown.contains("┃"), "nothing of it is left: {shown}");
        shown
    }
}

impl Drop for Pane<'_> {
    fn drop(&mut self) {
        let _ = self.run(["kill-server"]);
    }
}

#[test]
fn top_follows_a_node_through_its_restart_and_gives_the_terminal_back() {
    let Some(mut cell) = node() else { return };
    let args = format!("--host {} top", cell.socket(0).display());
    let screen = {
        let pane = Pane::open(&cell, "first", &args);
        let shown = pane.until("nodes with their load line", |shown| {
            shown.contains("┃") && shown.contains("2 of 2 replicas running")
        });
        assert!(shown.contains("ash leads") && shown.contains("NODE"), "{shown}");
        assert!(shown.contains("placed"), "what happened: {shown}");
        pane.press("3");
        pane.until("its replicas", |shown| shown.contains("shop-web-2"));
        pane.press("/");
        pane.press("web-2");
        pane.press("Enter");
        pane.until("the filter", |shown| !shown.contains("shop-web-1 "));
        pane.press("l");
        pane.until("its log", |shown| shown.matches("hello from web").count() > 3);
        pane.press("e");
        pane.until("why it is there", |shown| shown.contains("shop-web-2 is on ash"));
        pane.press("Escape");
        pane.press("?");
        pane.until("help", |shown| shown.contains("any key closes it"));
        pane.press("x");
        pane.press("1");
        pane.press("q");
        pane.until_ended(0)
    };
    assert!(!screen.contains("error"), "{screen}");

    // The daemon goes away and comes back, while somebody watches.
    let socket = cell.dir.path().join("second");
    let pane = Pane::open(&cell, "second", &args);
    pane.until("the nodes", |shown| shown.contains("┃"));
    std::mem::forget(pane);
    cell.stop(0);
    let pane = Pane::again(&cell, &socket);
    pane.until("that nobody answers", |shown| shown.contains("retrying"));
    assert!(pane.screen().contains("shop") || pane.screen().contains("ash"), "what it was stays");
    std::mem::forget(pane);
    cell.up(0, None);
    let pane = Pane::again(&cell, &socket);
    pane.until("it goes on", |shown| !shown.contains("retrying") && shown.contains("ash leads"));
    let processes = pane.run(["list-panes", "-F", "#{pane_pid}"]).stdout;
    let shell = String::from_utf8_lossy(&processes).trim().to_owned();
    let its = format!("kill -TERM $(ps -o pid= --ppid {shell})");
    let killed = Command::new("sh").args(["-c", &its]).status();
    assert!(killed.unwrap().success());
    pane.until_ended(0);
}

#[test]
fn top_ends_with_the_reason_once_it_may_not_look_any_more() {
    let Some(cell) = node() else { return };
    let made = cell.run(0, "token create ann --role read");
    assert_eq!(made.code(), 0, "{}", made.text());
    let pane = Pane::open(&cell, "third", &format!("--token '{}' top", made.stdout().trim()));
    pane.until("the nodes", |shown| shown.contains("┃"));
    assert_eq!(cell.run(0, "token revoke ann").code(), 0);
    let shown = pane.until_ended(1);
    assert!(shown.contains("error: "), "{shown}");
}

#[test]
fn top_without_a_terminal_or_a_daemon_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run_in(dir.path(), "--host ./none.sock top", "", &[]);
    assert_eq!(ran.code(), 1, "{}", ran.text());
    assert!(ran.stderr().contains("needs a terminal"), "{}", ran.text());
}
