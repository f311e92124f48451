//! What someone may have meant: the known names nearest to the one that was asked for.

/// More than a few suggestions is a list, not a hint.
const MAX_SHOWN: usize = 3;

/// Below this likeness a name is another word, not a slip of the keyboard.
const LEAST_LIKENESS: f64 = 0.5;

/// `did you mean a or b?`, or the names there are, or that there are none.
pub fn hint<'a>(
    text: &str,
    what: &str,
    names: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    let near = nearest(text, names.clone());
    if !near.is_empty() {
        return format!("did you mean {}?", or(&near));
    }
    let known: Vec<&str> = names.into_iter().take(MAX_SHOWN + 1).collect();
    match known.as_slice() {
        [] => format!("there is no {what} here at all"),
        [.., _] if known.len() > MAX_SHOWN => {
            format!("a {what} is one of {}, …", known[..MAX_SHOWN].join(", "))
        }
        _ => format!("a {what} is {}", or(&known)),
    }
}

/// The names most like the text, the likest first.
pub fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let likeness = |name: &str| {
        // `web` is a good part of `shop-web-1`, however many letters are missing.
        if !text.is_empty() && name.contains(text) {
            1.0
        } else {
            strsim::normalized_damerau_levenshtein(text, name)
        }
    };
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness >= LEAST_LIKENESS)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.into_iter().map(|(_, name)| name).take(MAX_SHOWN).collect()
}

/// `a`, `a or b`, `a, b or c`.
pub fn or(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_finds_what_was_meant() {
        let names = ["shop", "mon", "blog"];
        assert_eq!(hint("shpo", "deployment", names), "did you mean shop?");
        assert_eq!(hint("zzzzz", "deployment", names), "a deployment is shop, mon or blog");
        assert_eq!(hint("zzzzz", "deployment", []), "there is no deployment here at all");
        let names = ["shop-web-1", "shop-web-2", "shop-db-1", "mon/agent"];
        assert_eq!(nearest("shop-wbe-2", names)[0], "shop-web-2");
        assert_eq!(nearest("agent", names), ["mon/agent"]);
        assert_eq!(nearest("something else", names), Vec::<&str>::new());
    }
}
