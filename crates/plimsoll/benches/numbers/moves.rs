//! What a move costs those who use the service: how many replicas serve at once while six are updated one by one and while a
//! node with two of them is drained, and how long that takes, with Docker Swarm doing the same on the same engines in turns.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_lab::watch::{ContainerRun, ContainerWatch, READY, fewest, served};
use plimsoll_lab::{Lab, LabEngine, NAMES};

use crate::cell::daemons::{Cell, Site};
use crate::node::threads;
use crate::{Table, median, shown};

mod ours;
mod swarm;

use ours::Ours;
use swarm::Swarm;

const REPLICAS: usize = 6;

const ROUNDS: usize = 5;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(2);

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Both check with the same command at the same pace. Faster, and the checks of seven containers would be what is measured.
const CHECK: [&str; 3] = ["test", "-e", READY];
const INTERVAL: Duration = Duration::from_millis(500);

/// Serves at once, and goes at once when it is told.
fn script() -> String {
    format!("trap 'exit 0' TERM; touch {READY}; sleep 100000 & wait")
}

/// One of those who take turns.
trait Contender {
    const LABEL: &'static str;

    /// Six replicas, two on each engine, and returns when all are healthy by its own word.
    fn create(&self);

    /// Changes what they run, and returns when that is acknowledged.
    fn update(&self);

    /// Empties an engine, and returns when that is acknowledged.
    fn drain(&self, at: usize);

    /// Lets it take replicas again.
    fn activate(&self, at: usize);

    fn remove(&self);

    /// An engine whose node does not lead.
    fn follower(&self) -> usize;
}

/// Three hosts, each with an engine, on which both run.
struct Arena {
    // Dropped in this order: who uses the engines goes before they do, and they before their networks.
    ours: Ours,
    swarm: Swarm,
    engines: Vec<LabEngine>,
}

impl Arena {
    /// None where there can be no such thing, after saying why.
    fn open(what: &str) -> Option<Self> {
        let is_named = std::env::var_os("PLIMSOLL_TEST_DOCKER").is_some();
        let missing = plimsoll_lab::missing()
            .or((!is_named).then(|| "PLIMSOLL_TEST_DOCKER names no engine".to_owned()));
        if let Some(why) = missing {
            eprintln!("{what}: there can be no hosts with engines here ({why}), left out");
            return None;
        }
        let lab = Lab::new(3, 1).expect("hosts can be made");
        let engine = |at: usize| {
            let network = lab.host(at).namespaces().map(|namespaces| namespaces.join("net"));
            LabEngine::new(format!("bench{}-{}", std::process::id(), NAMES[at]), network)
        };
        let engines: Vec<LabEngine> = (0..3).map(engine).collect();
        for engine in &engines {
            engine.start().expect("an engine starts");
        }
        let sockets: Vec<PathBuf> = engines.iter().map(LabEngine::socket).collect();
        let addresses: Vec<String> =
            lab.hosts().iter().map(|host| host.address().to_string()).collect();
        let swarm = Swarm::form(sockets.clone(), &addresses);
        let cell = threads().block_on(Cell::on_engines(Site::Hosts(lab), sockets));
        Some(Self { ours: Ours::new(cell), swarm, engines })
    }

    fn sockets(&self) -> Vec<PathBuf> {
        self.engines.iter().map(LabEngine::socket).collect()
    }

