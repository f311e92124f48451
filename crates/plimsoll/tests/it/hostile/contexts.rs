//! People whose contexts know the former authority, while the cell rotates it: whoever speaks to the cell meanwhile follows by
//! itself, and nobody follows one that no known authority vouched for.

use plimsoll_lab::NAMES;

use crate::harness::{Cell, Site};
use crate::run::{Ran, run_in};

fn at_home(cell: &Cell, home: &str, args: &str) -> Ran {
    let home = cell.dir.path().join(home);
    let env = [("XDG_CONFIG_HOME", home.to_str().unwrap())];
    run_in(cell.dir.path(), args, "", &env)
}

#[track_caller]
fn done(ran: &Ran) -> String {
    assert_eq!(ran.code(), 0, "{}", ran.text());
    ran.stdout()
}

/// Logs in with an admin's token of this name, at a home of the same name.
fn log_in(cell: &Cell, who: &str) {
    std::fs::create_dir_all(cell.dir.path().join(who)).unwrap();
    let login = done(&cell.run(0, &format!("token create {who} --role admin")));
    done(&at_home(cell, who, &format!("login {login}")));
}

/// The authorities that somebody's context believes.
fn believed(cell: &Cell, who: &str) -> Vec<String> {
    let shown = done(&at_home(cell, who, "context show -o json"));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let all = shown["authorities"].as_array().unwrap().iter();
    all.map(|print| print.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_context_follows_the_rotation_that_it_hears_of_and_no_other() {
    let mut cell = Cell::of_three(Site::Loopback);
    cell.until("the API's addresses are in the state", |cell| {
        let who = cell.get(0, "/v1/whoami").unwrap_or_default();
        who["addresses"].as_array().is_some_and(|all| all.len() == 3)
    });
    for who in ["runs", "looks", "sleeps"] {
        log_in(&cell, who);
    }
    let old = cell.fingerprint(0);
    assert_eq!(believed(&cell, "looks"), [old.as_str()]);

    // A node that is down holds the rotation up in its first step.
    cell.kill(2);
    cell.until("it is down", |cell| {
        let nodes = cell.json(0, "node list -o json");
        let is_down = |it: &serde_json::Value| it["name"] == NAMES[2] && it["status"] == "down";
        nodes.as_array().unwrap().iter().any(is_down)
    });
    let begun = at_home(&cell, "runs", "cell rotate-authority --detach");
    done(&begun);
    assert!(begun.stderr().contains("follows the cell"), "{}", begun.text());
    done(&at_home(&cell, "looks", "status"));
    for who in ["runs", "looks"] {
        let both = believed(&cell, who);
        assert_eq!((both.len(), both[0].as_str()), (2, old.as_str()), "{who}");
    }
    let sleeps = believed(&cell, "sleeps");

    cell.up(2, None);
    cell.until("the rotation is over", |cell| {
        let cell = cell.get(0, "/v1/cell").unwrap_or_default();
        cell["authority"].is_object() && cell["authority"]["rotation"].is_null()
    });
    let new = cell.fingerprint(0);
    assert_ne!(old, new);
    for who in ["runs", "looks"] {
        cell.until("every node that is asked has heard of the end", |cell| {
            done(&at_home(cell, who, "status"));
            believed(cell, who) == [new.as_str()]
        });
    }

    // Who heard nothing believes nobody new, and says what to do.
    let lost = at_home(&cell, "sleeps", "status");
    assert_eq!(lost.code(), 2, "{}", lost.text());
    assert_eq!(believed(&cell, "sleeps"), sleeps);

    // The whole of a rotation in one command, by way of a context.
    done(&at_home(&cell, "runs", "cell rotate-authority --timeout 2m"));
    done(&at_home(&cell, "runs", "status"));
    assert_eq!(believed(&cell, "runs"), [cell.fingerprint(0)]);
}
