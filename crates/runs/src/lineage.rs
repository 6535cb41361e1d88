//! Which committed steps count: the ranges of all generations, cut where a later one went on.
//!
//! `Started` and `Recovered` at step s cut the lineage there: what older generations did beyond is
//! superseded. Ranges must then lie end to end. Around a crash two things are right that look
//! wrong: a new generation may tell steps before its cut, which the lost one did not come to tell;
//! and it may tell once more what the lost one had told with its last breath. Pure.

use planaria_numerics::digest::Digest;
use planaria_protocol::event::{Event, What};
use std::ops::Range;

/// A range of steps that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Who told it.
    pub generation: u64,
    /// Epoch it says it is of, from 0.
    pub epoch: u64,
    pub first: u64,
    /// The one after the last.
    pub end: u64,
    pub read: Digest,
}

/// A range of steps as people count them, from 1: `steps 3 to 5`, `step 3`.
fn steps(first: u64, end: u64) -> String {
    match end.saturating_sub(first) {
        0 | 1 => format!("step {}", first + 1),
        _ => format!("steps {} to {end}", first + 1),
    }
}

/// The same, before what became of them.
pub(crate) fn steps_were(first: u64, end: u64) -> String {
    let verb = if end.saturating_sub(first) > 1 { "were" } else { "was" };
    format!("{} {verb}", steps(first, end))
}

impl std::fmt::Display for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of generation {}", steps(self.first, self.end), self.generation)
    }
}

/// A place where a generation went on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The generation that began.
    pub generation: u64,
    /// Steps done by then.
    pub step: u64,
    /// Steps beyond, which older generations had done.
    pub superseded: u64,
    /// Why it began.
    pub why: String,
}

/// Something that does not add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub text: String,
    /// Steps that no range tells of, where that is what is wrong.
    pub untold: Option<Range<u64>>,
    pub missing: Missing,
}

/// Whether events that are missing explain something that does not add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Whatever is missing, it is wrong.
    No,
    /// Where something else shows that events are missing.
    Perhaps,
    /// Nothing but that explains it.
    Yes,
}

/// The steps that count, and what is wrong with them.
#[derive(Debug, Clone, Default)]
pub struct Lineage {
    /// Ranges, end to end where nothing is wrong.
    pub tiles: Vec<Tile>,
    /// Where generations went on.
    pub cuts: Vec<Cut>,
    /// What does not add up.
    pub faults: Vec<Fault>,
    /// Whether a session that left no ranges took steps.
    pub before_audits: bool,
    /// Whether steps were taken before any event says how the run began.
    pub is_headless: bool,
    /// The furthest step that events of the present generation tell of.
    reached: u64,
    /// The same of those before it.
    reached_before: u64,
    /// Whether the present session tells ranges; nothing where no event says how it began.
    told: Option<bool>,
}

impl Lineage {
    /// Steps up to where the lineage has come.
    pub fn end(&self) -> u64 {
        self.tiles.last().map_or(0, |tile| tile.end)
    }

    /// Steps of a generation that count.
    pub fn steps_of(&self, generation: u64) -> u64 {
        let own = self.tiles.iter().filter(|tile| tile.generation == generation);
        own.map(|tile| tile.end - tile.first).sum()
    }

    /// The next event.
    pub fn take(&mut self, event: &Event) {
        let generation = event.generation;
        if self.cuts.last().is_some_and(|cut| generation < cut.generation) {
            // A process that did not yet know that it had been replaced. It commits nothing.
            return;
        }
        match &event.what {
            What::Started(started) => {
                self.told = Some(started.digest != Digest::default());
                let why = match self.cuts.is_empty() {
                    true => "started".to_owned(),
                    false => "resumed".to_owned(),
                };
                self.cut(generation, started.step, 0, why);
            }
            What::Recovered { step, superseded, reason, .. } => {
                self.cut(generation, *step, *superseded, reason.clone());
            }
            What::Committed { epoch, first_step, end_step, read } => {
                let (epoch, first, end) = (*epoch, *first_step, *end_step);
                self.lay(Tile { generation, epoch, first, end, read: *read });
            }
            What::Steps(figures) | What::Epoch { figures, .. } => self.reach(figures.step),
            What::Ended { step, .. } => self.reach(*step),
            _ => {}
        }
    }

