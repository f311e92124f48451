use expect_test::{Expect, expect};
use plimsoll_api::view::{
    AuditEvent, CellPressure, Deployment, NodeLevels, NodeShares, Problem, ProblemCode, ReasonCode,
};
use plimsoll_model::Pressure;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::list::Seen;
use super::state::{MAX_LINES, Next, Question, TopState};
use crate::sample::{self, NOW, With, ago, in_state, node, running, unpulled};

/// Three nodes: ash calm, birch above its line with a move under way to it being relieved, cedar down.
fn seen() -> Seen {
    let shop = sample::deployment("shop")
        .service("web", 3)
        .service("db", 1)
        .replica("shop-web-2", |replica| {
            replica.now = Some(running("birch", 3));
            replica.next = Some(in_state("ash", 3, "starting"));
            replica.cause = Some(ReasonCode::Pressure);
        })
        .replica("shop-web-3", |replica| replica.now = Some(unpulled("cedar")));
    seen_of(vec![shop])
}

fn seen_of(deployments: Vec<Deployment>) -> Seen {
    let mut status = sample::status(deployments);
    let mut cedar = node("cedar");
    (cedar.status, cedar.since, cedar.pressure) = ("down".into(), ago(240), None);
    cedar.zone = Some("north".into());
    status.nodes = vec![node("ash"), node("birch"), cedar];
    let shares =
        |cpu, memory| NodeShares { cpu: Pressure::percent(cpu), memory: Pressure::percent(memory) };
    let levels = |node: &str, smoothed, predicted| NodeLevels {
        node: node.into(),
        smoothed,
        predicted,
        samples: Vec::new(),
    };
    let pressure = CellPressure {
        trigger: Pressure::percent(85),
        destination_cap: Pressure::percent(75),
        interval_ms: 30_000,
        nodes: vec![
            levels("ash", Some(shares(20, 40)), Some(shares(32, 46))),
            levels("birch", Some(shares(91, 55)), Some(shares(79, 49))),
            levels("cedar", None, None),
        ],
    };
    let event = |seq, what: &str, text: &str| AuditEvent {
        seq,
        at: ago(100 - seq),
        writer: "rebalancer".into(),
        by: "ash".into(),
        what: what.into(),
        text: text.into(),
        relief: None,
        review: None,
    };
    let audit = vec![
        event(7, "placed", "shop-web-3 on cedar"),
        event(8, "node_down", "no heartbeat from cedar for 15 s"),
        event(9, "rebalance_moved", "shop-web-2 birch → ash: cpu 0.91 → 0.79"),
    ];
    Seen { status, pressure: Some(pressure), audit }
}

fn top() -> TopState {
    TopState::new(seen(), true)
}

fn press(state: &mut TopState, keys: &str) -> Next {
    let mut next = Next::Stay;
    for key in keys.split(' ') {
        let code = match key {
            "Enter" => KeyCode::Enter,
            "Esc" => KeyCode::Esc,
            "Tab" => KeyCode::Tab,
            "Down" => KeyCode::Down,
            "PgDn" => KeyCode::PageDown,
            "End" => KeyCode::End,
            letter => KeyCode::Char(letter.chars().next().unwrap()),
        };
        next = state.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
    next
}

fn type_in(state: &mut TopState, text: &str) {
    for letter in text.chars() {
        state.press(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
    }
}

fn screen(state: &mut TopState, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| state.draw(frame, NOW)).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width));
    let rows = rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>());
    rows.map(|row| row.trim_end().to_owned() + "\n").collect()
}

fn shows(state: &mut TopState, expected: &Expect) {
    expected.assert_eq(&screen(state, 100, 26));
}

