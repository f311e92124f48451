//! Blots out what is a secret by its form, wherever it stands: tokens, login strings and keys of plimsoll, keys as PEM, and what an
//! `Authorization` header or an URL carries. What a file should not have, it then cannot have by accident.

/// How the tokens and keys of plimsoll begin; behind it are letters and digits.
const PREFIXES: [&str; 5] = ["plj_", "plo_", "pll_", "plk_", "plu_"];

/// What stands before the secret in the headers of a request.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];

const PEM_KEY: (&str, &str) = ("-----BEGIN ", "-----END ");

/// Shorter than any token of ours, so that one that was cut off is blotted out too.
const SHORTEST: usize = 8;

const BLOT: &str = "[blotted]";

pub(super) fn blotted(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut is_key = false;
    for line in text.split_inclusive('\n') {
        if is_key || is_pem_begin(line) {
            // In JSON a whole key is one line, and its end is on it.
            is_key = !line.contains(PEM_KEY.1);
            clean.push_str(&pem_blotted(line, is_key));
            continue;
        }
        clean.push_str(&words_blotted(line));
    }
    clean
}

fn is_pem_begin(line: &str) -> bool {
    line.split(PEM_KEY.0)
        .skip(1)
        .any(|kind| kind.split("-----").next().is_some_and(|kind| kind.contains("PRIVATE KEY")))
}

fn pem_blotted(line: &str, goes_on: bool) -> String {
    let before = line.find(PEM_KEY.0).map_or("", |at| &line[..at]);
    let after = match line.rfind(PEM_KEY.1).filter(|_| !goes_on) {
        Some(at) => {
            let rest = &line[at + PEM_KEY.1.len()..];
            rest.find("-----").map_or("\n", |end| &rest[end + "-----".len()..])
        }
        None => "\n",
    };
    format!("{}{BLOT}{}", words_blotted(before), words_blotted(after))
}

fn words_blotted(line: &str) -> String {
    // Without a change of length, so that places stay the same.
    let lower = line.to_ascii_lowercase();
    let is_secret = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_+/=.~".contains(byte);
    let mut clean = String::with_capacity(line.len());
    let mut at = 0;
    while at < line.len() {
        let rest = &lower[at..];
        let prefix = PREFIXES.iter().chain(&SCHEMES).find(|prefix| rest.starts_with(**prefix));
        if let Some(prefix) = prefix {
            let secret = &line.as_bytes()[at + prefix.len()..];
            let length = secret.iter().take_while(|byte| is_secret(byte)).count();
            if length >= SHORTEST {
                clean.push_str(&line[at..at + prefix.len()]);
                clean.push_str(BLOT);
                at += prefix.len() + length;
                continue;
            }
        }
        if rest.starts_with("://") {
            let host =
                line[at + 3..].find(['/', ' ', '"', '\'', '\n']).unwrap_or(line.len() - at - 3);
            let authority = &line[at + 3..at + 3 + host];
            if let Some(end) = authority.rfind('@').filter(|end| authority[..*end].contains(':')) {
                clean.extend(["://", BLOT]);
                at += 3 + end;
                continue;
            }
        }
        let next = line[at..].chars().next().map_or(1, char::len_utf8);
        clean.push_str(&line[at..at + next]);
        at += next;
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_blotted_out() {
        for (case, text, clean) in [
            ("nothing", "ash leads, term 4 — grün\n", "ash leads, term 4 — grün\n"),
            (
                "a join token with its address",
                "up --join plj_abcdefghijklmnop@10.0.0.1:7117",
                "up --join plj_[blotted]@10.0.0.1:7117",
            ),
            ("in JSON", r#"{"token":"PLO_ABCDEFGHIJ"}"#, r#"{"token":"PLO_[blotted]"}"#),
            (
                "a prefix alone",
                "those begin with plj_, and pll_abc",
                "those begin with plj_, and pll_abc",
            ),
            (
                "a header",
                "Authorization: Bearer abc.def-ghi_j\n",
                "Authorization: Bearer [blotted]\n",
            ),
            ("two of them", "plk_aaaaaaaaaa plu_bbbbbbbbbb", "plk_[blotted] plu_[blotted]"),
            ("an URL", "get https://ada:pw@host/x now", "get https://[blotted]@host/x now"),
            ("an URL without a password", "https://ada@host:80/x", "https://ada@host:80/x"),
            (
                "a key",
                "a\n-----BEGIN PRIVATE KEY-----\nMIIE\nabc=\n-----END PRIVATE KEY-----\nb\n",
                "a\n[blotted]\n[blotted]\n[blotted]\n[blotted]\nb\n",
            ),
            (
                "a key in JSON",
                "{\"k\":\"-----BEGIN EC PRIVATE KEY-----\\nMII\\n-----END EC PRIVATE KEY-----\\n\"}\nb\n",
                "{\"k\":\"[blotted]\\n\"}\nb\n",
            ),
            (
                "a certificate is no secret",
                "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----\n",
                "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----\n",
            ),
        ] {
            assert_eq!(blotted(text), clean, "{case}");
        }
    }
}