    /// The present generation is known to have done so many steps.
    fn reach(&mut self, step: u64) {
        let from = self.cuts.last().map_or(0, |cut| cut.step);
        self.before_audits |= self.told == Some(false) && step > from;
        self.is_headless |= self.told.is_none() && step > from;
        self.reached = self.reached.max(step);
    }

    /// A generation goes on after `step` steps.
    fn cut(&mut self, generation: u64, step: u64, superseded: u64, why: String) {
        if let Some(tile) = self.tiles.iter().find(|t| t.first < step && step < t.end) {
            let text = format!(
                "generation {generation} went on after step {step}, in the middle of {tile}"
            );
            self.faults.push(Fault { text, untold: None, missing: Missing::No });
        }
        // What was given up need not have been told.
        let is_past = |f: &Fault| f.untold.as_ref().is_none_or(|untold| untold.start < step);
        self.faults.retain(is_past);
        let beyond = self.reached.max(self.end()).saturating_sub(step);
        self.tiles.retain(|tile| tile.first < step);
        if let Some(last) = self.tiles.last_mut() {
            last.end = last.end.min(step);
        }
        let superseded = superseded.max(beyond);
        self.reached_before = self.reached.min(step);
        self.reached = step;
        match self.cuts.last_mut() {
            // What was kept turned out not to be whole: the same generation went further back.
            Some(cut) if cut.generation == generation => {
                cut.step = cut.step.min(step);
                cut.superseded += superseded;
                cut.why = why;
            }
            _ => self.cuts.push(Cut { generation, step, superseded, why }),
        }
    }

    /// A range was committed.
    fn lay(&mut self, tile: Tile) {
        if tile.end <= tile.first {
            let text = format!("{tile} are an empty range");
            self.faults.push(Fault { text, untold: None, missing: Missing::No });
            return;
        }
        let end = self.end();
        if tile.first < end && !self.told_again(&tile) {
            // A later generation may have gone back, and the event that said so be missing.
            let is_later = self.tiles.last().is_some_and(|t| t.generation < tile.generation);
            let missing = if is_later { Missing::Perhaps } else { Missing::No };
            let text = format!("{tile} overlap what was committed up to step {end}");
            self.faults.push(Fault { text, untold: None, missing });
            // The rest of it may still fit what follows.
            self.tiles.retain(|t| t.end <= tile.first);
        } else if tile.first > end {
            let text =
                format!("{} committed in no range, before {tile}", steps_were(end, tile.first));
            let untold = Some(end..tile.first);
            // A generation that begins where no older one is known to have come goes on from what
            // those saved, whose events are gone.
            let is_begun_beyond = self.cuts.last().is_some_and(|cut| {
                cut.generation == tile.generation
                    && tile.first <= cut.step
                    && self.reached_before < cut.step
            });
            let missing = if is_begun_beyond { Missing::Yes } else { Missing::Perhaps };
            self.faults.push(Fault { text, untold, missing });
        }
        self.reach(tile.end);
        self.tiles.push(tile);
    }

    /// Whether `tile` tells once more what an older generation had told just before it was lost;
    /// if so, that is taken back.
    fn told_again(&mut self, tile: &Tile) -> bool {
        let from = self.tiles.iter().position(|t| t.first >= tile.first);
        let older = from.map_or(&[][..], |from| &self.tiles[from..]);
        let fits = older.first().is_some_and(|t| t.first == tile.first)
            && older.iter().all(|t| t.generation < tile.generation)
            && tile.end >= self.end();
        let read = older.iter().fold(Digest::default(), |sum, t| sum.combine(t.read));
        let same = tile.end > self.end() || read == tile.read;
        if fits && same {
            self.tiles.retain(|t| t.first < tile.first);
        }
        fits && same
    }
}
