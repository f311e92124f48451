//! The daemon is killed at random moments of applies, rolls, scales, restarts and deletes. What it acknowledged stands;
//! what had settled runs on as if nothing happened; and once it is back there is what was asked for and nothing else.
//!
//! `PLIMSOLL_KILLS` sets how often, `PLIMSOLL_SEED` which moments; a failure prints both, with what was done.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_api::view::{Progress, Status};
use serde_json::Value;

use super::found::Found;
use super::harness::{Lab, PATIENCE, Runtime, find};
use crate::run::binary;

const NAMES: [&str; 3] = ["ant", "bee", "cat"];

#[test]
fn a_killed_daemon_loses_and_doubles_nothing_on_docker() {
    let Some(lab) = Lab::docker() else { return };
    Campaign::new(lab).run(10);
}

#[test]
fn a_killed_daemon_loses_and_doubles_nothing_on_processes() {
    Campaign::new(Lab::process()).run(15);
}

/// What a deployment should be like.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    revision: u64,
    version: u64,
    replicas: u32,
}

struct Campaign {
    lab: Lab,
    random: Random,
    /// What was acknowledged; none: deleted or never applied.
    wishes: BTreeMap<&'static str, Option<Wish>>,
    /// What ran when all was as it should be, of deployments nobody has touched since.
    settled: BTreeMap<&'static str, Vec<Found>>,
    /// What was asked for and cut off before it was answered.
    unsure: Vec<(&'static str, Option<Wish>)>,
    versions: u64,
    story: String,
}

/// Something asked of the daemon, and what may come of it.
struct Asked {
    name: &'static str,
    child: Child,
    /// If it was taken, with the revision it is acknowledged with; none: gone.
    then: Option<Wish>,
    /// Whether a revision is acknowledged at all.
    is_revised: bool,
}

impl Campaign {
    fn new(lab: Lab) -> Self {
        let seed = number("PLIMSOLL_SEED").unwrap_or_else(|| u64::from(std::process::id()));
        println!("PLIMSOLL_SEED={seed}");
        let wishes = NAMES.map(|name| (name, None)).into();
        let (settled, story) = (BTreeMap::new(), String::new());
        let unsure = Vec::new();
        Self { lab, random: Random(seed), wishes, settled, unsure, versions: 0, story }
    }

    fn run(mut self, kills: u64) {
        let kills = number("PLIMSOLL_KILLS").unwrap_or(kills);
        let begin = Instant::now();
        let (mut acknowledged, mut lost, mut settles) = (0, 0, 0);
        for kill in 1..=kills {
            self.tell(&format!("kill {kill}"));
            let mut asked: Vec<Asked> = Vec::new();
            for _ in 0..=self.random.below(3) {
                let is_free = |name: &&str| asked.iter().all(|it| it.name != *name);
                let free: Vec<&'static str> = NAMES.into_iter().filter(is_free).collect();
                let name = self.random.one(&free);
                asked.push(self.ask(name));
            }
            self.wait_a_moment(&mut asked);
            self.lab.kill();
            for asked in asked {
                let is_acknowledged = self.take_answer(asked);
                acknowledged += u64::from(is_acknowledged);
                lost += u64::from(!is_acknowledged);
            }
            self.runs_on("while the daemon is down");
            self.lab.start();
            self.finds_out();
            self.stands();
            if kill == kills || self.random.below(3) == 0 {
                self.settles();
                settles += 1;
            }
        }
        let seconds = begin.elapsed().as_secs();
        println!(
            "{kills} kills in {seconds} s: {acknowledged} writes acknowledged, {lost} cut off, settled {settles} times"
        );
    }

    fn tell(&mut self, what: &str) {
        let at = self.lab.path("daemon.log").metadata().map_or(0, |it| it.len());
        let _ = writeln!(self.story, "{what} (log at {at})");
    }