    /// Has one of them do something with six replicas, and says how long it took and the fewest that served meanwhile.
    fn measure<C: Contender>(&self, who: &C, what: What) -> Turn {
        who.create();
        let watch =
            ContainerWatch::begin(&self.sockets(), C::LABEL).expect("engines can be watched");
        until(&watch, "all serve", |lives| all_serve(lives) && lives.len() == REPLICAS);
        let at = who.follower();
        let before = watch.lives();
        let begun = jiff::Timestamp::now();
        match what {
            What::Update => who.update(),
            What::Drain => who.drain(at),
        }
        let must_go = |life: &ContainerRun| match what {
            What::Update => before.iter().any(|old| old.container == life.container),
            What::Drain => life.engine == at,
        };
        until(&watch, "all serve elsewhere", |lives| {
            all_serve(lives) && lives.iter().all(|life| !must_go(life) || life.ended.is_some())
        });
        let lives = watch.lives();
        let ready = lives.iter().filter_map(|life| life.ready);
        let ended = lives.iter().filter_map(|life| life.ended);
        let last = ready.chain(ended).max().expect("something served");
        let time = Duration::try_from(last.duration_since(begun)).unwrap_or_default();
        let turn = Turn { time, fewest: fewest(&lives, begun, last) };
        if what == What::Drain {
            who.activate(at);
        }
        who.remove();
        turn
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Update,
    Drain,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    time: Duration,
    fewest: usize,
}

fn all_serve(lives: &[ContainerRun]) -> bool {
    served(lives, jiff::Timestamp::now()) == REPLICAS
}

fn until(watch: &ContainerWatch, what: &str, is_so: impl Fn(&[ContainerRun]) -> bool) {
    let begun = Instant::now();
    while !is_so(&watch.lives()) {
        assert!(begun.elapsed() < PATIENCE, "never: {what}\n{:#?}", watch.lives());
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// One at a time, which is the default of both.
pub(super) fn update(table: &mut Table) {
    let Some(arena) = Arena::open("update") else { return };
    let (mut ours, mut theirs, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let stop_first = arena.measure(&arena.swarm.stopping_first(), What::Update);
        let start_first = arena.measure(&arena.swarm, What::Update);
        let own = arena.measure(&arena.ours, What::Update);
        eprintln!(
            "update, round {round}: Swarm {stop_first:?}, start-first {start_first:?}, ours {own:?}"
        );
        // The first round warms up whatever can be warm.
        if round > 0 {
            plain.push(stop_first);
            theirs.push(start_first);
            ours.push(own);
        }
    }
    let name = format!("{REPLICAS} containers updated one by one");
    rows(table, &format!("{name}, Docker Swarm by default"), &plain, "");
    rows(table, &format!("{name}, Docker Swarm with `order: start-first`"), &theirs, "");
    rows(table, &format!("{name}, ours"), &ours, &format!("{REPLICAS}"));
    ratio(table, &format!("{name}: ours as a multiple of that"), "≤ 1", &ours, &theirs);
}

pub(super) fn drain(table: &mut Table) {
    let Some(arena) = Arena::open("drain") else { return };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let swarm = arena.measure(&arena.swarm, What::Drain);
        let own = arena.measure(&arena.ours, What::Drain);
        eprintln!("drain, round {round}: Swarm {swarm:?}, ours {own:?}");
        if round > 0 {
            theirs.push(swarm);
            ours.push(own);
        }
    }
    let name = format!("a node with 2 of {REPLICAS} containers drained");
    rows(table, &format!("{name}, Docker Swarm with `order: start-first`"), &theirs, "");
    rows(table, &format!("{name}, ours"), &ours, &format!("{REPLICAS}"));
    ratio(table, &format!("{name}: ours as a multiple of Swarm's"), "≤ 1.5", &ours, &theirs);
}

/// The time, and the fewest of all rounds.
fn rows(table: &mut Table, what: &str, turns: &[Turn], promise: &str) {
    let mut times: Vec<Duration> = turns.iter().map(|turn| turn.time).collect();
    times.sort_unstable();
    table.row(what, "", shown(times[0]), shown(median(&times)));
    let mut fewest: Vec<usize> = turns.iter().map(|turn| turn.fewest).collect();
    fewest.sort_unstable();
    let (least, most) = (fewest[0], fewest[fewest.len() - 1]);
    let text = if least == most { format!("{least}") } else { format!("{least} to {most}") };
    table.row(&format!("{what}: fewest that serve at once"), promise, text, String::new());
}

/// Round by round, since both met the machine in the same mood then.
fn ratio(table: &mut Table, what: &str, promise: &str, ours: &[Turn], theirs: &[Turn]) {
    let ratio = |(one, other): (&Turn, &Turn)| one.time.as_secs_f64() / other.time.as_secs_f64();
    let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(ratio).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let [best, median] = [ratios[0], ratios[ratios.len() / 2]].map(|ratio| format!("{ratio:.2}"));
    table.row(what, promise, best, median);
}
