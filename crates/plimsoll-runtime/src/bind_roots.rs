//! Bind mounts of those who are no admins: each must lie below a directory that an admin of the node allowed, wherever its
//! symlinks lead. Asked right before a container starts, since whoever writes below a root can plant a symlink there at
//! any time.
//!
//! The kernel resolves the path (`openat2` with `RESOLVE_BENEATH`), so that nothing happens between one component and the
//! next, and the runtime is given the path that was found, which has no symlink. What is left is an exchange: whoever can
//! write to a directory *above* the source can put a symlink in the place of a directory after the look and before the
//! engine mounts it. A service can write there only if it binds that directory itself, so a root is best given per
//! deployment. Where the kernel has no `openat2` (before 5.6), nothing is bound.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_model::ContainerSpec;
use plimsoll_model::privilege::is_below;
use plimsoll_model::spec::MountSource;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::os::fd::AsRawFd;

use crate::error::{Error, Reason};
use crate::runtime::StartRequest;

/// Directories of this node that an admin allowed.
#[derive(Debug, Clone, Default)]
pub struct BindRoots(Arc<[PathBuf]>);

impl FromIterator<PathBuf> for BindRoots {
    fn from_iter<T: IntoIterator<Item = PathBuf>>(roots: T) -> Self {
        Self(roots.into_iter().collect())
    }
}

impl BindRoots {
    /// The request with every bind as it was found below a root, or why it may not start. An admin's is left as it is.
    pub fn hold(&self, mut order: StartRequest) -> Result<StartRequest, Error> {
        if order.spec.asked_by.is_none() {
            return Ok(order);
        }
        let (spec, reasons) = self.resolved(&order.spec);
        if !reasons.is_empty() {
            return Err(Error::Refused { tag: order.tag, reasons });
        }
        order.spec = Arc::new(spec);
        Ok(order)
    }

    fn resolved(&self, spec: &ContainerSpec) -> (ContainerSpec, Vec<Reason>) {
        let (mut spec, mut reasons) = (spec.clone(), Vec::new());
        for mount in &mut spec.mounts {
            let MountSource::Bind { path, .. } = &mut mount.source else { continue };
            match self.resolve(path) {
                Ok(found) => *path = found,
                Err(reason) => reasons.push(reason),
            }
        }
        (spec, reasons)
    }

    fn resolve(&self, path: &str) -> Result<String, Reason> {
        let root =
            self.0.iter().find(|root| root.to_str().is_some_and(|root| is_below(path, root)));
        let Some(root) = root else { return Err(Reason::BindOutside { path: path.to_owned() }) };
        let found = find(root, Path::new(path))
            .and_then(|found| found.into_os_string().into_string().map_err(|_| Errno::ILSEQ));
        found.map_err(|error| match error {
            // A symlink that leads out of the root, or would on its way.
            Errno::XDEV | Errno::LOOP => {
                let (path, root) = (path.to_owned(), root.display().to_string());
                Reason::BindEscapes { path, root }
            }
            error => {
                let error = io::Error::from(error).to_string();
                Reason::BindUnresolved { path: path.to_owned(), error }
            }
        })
    }
}

/// Where the path leads without leaving the root.
fn find(root: &Path, path: &Path) -> Result<PathBuf, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root_fd = openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty())?;
    let below = path.strip_prefix(root).unwrap_or(path);
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(&root_fd, below, flags, Mode::empty(), within)?;
    let shown = format!("/proc/self/fd/{}", found.as_raw_fd());
    std::fs::read_link(shown).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use plimsoll_model::access::Role;
    use plimsoll_model::spec::Mount;
    use plimsoll_model::testkit::replica_id;
    use plimsoll_model::{CellId, Generation};

    use super::*;
    use crate::runtime::Tag;

    fn order(path: &Path, asked_by: Option<Role>) -> StartRequest {
        let source = MountSource::Bind {
            path: path.to_str().unwrap().to_owned(),
            propagation: None,
            create_host_path: true,
            selinux: None,
        };
        let mount = Mount { source, target: "/x".into(), read_only: false, consistency: None };
        let spec = ContainerSpec { mounts: vec![mount], asked_by, ..ContainerSpec::default() };
        let cell_id = CellId::new("test").unwrap();
        let tag = Tag { cell_id, replica: replica_id("shop/web/1"), generation: Generation(1) };
        StartRequest::new(tag, Arc::new(spec))
    }

    fn bound(order: &StartRequest) -> &str {
        match &order.spec.mounts[0].source {
            MountSource::Bind { path, .. } => path,
            other => panic!("a bind, not {other:?}"),
        }
    }

    #[test]
    fn a_bind_stays_below_its_root_wherever_its_symlinks_lead() {
        let host = tempfile::tempdir().unwrap();
        let host = host.path().canonicalize().unwrap();
        let root = host.join("srv");
        fs::create_dir_all(root.join("shop/data")).unwrap();
        fs::create_dir(host.join("etc")).unwrap();
        symlink(host.join("etc"), root.join("shop/planted")).unwrap();
        symlink("../../etc", root.join("shop/upward")).unwrap();
        symlink("data", root.join("shop/inside")).unwrap();
        symlink("/proc/self/root", root.join("shop/magic")).unwrap();
        let roots: BindRoots = [root.clone()].into_iter().collect();
        for (path, leads_to) in [
            ("srv/shop/data", Ok("srv/shop/data")),
            ("srv", Ok("srv")),
            ("srv/shop/inside", Ok("srv/shop/data")),
            ("srv/shop/planted", Err("leads out of")),
            ("srv/shop/planted/ssh", Err("leads out of")),
            ("srv/shop/upward", Err("leads out of")),
            ("srv/shop/magic/etc", Err("leads out of")),
            ("srv/shop/absent", Err("No such file or directory")),
            ("srv/shop/../../etc", Err("below no bind root")),
            ("etc", Err("below no bind root")),
            ("srvant", Err("below no bind root")),
        ] {
            let held = roots.hold(order(&host.join(path), Some(Role::Deploy)));
            match leads_to {
                Ok(to) => assert_eq!(Path::new(bound(&held.unwrap())), host.join(to), "{path}"),
                Err(why) => {
                    let error = held.unwrap_err().to_string();
                    assert!(error.contains(why) && error.contains(path), "{path}: {error}");
                }
            }
        }
        let admin = roots.hold(order(&host.join("etc"), None)).unwrap();
        assert_eq!(Path::new(bound(&admin)), host.join("etc"), "an admin's is left alone");
    }
}
