//! The faults that follow from a seed: a pure function of settings, seed and number.
//!
//! Everything about the n-th fault is drawn before it is known which processes live, so that the same seed
//! makes the same choices. Never looks at the clock or at a process.

use crate::chaos::words::{Share, Span};
use clap::ValueEnum;
use planaria_numerics::random::{Purpose, Stream};
use planaria_protocol::message::{Agent, FrameLoss};
use std::time::Duration;

/// How long frames are lost.
const DROP_LASTS: Span = Span::millis(500, 3000);

/// Whom a kill may hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Victims {
    Worker,
    Server,
    Coordinator,
    Any,
}

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Kill(Victims),
    /// SIGSTOP, and SIGCONT after a while.
    Pause(Span),
    /// A fiftieth of the time, for a while.
    Slow(Span),
    /// A share of what it sends is lost, for a while.
    Drop(Share),
}

impl Fault {
    /// Whether it works on a process of another machine.
    pub fn reaches(&self) -> bool {
        matches!(self, Self::Kill(_) | Self::Drop(_))
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Kill(_) => "kill",
            Self::Pause(_) => "pause",
            Self::Slow(_) => "slow",
            Self::Drop(_) => "drop",
        }
    }

    /// With its options.
    pub fn text(&self) -> String {
        match self {
            Self::Kill(who) => {
                let who = who.to_possible_value();
                format!("kill {}", who.as_ref().map_or("any", |who| who.get_name()))
            }
            Self::Pause(span) => format!("pause {span}"),
            Self::Slow(span) => format!("slow {span}"),
            Self::Drop(share) => format!("drop {share}"),
        }
    }

    /// Which processes it can affect, in words.
    pub fn targets(&self) -> &'static str {
        match self {
            Self::Kill(Victims::Worker) | Self::Slow(_) => "workers",
            Self::Kill(Victims::Server) => "servers",
            Self::Kill(Victims::Coordinator) => "the coordinator",
            Self::Kill(Victims::Any) | Self::Pause(_) => "all processes",
            Self::Drop(_) => "workers and servers",
        }
    }

    /// Whether it works on this process.
    pub fn fits(&self, agent: Agent) -> bool {
        let is_worker = matches!(agent, Agent::Worker(_));
        let is_server = matches!(agent, Agent::Server(_));
        match self {
            Self::Kill(Victims::Worker) | Self::Slow(_) => is_worker,
            Self::Kill(Victims::Server) => is_server,
            Self::Kill(Victims::Coordinator) => agent == Agent::Coordinator,
            Self::Kill(Victims::Any) | Self::Pause(_) => agent != Agent::Console,
            Self::Drop(_) => is_worker || is_server,
        }
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Kinds of faults, one at least.
    pub faults: Vec<Fault>,
    /// Time between them.
    pub every: Span,
    /// The only process they may hit.
    pub target: Option<Agent>,
    /// What everything follows from.
    pub seed: u64,
}

/// A fault to come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// Time to let pass before it, unless it is the first.
    pub wait: Duration,
    pub fault: Fault,
    /// How long it lasts, where it does.
    pub lasts: Duration,
    /// Which of those that it can hit, wrapped around.
    victim: u64,
    /// What else follows from chance.
    seed: u64,
}

impl Settings {
    /// The n-th fault.
    pub fn draw(&self, n: u64) -> Draw {
        let mut stream = Stream::new(self.seed, Purpose::Test, n, 0);
        let wait = self.every.at(f64::from(stream.uniform()));
        let fault = self.faults[stream.below(self.faults.len().max(1) as u64) as usize];
        let lasts = f64::from(stream.uniform());
        let lasts = match fault {
            Fault::Kill(_) => Duration::ZERO,
            Fault::Pause(span) | Fault::Slow(span) => span.at(lasts),
            Fault::Drop(_) => DROP_LASTS.at(lasts),
        };
        Draw { wait, fault, lasts, victim: stream.next_u64(), seed: stream.next_u64() }
    }

