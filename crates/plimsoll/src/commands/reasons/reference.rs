//! docs/reference/reasons.md, written from the same lists.

use std::fmt::Write as _;

use expect_test::expect_file;

use super::{CodeKind, NO_REMEDY, entries, groups};

const HEAD: &str = "\
# Reasons and problems

Every word that says why. `plimsoll reasons` prints the same, `plimsoll reasons NAME` one of them. This page is written by a
test: `UPDATE_EXPECT=1 cargo test -p plimsoll reference` after a change.

REPLICA, SERVICE, DEPLOYMENT and NODE stand for what it is about; commands print the name instead.
";

fn page() -> String {
    let mut page = String::from(HEAD);
    let all = entries();
    let mut kind = None;
    for group in groups(&all) {
        if kind.replace(group[0].kind) != Some(group[0].kind) {
            page.push_str(match group[0].kind {
                CodeKind::Reason => {
                    "\n## Reasons\n\nWhy something is as it is: `word` in the API, in `status`, `explain` and `audit`.\n"
                }
                CodeKind::Problem => {
                    "\n## Problems\n\nWhy a request was not done: `code` of an answer that is not 2xx, with its HTTP status.\n"
                }
            });
        }
        let _ = write!(page, "\n### {}\n\n", group[0].group);
        page.push_str(match group[0].kind {
            CodeKind::Reason => "| reason | meaning | what to do |\n|---|---|---|\n",
            CodeKind::Problem => "| problem | status | meaning | what to do |\n|---|---|---|---|\n",
        });
        for entry in group {
            let status = entry.status.map(|status| format!(" {status} |")).unwrap_or_default();
            let (meaning, remedy) = (entry.meaning, entry.remedy.unwrap_or(NO_REMEDY));
            let _ = writeln!(page, "| `{}` |{status} {meaning} | {remedy} |", entry.name);
        }
    }
    page
}

#[test]
fn the_reference_lists_every_reason_and_problem() {
    expect_file!["../../../../../docs/reference/reasons.md"].assert_eq(&page());
}
