//! Users and groups by name, as `/etc/passwd` and `/etc/group` have them.

use std::fs;
use std::path::Path;

use plimsoll_model::ContainerSpec;
use serde::{Deserialize, Serialize};

use crate::error::Reason;

/// Who a service runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessUser {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) home: Option<String>,
}

/// The spec's user and groups; none when it runs as whoever plimsoll runs as.
pub(super) fn credentials(
    etc: &Path,
    spec: &ContainerSpec,
    is_root: bool,
) -> Result<Option<ProcessUser>, Reason> {
    let asked = spec.user.as_deref().unwrap_or("");
    let is_held = is_root && spec.asked_by.is_some();
    if is_held && asked.is_empty() {
        return Err(Reason::RootUser);
    }
    if asked.is_empty() && spec.group_add.is_empty() {
        return Ok(None);
    }
    let passwd = fs::read_to_string(etc.join("passwd")).unwrap_or_default();
    let group = fs::read_to_string(etc.join("group")).unwrap_or_default();
    let (user, primary) = match asked.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (asked, None),
    };

    let mut credentials = lookup(&passwd, &group, if user.is_empty() { "0" } else { user })
        .ok_or_else(|| Reason::UnknownUser { user: user.to_owned() })?;
    if let Some(primary) = primary {
        credentials.gid = group_id(&group, primary)?;
    }
    for extra in &spec.group_add {
        credentials.groups.push(group_id(&group, extra)?);
    }
    if !is_root {
        return Err(Reason::NotRoot { user: asked.to_owned() });
    }
    if is_held {
        confine(&mut credentials)?;
    }
    credentials.groups.sort_unstable();
    credentials.groups.dedup();
    Ok(Some(credentials))
}

/// The group of a user that the host does not know: the one that owns nothing. Docker would give root's own, whose files a
/// container has not; here they are the host's.
const NOGROUP: u32 = 65_534;

/// For who is no admin: never root by whatever name, and no group that could be as good as root, such as that of an
/// engine's socket.
fn confine(credentials: &mut ProcessUser) -> Result<(), Reason> {
    if credentials.uid == 0 {
        return Err(Reason::RootUser);
    }
    credentials.groups.clear();
    if credentials.gid == 0 {
        credentials.gid = credentials.uid;
    }
    Ok(())
}

/// A number need not be known, as in a container: it is what it is.
fn lookup(passwd: &str, group: &str, user: &str) -> Option<ProcessUser> {
    let number = user.parse::<u32>().ok();
    let row = rows(passwd).find(|row| match number {
        Some(number) => row.get(2).is_some_and(|uid| uid.parse() == Ok(number)),
        None => row.first() == Some(&user),
    });
    let Some(row) = row else {
        return number.map(|uid| ProcessUser { uid, gid: NOGROUP, groups: Vec::new(), home: None });
    };
    let name = row.first()?;
    let is_member = |row: &Vec<&str>| {
        row.get(3).is_some_and(|members| members.split(',').any(|member| member == *name))
    };
    Some(ProcessUser {
        uid: row.get(2)?.parse().ok()?,
        gid: row.get(3)?.parse().ok()?,
        groups: rows(group).filter(is_member).filter_map(|row| row.get(2)?.parse().ok()).collect(),
        home: row.get(5).map(|home| (*home).to_owned()),
    })
}

fn group_id(group: &str, name: &str) -> Result<u32, Reason> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    rows(group)
        .find(|row| row.first() == Some(&name))
        .and_then(|row| row.get(2)?.parse().ok())
        .ok_or_else(|| Reason::UnknownGroup { group: name.to_owned() })
}

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use plimsoll_model::access::Role;

    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let etc = tempfile::tempdir().unwrap();
        fs::write(
            etc.path().join("passwd"),
            "root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nann:x:7:8::/home/ann:/bin/sh\n",
        )
        .unwrap();
        fs::write(etc.path().join("group"), "root:x:0:\nann:x:8:\nvideo:x:44:bob,ann\n").unwrap();
        let who = |uid, gid, groups: &[u32], home: Option<&str>| {
            let home = home.map(str::to_owned);
            Ok(Some(ProcessUser { uid, gid, groups: groups.to_vec(), home }))
        };
        let unknown = |user: &str| Err(Reason::UnknownUser { user: user.into() });
        for (case, user, add, expected) in [
            ("nobody asked", None, "", Ok(None)),
            ("by name, with their groups", Some("ann"), "", who(7, 8, &[44], Some("/home/ann"))),
            ("by number", Some("7"), "", who(7, 8, &[44], Some("/home/ann"))),
            ("a number nobody has", Some("1234"), "", who(1234, 65_534, &[], None)),
            ("another group", Some("ann:video"), "", who(7, 44, &[44], Some("/home/ann"))),
            ("numbers for both", Some("5:6"), "", who(5, 6, &[], None)),
            ("one group more", None, "video", who(0, 0, &[44], Some("/root"))),
            ("a name nobody has", Some("eve"), "", unknown("eve")),
            (
                "a group nobody has",
                Some("ann:none"),
                "",
                Err(Reason::UnknownGroup { group: "none".into() }),
            ),
        ] {
            let spec = ContainerSpec {
                user: user.map(str::to_owned),
                group_add: Some(add.to_owned()).filter(|g| !g.is_empty()).into_iter().collect(),
                ..ContainerSpec::default()
            };
            assert_eq!(credentials(etc.path(), &spec, true), expected, "{case}");
        }
        for (case, user, expected) in [
            ("nobody asked", None, Err(Reason::RootUser)),
            ("root", Some("root"), Err(Reason::RootUser)),
            ("root by another name", Some("toor"), Err(Reason::RootUser)),
            ("somebody, without their groups", Some("ann"), who(7, 8, &[], Some("/home/ann"))),
            ("a number nobody has", Some("1234"), who(1234, NOGROUP, &[], None)),
        ] {
            let spec = ContainerSpec {
                user: user.map(str::to_owned),
                asked_by: Some(Role::Deploy),
                ..ContainerSpec::default()
            };
            assert_eq!(credentials(etc.path(), &spec, true), expected, "for deploy: {case}");
        }
        let spec = ContainerSpec { user: Some("ann".into()), ..ContainerSpec::default() };
        let refused = Err(Reason::NotRoot { user: "ann".into() });
        assert_eq!(credentials(etc.path(), &spec, false), refused, "only root becomes another");
    }
}