    /// Which of the live processes it affects, if any.
    pub fn victim(&self, draw: &Draw, living: &[Agent]) -> Option<Agent> {
        let is_target = |agent: &Agent| self.target.is_none_or(|target| target == *agent);
        let mut able: Vec<Agent> = living
            .iter()
            .copied()
            .filter(|agent| draw.fault.fits(*agent))
            .filter(is_target)
            .collect();
        able.sort();
        let at = draw.victim.checked_rem(able.len() as u64)?;
        able.get(at as usize).copied()
    }
}

impl Draw {
    /// The network faults that a process is asked to suffer.
    pub fn frame_loss(&self) -> Option<FrameLoss> {
        match self.fault {
            Fault::Drop(share) => Some(FrameLoss {
                drop_per_mille: share.per_mille,
                seconds: self.lasts.as_secs_f64(),
                seed: self.seed,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn settings(seed: u64) -> Settings {
        Settings {
            faults: vec![
                Fault::Kill(Victims::Any),
                Fault::Pause(Span::millis(500, 3000)),
                Fault::Slow(Span::millis(2000, 5000)),
                Fault::Drop(Share { per_mille: 50 }),
            ],
            every: Span::millis(1000, 3000),
            target: None,
            seed,
        }
    }

    const ALL: [Agent; 5] = [
        Agent::Worker(1),
        Agent::Coordinator,
        Agent::Server(0),
        Agent::Worker(0),
        Agent::Worker(2),
    ];

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let run = |seed: u64, living: &[Agent]| -> Vec<(Draw, Option<Agent>)> {
            let settings = settings(seed);
            let draws = (0..50).map(|n| settings.draw(n));
            draws.map(|draw| (draw, settings.victim(&draw, living))).collect()
        };
        assert_eq!(run(7, &ALL), run(7, &ALL));
        let mut shuffled = ALL;
        shuffled.reverse();
        assert_eq!(run(7, &ALL), run(7, &shuffled), "in any order");
        assert_ne!(run(7, &ALL), run(8, &ALL));
        // Which processes live decides only which is hit.
        let draws = |all: Vec<(Draw, Option<Agent>)>| all.into_iter().map(|(d, _)| d);
        assert!(draws(run(7, &ALL)).eq(draws(run(7, &ALL[..1]))));
    }

    #[test]
    fn choices_are_within_what_was_asked_for_and_come_to_all_of_it() {
        let settings = settings(3);
        let (mut kinds, mut victims) = (BTreeSet::new(), BTreeSet::new());
        for n in 0..300 {
            let draw = settings.draw(n);
            assert!((1000..=3000).contains(&draw.wait.as_millis()));
            let victim = settings.victim(&draw, &ALL).unwrap();
            assert!(draw.fault.fits(victim), "{draw:?} {victim}");
            match draw.fault {
                Fault::Kill(_) => assert_eq!(draw.lasts, Duration::ZERO),
                Fault::Pause(_) => assert!((500..=3000).contains(&draw.lasts.as_millis())),
                Fault::Slow(_) => assert!((2000..=5000).contains(&draw.lasts.as_millis())),
                Fault::Drop(_) => {
                    let frame_loss = draw.frame_loss().unwrap();
                    assert!(frame_loss.drop_per_mille == 50 && frame_loss.seconds <= 3.0);
                }
            }
            kinds.insert(draw.fault.name());
            victims.insert(victim);
        }
        assert_eq!((kinds.len(), victims.len()), (4, ALL.len()));
        let texts: Vec<String> = settings.faults.iter().map(Fault::text).collect();
        assert_eq!(texts, ["kill any", "pause 500ms..3s", "slow 2s..5s", "drop 5%"]);
    }

    #[test]
    fn only_the_target_is_hit() {
        let target = Some(Agent::Worker(2));
        let settings = Settings { target, ..settings(1) };
        for n in 0..50 {
            let draw = settings.draw(n);
            assert_eq!(settings.victim(&draw, &ALL), Some(Agent::Worker(2)));
            assert_eq!(settings.victim(&draw, &ALL[..4]), None, "it is not there");
        }
    }
}
