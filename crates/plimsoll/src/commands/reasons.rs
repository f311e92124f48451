//! `plimsoll reasons`: every reason and every problem code, what it means and what to do about it. All of it comes from the
//! closed lists of `plimsoll-api`, whose words do not compile without; docs/reference/reasons.md is the same list as a page.

use std::collections::BTreeSet;

use owo_colors::OwoColorize;
use plimsoll_api::suggest;
use plimsoll_api::view::{ProblemCode, ReasonCode};
use serde::Serialize;

use crate::error::CliError;
use crate::output::{Format, print};
use crate::table::Table;
use crate::terminal::Target;

#[cfg(test)]
mod reference;

const EXAMPLES: &str = "\
Examples:
  plimsoll reasons                        all of them
  plimsoll reasons insufficient_capacity  one
  plimsoll reasons -o json                for a program";

/// List every reason and problem code, with its meaning and what to do about it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this reason or problem
    name: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What stands where there is nothing to do: it is as it should be, or passes by itself.
const NO_REMEDY: &str = "nothing to do";

/// What one of them is a word for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CodeKind {
    /// Why something is as it is: in `status`, `explain`, `audit`.
    Reason,
    /// Why a request was not done.
    Problem,
}

impl CodeKind {
    fn title(self) -> &'static str {
        match self {
            Self::Reason => "Reasons: why something is as it is",
            Self::Problem => "Problems: why a request was not done, with the HTTP status",
        }
    }
}

/// One word, as people look it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct CodeEntry {
    name: &'static str,
    kind: CodeKind,
    group: &'static str,
    /// The HTTP status of a problem.
    status: Option<u16>,
    meaning: &'static str,
    /// None where there is nothing to do.
    remedy: Option<&'static str>,
}

impl From<ReasonCode> for CodeEntry {
    fn from(code: ReasonCode) -> Self {
        Self {
            name: code.word(),
            kind: CodeKind::Reason,
            group: code.group(),
            status: None,
            meaning: code.meaning(),
            remedy: code.advice(),
        }
    }
}

