use std::io::Write;

use proptest::prelude::*;

use super::*;

const SEED_LENGTHS: [usize; 7] = [0, 1, 65_535, 65_536, 65_537, 131_072, 200_001];

#[test]
fn what_is_sealed_opens_with_its_key_and_in_its_context_only() {
    let (keys, others) = (Keyring::generate().unwrap(), Keyring::generate().unwrap());
    let sealed = keys.seal("entry", b"a secret").unwrap();
    assert_eq!(sealed.len(), b"a secret".len() + OVERHEAD);
    assert!(!sealed.windows(8).any(|part| part == b"a secret"));
    assert_eq!(keys.open("entry", &sealed).unwrap(), b"a secret");
    assert_eq!(keys.open("snapshot", &sealed), Err(OpenError::Changed));
    assert_eq!(others.open("entry", &sealed), Err(OpenError::Changed));
    assert_ne!(keys.seal("entry", b"a secret").unwrap(), sealed, "no nonce comes twice");
    for at in 0..sealed.len() {
        let mut wrong = sealed.clone();
        wrong[at] ^= 0x20;
        assert!(keys.open("entry", &wrong).is_err(), "byte {at} was changed");
        assert!(keys.open("entry", &sealed[..at]).is_err(), "cut to {at} bytes");
    }
}

#[test]
fn an_older_key_opens_until_it_is_forgotten() {
    let keys = Keyring::generate().unwrap();
    let unused = keys.renewed([].into_iter()).unwrap();
    assert!(unused.numbers().eq([1]), "a key that sealed nothing is as good as a new one");
    let before = keys.seal("entry", b"before").unwrap();
    let keys = keys.renewed([key_of(&before).unwrap()].into_iter()).unwrap();
    let after = keys.seal("entry", b"after").unwrap();
    assert_eq!(keys.open("entry", &before).unwrap(), b"before");
    let keys = keys.renewed([key_of(&after).unwrap()].into_iter()).unwrap();
    assert!(keys.numbers().eq([2, 3]));
    assert_eq!(keys.open("entry", &before), Err(OpenError::UnknownKey { key: 1 }));
    assert_eq!(keys.open("entry", &after).unwrap(), b"after");
}

#[test]
fn a_locked_keyring_takes_its_unlock_key() {
    let keys = Keyring::generate().unwrap().renewed([1].into_iter()).unwrap();
    let sealed = keys.seal("entry", b"it").unwrap();
    let (unlock, other) = (UnlockKey::generate().unwrap(), UnlockKey::generate().unwrap());
    let (open, locked) = (keys.to_bytes(None).unwrap(), keys.to_bytes(Some(&unlock)).unwrap());
    assert!(Keyring::is_locked(&locked) && !Keyring::is_locked(&open));
    for (bytes, unlock) in [(&open, None), (&open, Some(&other)), (&locked, Some(&unlock))] {
        let read = Keyring::from_bytes(bytes, unlock).unwrap();
        assert_eq!(read.open("entry", &sealed).unwrap(), b"it");
    }
    let refused = |bytes: &[u8], unlock| Keyring::from_bytes(bytes, unlock).unwrap_err();
    assert_eq!(refused(&locked, None), KeyringError::Locked);
    assert_eq!(refused(&locked, Some(&other)), KeyringError::WrongKey);
    assert_eq!(refused(&open[..9], None), KeyringError::Damaged);
    assert_eq!(refused(&[], None), KeyringError::Damaged);
}

#[test]
fn an_unlock_key_is_read_as_it_was_printed_and_a_slip_is_noticed() {
    let (key, name) = (UnlockKey::generate().unwrap(), "an unlock key");
    let text = key.to_string();
    assert_eq!(format!(" {text}\n").parse(), Ok(key.clone()), "as a file has it");
    assert_eq!("plj_abc".parse::<UnlockKey>(), Err(InvalidKey::Prefix { name, prefix: "plu_" }));
    assert_eq!(text[..text.len() - 1].parse::<UnlockKey>(), Err(InvalidKey::Mistyped { name }));
    let swapped = if text.ends_with('a') { "b" } else { "a" };
    let mistyped = format!("{}{swapped}", &text[..text.len() - 1]);
    assert_eq!(mistyped.parse::<UnlockKey>(), Err(InvalidKey::Mistyped { name }));
    assert_eq!(format!("{key:?}"), "UnlockKey");
}

#[test]
fn a_key_of_a_cell_opens_what_it_sealed_for_the_same_purpose() {
    let [key, other] = [0, 1].map(|_| CellKey::generate().unwrap());
    let text = key.to_string();
    assert_eq!(text.parse(), Ok(key.clone()));
    assert!(matches!(text.parse::<UnlockKey>(), Err(InvalidKey::Prefix { .. })));
    assert_eq!(format!("{key:?}"), format!("CellKey {}", key.id()));
    assert_eq!(CellKey::from_bytes(key.expose()), Some(key.clone()));
    let of = |keys: &[&CellKey], purpose| Keyring::of_cell(keys.iter().copied(), purpose).unwrap();
    let sealed = of(&[&key], "backup").seal("x", b"it").unwrap();
    assert_eq!(key_of(&sealed), Some(key.id().0));
    assert_eq!(of(&[&other, &key], "backup").open("x", &sealed).unwrap(), b"it");
    assert_eq!(of(&[&key], "etcd").open("x", &sealed), Err(OpenError::Changed));
    let missing = OpenError::UnknownKey { key: key.id().0 };
    assert_eq!(of(&[&other], "backup").open("x", &sealed), Err(missing));
    assert!(Keyring::of_cell([], "backup").is_none());
}

