//! What the documents show is what the binary prints, and their examples run.

use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect_file;
use plimsoll_kernel::Policy;
use plimsoll_kernel::reschedule::StayReason;
use plimsoll_model::access::MAX_PATTERNS;
use plimsoll_model::ceilings;
use plimsoll_model::privilege::Field;
use plimsoll_model::state::{MAX_REPLICAS, MAX_SERVICES};
use plimsoll_model::{Millis, review};
use plimsoll_sim::chaos::alphabet::{Draw, WEIGHTS};
use plimsoll_sim::scenario::Dwell;

use crate::run::{UNSET, directory, plimsoll, root};

/// Runs a line of the guide as a reader would, in the root of the repository.
fn shell(line: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", binary.parent().unwrap().display());
    let mut command = Command::new("sh");
    for name in UNSET {
        command.env_remove(name);
    }
    let output = command
        .args(["-c", &format!("( {line} ) 2>&1")])
        .current_dir(root())
        .env("PATH", path)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The document with every `console` block as it would read today.
fn replayed(text: &str) -> String {
    let mut fresh = String::new();
    let mut in_console = false;
    for line in text.lines() {
        match (in_console, line) {
            (false, _) => {
                in_console = line == "```console";
                fresh.extend([line, "\n"]);
            }
            (true, "```") => {
                in_console = false;
                fresh.push_str("```\n");
            }
            (true, _) => {
                if let Some(command) = line.strip_prefix("$ ") {
                    fresh.extend([line, "\n", &shell(command)]);
                }
            }
        }
    }
    fresh
}

#[test]
fn the_guide_shows_what_its_commands_print() {
    let text = fs::read_to_string(root().join("docs/guide/getting-started.md")).unwrap();
    expect_file!["../../../../docs/guide/getting-started.md"].assert_eq(&replayed(&text));
}

#[test]
fn the_example_of_the_case_format_runs() {
    let text = fs::read_to_string(root().join("docs/reference/case-format.md")).unwrap();
    let example = text.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let workers = fs::read_to_string(root().join("examples/workers.yaml")).unwrap();
    let here = directory("case_format", [("docs/reference/case.yaml", example)]);
    fs::create_dir_all(Path::new(env!("CARGO_TARGET_TMPDIR")).join("case_format/examples"))
        .unwrap();
    here.write("examples/workers.yaml", workers.as_bytes());
    let ran = here.run("decide place --input docs/reference/case.yaml");
    assert_eq!(ran.code(), 0, "{}", ran.text());
    expect_test::expect![[r#"
        20 placed, 1 moved, 5 stay, 1 retired, 0 unplaced
    "#]]
    .assert_eq(&ran.stderr());
    let ran = here.run("decide rebalance --input docs/reference/case.yaml");
    assert_eq!(ran.code(), 0, "{}", ran.text());
    assert_eq!(ran.stderr(), "2 cycles, 0 moves\n");
}

#[test]
fn the_example_of_the_scenario_format_runs() {
    let text = fs::read_to_string(root().join("docs/reference/scenario-format.md")).unwrap();
    let example = text.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let shop = fs::read_to_string(root().join("examples/shop.yaml")).unwrap();
    let files = [("docs/reference/all.yaml", example), ("examples/shop.yaml", shop.as_str())];
    let here = directory("scenario_format", files);
    let ran = here.run("sim run docs/reference/all.yaml --runs 3");
    assert_eq!(ran.code(), 0, "{}", ran.text());
    assert_eq!(ran.stdout().matches("  kept\n").count(), 3, "{}", ran.text());
}

/// The times the example gives are those the simulator has of itself, as the document says.
#[test]
fn the_scenario_format_quotes_the_numbers_the_code_has() {
    let text = fs::read_to_string(root().join("docs/reference/scenario-format.md")).unwrap();
    let Dwell { pull, start, health, stop, network, commit, election } = Dwell::default();
    for (word, (least, most)) in [
        ("pull", pull),
        ("start", start),
        ("health", health),
        ("stop", stop),
        ("network", network),
        ("commit", commit),
        ("election", election),
    ] {
        let quote = format!("\n  {word}: {least}..{most}");
        assert!(text.contains(&quote), "{quote}");
    }
    let quote = format!("lie at least {} before the", plimsoll_sim::SETTLING);
    assert!(text.contains(&quote), "{quote}");
}

/// The page with the list as the code has it.
fn with_closed_list(text: &str) -> String {
    let (begin, end) = ("<!-- the closed list -->\n", "<!-- end of the list -->\n");
    let (before, rest) = text.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let rows = Field::ALL.map(|field| format!("| `{}` | {} |\n", field.word(), field.allowed()));
    let table = format!("| field | role `deploy` may set |\n|---|---|\n{}", rows.concat());
    format!("{before}{begin}{table}{end}{after}")
}

#[test]
fn the_page_on_roles_lists_what_the_code_allows() {
    let text = fs::read_to_string(root().join("docs/reference/roles.md")).unwrap();
    expect_file!["../../../../docs/reference/roles.md"].assert_eq(&with_closed_list(&text));
    for (what, most) in [
        ("`stop_grace_period`", ceilings::MAX_STOP_GRACE.to_string()),
        ("`healthcheck.interval`, `timeout`, `start_interval`", ceilings::MAX_PROBE.to_string()),
        ("`healthcheck.start_period`", ceilings::MAX_START_PERIOD.to_string()),
        ("`healthcheck.retries`", ceilings::MAX_RETRIES.to_string()),
        ("`update_config.delay`, `monitor`", ceilings::MAX_UPDATE_PAUSE.to_string()),
        ("`replicas` of a service", MAX_REPLICAS.to_string()),
        ("services of a deployment", MAX_SERVICES.to_string()),
        ("`environment` of a service", ceilings::MAX_ENVIRONMENT.to_string()),
        ("`labels` and `annotations` of a service", ceilings::MAX_LABELS.to_string()),
        ("a config or secret", format!("{} KiB", ceilings::MAX_FILE_BYTES >> 10)),
        ("ports of a service", ceilings::MAX_PORTS.to_string()),
        ("volumes of a service; configs and secrets", ceilings::MAX_MOUNTS.to_string()),
    ] {
        let quote = format!("| {what} | {most} |");
        assert!(text.contains(&quote), "{quote}");
    }
    assert!(text.contains(&format!("up to {MAX_PATTERNS}, separated")));
}

#[test]
fn the_page_on_the_rescheduler_has_every_reason_why_a_replica_stays() {
    let text = fs::read_to_string(root().join("docs/reference/rescheduler.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let told: Vec<&str> = rows.skip_while(|word| *word != "never").collect();
    assert_eq!(told, StayReason::WORDS);
}

#[test]
fn the_page_on_reviews_quotes_the_numbers_the_code_has() {
    let text = fs::read_to_string(root().join("docs/reference/reviews.md")).unwrap();
    let policy = Policy::default();
    let (after, patience) = (policy.review.after, policy.review.patience);
    let most = 1 << review::MAX_DOUBLINGS;
    let longest = Millis(policy.sample_interval.0 * most);
    for quote in [
        format!("is looked at again {after} after it\nbegan"),
        format!("is still not done {patience} later"),
        format!("no measurements, for {patience}"),
        format!("the latest {} moves that were judged", review::REVIEW_WINDOW),
        format!("More than half of {} have failed", review::REVIEW_WINDOW),
        format!("doubles, up to {most} times"),
        format!("Nothing to judge for {}:", review::PACE_MEMORY),
        format!("{}, 1m, 2m, 4m, {longest}.", policy.sample_interval),
        format!("At most {} moves wait", review::MAX_PENDING_REVIEWS),
    ] {
        assert!(text.contains(&quote), "{quote}");
    }
    for why in review::UnjudgedReason::ALL {
        assert!(text.contains(&format!("| `{}` |", why.word())), "{}", why.word());
    }
}

#[test]
fn the_case_format_quotes_the_grace_the_code_has() {
    let text = fs::read_to_string(root().join("docs/reference/case-format.md")).unwrap();
    let quote = format!("within the grace of {},", Policy::default().loss_grace);
    assert!(text.contains(&quote), "{quote}");
}

#[test]
fn every_example_cell_is_decided_and_explained() {
    for name in ["cell", "busy"] {
        for command in ["decide place", "explain"] {
            let ran = plimsoll(&format!("{command} --input examples/{name}.yaml"));
            assert_eq!(ran.code(), 0, "{command} {name}: {}", ran.text());
        }
    }
}

/// What chaos draws for each operation of the API that changes something. An operation that is new has no line here, and
/// fails this until chaos does it too. What only reads is said to.
#[test]
fn chaos_does_every_operation_of_the_api() {
    let drawn: &[(&str, Draw)] = &[
        ("DELETE /v1/cell/rotation", Draw::AbortRotation),
        ("DELETE /v1/configs/{name}", Draw::RemoveSecret),
        ("DELETE /v1/deployments/{name}", Draw::Delete),
        ("DELETE /v1/deployments/{name}/volumes/{volume}", Draw::RemoveVolume),
        ("DELETE /v1/deployments/{name}/volumes/{volume}/hold", Draw::BackUpVolume),
        ("DELETE /v1/fleet/membership", Draw::JoinFleet),
        ("DELETE /v1/fleet/shards/{name}", Draw::MistakeForCoordinator),
        ("DELETE /v1/nodes/{name}", Draw::Remove),
        ("DELETE /v1/operators/{name}", Draw::RevokeOperator),
        ("DELETE /v1/registries/{host}", Draw::LogoutRegistry),
        ("DELETE /v1/secrets/{name}", Draw::RemoveSecret),
        ("DELETE /v1/tokens/join/{name}", Draw::RevokeJoinToken),
        ("POST /v1/backup", Draw::Backup),
        ("POST /v1/backup/key", Draw::RotateBackupKey),
        ("POST /v1/cell/rotation", Draw::RotateAuthority),
        ("POST /v1/configs", Draw::CreateSecret),
        ("POST /v1/configs/{name}/rotate", Draw::RotateSecret),
        ("POST /v1/deployments/{name}/restart", Draw::Restart),
        ("POST /v1/deployments/{name}/rollback", Draw::Rollback),
        ("POST /v1/deployments/{name}/rollout", Draw::AbortRollout),
        ("POST /v1/deployments/{name}/scale", Draw::Scale),
        ("POST /v1/deployments/{name}/volumes/{volume}/hold", Draw::BackUpVolume),
        ("POST /v1/deployments/{name}/volumes/{volume}/move", Draw::MoveVolume),
        ("POST /v1/fleet", Draw::MistakeForCoordinator),
        ("POST /v1/fleet/membership", Draw::JoinFleet),
        ("POST /v1/fleet/quota", Draw::MistakeForCoordinator),
        ("POST /v1/fleet/tokens", Draw::MistakeForCoordinator),
        ("POST /v1/nodes/{name}/cordon", Draw::Cordon),
        ("POST /v1/nodes/{name}/drain", Draw::Drain),
        ("POST /v1/nodes/{name}/uncordon", Draw::Cordon),
        ("POST /v1/operators", Draw::AddOperator),
        ("POST /v1/optimize/apply", Draw::Optimize),
        ("POST /v1/registries", Draw::LoginRegistry),
        ("POST /v1/replicas/{id}/exec", Draw::Exec),
        ("POST /v1/reschedule", Draw::Reschedule),
        ("POST /v1/secrets", Draw::CreateSecret),
        ("POST /v1/secrets/{name}/rotate", Draw::RotateSecret),
        ("POST /v1/tokens/join", Draw::CreateJoinToken),
        ("PUT /v1/deployments/{name}", Draw::Apply),
        ("PUT /v1/deployments/{name}/volumes/{volume}/content", Draw::RestoreVolume),
        ("PUT /v1/deployments/{name}/volumes/{volume}/hold", Draw::RestoreVolume),
    ];
    // The table of the document is that of the API's own description, which another test sees to.
    let text = fs::read_to_string(root().join("docs/reference/api.md")).unwrap();
    let table = text.split("<!-- endpoints: begin -->").nth(1).unwrap();
    let table = table.split("<!-- endpoints: end -->").next().unwrap();
    let rows = table.lines().filter_map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let (method, path) = (cells.next()?, cells.next()?.trim_matches('`'));
        path.starts_with('/').then(|| format!("{method} {path}"))
    });
    // These take a question in their bodies, and change nothing.
    let asks = ["POST /v1/what-if", "POST /v1/optimize"];
    let reads = |row: &String| row.starts_with("GET ") || asks.contains(&row.as_str());
    let mut writes: Vec<String> = rows.filter(|row| !reads(row)).collect();
    writes.sort();
    let expected: Vec<&str> = drawn.iter().map(|(operation, _)| *operation).collect();
    assert_eq!(writes, expected);
    for (operation, draw) in drawn {
        let weight = WEIGHTS.iter().find(|(known, _)| known == draw).map(|(_, weight)| *weight);
        assert!(weight.is_some_and(|weight| weight > 0), "{operation} is never drawn");
    }
}

#[test]
fn the_guide_on_routes_quotes_how_long_an_authority_is_left_alone() {
    use plimsoll_kernel::certificates::{Backoff, MAX_RETRY_AFTER, backoff};
    use plimsoll_model::acme::{AcmeFailureKind, MAX_CELL_ORDERS, MAX_HOST_ORDERS};

    let text = fs::read_to_string(root().join("docs/guide/routes.md")).unwrap();
    for (what, kind) in [
        ("the authority cannot be reached, or fails", AcmeFailureKind::Unavailable),
        ("a failed validation", AcmeFailureKind::Validation),
        ("a rate limit", AcmeFailureKind::RateLimited),
        ("another refusal", AcmeFailureKind::Refused),
    ] {
        let Backoff { first, factor, longest } = backoff(kind);
        let row = format!("| {what} | {} | {factor} | {} |", span(first.0), span(longest.0));
        assert!(text.contains(&row), "{row}");
    }
    let days = MAX_RETRY_AFTER.0 / 86_400_000;
    for quote in [
        format!("at most {MAX_HOST_ORDERS} orders per host and {MAX_CELL_ORDERS} per cell"),
        format!("up to {days} days"),
    ] {
        assert!(text.contains(&quote), "{quote}");
    }
}

/// `10 s`, `5 min`, `12 h`, `1 day`: in the largest unit that it is a whole number of.
fn span(millis: u64) -> String {
    let units = [(86_400_000, "day"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let unit = units.iter().find(|(length, _)| millis.is_multiple_of(*length));
    unit.map(|(length, word)| format!("{} {word}", millis / length)).unwrap_or_default()
}
