//! Runs the built binary, in a directory of its own where a test needs files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What the environment of whoever runs the tests must not change.
pub(crate) const UNSET: [&str; 12] = [
    "COMPOSE_FILE",
    "COMPOSE_PROFILES",
    "COMPOSE_PROJECT_NAME",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "DB_PASSWORD",
    "PLIMSOLL_AUTHORITY",
    "PLIMSOLL_CONTEXT",
    "PLIMSOLL_HOST",
    "PLIMSOLL_JOIN",
    "PLIMSOLL_TOKEN",
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A directory with these files, made anew.
pub(crate) struct Directory(PathBuf);

pub(crate) fn directory<const N: usize>(name: &str, files: [(&str, &str); N]) -> Directory {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    for (file, text) in files {
        let file = path.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    Directory(path)
}

impl Directory {
    pub(crate) fn write(&self, file: &str, bytes: &[u8]) {
        fs::write(self.0.join(file), bytes).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap()
    }

    pub(crate) fn run(&self, args: &str) -> Ran {
        run_in(&self.0, args, "", &[])
    }

    pub(crate) fn run_with(&self, args: &str, env: &[(&str, &str)]) -> Ran {
        run_in(&self.0, args, "", env)
    }
}

/// In the root of the repository, with words split at blanks.
pub(crate) fn plimsoll(args: &str) -> Ran {
    run_in(&root(), args, "", &[])
}

pub(crate) fn plimsoll_reading(args: &str, stdin: &str) -> Ran {
    run_in(&root(), args, stdin, &[])
}

/// The binary, unmoved by the environment of whoever runs the tests.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    for name in UNSET {
        command.env_remove(name);
    }
    // What whoever runs the tests is logged in to is no cell of ours.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

pub(crate) fn run_in(directory: &Path, args: &str, stdin: &str, env: &[(&str, &str)]) -> Ran {
    let mut command = binary();
    command.current_dir(directory).args(args.split_whitespace());
    command.envs(env.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that refuses its arguments is gone before it reads.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    Ran(child.wait_with_output().unwrap())
}

pub(crate) struct Ran(Output);

impl Ran {
    pub(crate) fn code(&self) -> i32 {
        self.0.status.code().expect("it exits by itself")
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }

    /// Everything there is to see.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("exit {}\n", self.code());
        for (name, stream) in [("stdout", self.stdout()), ("stderr", self.stderr())] {
            if !stream.is_empty() {
                text.extend(["--- ", name, "\n", &stream]);
            }
        }
        text
    }
}
