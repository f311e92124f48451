//! Signals by name.

use rustix::process::Signal;

const NAMED: &[(&str, Signal)] = &[
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ABRT", Signal::ABORT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("PIPE", Signal::PIPE),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
    ("TSTP", Signal::TSTP),
    ("TTIN", Signal::TTIN),
    ("TTOU", Signal::TTOU),
    ("URG", Signal::URG),
    ("WINCH", Signal::WINCH),
    ("IO", Signal::IO),
    ("PWR", Signal::POWER),
];

/// `SIGTERM`, `term`, `15`. Real-time signals have no safe name here and are refused.
pub(crate) fn parse(text: &str) -> Option<Signal> {
    if let Ok(number) = text.parse() {
        return Signal::from_named_raw(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_go_by_several_names() {
        for (text, signal) in [
            ("SIGTERM", Some(Signal::TERM)),
            ("term", Some(Signal::TERM)),
            ("15", Some(Signal::TERM)),
            ("SIGQUIT", Some(Signal::QUIT)),
            ("0", None),
            ("SIGRTMIN+3", None),
            ("SIGNONSENSE", None),
            ("", None),
        ] {
            assert_eq!(parse(text), signal, "{text:?}");
        }
    }
}
