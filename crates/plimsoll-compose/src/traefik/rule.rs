//! A rule of Traefik, ``Host(`a.example`) && PathPrefix(`/api`)``, as the hosts and paths it lets through.

/// One way to match; nothing is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Matched {
    pub(super) host: Option<String>,
    pub(super) path: Option<String>,
}

/// More ways than a person writes. Rules multiply: `(A || B) && (C || D)` has four.
const MAX_WAYS: usize = 64;

/// Parentheses within parentheses.
const MAX_DEPTH: usize = 16;

/// All ways in which a request can match, or what of the rule has no equal here.
pub(super) fn read(rule: &str) -> Result<Vec<Matched>, String> {
    let mut reader = RuleReader { rest: rule.trim(), depth: 0 };
    let ways = reader.any()?;
    match reader.rest.trim() {
        "" => Ok(ways),
        rest => Err(format!("cannot read {rest:?}")),
    }
}

struct RuleReader<'r> {
    rest: &'r str,
    depth: usize,
}

impl RuleReader<'_> {
    fn takes(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn any(&mut self) -> Result<Vec<Matched>, String> {
        let mut ways = self.all()?;
        while self.takes("||") {
            ways.extend(self.all()?);
            within(&ways)?;
        }
        Ok(ways)
    }

    fn all(&mut self) -> Result<Vec<Matched>, String> {
        let mut ways = self.one()?;
        while self.takes("&&") {
            let others = self.one()?;
            let mut both = Vec::new();
            for way in &ways {
                for other in &others {
                    both.push(way.and(other)?);
                }
            }
            within(&both)?;
            ways = both;
        }
        Ok(ways)
    }

    fn one(&mut self) -> Result<Vec<Matched>, String> {
        if self.takes("!") {
            return Err("`!` has no equal in a route".to_owned());
        }
        if self.takes("(") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err("parentheses are nested too deeply".to_owned());
            }
            let ways = self.any()?;
            self.depth -= 1;
            return if self.takes(")") {
                Ok(ways)
            } else {
                Err("a parenthesis stays open".to_owned())
            };
        }
        self.matcher()
    }

    fn matcher(&mut self) -> Result<Vec<Matched>, String> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find('(').ok_or_else(|| format!("cannot read {:?}", self.rest))?;
        let name = self.rest[..end].trim().to_owned();
        self.rest = &self.rest[end + 1..];
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            if !self.takes(",") {
                break;
            }
        }
        if !self.takes(")") {
            return Err("a parenthesis stays open".to_owned());
        }
        let of = |make: fn(String) -> Matched| Ok(values.into_iter().map(make).collect());
        match name.as_str() {
            "Host" => of(|host| Matched { host: Some(host), path: None }),
            "PathPrefix" => of(|path| Matched { host: None, path: Some(prefix(&path)) }),
            // A route of a prefix takes the path itself, and what is below it.
            "Path" => of(|path| Matched { host: None, path: Some(prefix(&path)) }),
            other => Err(format!("{other} has no equal in a route")),
        }
    }

    fn value(&mut self) -> Result<String, String> {
        self.rest = self.rest.trim_start();
        let mut chars = self.rest.chars();
        let quote = chars.next().filter(|c| matches!(c, '`' | '"' | '\''));
        let quote = quote.ok_or_else(|| format!("expected a quote before {:?}", self.rest))?;
        let inside = chars.as_str();
        let end = inside.find(quote).ok_or_else(|| "a quote stays open".to_owned())?;
        self.rest = &inside[end + 1..];
        Ok(inside[..end].to_owned())
    }
}

impl Matched {
    fn and(&self, other: &Self) -> Result<Self, String> {
        let one = |a: &Option<String>, b: &Option<String>, what: &str| match (a, b) {
            (Some(a), Some(b)) if a != b => Err(format!("two {what} at once match nothing")),
            (a, b) => Ok(a.clone().or_else(|| b.clone())),
        };
        Ok(Self {
            host: one(&self.host, &other.host, "hosts")?,
            path: one(&self.path, &other.path, "paths")?,
        })
    }
}

/// A route's path has no slash at its end.
fn prefix(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.to_owned(),
    }
}

fn within(ways: &[Matched]) -> Result<(), String> {
    if ways.len() > MAX_WAYS { Err("it has too many alternatives".to_owned()) } else { Ok(()) }
}
