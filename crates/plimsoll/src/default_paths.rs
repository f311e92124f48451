//! Where a daemon keeps its things and where it is found, when nobody says.

use std::path::PathBuf;

/// The socket of a daemon that the system runs.
const SYSTEM_SOCKET: &str = "/run/plimsoll/plimsoll.sock";
const SYSTEM_DATA: &str = "/var/lib/plimsoll";

/// Whose defaults hold, read once from the process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Who {
    pub(crate) is_root: bool,
    pub(crate) home: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`
    pub(crate) runtime: Option<PathBuf>,
    /// `$XDG_DATA_HOME`
    pub(crate) data: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`
    pub(crate) config: Option<PathBuf>,
}

impl Who {
    pub(crate) fn of_process() -> Self {
        let path = |name: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from).filter(|path| path.is_absolute())
        };
        Self {
            is_root: rustix::process::geteuid().is_root(),
            home: path("HOME"),
            runtime: path("XDG_RUNTIME_DIR"),
            data: path("XDG_DATA_HOME"),
            config: path("XDG_CONFIG_HOME"),
        }
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        if self.is_root {
            return PathBuf::from(SYSTEM_DATA);
        }
        let home = || self.home.as_ref().map(|home| home.join(".local/share"));
        let data = self.data.clone().or_else(home);
        data.unwrap_or_else(|| PathBuf::from("/tmp")).join("plimsoll")
    }

    /// Where what one is logged in to is kept; none where nothing says whose it would be.
    pub(crate) fn config_dir(&self) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".config"));
        self.config.clone().or_else(home).map(|config| config.join("plimsoll"))
    }

    /// Where `plimsoll up` listens.
    pub(crate) fn socket(&self) -> PathBuf {
        if self.is_root {
            return PathBuf::from(SYSTEM_SOCKET);
        }
        match &self.runtime {
            Some(runtime) => runtime.join("plimsoll.sock"),
            None => self.data_dir().join("plimsoll.sock"),
        }
    }

    /// Where a command looks: a daemon of one's own before that of the system, if there is one.
    pub(crate) fn nearest_socket(&self, exists: impl Fn(&PathBuf) -> bool) -> PathBuf {
        let own = self.socket();
        let system = PathBuf::from(SYSTEM_SOCKET);
        if !exists(&own) && exists(&system) { system } else { own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_of_ones_own_comes_before_the_systems() {
        let root = Who { is_root: true, ..Who::default() };
        let ada = Who { home: Some("/home/ada".into()), ..Who::default() };
        let seated = Who { runtime: Some("/run/user/7".into()), ..ada.clone() };
        let own = "/home/ada/.local/share/plimsoll/plimsoll.sock";
        for (case, who, there, socket) in [
            ("root has the system's", &root, &[][..], SYSTEM_SOCKET),
            ("a seat has a place for sockets", &seated, &[], "/run/user/7/plimsoll.sock"),
            ("else it is with the data", &ada, &[], own),
            ("the system's if it is the only one", &ada, &[SYSTEM_SOCKET], SYSTEM_SOCKET),
            ("one's own if there are both", &ada, &[SYSTEM_SOCKET, own], own),
        ] {
            let exists = |path: &PathBuf| there.contains(&path.to_str().unwrap_or_default());
            assert_eq!(who.nearest_socket(exists), PathBuf::from(socket), "{case}");
        }
        assert_eq!(root.data_dir(), PathBuf::from(SYSTEM_DATA));
    }
}