    /// Asks for something and does not wait for the answer.
    fn ask(&mut self, name: &'static str) -> Asked {
        self.settled.remove(name);
        let wish = self.wishes[name].clone();
        let (args, stdin, then, is_revised) = match (wish, self.random.below(6)) {
            (Some(_), 0) => (format!("delete {name} -d -o json"), String::new(), None, false),
            (Some(wish), 1) => {
                let replicas = self.random.below(4);
                let args = format!("scale {name} web={replicas} -d -o json");
                (args, String::new(), Some(Wish { replicas, ..wish }), true)
            }
            (Some(wish), 2) if wish.replicas > 0 => {
                (format!("restart {name} -d -o json"), String::new(), Some(wish), false)
            }
            (wish, chance) => {
                let wish = if let (Some(wish), 3) = (wish, chance) {
                    wish
                } else {
                    self.versions += 1;
                    let replicas = self.random.below(3) + 1;
                    Wish { revision: 0, version: self.versions, replicas }
                };
                let compose = self.compose(name, &wish);
                (format!("apply -d -o json -f - -p {name}"), compose, Some(wish), true)
            }
        };
        self.tell(&format!("  {args} ({then:?})"));
        let mut command = binary();
        command.args(args.split_whitespace()).arg("--host").arg(self.lab.path("s"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        Asked { name, child, then, is_revised }
    }

    fn compose(&self, name: &str, wish: &Wish) -> String {
        let Wish { version, replicas, .. } = wish;
        // One of them has a network and a volume, the others come and go faster.
        let shared = format!(
            "volumes: {{data: {{name: {0}-data}}}}\nnetworks: {{default: {{name: {0}}}}}",
            self.lab.name
        );
        let (network, shared) = match (&self.lab.runtime, name) {
            (Runtime::Docker(_), "cat") => ("volumes: [data:/data]", shared.as_str()),
            (Runtime::Docker(_), _) => ("network_mode: none", ""),
            (Runtime::Process, _) => ("", ""),
        };
        format!(
            "services:
  web:
    image: plimsoll-test:1
    command: [sh, -c, \"trap 'sleep 0.3; exit 0' TERM; sleep 600 & wait\"]
    environment: {{VERSION: \"{version}\"}}
    stop_grace_period: 20s
    healthcheck: {{test: [CMD, \"true\"], interval: 5m, start_period: 5m, start_interval: 100ms}}
    deploy: {{replicas: {replicas}}}
    {network}
{shared}
"
        )
    }

    /// Any moment from the first byte of a request to the end of what follows from it.
    fn wait_a_moment(&mut self, asked: &mut [Asked]) {
        let moment = if self.random.below(3) == 0 {
            self.random.below(60)
        } else {
            // Answered first, so that there is something to lose.
            for asked in asked {
                let _ = asked.child.wait();
            }
            self.random.below(1_500)
        };
        self.tell(&format!("  after {moment} ms"));
        sleep(Duration::from_millis(moment.into()));
    }

    /// Whether it was acknowledged.
    fn take_answer(&mut self, asked: Asked) -> bool {
        let Asked { name, child, then, is_revised } = asked;
        let output = child.wait_with_output().unwrap();
        let is_acknowledged = output.status.success();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        self.tell(&format!("  {name}: {:?} {}", output.status.code(), said.trim()));
        // A daemon that is gone is a failure; a refusal would mean that it knew nothing of what it had acknowledged.
        assert_ne!(output.status.code(), Some(1), "{said}\n{}", self.diagnosis());
        let wish = self.wishes.get_mut(name).unwrap();
        if is_acknowledged {
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let revision = answer["applied"]["revision"].as_u64();
            assert!(!is_revised || revision.is_some(), "an answer without a revision: {answer}");
            *wish = then.map(|then| Wish { revision: revision.unwrap_or(then.revision), ..then });
            return true;
        }
        // It may have been written and not answered: what came of it is found out when the daemon is back.
        self.unsure.push((name, then));
        false
    }

    /// Which of the two it is, where a request was cut off.
    fn finds_out(&mut self) {
        let status = self.lab.status().expect("it answers");
        for (name, then) in std::mem::take(&mut self.unsure) {
            let before = self.wishes[name].clone();
            let found = find(&status, name).filter(|it| !it.is_deleted).map(|it| it.revision);
            let now = match (found, then) {
                (found, _) if found == before.as_ref().map(|wish| wish.revision) => before,
                (Some(revision), Some(then)) => Some(Wish { revision, ..then }),
                (None, None) => None,
                (found, then) => panic!(
                    "{name} was {before:?}, might be {then:?}, and is at {found:?}\n{}",
                    self.diagnosis()
                ),
            };
            self.tell(&format!("  {name} turns out as {now:?}"));
            self.wishes.insert(name, now);
        }
    }

    /// What had settled runs, and is the same run.
    fn runs_on(&self, when: &str) {
        let found = self.lab.found();
        for settled in self.settled.values().flatten() {
            assert!(
                found.contains(settled),
                "{when}: {settled:?} is not there\n{}",
                self.diagnosis()
            );
        }
    }

    /// What was acknowledged is what the daemon has.
    fn stands(&self) {
        let status = self.lab.status().expect("it answers");
        for (name, wish) in &self.wishes {
            let found = find(&status, name).filter(|it| !it.is_deleted);
            let revision = found.map(|it| it.revision);
            assert_eq!(
                revision,
                wish.as_ref().map(|wish| wish.revision),
                "{name} should be {wish:?}\n{}",
                self.diagnosis()
            );
            let wanted = found.map(|it| it.services.iter().map(|service| service.wanted).sum());
            let asked = wish.as_ref().map(|wish| wish.replicas);
            assert_eq!(wanted, asked, "{name} should be {wish:?}\n{}", self.diagnosis());
        }
    }

    /// All comes to rest, and there is what was asked for and nothing else.
    fn settles(&mut self) {
        self.tell("  settles");
        let begin = Instant::now();
        let status = loop {
            let status = self.lab.status().expect("it answers");
            let (mut expected, mut found) = (self.expected(&status), self.lab.found());
            found.sort();
            expected.sort();
            let has_all = found.iter().map(outline).eq(expected.iter().cloned());
            let is_steady = |name: &&str| match &self.wishes[*name] {
                Some(_) => find(&status, name).is_some_and(|it| it.progress == Progress::Steady),
                None => find(&status, name).is_none(),
            };
            if has_all && NAMES.iter().all(is_steady) {
                self.note_settled(&found);
                break status;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "it does not settle: {expected:#?}\n{}",
                self.diagnosis()
            );
            sleep(Duration::from_millis(100));
        };
        for (name, wish) in &self.wishes {
            let Some(Wish { revision, replicas, .. }) = wish else { continue };
            let found = find(&status, name).expect("it was steady");
            assert_eq!(found.revision, *revision, "{name}\n{}", self.diagnosis());
            let live = found.services.iter().map(|service| service.replicas.len()).sum::<usize>();
            assert_eq!(live, *replicas as usize, "{name}\n{}", self.diagnosis());
        }
        self.no_networks_left();
    }

    /// What the cell says there should be: replica, generation, and the version that was asked for.
    fn expected(&self, status: &Status) -> Vec<(String, u64, String)> {
        let mut expected = Vec::new();
        for (name, wish) in &self.wishes {
            let Some(wish) = wish else { continue };
            let services = find(status, name).into_iter().flat_map(|it| &it.services);
            for replica in services.flat_map(|service| &service.replicas) {
                let generation = replica.now.as_ref().map_or(0, |now| now.generation);
                expected.push((replica.id.clone(), generation, wish.version.to_string()));
            }
        }
        expected
    }

    /// Those that had settled before are still the same.
    fn note_settled(&mut self, found: &[Found]) {
        self.runs_on("after it settled again");
        for name in NAMES {
            let own = found.iter().filter(|one| one.deployment() == name).cloned();
            self.settled.insert(name, own.collect());
        }
    }

    fn no_networks_left(&self) {
        let Runtime::Docker(_) = self.lab.runtime else { return };
        let filter = format!("label=plimsoll.cell={}", self.lab.name);
        let format = "{{.Label \"plimsoll.deployment\"}}";
        let list =
            || self.lab.engine(&["network", "ls", "--filter", &filter, "--format", format]).stdout;
        let is_used = |name: &str| self.wishes[name].as_ref().is_some_and(|it| it.replicas > 0);
        let is_right =
            |list: &str| list.split_whitespace().all(|name| NAMES.contains(&name) && is_used(name));
        let begin = Instant::now();
        while !is_right(&list()) {
            let is_late = begin.elapsed() > Duration::from_secs(20);
            assert!(!is_late, "networks are left: {}\n{}", list(), self.diagnosis());
        }
    }

    fn diagnosis(&self) -> String {
        format!("{}\n--- what was done\n{}", self.lab.diagnosis(), self.story)
    }
}

fn outline(found: &Found) -> (String, u64, String) {
    let version = if found.is_running { found.version.clone() } else { "stopped".to_owned() };
    (found.name(), found.generation, version)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A seeded generator (splitmix64), so that a campaign can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) % u64::from(bound)).expect("less than the bound")
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(u32::try_from(of.len()).expect("a few")) as usize]
    }
}
