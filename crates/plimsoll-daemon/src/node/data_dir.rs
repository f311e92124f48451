//! The data directory of a node: who of the host may enter it. What lies in it makes an admin of whoever reads it, so it is
//! the daemon's own user's alone. Only where services of other users live below it may these pass through.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use plimsoll_files::modes::{self, Mended, Reach};
use rustix::process::geteuid;

use super::node_file::NodeFile;
use super::{Error, NodeOptions, RuntimeKind};

/// What a daemon keeps for itself, as trees. A data directory may have been somebody's before: nothing else is touched.
const OWN: [&str; 9] = [
    "store",
    "lock",
    "tls",
    "term",
    "node.json",
    "servers.json",
    "names.json",
    "processes.json",
    "api.token",
];

/// What is mounted into containers lies in it, readable for whoever they run as; the directory keeps all others out.
const MOUNTED: &str = "docker";

/// How the names begin of what is set aside or on its way, each followed by a dot and more.
const OWN_BEGINNINGS: [&str; 2] = ["store.", "backup.unsent."];

/// The keys in it are put there by somebody else, who may need a group for that. Strangers never do.
const CERTIFICATES: (&str, u32) = ("certificates", 0o770);

/// A directory with this bit is for everybody, such as `/tmp`, and not ours to close.
const STICKY: u32 = 0o1000;

/// Makes the directory if it is not there, and closes what is open in it to other users. Says once what it closed.
pub(super) fn prepare(options: &NodeOptions, memory: Option<&NodeFile>) -> Result<(), Error> {
    let dir = &options.data_dir;
    let kind = options.runtime.or(memory.and_then(|memory| memory.runtime));
    let failed = |action| move |source| Error::Io { action, path: dir.clone(), source };
    let most = most(options, kind);
    plimsoll_files::create_dir(dir, most).map_err(failed("create"))?;
    let mended = mend(dir, most).map_err(failed("close to other users what is in"))?;
    if let Some(first) = mended.first {
        tracing::warn!(
            count = mended.count,
            first = %first.display(),
            "other users could read or enter files of this node; closed them. If the host has other users, replace the secrets of this cell"
        );
    }
    Ok(())
}

/// Lets services of other users through, now that it is known whether there will be any.
pub(super) fn open_to_services(options: &NodeOptions, kind: RuntimeKind) -> Result<(), Error> {
    let dir = &options.data_dir;
    let failed = |source| Error::Io { action: "open to services", path: dir.clone(), source };
    let mode = dir.metadata().map_err(failed)?.mode() & 0o777;
    let wanted = mode | (most(options, Some(kind)) & modes::PASSAGE);
    if mode == wanted {
        return Ok(());
    }
    std::fs::set_permissions(dir, PermissionsExt::from_mode(wanted)).map_err(failed)
}

/// What the directory itself may be to others. Only root runs services as other users.
fn most(options: &NodeOptions, kind: Option<RuntimeKind>) -> u32 {
    let has_services = kind == Some(RuntimeKind::Process) && geteuid().is_root();
    let has_clients =
        options.socket_group.is_some() && options.socket.parent() == Some(&options.data_dir);
    if has_services || has_clients { modes::PASSAGE } else { modes::DIR }
}

fn mend(dir: &Path, most: u32) -> io::Result<Mended> {
    let mut mended = Mended::default();
    let found = dir.symlink_metadata()?;
    if found.uid() == geteuid().as_raw() && found.mode() & STICKY == 0 {
        mended.add(modes::narrow(dir, most, Reach::Itself)?);
    }
    for name in OWN {
        mended.add(modes::narrow(&dir.join(name), modes::DIR, Reach::Tree)?);
    }
    mended.add(modes::narrow(&dir.join(MOUNTED), modes::DIR, Reach::Itself)?);
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if OWN_BEGINNINGS.iter().any(|own| name.as_encoded_bytes().starts_with(own.as_bytes())) {
            mended.add(modes::narrow(&entry.path(), modes::DIR, Reach::Tree)?);
        }
    }
    let (name, most) = CERTIFICATES;
    mended.add(modes::narrow(&dir.join(name), most, Reach::Tree)?);
    Ok(mended)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_a_node_keeps_is_closed_and_what_is_not_its_own_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for tree in ["store/log", "store.migrated.1", "certificates", "docker/g1", "photos"] {
            fs::create_dir_all(at(tree)).unwrap();
        }
        let files = [
            ("store/log/1", 0o600),
            ("store.migrated.1/identity", 0o600),
            ("backup.unsent.7", 0o600),
            ("node.json", 0o600),
            ("certificates/a.key", 0o640),
            ("docker/g1/0", 0o644),
            ("photos/cat", 0o644),
        ];
        for (name, _) in files {
            fs::write(at(name), "x").unwrap();
            fs::set_permissions(at(name), PermissionsExt::from_mode(0o644)).unwrap();
        }
        for name in ["", "store", "store/log", "certificates", "photos", "docker"] {
            fs::set_permissions(at(name), PermissionsExt::from_mode(0o755)).unwrap();
        }
        mend(dir.path(), modes::DIR).unwrap();
        for (name, expected) in files {
            assert_eq!(mode(&at(name)), expected, "{name}");
        }
        for (name, expected) in [
            ("", 0o700),
            ("store/log", 0o700),
            ("certificates", 0o750),
            ("docker", 0o700),
            ("photos", 0o755),
        ] {
            assert_eq!(mode(&at(name)), expected, "{name:?}");
        }
        assert_eq!(mend(dir.path(), modes::DIR).unwrap(), Mended::default());
    }

    #[test]
    fn a_directory_for_everybody_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        mend(dir.path(), modes::DIR).unwrap();
        assert_eq!(mode(dir.path()), 0o777);
    }

    #[test]
    fn others_pass_through_only_to_what_is_theirs() {
        let is_root = geteuid().is_root();
        let at = |socket: &str, group: Option<&str>| NodeOptions {
            data_dir: "/srv/node".into(),
            socket: socket.into(),
            socket_group: group.map(str::to_owned),
            ..NodeOptions::default()
        };
        let own = at("/srv/node/plimsoll.sock", None);
        assert_eq!(most(&own, Some(RuntimeKind::Docker)), 0o700);
        assert_eq!(most(&own, None), 0o700);
        let services = if is_root { 0o711 } else { 0o700 };
        assert_eq!(most(&own, Some(RuntimeKind::Process)), services);
        assert_eq!(most(&at("/srv/node/plimsoll.sock", Some("ops")), None), 0o711);
        assert_eq!(most(&at("/run/plimsoll.sock", Some("ops")), None), 0o700);
    }
}
