//! Reads the code within a [`RestartExhausted`](ObservedCode::RestartExhausted), which holds no further one. Nodes send codes to
//! their leader: could they nest, two bytes a level would take the stack of whoever reads them, and with it the process.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::ObservedCode;
use crate::ids::ServiceName;
use crate::spec::Dependency;

/// The same variants in the same order, since their places are what is written.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PlainCode {
    ImagePullFailed { image: String, error: String },
    AwaitsService { service: ServiceName, until: Dependency },
    StartFailed { error: String },
    Unhealthy { output: String },
    Exited { status: Option<i32> },
    OutOfMemory,
    Vanished,
    RestartExhausted(Nested),
    Completed,
    SubnetPoolExhausted { error: String },
    RuntimeUnavailable,
    JobCompleted { attempts: u32 },
    JobFailed(Nested),
}

/// What is not read.
enum Nested {}

impl<'de> Deserialize<'de> for Nested {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("a restart that is exhausted is not the reason of another"))
    }
}

impl From<PlainCode> for ObservedCode {
    fn from(code: PlainCode) -> Self {
        match code {
            PlainCode::ImagePullFailed { image, error } => Self::ImagePullFailed { image, error },
            PlainCode::AwaitsService { service, until } => Self::AwaitsService { service, until },
            PlainCode::StartFailed { error } => Self::StartFailed { error },
            PlainCode::Unhealthy { output } => Self::Unhealthy { output },
            PlainCode::Exited { status } => Self::Exited { status },
            PlainCode::OutOfMemory => Self::OutOfMemory,
            PlainCode::Vanished => Self::Vanished,
            PlainCode::RestartExhausted(nested) | PlainCode::JobFailed(nested) => match nested {},
            PlainCode::Completed => Self::Completed,
            PlainCode::SubnetPoolExhausted { error } => Self::SubnetPoolExhausted { error },
            PlainCode::RuntimeUnavailable => Self::RuntimeUnavailable,
            PlainCode::JobCompleted { attempts } => Self::JobCompleted { attempts },
        }
    }
}

pub(super) fn last<'de, D: Deserializer<'de>>(from: D) -> Result<Box<ObservedCode>, D::Error> {
    PlainCode::deserialize(from).map(|code| Box::new(code.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exhausted(last: ObservedCode) -> ObservedCode {
        ObservedCode::RestartExhausted { tries: 3, last: Box::new(last) }
    }

    #[test]
    fn every_code_but_one_is_read_as_the_last() {
        let text = || "no".to_owned();
        let service = ServiceName::new("db").unwrap();
        for code in [
            ObservedCode::ImagePullFailed { image: text(), error: text() },
            ObservedCode::AwaitsService { service, until: Dependency::Healthy },
            ObservedCode::StartFailed { error: text() },
            ObservedCode::Unhealthy { output: text() },
            ObservedCode::Exited { status: Some(1) },
            ObservedCode::OutOfMemory,
            ObservedCode::Vanished,
            ObservedCode::Completed,
            ObservedCode::SubnetPoolExhausted { error: text() },
            ObservedCode::RuntimeUnavailable,
            ObservedCode::JobCompleted { attempts: 2 },
        ] {
            let code = exhausted(code);
            let written = postcard::to_stdvec(&code).unwrap();
            assert_eq!(postcard::from_bytes(&written), Ok(code.clone()));
            let written = serde_json::to_string(&code).unwrap();
            assert_eq!(serde_json::from_str::<ObservedCode>(&written).unwrap(), code);
        }
    }

    #[test]
    fn codes_within_codes_are_refused_before_they_take_the_stack() {
        let twice = postcard::to_stdvec(&exhausted(exhausted(ObservedCode::Vanished))).unwrap();
        assert!(postcard::from_bytes::<ObservedCode>(&twice).is_err());
        // Tag and number of tries, over and over.
        let deep = [7, 1].repeat(1 << 20);
        assert!(postcard::from_bytes::<ObservedCode>(&deep).is_err());
    }
}