#[test]
fn nodes_are_seen_against_their_load_line_with_what_moves_and_what_happened() {
    shows(
        &mut top(),
        &expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit
        NODE         STATE             ROLE   REPL  CPU                          MEMORY
        ash          ready             leader 5     ███░░░░░░░░░░┊░┃░░ 20→32%    ███████░░░░░░┊░┃░░ 40→46%
        birch        ready             agent  5     █████████████┊█┃░░ 91→79%    █████████░░░░┊░┃░░ 55→49%
        cedar        down 4m           agent  5     ░░░░░░░░░░░░░┊░┃░░ -         ░░░░░░░░░░░░░┊░┃░░ -












        Moves
          shop-web-2 birch → ash (pressure): starting
        Audit
          07:58:29 rebalance_moved: shop-web-2 birch → ash: cpu 0.91 → 0.79
          07:58:28 node_down: no heartbeat from cedar for 15 s
          07:58:27 placed: shop-web-3 on cedar
        by name  ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
}

#[test]
fn a_small_terminal_has_the_nodes_alone() {
    expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas runn
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit
        NODE         STATE             ROLE   REPL  CPU      MEMORY
        ash          ready             leader 5     █░░░┊┃ 2 ██░░┊┃
        birch        ready             agent  5     ████┊┃ 9 ███░┊┃
        cedar        down 4m           agent  5     ░░░░┊┃ - ░░░░┊┃

        by name  ? help  / filter  s sort  Enter open  e explain  l
    "#]]
    .assert_eq(&screen(&mut top(), 60, 9));
    // Whatever its size, nothing breaks.
    for (width, height) in [(1, 1), (3, 2), (20, 4), (400, 3), (7, 60)] {
        let mut state = top();
        for keys in ["1", "2", "3", "4", "5", "1 Enter", "3 Enter", "?"] {
            press(&mut state, keys);
            screen(&mut state, width, height);
        }
    }
}

#[test]
fn a_node_is_opened_and_one_of_its_replicas_and_the_way_leads_back() {
    let mut state = top();
    press(&mut state, "Down Enter");
    shows(
        &mut state,
        &expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit  › birch
        birch ready, agent, docker 27.1
        cpu    ██████████████████████████████┊███┃█░░░░ 91→79% smoothed, 23 % now
        memory ██████████████████████░░░░░░░░┊░░░┃░░░░░ 55→49% smoothed, 41 % now
        reserved 1.5 of 4 cpu, 1 GiB of 8 GiB
        REPLICA              STATE     NODE       AGE  CPU   MEMORY   DETAIL
        shop-web-2           running   birch      4m   0.12  48 MiB   moving to ash (pressure): starting the
















        by name  ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
    press(&mut state, "Enter");
    shows(
        &mut state,
        &expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit  › birch › shop-web-2
        shop-web-2
          service          shop/web
          node             birch
          state            running for 4m
          image            web:1.23
          revision         3
          spec             spec-3
          generation       7
          uses             0.12 cpu, 48 MiB
          next node        ash
          next state       starting for 3s
          next image       web:1.23
          next revision    3
          next spec        spec-3
          next generation  7
          next uses        0.12 cpu, 48 MiB
          cause            pressure





        ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
    press(&mut state, "Esc Esc");
    assert!(screen(&mut state, 100, 26).contains("Moves"), "the nodes again");
}

#[test]
fn services_replicas_moves_and_events_have_a_page_each() {
    let mut state = top();
    let mut page = |keys: &str, expected: Expect| {
        press(&mut state, keys);
        expected.assert_eq(&screen(&mut state, 100, 10));
    };
    page(
        "2",
        expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit
        SERVICE                  STATE    RUNNING  REV  IMAGE                DETAIL
        shop/db                  steady   1 of 1   3    db:1.27
        shop/web                 steady   2 of 3   3    web:1.27



        by name  ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
    page(
        "Enter",
        expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit  › shop/db
        shop/db db:1.27, 1 of 1 running, spread
        REPLICA              STATE     NODE       AGE  CPU   MEMORY   DETAIL
        shop-db-1            running   ash        4m   0.12  48 MiB



        by name  ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
    page(
        "3",
        expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit
        REPLICA              STATE     NODE       AGE  CPU   MEMORY   DETAIL
        shop-db-1            running   ash        4m   0.12  48 MiB
        shop-web-1           running   ash        4m   0.12  48 MiB
        shop-web-2           running   birch      4m   0.12  48 MiB   moving to ash (pressure): starting the
        shop-web-3           pending   cedar      3s   0.12  48 MiB   image_pull_failed: web:1.99: manifest

        by name  ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
    page(
        "4",
        expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit
        REPLICA                  FROM       TO         CAUSE            THERE     AGE  DETAIL
        shop-web-2               birch      ash        pressure         starting  3s




        by newest  ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
    page(
        "5",
        expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit
        TIME     KIND                 BY               EVENT
        07:58:29 rebalance_moved      ash              shop-web-2 birch → ash: cpu 0.91 → 0.79
        07:58:28 node_down            ash              no heartbeat from cedar for 15 s
        07:58:27 placed               ash              shop-web-3 on cedar


        by newest  ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
    page(
        "Enter",
        expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit  › event 9
        2027-01-15T07:58:29.000Z rebalance_moved
        by ash (rebalancer)

        shop-web-2 birch → ash: cpu 0.91 → 0.79


        ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
}

#[test]
fn a_filter_leaves_what_says_it() {
    let mut state = top();
    press(&mut state, "3 /");
    type_in(&mut state, "BIRCH");
    expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit
        REPLICA              STATE     NODE       AGE  CPU   MEMORY   DETAIL
        shop-web-2           running   birch      4m   0.12  48 MiB   moving to ash (pressure): starting the


        /BIRCH▏  Enter keeps the filter, Esc clears it
    "#]].assert_eq(&screen(&mut state, 100, 8));
    press(&mut state, "Enter");
    assert!(screen(&mut state, 100, 8).contains("/BIRCH  by name"), "it is kept");
    press(&mut state, "/");
    type_in(&mut state, "q");
    let shown = screen(&mut state, 100, 8);
    assert!(shown.contains("nothing like that"), "q is a letter while one types: {shown}");
    press(&mut state, "Esc");
    assert_eq!(screen(&mut state, 100, 12).matches("shop-").count(), 4, "cleared");
}

#[test]
fn lists_are_sorted_by_what_matters_and_what_was_chosen_stays_chosen() {
    let names = |state: &mut TopState| {
        let shown = screen(state, 100, 12);
        let first = |line: &str| line.split(' ').next().unwrap().to_owned();
        shown.lines().skip(4).take(3).map(first).collect::<Vec<_>>()
    };
    let mut state = top();
    press(&mut state, "Down");
    for (case, keys, order) in [
        ("by name", "g Down", ["ash", "birch", "cedar"]),
        ("the hottest first", "s", ["birch", "ash", "cedar"]),
        ("the coldest first", "r", ["cedar", "ash", "birch"]),
        ("by replicas, which are equal, so by name", "r s", ["ash", "birch", "cedar"]),
        ("what is down first", "s", ["cedar", "ash", "birch"]),
        ("and by name again", "s", ["ash", "birch", "cedar"]),
    ] {
        press(&mut state, keys);
        assert_eq!(names(&mut state), order, "{case}");
        assert_eq!(state.page().chosen.as_deref(), Some("birch"), "{case}");
    }
}

#[test]
fn explanations_and_logs_are_asked_for_shown_and_given_up() {
    let mut state = top();
    press(&mut state, "e");
    let node = Question::ExplainNode("ash".into());
    assert_eq!(state.question(), Some(&node));
    assert!(screen(&mut state, 80, 10).contains("asking …"));
    state.answer(&node, ["nothing moves off ash".to_owned(), "  trigger  0.40".to_owned()]);
    state.answered(&node);
    expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit  › ash › explain
        nothing moves off ash
          trigger  0.40




        ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]]
    .assert_eq(&screen(&mut state, 80, 10));
    press(&mut state, "Esc");
    assert_eq!(state.question(), None, "nobody wants to know any more");

    press(&mut state, "3 Down l");
    let logs = Question::LogsOfReplica("shop-web-1".into());
    assert_eq!(state.question(), Some(&logs));
    state.answer(&node, ["late".to_owned()]);
    assert!(!screen(&mut state, 80, 10).contains("late"), "an answer to what was asked before");
    state.answer(&logs, (0..MAX_LINES + 50).map(|line| format!("line {line}")));
    let shown = screen(&mut state, 80, 10);
    assert!(shown.contains("line 2049") && !shown.contains("line 2041"), "its end: {shown}");
    press(&mut state, "g");
    let shown = screen(&mut state, 80, 10);
    assert!(shown.contains("line 50\n"), "only so many are kept: {shown}");
    state.answer(&logs, ["more".to_owned()]);
    assert!(!screen(&mut state, 80, 10).contains("more"), "who reads further up is left alone");
    press(&mut state, "End");
    assert!(screen(&mut state, 80, 10).contains("more"));
    press(&mut state, "e");
    assert_eq!(state.question(), Some(&Question::ExplainReplica("shop-web-1".into())));
    press(&mut state, "Esc");
    assert_eq!(state.question(), None, "one page asks at a time");
    press(&mut state, "2 l");
    assert_eq!(state.question(), Some(&Question::LogsOfService("shop/db".into())));
    press(&mut state, "2 e");
    assert!(screen(&mut state, 80, 10).contains("a node or a replica can be explained"));
}

#[test]
fn a_lost_connection_is_said_and_what_was_seen_stays() {
    let mut state = top();
    state.lose("no daemon answers at /run/plimsoll.sock: connection refused".into());
    let shown = screen(&mut state, 100, 12);
    assert!(shown.contains("ash leads"), "{shown}");
    assert!(shown.ends_with("connection refused; retrying\n"), "{shown}");
    state.see(seen());
    assert!(!screen(&mut state, 100, 12).contains("retrying"));
}

#[test]
fn what_is_wrong_with_the_cell_is_on_every_page() {
    let mut seen = seen();
    seen.status.cell.leader = None;
    seen.status.cell.trouble = Some(Problem::new(ProblemCode::QuorumLost, "1 of 3 answers"));
    let mut state = TopState::new(seen, true);
    press(&mut state, "2");
    expect![[r#"
        cell demo: no node leads, 3 nodes, 3 of 4 replicas running, 1 move
        quorum_lost: 1 of 3 answers
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit
        SERVICE                  STATE    RUNNING  REV  IMAGE                DETAIL
        shop/db                  steady   1 of 1   3    db:1.27
        shop/web                 steady   2 of 3   3    web:1.27

        by name  ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]]
    .assert_eq(&screen(&mut state, 100, 9));
}

#[test]
fn what_was_opened_may_go_away() {
    let mut state = top();
    press(&mut state, "3 Enter");
    state.see(seen_of(Vec::new()));
    assert!(screen(&mut state, 80, 8).contains("there is no replica shop-db-1 any more"));
    press(&mut state, "Esc l");
    assert!(screen(&mut state, 80, 8).contains("a replica or a service has logs"));
    press(&mut state, "Down Enter");
    assert!(screen(&mut state, 80, 8).contains("none"), "an empty list has nothing to open");
}

#[test]
fn help_is_a_key_away_and_every_way_out_is_one() {
    let mut state = top();
    press(&mut state, "?");
    shows(
        &mut state,
        &expect![[r#"
        cell demo: ash leads (term 4), 3 nodes, 3 of 4 replicas running, 1 move
        no heartbeat from cedar
         1 Nodes   2 Services   3 Replicas   4 Moves   5 Audit
        NODE         STATE             ROLE   REPL  CPU                          MEMORY
        ash          ready             leader 5     ███░░░░░░░░░░┊░┃░░ 20→32%    ███████░░░░░░┊░┃░░ 40→46%
        birch     ┌ Help: any key closes it ─────────────────────────────────────────────────────┐░ 55→49%
        cedar     │1 … 5, Tab     nodes, services, replicas, moves, audit                        │░ -
                  │  ↑ ↓ j k        choose; PgUp, PgDn, g and G go further                       │
                  │  Enter →        open what is chosen: a node's replicas, a replica, an event  │
                  │  Esc ←          back; clears a filter first                                  │
                  │  /              filter by what a row says; Enter keeps it, Esc clears it     │
                  │  s  r           sort by the next column; the other way round                 │
                  │  e              explain a node or a replica: why it is where it is           │
                  │  l              follow the logs of a replica or a service                    │
                  │  q  Ctrl-C      quit                                                         │
                  │                                                                              │
                  │  █ load  ┃ load line: a node that stays above it is relieved                 │
                  │          ┊ destination cap: no move takes a node above it                    │
                  │  45→62%  what moves under way will make of it                                │
        Moves     └──────────────────────────────────────────────────────────────────────────────┘
          shop-web-2 birch → ash (pressure): starting
        Audit
          07:58:29 rebalance_moved: shop-web-2 birch → ash: cpu 0.91 → 0.79
          07:58:28 node_down: no heartbeat from cedar for 15 s
          07:58:27 placed: shop-web-3 on cedar
        by name  ? help  / filter  s sort  Enter open  e explain  l logs  q quit
    "#]],
    );
    assert_eq!(press(&mut state, "x"), Next::Stay);
    assert!(!screen(&mut state, 100, 26).contains("any key closes it"));
    assert_eq!(press(&mut state, "q"), Next::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(top().press(interrupt), Next::Quit);
    press(&mut state, "/");
    assert_eq!(state.press(interrupt), Next::Quit, "also while one types");
}

#[test]
fn without_colour_the_choice_is_still_seen() {
    for has_colour in [true, false] {
        let mut state = TopState::new(seen(), has_colour);
        let mut terminal = Terminal::new(TestBackend::new(100, 26)).unwrap();
        terminal.draw(|frame| state.draw(frame, NOW)).unwrap();
        let cells = terminal.backend().buffer().content();
        assert_eq!(cells.iter().any(|cell| cell.fg != Color::Reset), has_colour);
        assert!(cells.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)));
    }
}

#[test]
fn a_cell_of_a_thousand_nodes_is_drawn_a_screen_at_a_time() {
    let mut seen = seen_of(vec![sample::deployment("shop").service("web", 10_000)]);
    seen.status.nodes = (0..1_000).map(|at| node(&format!("node-{at:04}"))).collect();
    let mut state = TopState::new(seen, true);
    press(&mut state, "3 End");
    let shown = screen(&mut state, 100, 30);
    assert!(shown.contains("shop-web-9999"), "{shown}");
    assert_eq!(shown.matches("shop-web-").count(), 26, "{shown}");
}
