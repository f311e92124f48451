//! Which users of this host may use the socket: root, the daemon's own user, and a group if one is named. The socket's mode
//! says the same; this is asked of the kernel for each connection, so that a mode that was changed gives nobody the cell.

use std::fs;
use std::io;

use rustix::process::geteuid;

/// The user database of this host.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// Who is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalUsers {
    own: u32,
    pub(super) group: Option<u32>,
}

/// Who is at the other end of a connection, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalPeer {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl LocalUsers {
    /// With this group, by name or number.
    pub(super) fn of(group: Option<&str>) -> io::Result<Self> {
        let found = group.map(|name| {
            let groups = fs::read_to_string(GROUPS).unwrap_or_default();
            group_id(&groups, name).ok_or_else(|| {
                io::Error::other(format!(
                    "group {name} is not in {GROUPS}; create it with groupadd"
                ))
            })
        });
        Ok(Self { own: geteuid().as_raw(), group: found.transpose()? })
    }

    pub(super) fn admit(self, peer: LocalPeer) -> bool {
        if peer.uid == 0 || peer.uid == self.own {
            return true;
        }
        let Some(group) = self.group else { return false };
        peer.gid == group || {
            let read = |file| fs::read_to_string(file).unwrap_or_default();
            is_member(&read(USERS), &read(GROUPS), peer.uid, group)
        }
    }
}

/// A user's name and own group.
fn user(users: &str, uid: u32) -> Option<(&str, Option<u32>)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let is_it = fields.nth(1)?.parse() == Ok(uid);
        is_it.then(|| (name, fields.next().and_then(|gid| gid.parse().ok())))
    })
}

fn group_id(groups: &str, name: &str) -> Option<u32> {
    let known = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    known.or_else(|| name.parse().ok())
}

fn is_member(users: &str, groups: &str, uid: u32, group: u32) -> bool {
    let Some((name, own)) = user(users, uid) else { return false };
    own == Some(group)
        || groups.lines().any(|line| {
            let mut fields = line.split(':').skip(2);
            let is_it = fields.next().and_then(|gid| gid.parse().ok()) == Some(group);
            is_it && fields.next().is_some_and(|all| all.split(',').any(|one| one == name))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEOPLE: &str = "root:x:0:0:root:/root:/bin/sh\n\n+\nalice:x:1000:1000::/home/alice:/bin/sh\nbob:x:7:40::/:/bin/sh\n";

    #[test]
    fn a_user_is_found_by_number() {
        assert_eq!(user(PEOPLE, 1000), Some(("alice", Some(1000))));
        assert_eq!(user(PEOPLE, 0), Some(("root", Some(0))));
        assert_eq!(user(PEOPLE, 8), None);
    }

    #[test]
    fn a_group_lets_in_its_members_alone() {
        let groups = "root:x:0:\nops:x:40:carol,alice\nalice:x:1000:\n";
        assert_eq!(group_id(groups, "ops"), Some(40));
        assert_eq!(group_id(groups, "41"), Some(41), "a number need not be known");
        assert_eq!(group_id(groups, "op"), None);
        for (case, uid, expected) in [
            ("listed as a member", 1000, true),
            ("it is their own group", 7, true),
            ("not of it", 0, false),
            ("nobody knows them", 8, false),
        ] {
            assert_eq!(is_member(PEOPLE, groups, uid, 40), expected, "{case}");
        }
    }

    #[test]
    fn without_a_group_only_root_and_the_daemons_own_user_are_let_in() {
        let users = LocalUsers { own: 500, group: None };
        for (uid, gid, expected) in [(0, 7, true), (500, 7, true), (7, 0, false), (7, 500, false)] {
            assert_eq!(users.admit(LocalPeer { uid, gid }), expected, "{uid}:{gid}");
        }
        let users = LocalUsers { group: Some(40), ..users };
        assert!(users.admit(LocalPeer { uid: 7, gid: 40 }));
        assert!(!users.admit(LocalPeer { uid: 4_000_000_007, gid: 41 }));
    }
}
