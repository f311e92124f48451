//! Secrets come from the system's generator, never from a seed: what can be told in advance is none.

use rustix::rand::{GetRandomFlags, getrandom};

use super::Error;

pub(super) fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let got = getrandom(&mut bytes[filled..], GetRandomFlags::empty());
        filled += got.map_err(|error| Error::Random(error.into()))?;
    }
    Ok(bytes)
}
