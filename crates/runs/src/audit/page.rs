//! An audit as a short page of text. Pure.

use crate::audit::{Audit, GenerationAudit, Verdict};
use crate::failure::plain;
use planaria_text::number::{counted, duration, grouped, out_of};
use std::fmt::Write;

/// Generations that are listed one by one.
const GENERATIONS_MAX: usize = 12;

pub fn text(audit: &Audit, run: &str) -> String {
    let mut text = String::new();
    let mut add = |label: &str, value: String| {
        let _ = writeln!(text, "{label:<14}{value}");
    };
    add("run", plain(run));
    add("exactly once", verdict(audit));
    for reason in &audit.reasons {
        add("", plain(reason));
    }
    if audit.before_audits {
        return text;
    }
    for missing in &audit.missing {
        add("missing", plain(missing));
    }
    // Of a run that is proven altogether, the lines below say the same.
    for proven in audit.proven.iter().filter(|_| !audit.exactly_once) {
        add("proven", plain(proven));
    }
    let whole = audit.epochs.iter().filter(|e| e.whole).count() as u64;
    let exact = audit.epochs.iter().filter(|e| e.whole && e.exact).count() as u64;
    let part = match audit.epochs.last() {
        Some(last) if !last.whole => format!(", {} of the next", counted(last.steps, "step")),
        _ => String::new(),
    };
    add("epochs", format!("{} whole, {} exact{part}", grouped(whole), grouped(exact)));
    let examples: u64 = audit.epochs.iter().map(|e| e.examples).sum();
    add(
        "steps",
        format!(
            "{}{}; {} read",
            out_of(audit.steps, audit.steps_planned),
            if audit.exactly_once { ", each committed once" } else { "" },
            counted(examples, "example")
        ),
    );
    for (label, value) in generations(&audit.generations) {
        add(label, value);
    }
    add("taken again", counted(audit.superseded_steps, "step"));
    let machines = &audit.machines;
    let mut survived =
        vec![machines.moves(), format!("late {}", counted(machines.suspicions, "time"))];
    if machines.pauses > 0 {
        survived.push(format!("paused {}", counted(machines.pauses, "time")));
    }
    add("survived", survived.join(", "));
    if machines.recomputed_shards > 0 || machines.stalled_seconds > 0.0 {
        let shards = counted(machines.recomputed_shards, "shard");
        add(
            "recomputed",
            format!("{shards}; steps were {} late", duration(machines.stalled_seconds)),
        );
    }
    if machines.saves_failed > 0 {
        add("not saved", counted(machines.saves_failed, "checkpoint"));
    }
    if let Some(step) = audit.checkpoint_step {
        let weights = match audit.weights_match {
            Some(true) => "; the report's weights are its weights",
            Some(false) => "; the report's weights are others",
            None => "",
        };
        add("checkpoint", format!("step {}{weights}", grouped(step)));
    }
    text
}

fn verdict(audit: &Audit) -> String {
    match audit.verdict {
        Verdict::BeforeAudits => "unknown: this run was made before audits, and its events do not \
                                  tell which examples its steps read"
            .into(),
        Verdict::No => "no".into(),
        Verdict::Incomplete => {
            "not proven: events are missing; nothing that is left contradicts it".into()
        }
        Verdict::Yes if audit.ended => "yes".into(),
        Verdict::Yes => format!("yes, up to step {}", grouped(audit.steps)),
    }
}

/// One line for each generation; of very many only the first and the last.
fn generations(all: &[GenerationAudit]) -> Vec<(&'static str, String)> {
    let line = |g: &GenerationAudit| {
        let again = match g.superseded {
            0 => String::new(),
            n => format!(", {} taken again", counted(n, "step")),
        };
        let from = grouped(g.from_step);
        ("generation", format!("{} after step {from}{again}: {}", g.generation, plain(&g.why)))
    };
    if all.len() <= GENERATIONS_MAX {
        return all.iter().map(line).collect();
    }
    let half = GENERATIONS_MAX / 2;
    let mut lines: Vec<_> = all[..half].iter().map(line).collect();
    let more = (all.len() - 2 * half) as u64;
    lines.push(("", format!("… and {} more", grouped(more))));
    lines.extend(all[all.len() - half..].iter().map(line));
    lines
}
