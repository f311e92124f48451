//! `plimsoll reschedule`: the loop that moves replicas to better nodes and fills nodes that join or return. Here it is paused and
//! resumed, and says what it does, what it would do, and what its moves were worth.

use std::fmt::Write as _;

use plimsoll_api::view::{
    LoopStatus, RescheduleAction, RescheduleCycle, RescheduleMove, RescheduleStatus,
    SetRescheduling,
};
use plimsoll_model::{Millis, Timestamp};

use crate::age::age;
use crate::error::CliError;
use crate::live::{self, HostArgs};
use crate::output::{Format, print};
use crate::table::Table;
use crate::wait::now;

const EXAMPLES: &str = "\
Examples:
  plimsoll reschedule status                 what it does, and what held it back
  plimsoll reschedule pause                  moves under way finish, nothing else begins
  plimsoll reschedule resume                 go on
  plimsoll reschedule resume --target 50%    fill new nodes until none has more than half reserved
  plimsoll reschedule resume --target none   fill new nodes until all have the same

Pausing and resuming needs role admin.";

/// How many moves and cycles are shown; `-o json` has more.
const SHOWN: usize = 5;

/// Show, pause or resume the background rescheduler.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) what: RescheduleCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RescheduleCommand {
    /// Show what it does or would do, and what its moves were worth
    Status(StatusArgs),
    /// Compute what would be moved, and move nothing
    Pause(SetArgs),
    /// Move replicas again
    Resume(SetArgs),
}

