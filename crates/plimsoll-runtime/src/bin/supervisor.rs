//! The supervisor of the process runtime by itself; `plimsoll` carries the same one.

use std::process::ExitCode;

fn main() -> ExitCode {
    plimsoll_runtime::process::supervisor::main(std::env::args_os().skip(1))
}
