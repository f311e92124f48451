//! What `plimsoll top` asks the daemon: the cell whenever it changes, and what a page wants to know besides.

use std::time::Duration;

use plimsoll_api::client::{Client, LogsOf};
use plimsoll_api::view::{AuditQuery, LogPiece, LogQuery, PressureQuery, Time};
use plimsoll_model::Timestamp;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use super::list::Seen;
use super::state::Question;
use crate::commands::explain;
use crate::commands::logs::told;
use crate::error::CliError;
use crate::live::News;

/// How many of the latest events are shown.
const EVENTS: u32 = 300;

/// How far back a log begins, of each replica.
const TAIL: u32 = 200;

/// At least so long between two looks: a cell in which much happens is not asked for all of it ten times a second.
const REST: Duration = Duration::from_millis(300);

/// How long to wait before a log that broke off is taken up again.
const RETRY: Duration = Duration::from_secs(1);

/// What there is to show.
#[derive(Debug)]
pub(super) enum Report {
    Seen(Box<Seen>),
    Lost(String),
    Refused(CliError),
    Lines(Question, Vec<String>),
    Answered(Question),
}

/// The cell as it is now.
pub(super) async fn look(client: &Client) -> Result<Seen, CliError> {
    let status = client.status().await?;
    let query = AuditQuery { limit: Some(EVENTS), ..AuditQuery::default() };
    let audit = client.audit(&query).await?;
    // A daemon that does not know the question has no levels; the bars then show what was measured last.
    let pressure = client.pressure(&PressureQuery::default()).await.ok();
    Ok(Seen { status, pressure, audit })
}

/// Looks again whenever something changes, for as long as anybody wants to know.
pub(super) async fn watch(client: Client, seen: Seen, reports: Sender<Report>) {
    let mut news = News::after(&client, &seen.status);
    loop {
        news.wait().await;
        let report = match look(&client).await {
            Ok(seen) => Report::Seen(Box::new(seen)),
            Err(error) if error.is_refusal() => Report::Refused(error),
            Err(error) => Report::Lost(error.first_line()),
        };
        if reports.send(report).await.is_err() {
            return;
        }
        sleep(REST).await;
    }
}

pub(super) async fn answer(client: Client, question: Question, reports: Sender<Report>) {
    let lines = match &question {
        Question::ExplainNode(name) => {
            client.explain_node(name).await.map(|it| explain::live::of_node(&it))
        }
        Question::ExplainReplica(id) => {
            client.explain(id).await.map(|it| explain::live::text(&it, ""))
        }
        Question::LogsOfReplica(id) => {
            let of = LogsOf::Replica(id.clone());
            return follow(&client, &of, None, &question, &reports).await;
        }
        Question::LogsOfService(name) => {
            let (deployment, service) = name.split_once('/').unwrap_or((name, ""));
            let of = LogsOf::Deployment(deployment.to_owned());
            return follow(&client, &of, Some(service), &question, &reports).await;
        }
    };
    let text = lines.unwrap_or_else(|error| CliError::from(error).first_line());
    let text = anstream::adapter::strip_str(&text).to_string();
    let lines = text.lines().map(str::to_owned).collect();
    let _ = reports.send(Report::Lines(question.clone(), lines)).await;
    let _ = reports.send(Report::Answered(question)).await;
}

/// Passes lines on as they come. Where the daemon goes away they go on once it is back.
async fn follow(
    client: &Client,
    of: &LogsOf,
    service: Option<&str>,
    question: &Question,
    reports: &Sender<Report>,
) {
    let service = service.map(str::to_owned);
    let mut query = LogQuery { follow: true, since: None, tail: Some(TAIL), service };
    let has_prefix = matches!(of, LogsOf::Deployment(_));
    loop {
        let mut stream = match client.logs(of, &query).await {
            Ok(stream) => stream,
            Err(error) if error.code().is_some() => {
                let why = CliError::from(error).first_line();
                let _ = reports.send(Report::Lines(question.clone(), vec![why])).await;
                let _ = reports.send(Report::Answered(question.clone())).await;
                return;
            }
            Err(_) => {
                sleep(RETRY).await;
                continue;
            }
        };
        let is_over = loop {
            let line = match stream.next().await {
                Some(Ok(LogPiece::Line(line))) => {
                    query.since = Some(Time(Timestamp(line.at.0.0 + 1)));
                    query.tail = None;
                    let text = anstream::adapter::strip_str(&line.text).to_string();
                    if has_prefix { format!("{} | {text}", line.replica) } else { text }
                }
                Some(Ok(LogPiece::Missing(missing))) => told(&missing),
                Some(Err(error)) if error.code().is_none() => break false,
                Some(Err(error)) => CliError::from(error).first_line(),
                None => break true,
            };
            if reports.send(Report::Lines(question.clone(), vec![line])).await.is_err() {
                return;
            }
        };
        if is_over {
            let _ = reports.send(Report::Answered(question.clone())).await;
            return;
        }
        sleep(RETRY).await;
    }
}