impl RescheduleCommand {
    pub(crate) fn host(&mut self) -> &mut HostArgs {
        match self {
            Self::Status(args) => &mut args.host,
            Self::Pause(args) | Self::Resume(args) => &mut args.host,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// Fill nodes until none has more than this share of its capacity reserved, or `none`: until all have the same
    #[arg(long, value_name = "N%", value_parser = target)]
    target: Option<Target>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Percent(u32),
    None,
}

/// `50%`, `50` or `none`.
fn target(text: &str) -> Result<Target, String> {
    if text == "none" {
        return Ok(Target::None);
    }
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    match number.parse() {
        Ok(percent @ 1..=100) => Ok(Target::Percent(percent)),
        _ => Err("write a percentage from 1% to 100%, or none".to_owned()),
    }
}

pub(crate) fn run(what: &RescheduleCommand) -> Result<(), CliError> {
    match what {
        RescheduleCommand::Status(args) => {
            let client = args.host.client()?;
            live::block_on(async {
                let status = client.rescheduling().await?;
                print(args.output, &status, |status| text(status, now()))
            })
        }
        RescheduleCommand::Pause(args) => set(args, RescheduleAction::Pause),
        RescheduleCommand::Resume(args) => set(args, RescheduleAction::Resume),
    }
}

fn set(args: &SetArgs, action: RescheduleAction) -> Result<(), CliError> {
    let client = args.host.client()?;
    let (target_percent, clear_target) = match args.target {
        None => (None, false),
        Some(Target::Percent(percent)) => (Some(percent), false),
        Some(Target::None) => (None, true),
    };
    live::block_on(async {
        let asked = SetRescheduling { action, target_percent, clear_target };
        let status = client.set_rescheduling(&asked).await?;
        print(args.output, &status, |status| format!("the rescheduler is {}\n", setting(status)))
    })
}

/// `running`, `paused, target 50 %`
fn setting(status: &RescheduleStatus) -> String {
    let mut text = if status.is_paused { "paused" } else { "running" }.to_owned();
    if let Some(target) = status.target_percent {
        let _ = write!(text, ", target {target} %");
    }
    text
}

fn text(status: &RescheduleStatus, now: Timestamp) -> String {
    let mut text = setting(status);
    if let (Some(by), Some(at)) = (&status.set_by, status.set_at) {
        let _ = write!(text, ", set by {by} {} ago", age(at, now));
    }
    let _ = writeln!(text, "; {} of {} moves under way", status.moving, status.most_moves);
    text.push_str(&last_cycle(status, now));
    let of_last = if status.cycles.first().is_some_and(|it| it.withheld.is_some()) {
        "it would move:"
    } else {
        "the last cycle moved:"
    };
    text.push_str(&moves(of_last, &status.offers, now));
    text.push_str(&moves("moved lately:", &status.moved, now));
    text.push_str("\nwhat moves were worth, ten minutes later:\n");
    text.push_str(&loops(&status.loops));
    for review in status.reviews.iter().take(SHOWN) {
        let _ = writeln!(text, "  {} ago  {}", age(review.reviewed, now), review.text);
    }
    text
}

fn last_cycle(status: &RescheduleStatus, now: Timestamp) -> String {
    let Some(last) = status.cycles.first() else {
        return "no cycle yet since this leader began\n".to_owned();
    };
    let RescheduleCycle { at, candidates, compared, offers, why, stayed, .. } = last;
    let mut text = format!(
        "last cycle {} ago: {candidates} candidates, {compared} compared, {offers} better off elsewhere\n",
        age(*at, now)
    );
    if let Some(why) = why {
        let _ = writeln!(text, "nothing is moved: {why}");
    }
    if !stayed.is_empty() {
        let reasons: Vec<String> =
            stayed.iter().map(|(word, count)| format!("{word} {count}")).collect();
        let _ = writeln!(text, "candidates that stay: {}", reasons.join(", "));
    }
    text
}

fn moves(head: &str, moves: &[RescheduleMove], now: Timestamp) -> String {
    if moves.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{head}\n");
    for it in moves.iter().take(SHOWN) {
        let ago = it.at.map(|at| format!("{} ago  ", age(at, now))).unwrap_or_default();
        let _ = writeln!(text, "  {ago}{}", it.text);
    }
    let more = moves.len().saturating_sub(SHOWN);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more; `-o json` has all");
    }
    text
}

fn loops(loops: &[LoopStatus]) -> String {
    let mut table = Table::new(["LOOP", ">HELD", ">FAILED", ">NOT JUDGED", ">PENDING", "PACE"]);
    for it in loops {
        let pace = match it.slowed {
            0 | 1 => "full".to_owned(),
            slowed => format!("slowed down: moves every {} ({slowed} x)", Millis(it.interval_ms)),
        };
        let counts = [it.held, it.failed, it.not_judged, it.pending].map(|it| it.to_string());
        let [held, failed, not_judged, pending] = counts;
        table.row([it.name.clone(), held, failed, not_judged, pending, pace]);
    }
    table.within(None)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_api::view::{MoveReview, Time};

    use super::*;

    const NOW: Timestamp = Timestamp(10_000_000);

    fn ago(seconds: u64) -> Time {
        Time(Timestamp(NOW.0 - seconds * 1_000))
    }

    fn one_move(nth: u32, at: Option<Time>) -> RescheduleMove {
        RescheduleMove {
            replica: format!("shop-web-{nth}"),
            src: "ash".into(),
            dst: "dogwood".into(),
            reason: "better_score".into(),
            score_before: Some(8_155),
            score_after: 10_000,
            threshold: 610,
            at,
            text: format!(
                "shop-web-{nth} is rescheduled ash → dogwood (better_score): score 8155 → 10000"
            ),
        }
    }

    fn of_loop(name: &str, slowed: u32, counts: [u64; 4]) -> LoopStatus {
        let [held, failed, not_judged, pending] = counts;
        LoopStatus {
            name: name.into(),
            slowed,
            interval_ms: u64::from(slowed) * 30_000,
            moved_at: None,
            pending,
            held,
            failed,
            not_judged,
            recent: Vec::new(),
        }
    }

    fn paused() -> RescheduleStatus {
        let stayed = [("cooldown_node".to_owned(), 6), ("not_better".to_owned(), 2)];
        RescheduleStatus {
            is_paused: true,
            target_percent: Some(50),
            set_by: Some("token:ann@ash".into()),
            set_at: Some(ago(300)),
            moving: 0,
            most_moves: 1,
            cycles: vec![RescheduleCycle {
                at: ago(12),
                candidates: 9,
                compared: 9,
                offers: 1,
                withheld: Some("paused".into()),
                why: Some("the rescheduler is paused".into()),
                stayed: stayed.into(),
            }],
            offers: vec![one_move(1, None)],
            moved: (2..9).map(|nth| one_move(nth, Some(ago(400)))).collect(),
            loops: vec![
                of_loop("rebalancer", 4, [3, 11, 1, 0]),
                of_loop("rescheduler", 1, [7, 0, 0, 2]),
            ],
            reviews: vec![MoveReview {
                replica: "shop-web-3".into(),
                src: "ash".into(),
                dst: "birch".into(),
                by: "rebalancer".into(),
                began: ago(700),
                reviewed: ago(100),
                predicted: 240_000,
                realised: Some(20_000),
                not_judged: None,
                text: "shop-web-3 ash → birch by the rebalancer: predicted 0.24, realised 0.02"
                    .into(),
            }],
        }
    }

    #[test]
    fn a_status_says_what_it_would_do_what_held_it_back_and_what_moves_were_worth() {
        let said = anstream::adapter::strip_str(&text(&paused(), NOW)).to_string();
        expect![[r#"
            paused, target 50 %, set by token:ann@ash 5m ago; 0 of 1 moves under way
            last cycle 12s ago: 9 candidates, 9 compared, 1 better off elsewhere
            nothing is moved: the rescheduler is paused
            candidates that stay: cooldown_node 6, not_better 2

            it would move:
              shop-web-1 is rescheduled ash → dogwood (better_score): score 8155 → 10000

            moved lately:
              6m ago  shop-web-2 is rescheduled ash → dogwood (better_score): score 8155 → 10000
              6m ago  shop-web-3 is rescheduled ash → dogwood (better_score): score 8155 → 10000
              6m ago  shop-web-4 is rescheduled ash → dogwood (better_score): score 8155 → 10000
              6m ago  shop-web-5 is rescheduled ash → dogwood (better_score): score 8155 → 10000
              6m ago  shop-web-6 is rescheduled ash → dogwood (better_score): score 8155 → 10000
              and 2 more; `-o json` has all

            what moves were worth, ten minutes later:
            LOOP         HELD  FAILED  NOT JUDGED  PENDING  PACE
            rebalancer      3      11           1        0  slowed down: moves every 2m (4 x)
            rescheduler     7       0           0        2  full
              1m ago  shop-web-3 ash → birch by the rebalancer: predicted 0.24, realised 0.02
        "#]]
        .assert_eq(&said);
        let fresh = RescheduleStatus {
            is_paused: false,
            target_percent: None,
            set_by: None,
            set_at: None,
            cycles: Vec::new(),
            offers: Vec::new(),
            moved: Vec::new(),
            reviews: Vec::new(),
            ..paused()
        };
        let said = text(&fresh, NOW);
        assert!(said.starts_with("running; 0 of 1 moves under way\nno cycle yet"), "{said}");
    }

    #[test]
    fn a_target_is_a_percentage_or_none() {
        assert_eq!(target("50%"), Ok(Target::Percent(50)));
        assert_eq!(target("50"), Ok(Target::Percent(50)));
        assert_eq!(target("none"), Ok(Target::None));
        for wrong in ["0%", "101%", "-1", "half", "", "%"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
