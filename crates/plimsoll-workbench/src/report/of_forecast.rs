//! What would come of something as one page: a bar for each node before, after and at most, beside the line above which nodes
//! are relieved, and what moves in which order.

use std::fmt::Write as _;

use plimsoll_api::view::{Forecast, NodeForecast, NodeShares, NodeUsage, Plan};
use plimsoll_model::{Millis, Pressure};

use super::{document, escaped};
use crate::text::{count, elapsed};

/// More bars than this nobody reads: those that change most come first, and the rest is counted.
const MAX_BARS: usize = 120;

/// More rows of what moves than this are counted as well; `-o json` has all of them.
const MAX_ROWS: usize = 1_000;

const NAMES: u32 = 150;
const BARS: u32 = 680;
const NUMBERS: u32 = 170;
const ROW: u32 = 30;
const TOP: u32 = 24;

/// The whole page.
pub fn page(forecast: &Forecast) -> String {
    let title = format!("what if: {}", forecast.what_if);
    let mut body = head(forecast);
    let reserved = |usage: &NodeUsage| Some(usage.reserved);
    body.push_str(&figure("Reserved", "The larger share of cpu and memory.", forecast, reserved));
    let is_measured = forecast.nodes.iter().any(|it| pressure_of(it).is_some());
    if is_measured {
        let caption = "Measured, and as it would be with the same use.";
        body.push_str(&figure("Pressure", caption, forecast, |usage| usage.pressure));
    }
    body.push_str(&rows(&forecast.plan));
    document(&format!("{title} · plimsoll"), &body)
}

fn pressure_of(node: &NodeForecast) -> Option<NodeShares> {
    node.before.or(node.after)?.pressure
}

fn head(forecast: &Forecast) -> String {
    let Forecast { cell, what_if, plan, .. } = forecast;
    let missing: u32 = plan.unplaced.iter().map(|it| it.missing).sum();
    let verdict = match missing {
        0 => "<p class=\"verdict kept\">Everything finds a place.</p>".to_owned(),
        some => {
            let what = count(usize::try_from(some).unwrap_or(usize::MAX), "replica");
            format!("<p class=\"verdict broken\">{what} would find no place.</p>")
        }
    };
    let facts = [
        ("moves", plan.moved.len().to_string()),
        ("new", plan.placed.len().to_string()),
        ("ends", plan.retired.len().to_string()),
        ("unplaced", missing.to_string()),
        ("takes about", elapsed(Millis(forecast.estimate_ms))),
    ];
    let mut table = String::new();
    for (word, value) in facts {
        let _ = writeln!(table, "<tr><th>{word}</th><td>{}</td></tr>", escaped(&value));
    }
    let cut = if forecast.is_whole {
        ""
    } else {
        "<p>The time for it was up before its end: what follows is the beginning.</p>\n"
    };
    format!(
        "<h1>What if: {}</h1>\n<p class=\"lead\">Cell {}. Nothing was done.</p>\n{verdict}\n{cut}\
         <table class=\"facts\">\n{table}</table>\n",
        escaped(what_if),
        escaped(cell)
    )
}

type Share = fn(&NodeUsage) -> Option<NodeShares>;

fn figure(title: &str, caption: &str, forecast: &Forecast, of: Share) -> String {
    let mut nodes: Vec<&NodeForecast> = forecast.nodes.iter().collect();
    let top = |side: Option<NodeUsage>| side.as_ref().and_then(of).map(NodeShares::top);
    let rest = nodes.len().saturating_sub(MAX_BARS);
    if rest > 0 {
        let change = |node: &&NodeForecast| {
            let millionths = |side| top(side).unwrap_or_default().millionths();
            millionths(node.before).abs_diff(millionths(node.after))
        };
        nodes.sort_by_key(|node| std::cmp::Reverse(change(node)));
        nodes.truncate(MAX_BARS);
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
    }
    let highest = nodes.iter().filter_map(|node| top(node.peak)).max().unwrap_or_default();
    let scale = highest.max(Pressure::FULL);
    let rows = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let (width, height) = (NAMES + BARS + NUMBERS, TOP + ROW * rows + 8);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(title)
    );
    for (nth, node) in (0..).zip(&nodes) {
        svg.push_str(&bars(node, TOP + ROW * nth, forecast.line, scale, top));
    }
    let line = NAMES + along(forecast.line, scale);
    let _ = writeln!(
        svg,
        "<line class=\"load-line\" x1=\"{line}\" x2=\"{line}\" y1=\"{}\" y2=\"{height}\"/>\n\
         <text class=\"load-text\" x=\"{line}\" y=\"12\" text-anchor=\"middle\">{}</text>\n</svg>",
        TOP - 6,
        forecast.line
    );
    let more = if rest > 0 {
        format!("<p>… and {} that change less</p>\n", count(rest, "node"))
    } else {
        String::new()
    };
    format!(
        "<figure>\n<figcaption><h2>{}</h2><p>{}</p></figcaption>\n{svg}<p class=\"legend\">\n\
         <span><i class=\"was\"></i>before</span>\n<span><i class=\"is\"></i>after</span>\n\
         <span><i class=\"most\"></i>at most meanwhile</span>\n\
         <span><i class=\"mark\"></i>the line above which nodes are relieved</span>\n</p>\n{more}</figure>\n",
        escaped(title),
        escaped(caption)
    )
}