impl From<ProblemCode> for CodeEntry {
    fn from(code: ProblemCode) -> Self {
        Self {
            name: code.word(),
            kind: CodeKind::Problem,
            group: code.group(),
            status: Some(code.status()),
            meaning: code.meaning(),
            remedy: code.advice(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let width = Target::Stdout.size().map(|(width, _)| width);
    match &args.name {
        None => print(args.output, &entries(), |all| list(all, width)),
        Some(name) => print(args.output, &find(name)?, |found| in_full(found, width)),
    }
}

fn entries() -> Vec<CodeEntry> {
    let reasons = ReasonCode::ALL.iter().map(|code| CodeEntry::from(*code));
    reasons.chain(ProblemCode::ALL.iter().map(|code| CodeEntry::from(*code))).collect()
}

/// A word may be a reason and a problem at once.
fn find(name: &str) -> Result<Vec<CodeEntry>, CliError> {
    let mut entries = entries();
    let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name).collect();
    if !names.contains(name) {
        let near = suggest::nearest(name, names);
        let hint = if near.is_empty() {
            "`plimsoll reasons` lists them".to_owned()
        } else {
            format!("did you mean {}?", suggest::or(&near))
        };
        let message = format!("there is no reason or problem code {name}");
        return Err(CliError::refused(message).hint(hint));
    }
    entries.retain(|entry| entry.name == name);
    Ok(entries)
}

/// The entries by kind and group, in the order of the lists.
fn groups(all: &[CodeEntry]) -> impl Iterator<Item = &[CodeEntry]> {
    all.chunk_by(|one, next| (one.kind, one.group) == (next.kind, next.group))
}

fn list(all: &[CodeEntry], width: Option<usize>) -> String {
    let widest = all.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut kind = None;
    for group in groups(all) {
        if kind.replace(group[0].kind) != Some(group[0].kind) {
            let gap = if text.is_empty() { "" } else { "\n" };
            text.extend([gap, &group[0].kind.title().bold().to_string(), "\n"]);
        }
        text.extend(["\n", &group[0].group.bold().to_string(), "\n"]);
        let mut table = Table::list(2).least(0, widest);
        for entry in group {
            let status = entry.status.map(|status| format!("{status}  ")).unwrap_or_default();
            table.row([entry.name.to_owned(), format!("{status}{}", entry.meaning)]);
            if let Some(remedy) = entry.remedy {
                table.row([String::new(), format!("→ {remedy}")]);
            }
        }
        text.push_str(&table.within(width));
    }
    text
}

fn in_full(found: &[CodeEntry], width: Option<usize>) -> String {
    let pages = found.iter().map(|entry| {
        let mut table = Table::list(2);
        let kind = match entry.status {
            None => "reason".to_owned(),
            Some(status) => format!("problem, HTTP {status}"),
        };
        table.row(["kind".to_owned(), format!("{kind}: {}", entry.group)]);
        table.row(["meaning".to_owned(), entry.meaning.to_owned()]);
        table.row(["remedy".to_owned(), entry.remedy.unwrap_or(NO_REMEDY).to_owned()]);
        format!("{}\n{}", entry.name.bold(), table.within(width))
    });
    pages.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_list_has_each_word_its_meaning_and_its_remedy() {
        let some = [
            ReasonCode::NoNodes.into(),
            ReasonCode::Draining.into(),
            ReasonCode::Cordoned.into(),
            ProblemCode::NoSuchNode.into(),
        ];
        expect![[r#"
            Reasons: why something is as it is

            Unplaced replicas
              no_nodes      The cell has no nodes.
                            → join a node: `plimsoll token
                            create-join`, then `plimsoll up
                            --join` there

            Placement filters
              draining      The node is being drained.
              cordoned      The node is cordoned: unschedulable by
                            an operator.
                            → `plimsoll node uncordon NODE` makes
                            it schedulable again

            Problems: why a request was not done, with the HTTP status

            Not found
              no_such_node  404  There is no such node.
                            → `plimsoll node list` lists them
        "#]]
        .assert_eq(&plain(&list(&some, Some(54))));
    }

    #[test]
    fn a_word_that_is_a_reason_and_a_problem_is_shown_as_both() {
        expect![[r#"
            superseded
              kind     reason: Readiness of a node
              meaning  The cell was recovered without this server.
              remedy   join it again with a new token

            superseded
              kind     problem, HTTP 503: Failures of the cell or a node
              meaning  The cell was recovered without this server, which is no longer part of it.
              remedy   create a token with `plimsoll token create-join` where the cell is, stop this daemon, and start it with `plimsoll up --join TOKEN@ADDRESS`
        "#]].assert_eq(&plain(&in_full(&find("superseded").unwrap(), None)));
    }

    #[test]
    fn an_unknown_word_gets_a_suggestion() {
        expect![[r#"
            error: there is no reason or problem code no_leadr
            hint: did you mean no_leader, not_leader or not_ready?
        "#]]
        .assert_eq(&find("no_leadr").unwrap_err().text());
        expect![[r#"
            error: there is no reason or problem code xyzzy
            hint: `plimsoll reasons` lists them
        "#]]
        .assert_eq(&find("xyzzy").unwrap_err().text());
    }

    #[test]
    fn no_word_stands_twice_in_one_list_and_none_lacks_a_meaning() {
        let mut seen = BTreeSet::new();
        for entry in entries() {
            assert!(seen.insert((entry.kind as u8, entry.name)), "{}", entry.name);
            assert!(entry.meaning.ends_with('.'), "{}: {}", entry.name, entry.meaning);
        }
    }

    #[test]
    fn a_group_stands_together() {
        let all = entries();
        let groups: Vec<_> =
            groups(&all).map(|group| (group[0].kind as u8, group[0].group)).collect();
        let distinct: BTreeSet<_> = groups.iter().collect();
        assert_eq!(distinct.len(), groups.len(), "{groups:?}");
    }
}