#[test]
fn a_key_of_a_cell_is_kept_under_the_unlock_key() {
    let key = CellKey::generate().unwrap();
    let (unlock, other) = (UnlockKey::generate().unwrap(), UnlockKey::generate().unwrap());
    let (open, locked) = (key.to_file(None).unwrap(), key.to_file(Some(&unlock)).unwrap());
    assert!(!locked.windows(32).any(|part| part == key.expose()));
    for (bytes, unlock) in [(&open, None), (&open, Some(&other)), (&locked, Some(&unlock))] {
        assert_eq!(CellKey::from_file(bytes, unlock), Ok(key.clone()));
    }
    assert_eq!(CellKey::from_file(&locked, None), Err(KeyringError::Locked));
    assert_eq!(CellKey::from_file(&locked, Some(&other)), Err(KeyringError::WrongKey));
    assert_eq!(CellKey::from_file(&open[..9], None), Err(KeyringError::Damaged));
    let keyring = Keyring::generate().unwrap().to_bytes(Some(&unlock)).unwrap();
    assert!(CellKey::from_file(&keyring, Some(&unlock)).is_err(), "another thing under the key");
}

#[test]
fn a_stream_of_any_length_is_whole_or_refused() {
    let keys = Keyring::generate().unwrap();
    for length in SEED_LENGTHS {
        let plain: Vec<u8> = (0..=250).cycle().take(length).collect();
        let sealed = sealed(&keys, &plain, 10_007);
        assert_eq!(opened(&keys, &sealed).unwrap(), plain, "{length}");
        for (from, most) in [(0, 1), (1, 65_536), (65_535, 3), (65_536, 65_536), (200_000, 9)] {
            let start = length.min(usize::try_from(from).unwrap());
            let expected = &plain[start..length.min(start + most)];
            assert_eq!(part(&keys, &sealed, from, most).unwrap(), expected, "{length} from {from}");
        }
        for cut in [1, 17, sealed.len() / 2, sealed.len() - 1] {
            let kept = sealed.len().saturating_sub(cut);
            assert!(opened(&keys, &sealed[..kept]).is_err(), "{length} without its last {cut}");
        }
        let longer = [&sealed[..], &[0]].concat();
        assert!(opened(&keys, &longer).is_err(), "{length} and one more");
    }
}

#[test]
fn pieces_of_a_stream_keep_their_places() {
    let keys = Keyring::generate().unwrap();
    let sealed = sealed(&keys, &vec![7; 3 << 16], 1 << 16);
    let piece = (64 << 10) + 16;
    let (first, second) = (24, 24 + piece);
    let mut swapped = sealed.clone();
    swapped[first..second].copy_from_slice(&sealed[second..second + piece]);
    swapped[second..second + piece].copy_from_slice(&sealed[first..second]);
    assert!(opened(&keys, &swapped).is_err());
    let without = [&sealed[..first], &sealed[second..]].concat();
    assert!(opened(&keys, &without).is_err());
}

fn sealed(keys: &Keyring, plain: &[u8], at_once: usize) -> Vec<u8> {
    let mut writer = SealWriter::new(keys, "snapshot", Vec::new()).unwrap();
    for part in plain.chunks(at_once) {
        writer.write_all(part).unwrap();
    }
    writer.finish().unwrap().0
}

fn opened(keys: &Keyring, sealed: &[u8]) -> io::Result<Vec<u8>> {
    part(keys, sealed, 0, usize::MAX)
}

fn part(keys: &Keyring, sealed: &[u8], from: u64, most: usize) -> io::Result<Vec<u8>> {
    let (header, body) = sealed.split_at_checked(STREAM_HEADER).ok_or(OpenError::Foreign)?;
    let stream = SealedStream::new(keys, "snapshot", header.try_into().unwrap())?;
    stream.read(body.len() as u64, from, most, |at, to| {
        let at = usize::try_from(at).unwrap();
        to.copy_from_slice(&body[at..at + to.len()]);
        Ok(())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let keys = Keyring::generate().unwrap();
        prop_assert!(keys.open("entry", &bytes).is_err());
        prop_assert!(opened(&keys, &bytes).is_err());
        let marked = [&[cipher::SEALED, 1, 0, 0, 0][..], &bytes].concat();
        prop_assert!(keys.open("entry", &marked).is_err());
        prop_assert!(opened(&keys, &marked).is_err());
        let _ = Keyring::from_bytes(&bytes, None);
    }
}