fn bars(
    node: &NodeForecast,
    y: u32,
    line: Pressure,
    scale: Pressure,
    top: impl Fn(Option<NodeUsage>) -> Option<Pressure>,
) -> String {
    let (before, after, peak) = (top(node.before), top(node.after), top(node.peak));
    let bar = |class: &str, y: u32, height: u32, share: Option<Pressure>| {
        let Some(share) = share else { return String::new() };
        let class = if class == "is" && share >= line { "is hot" } else { class };
        let length = along(share, scale);
        format!(
            "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{y}\" width=\"{length}\" height=\"{height}\"/>\n"
        )
    };
    let mut svg = bar("was", y, 8, before) + &bar("is", y + 9, 11, after);
    if let Some(peak) = peak {
        let x = NAMES + along(peak, scale);
        let _ = writeln!(
            svg,
            "<line class=\"most\" x1=\"{x}\" x2=\"{x}\" y1=\"{y}\" y2=\"{}\"/>",
            y + 20
        );
    }
    let change = node.change.as_ref().map(|change| format!(" ({change})")).unwrap_or_default();
    let share = |share: Option<Pressure>| share.map_or_else(|| "–".to_owned(), short);
    let _ = writeln!(
        svg,
        "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}{}</text>\n\
         <text class=\"number\" x=\"{}\" y=\"{}\">{} → {}</text>",
        NAMES - 8,
        y + 15,
        escaped(&node.node),
        escaped(&change),
        NAMES + BARS + 8,
        y + 15,
        share(before),
        share(after)
    );
    svg
}

/// How far along the bars it is.
fn along(share: Pressure, scale: Pressure) -> u32 {
    let length = u64::from(share.min(scale).millionths()) * u64::from(BARS);
    u32::try_from(length / u64::from(scale.millionths().max(1))).unwrap_or(BARS)
}

/// Two digits are enough beside a bar.
pub fn short(share: Pressure) -> String {
    let hundredths = (u64::from(share.millionths()) + 5_000) / 10_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn rows(plan: &Plan) -> String {
    let placed = plan.placed.iter().map(|it| {
        (it.round, [it.replica.clone(), "new".to_owned(), it.node.clone(), String::new()])
    });
    let moved = plan.moved.iter().map(|it| {
        (it.round, [it.replica.clone(), it.from.clone(), it.to.clone(), it.cause.to_string()])
    });
    let retired = plan.retired.iter().map(|it| {
        let why = it.preempted_by.as_ref().map(|by| format!("preempted by {by}"));
        let why = why.unwrap_or_default();
        (it.round, [it.replica.clone(), it.node.clone(), "ends".to_owned(), why])
    });
    let mut begun: Vec<(u32, [String; 4])> = placed.chain(moved).chain(retired).collect();
    begun.sort();
    let mut text =
        section("What is begun, in this order", ["round", "replica", "from", "to", "why"], {
            let row = |(round, [replica, from, to, why]): &(u32, [String; 4])| {
                [round.to_string(), replica.clone(), from.clone(), to.clone(), why.clone()]
            };
            begun.iter().map(row)
        });
    let missing = plan.unplaced.iter();
    text.push_str(&section(
        "What finds no place",
        ["service", "missing", "reason", "detail"],
        missing.map(|it| {
            [it.service.clone(), it.missing.to_string(), it.reason.to_string(), it.detail.clone()]
        }),
    ));
    let stays = plan.stays.iter();
    text.push_str(&section(
        "What stays though it should not",
        ["replica", "node", "reason", "detail"],
        stays.map(|it| {
            [it.replica.clone(), it.node.clone(), it.reason.to_string(), it.detail.clone()]
        }),
    ));
    text
}

fn section<const N: usize>(
    title: &str,
    heads: [&str; N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
) -> String {
    let all = rows.len();
    if all == 0 {
        return String::new();
    }
    let mut text = format!("<section>\n<h2>{}</h2>\n", escaped(title));
    if all > MAX_ROWS {
        let _ = writeln!(text, "<p>the first {MAX_ROWS} of {all}</p>");
    }
    text.push_str("<div class=\"story\"><table>\n<tr>");
    for head in heads {
        let _ = write!(text, "<th>{}</th>", escaped(head));
    }
    text.push_str("</tr>\n");
    for row in rows.take(MAX_ROWS) {
        text.push_str("<tr>");
        for cell in row {
            let _ = write!(text, "<td>{}</td>", escaped(&cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table></div>\n</section>\n");
    text
}
