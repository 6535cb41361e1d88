//! Who was there at each step, as a strip of coloured cells: a row for each worker.
//!
//! Owns the drawing and its words. Never knows where presences come from: pulses of a live run, or
//! the events of one that is over.

use maud::{Markup, html};
use planaria_text::number::grouped;
use std::collections::{BTreeMap, BTreeSet};

/// Columns at most; each is one step or several.
const COLUMNS_MAX: u64 = 150;
/// Workers that have a row.
pub const ROWS_MAX: usize = 64;
/// Width and height of a cell.
const CELL: (f64, f64) = (6.0, 14.0);
/// Width of all, and of the names on the left.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 66.0;

/// How a worker was there; of several in one column the last of these shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    Ready,
    Fetching,
    Late,
    Lost,
}

impl Presence {
    pub fn text(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Fetching => "fetching",
            Self::Late => "not waited for",
            Self::Lost => "lost",
        }
    }

    pub fn class(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Fetching => "fetching",
            Self::Late => "late",
            Self::Lost => "lost",
        }
    }
}

/// The presences of a worker by column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    cells: BTreeMap<u64, Presence>,
}

impl Row {
    pub fn mark(&mut self, column: u64, presence: Presence) {
        let cell = self.cells.entry(column).or_insert(presence);
        *cell = presence.max(*cell);
    }

    pub fn presences(&self) -> impl Iterator<Item = Presence> + '_ {
        self.cells.values().copied()
    }

    /// Neighbouring columns of the same kind: the first, how many, and which.
    fn stretches(&self) -> Vec<(u64, u64, Presence)> {
        let mut stretches: Vec<(u64, u64, Presence)> = Vec::new();
        for (column, presence) in &self.cells {
            match stretches.last_mut() {
                Some((first, count, last)) if last == presence && *first + *count == *column => {
                    *count += 1;
                }
                _ => stretches.push((*column, 1, *presence)),
            }
        }
        stretches
    }
}

/// How many columns the steps of a run have.
pub fn columns(steps: u64) -> u64 {
    steps.clamp(1, COLUMNS_MAX)
}

/// The column that a step is in, of so many steps.
pub fn column(step: u64, steps: u64) -> u64 {
    let all = steps.max(1);
    step.min(all - 1) * columns(steps) / all
}

/// The strip of a run of so many steps, with a key below. In `paused` columns it waited for machines.
pub fn drawing<'a>(
    steps: u64,
    rows: impl ExactSizeIterator<Item = (u32, &'a Row)>,
    paused: &BTreeSet<u64>,
) -> Markup {
    let columns = columns(steps);
    let top = 10.0;
    let cell = ((WIDTH - LEFT) / columns as f64).min(3.0 * CELL.0);
    let height = top + rows.len() as f64 * (CELL.1 + 2.0) + 16.0;
    let end = LEFT + columns as f64 * cell;
    let below = tenth(height - 3.0);
    html! {
        h2 { "Who was there at each step" }
        div.wide {
            svg.strip role="img" viewBox={ "0 0 " (WIDTH) " " (height) }
                aria-label="who was there at each step" {
                @for column in paused {
                    rect.paused x=(tenth(LEFT + *column as f64 * cell)) y="0"
                        width=(tenth(cell)) height="6" { title { "paused: too few machines" } }
                }
                @for (place, (number, row)) in rows.enumerate() {
                    @let y = top + place as f64 * (CELL.1 + 2.0);
                    text x="0" y=(tenth(y + 11.0)) { "worker-" (number) }
                    @for (first, count, presence) in row.stretches() {
                        rect class=(presence.class()) x=(tenth(LEFT + first as f64 * cell))
                            y=(tenth(y)) width=(tenth(count as f64 * cell)) height=(CELL.1) {
                            title { (title(number, first, count, presence, steps)) }
                        }
                    }
                }
                text x=(LEFT) y=(below) { "step 1" }
                text x=(tenth(end)) y=(below) text-anchor="end" { (grouped(steps)) }
            }
        }
        p.note {
            @for presence in [Presence::Ready, Presence::Fetching, Presence::Late, Presence::Lost] {
                span class={ "state " (presence.class()) } { (presence.text()) } " "
            }
            @if !paused.is_empty() {
                span class="state paused" { "paused: too few machines" }
            }
        }
    }
}

/// What a stretch of a row says: who, how, and in which steps.
fn title(number: u32, first: u64, count: u64, presence: Presence, steps: u64) -> String {
    let begin = |column: u64| (column * steps).div_ceil(columns(steps));
    let (from, to) = (begin(first) + 1, begin(first + count).max(begin(first) + 1));
    let presence = presence.text();
    match from == to {
        true => format!("worker-{number}: {presence}, step {}", grouped(from)),
        false => {
            format!("worker-{number}: {presence}, steps {} to {}", grouped(from), grouped(to))
        }
    }
}

/// A length of a drawing.
fn tenth(length: f64) -> String {
    format!("{length:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_cover_all_steps_of_short_and_long_runs() {
        for steps in [1, 7, 150, 151, 100_000] {
            assert_eq!(column(0, steps), 0);
            assert_eq!(column(steps, steps), columns(steps) - 1, "{steps}");
        }
    }

    #[test]
    fn the_worst_of_a_column_shows_and_stretches_tell_their_steps() {
        let mut row = Row::default();
        (0..30).for_each(|column| row.mark(column, Presence::Ready));
        row.mark(10, Presence::Lost);
        row.mark(10, Presence::Ready);
        let (ready, lost) = (Presence::Ready, Presence::Lost);
        assert_eq!(row.stretches(), [(0, 10, ready), (10, 1, lost), (11, 19, ready)]);
        let page = drawing(300, [(3, &row)].into_iter(), &BTreeSet::new()).into_string();
        for expect in ["worker-3: ready, steps 1 to 20", "worker-3: lost, steps 21 to 22"] {
            assert!(page.contains(&format!("<title>{expect}</title>")), "{expect} in {page}");
        }
        assert!(!page.contains("paused"), "{page}");
    }
}
