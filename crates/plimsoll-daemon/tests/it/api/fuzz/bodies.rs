//! Targets and bodies by chance: first as the description asks for them, and then broken.

use plimsoll_fuzz::{Dice, Mutator};
use serde_json::{Map, Number, Value, json};

/// Deeper than any body that makes sense.
const DEPTH: usize = 12;

/// What one change may add to a body as text, in bytes: its value takes a hundred times as much here, which is none of the cell's memory.
const ADDED: usize = 1 << 20;

/// Names that are in the cell, so that a request is about something.
const NAMES: &[&str] =
    &["shop", "web", "db", "ash", "birch", "ci", "elm", "blog", "shop-web-1", "shop-db-2", "used"];

/// Texts that somebody compares, splits, prints or computes with.
const TEXTS: &[&str] = &[
    "",
    " ",
    "/",
    "..",
    "a/../b",
    "/etc/shadow",
    "-",
    "--help",
    "a b",
    "A",
    "\u{0}",
    "\n",
    "\u{202e}",
    "\u{feff}",
    "e\u{301}",
    "\u{1f6a2}",
    "%00",
    "${A}",
    "*",
    "*.example",
    "1",
    "-1",
    "1e999",
    "NaN",
    "null",
    "true",
    "10.0.0.0/8",
    "[::1]:80",
    "0.0.0.0:0",
    "2026-11-16T00:30:00Z",
    "-9999-01-01T00:00:00Z",
    "9999-12-31T23:59:60Z",
    "sha256:0",
    "app:1",
    "tcp",
    "99999999999999999999",
];

/// Numbers at the edges of what others hold.
const NUMBERS: &[i128] = &[
    0,
    1,
    -1,
    2,
    255,
    256,
    65_535,
    65_536,
    2_147_483_648,
    4_294_967_295,
    4_294_967_296,
    9_007_199_254_740_993,
    9_223_372_036_854_775_807,
    -9_223_372_036_854_775_808,
    18_446_744_073_709_551_615,
];

pub(super) struct Bodies<'d> {
    document: &'d Value,
    pub(super) dice: Dice,
}

impl<'d> Bodies<'d> {
    pub(super) fn new(document: &'d Value, dice: Dice) -> Self {
        Self { document, dice }
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.dice.below(many) == 0
    }

    fn text(&mut self) -> String {
        match self.dice.below(12) {
            0 => "x".repeat(1 << self.dice.below(17)),
            1 => "\u{1f6a2}".repeat(self.dice.below(300)),
            2..6 => (*self.dice.pick(TEXTS).unwrap()).to_owned(),
            _ => (*self.dice.pick(NAMES).unwrap()).to_owned(),
        }
    }

    fn number(&mut self) -> Value {
        let number = *self.dice.pick(NUMBERS).unwrap();
        let as_float = || Number::from_f64(1e300).map_or(Value::Null, Value::Number);
        Number::from_i128(number).map_or_else(as_float, Value::Number)
    }

