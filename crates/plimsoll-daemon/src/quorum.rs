//! Whether enough servers answer for the cell to have a leader: what was found, and what is said of it. Who asks them is
//! [`cell::quorum`](crate::cell::quorum).

use plimsoll_api::view::{Problem, ProblemCode};

/// How many of those who vote could be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quorum {
    pub voters: usize,
    /// This node among them, if it votes.
    pub answering: usize,
    /// The nodes that did not answer.
    pub silent: Vec<String>,
}

impl Quorum {
    pub fn needed(&self) -> usize {
        self.voters / 2 + 1
    }

    pub fn is_lost(&self) -> bool {
        self.voters > 0 && self.answering < self.needed()
    }

    /// `1 of 3 servers answers; 2 are needed (birch and cedar do not)`
    pub fn sentence(&self) -> String {
        let Self { voters, answering, silent } = self;
        let (answer, are) = (if *answering == 1 { "answers" } else { "answer" }, self.needed());
        let verb = if are == 1 { "is" } else { "are" };
        let silent = match silent.as_slice() {
            [] => String::new(),
            [one] => format!(" ({one} does not)"),
            [most @ .., last] => format!(" ({} and {last} do not)", most.join(", ")),
        };
        format!("{answering} of {voters} servers {answer}; {are} {verb} needed{silent}")
    }
}

/// Why nobody leads, from what was last found.
pub fn problem(found: Option<&Quorum>) -> Problem {
    match found.filter(|quorum| quorum.is_lost()) {
        Some(quorum) => Problem::new(ProblemCode::QuorumLost, quorum.sentence()),
        None => Problem::new(ProblemCode::NoLeader, "the cell has no leader"),
    }
}

/// What is said while this server knows no leader because something keeps it from taking part.
pub fn hindered(why: &str) -> Problem {
    Problem::new(
        ProblemCode::NoLeader,
        format!("no server leads as far as this one can tell: {why}"),
    )
    .hint("replicas keep running; it recovers by itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_is_told_from_a_cell_that_lost_too_many() {
        let quorum = |voters, silent: &[&str]| Quorum {
            voters,
            answering: voters - silent.len(),
            silent: silent.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (found, code, message) in [
            (None, "no_leader", "the cell has no leader"),
            (Some(quorum(3, &["ash"])), "no_leader", "the cell has no leader"),
            (
                Some(quorum(3, &["ash", "birch"])),
                "quorum_lost",
                "1 of 3 servers answers; 2 are needed (ash and birch do not)",
            ),
            (
                Some(quorum(1, &["ash"])),
                "quorum_lost",
                "0 of 1 servers answer; 1 is needed (ash does not)",
            ),
            (
                Some(quorum(5, &["a", "b", "c"])),
                "quorum_lost",
                "2 of 5 servers answer; 3 are needed (a, b and c do not)",
            ),
        ] {
            let problem = problem(found.as_ref());
            assert_eq!((problem.code.word(), problem.message.as_str()), (code, message));
            assert!(problem.hint.is_some());
        }
        assert!(!Quorum::default().is_lost(), "who is of no cell yet has lost nothing");
    }
}