    /// The path with its names, and some of what may be asked of it.
    pub(super) fn target(&mut self, path: &str, described: &Value) -> String {
        let mut target = path.to_owned();
        let mut query = Vec::new();
        for parameter in described["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            let value = match self.dice.below(4) {
                0 => self.text(),
                1 => plain(&self.number()),
                _ => {
                    let example = &parameter["schema"]["examples"][0];
                    if example.is_null() { self.text() } else { plain(example) }
                }
            };
            if parameter["in"] == "path" {
                let value = if value.is_empty() { "shop" } else { &value };
                target = target.replace(&format!("{{{name}}}"), &encoded(value));
            } else if self.dice.coin() {
                query.push(format!("{name}={}", encoded(&value)));
            }
        }
        if self.one_in(20) {
            query.push(format!("{}={}", encoded(&self.text()), encoded(&self.text())));
        }
        let query = query.join("&");
        if query.is_empty() { target } else { format!("{target}?{query}") }
    }

    pub(super) fn body(&mut self, described: &Value) -> Vec<u8> {
        let content = &described["requestBody"]["content"]["application/json"];
        if content.is_null() {
            return if self.one_in(10) { self.text().into_bytes() } else { Vec::new() };
        }
        let mut value = match &content["example"] {
            example @ Value::Object(_) if self.dice.coin() => example.clone(),
            _ => self.of_schema(&content["schema"], 0),
        };
        let breaks = self.dice.below(4);
        for _ in 0..breaks {
            self.break_somewhere(&mut value);
        }
        let text = value.to_string();
        match self.dice.below(8) {
            0 => {
                let corpus = [text.into_bytes()];
                Mutator::new(self.dice.roll(), &corpus, &[b"null", b"[", b"{\"a\":", b"\\u0000"])
                    .next_input()
            }
            1 => self.doubled(text).into_bytes(),
            _ => text.into_bytes(),
        }
    }

    /// A value that the description allows, as far as it says.
    fn of_schema(&mut self, schema: &Value, depth: usize) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            return self.of_schema(&self.document["components"]["schemas"][name], depth + 1);
        }
        if depth > DEPTH {
            return Value::Null;
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(all) = schema[choice].as_array() {
                let chosen = self.dice.pick(all).cloned().unwrap_or_default();
                return self.of_schema(&chosen, depth + 1);
            }
        }
        if let Some(all) = schema["allOf"].as_array() {
            return all.iter().fold(json!({}), |mut whole, part| {
                if let (Value::Object(whole), Value::Object(part)) =
                    (&mut whole, self.of_schema(part, depth + 1))
                {
                    whole.extend(part);
                }
                whole
            });
        }
        if let Some(all) = schema["enum"].as_array() {
            return self.dice.pick(all).cloned().unwrap_or_default();
        }
        if !schema["const"].is_null() {
            return schema["const"].clone();
        }
        if let Some(all) = schema["examples"].as_array().filter(|_| self.dice.coin()) {
            return self.dice.pick(all).cloned().unwrap_or_default();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => {
                self.dice.pick(kinds).and_then(Value::as_str).unwrap_or("null").to_owned()
            }
            Value::String(kind) => kind.clone(),
            _ => "object".to_owned(),
        };
        match kind.as_str() {
            "object" => self.object(schema, depth),
            "array" => {
                if let Some(all) = schema["prefixItems"].as_array() {
                    return all.iter().map(|item| self.of_schema(item, depth + 1)).collect();
                }
                let count = self.dice.below(4);
                (0..count).map(|_| self.of_schema(&schema["items"], depth + 1)).collect()
            }
            "string" => Value::String((*self.dice.pick(NAMES).unwrap()).to_owned()),
            "integer" | "number" => json!(self.dice.below(100)),
            "boolean" => Value::Bool(self.dice.coin()),
            _ => Value::Null,
        }
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required = schema["required"].as_array();
        let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|it| it == name));
        let mut object = Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if is_required(name) || self.one_in(3) {
                object.insert(name.clone(), self.of_schema(property, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.dice.below(3) {
                let name = (*self.dice.pick(NAMES).unwrap()).to_owned();
                object.insert(name, self.of_schema(&schema["additionalProperties"], depth + 1));
            }
        }
        Value::Object(object)
    }

    /// Changes one value somewhere within.
    fn break_somewhere(&mut self, value: &mut Value) {
        let goes_deeper = !self.one_in(4);
        match value {
            Value::Object(fields) if goes_deeper && !fields.is_empty() => {
                let at = self.dice.below(fields.len());
                let inner = fields.values_mut().nth(at).unwrap();
                self.break_somewhere(inner);
            }
            Value::Array(items) if goes_deeper && !items.is_empty() => {
                let at = self.dice.below(items.len());
                self.break_somewhere(&mut items[at]);
            }
            value => self.break_this(value),
        }
    }

    fn break_this(&mut self, value: &mut Value) {
        match (self.dice.below(10), &mut *value) {
            (0, _) => *value = Value::Null,
            (3, _) => *value = Value::Bool(self.dice.coin()),
            (4, _) => *value = json!([]),
            (5, Value::Object(fields)) => drop(fields.insert(self.text(), json!({}))),
            (6, Value::Object(fields)) => {
                let name = fields.keys().nth(self.dice.below(fields.len().max(1))).cloned();
                drop(name.and_then(|name| fields.remove(&name)));
            }
            (7, Value::Object(fields)) => {
                // The same under many names.
                if let Some(first) = fields.values().next().cloned() {
                    let count = self.times(&first);
                    fields.extend((0..count).map(|nth| (format!("n{nth}"), first.clone())));
                }
            }
            (5..8, Value::Array(items)) => {
                if let Some(first) = items.first().cloned() {
                    let count = self.times(&first);
                    items.extend(std::iter::repeat_n(first, count));
                }
            }
            (8, _) => {
                for _ in 0..self.dice.below(200) {
                    *value = if self.dice.coin() { json!([value]) } else { json!({ "a": value }) };
                }
            }
            (1, _) | (_, Value::Number(_)) => *value = self.number(),
            (_, _) => *value = Value::String(self.text()),
        }
    }

    /// How often a value is repeated.
    fn times(&mut self, value: &Value) -> usize {
        self.dice.below(300).min(ADDED / value.to_string().len())
    }

    /// Some field twice, which parsers differ about.
    fn doubled(&mut self, text: String) -> String {
        let places: Vec<usize> = text.match_indices("{\"").map(|(at, _)| at + 1).collect();
        let Some(&at) = self.dice.pick(&places) else { return text };
        let Some(end) = text[at..].find(':').map(|end| at + end) else { return text };
        format!("{}{}null,{}", &text[..at], &text[at..=end], &text[at..])
    }
}

/// A value as it stands in a path.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Percent-encoded, so that whatever it holds is one segment; not so long that the head is refused before there is an operation.
fn encoded(text: &str) -> String {
    let bytes = text.bytes().take(1_000);
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    bytes.map(encode).collect()
}
