//! The live page from pulses and events alone.

use super::*;

fn event(seconds: f64, what: What) -> Event {
    Event { generation: 1, seconds, unix_seconds: 0.0, what }
}

fn pulse(step: u64, phase: &str, states: &[(Doing, u64)]) -> Pulse {
    let worker = |(worker, (state, rows)): (usize, &(Doing, u64))| WorkerPulse {
        worker: worker as u32,
        state: *state,
        slot: (*state != Doing::Starting).then_some(worker as u16),
        rows: (*state != Doing::Starting).then_some(*rows),
        ..WorkerPulse::default()
    };
    let workers = states.iter().enumerate().map(worker).collect();
    Pulse { phase: phase.into(), step, workers, ..Pulse::default() }
}

fn live() -> Live {
    let frame =
        Frame { name: "credit <svm>".into(), epochs: 300, steps: 300, validation_loss: None };
    Live { frame, ..Live::default() }
}

/// Machines that are ready, and that are lost.
fn tally(live: &Live) -> (usize, usize) {
    let count = |presence| live.workers.values().filter(|w| w.presence() == presence).count();
    (count(Some(Presence::Ready)), count(Some(Presence::Lost)))
}

#[test]
fn machines_leave_and_return_and_what_they_computed_counts_on() {
    let mut live = live();
    live.pulse(&pulse(
        0,
        "waiting for 2 of 2 workers",
        &[(Doing::Starting, 0), (Doing::FetchingRows, 0)],
    ));
    assert!(live.page("r", &[]).contains(">starting<"), "not lost: it never was there");
    live.pulse(&pulse(10, "training", &[(Doing::Computing, 100), (Doing::Computing, 90)]));
    assert_eq!(tally(&live), (2, 0));
    let lost = What::Lost { agent: "worker-1".into(), pid: 7, reason: "killed".into() };
    live.take(&event(1.5, lost));
    live.take(&event(1.6, What::Paused { workers: 1, min: 2 }));
    live.pulse(&pulse(
        20,
        "paused, have 1, need 2",
        &[(Doing::Computing, 200), (Doing::Starting, 0)],
    ));
    assert_eq!(tally(&live), (1, 1));
    let page = live.page("credit-1", &[]);
    for expect in [
        "<span class=\"badge failed\">paused, have 1, need 2</span>",
        "<span class=\"state lost\">lost</span>",
        "<b>1 of 2</b><span>workers ready</span>",
        "class=\"paused\"",
        "worker-1 was lost (killed)",
        "http-equiv=\"refresh\"",
        "credit &lt;svm&gt;",
    ] {
        assert!(page.contains(expect), "`{expect}` is missing from {page}");
    }
    live.take(&event(2.0, What::Unpaused { workers: 2 }));
    live.pulse(&pulse(21, "training", &[(Doing::Computing, 210), (Doing::FetchingRows, 0)]));
    live.pulse(&pulse(30, "training", &[(Doing::Late, 300), (Doing::Computing, 50)]));
    let page = live.page("credit-1", &[]);
    assert!(page.contains("<td>140</td>"), "rows of both its processes: {page}");
    assert!(page.contains("not waited for"), "{page}");
    let strip: Vec<Presence> = live.workers[&1].row.presences().collect();
    for presence in [Presence::Ready, Presence::Fetching, Presence::Lost] {
        assert!(strip.contains(&presence), "{presence:?} in {strip:?}");
    }
}

#[test]
fn a_page_of_a_run_that_is_over_stays_and_leads_to_the_report() {
    let mut live = live();
    live.pulse(&pulse(300, "over", &[(Doing::Standby, 100)]));
    let ended = What::Ended {
        outcome: planaria_protocol::message::Outcome::Completed,
        reason: None,
        step: 300,
        weights_sha256: None,
        trouble: None,
        state: None,
    };
    live.take(&event(9.0, ended));
    let page = live.page("credit-1", &[]);
    assert!(page.contains("href=\"report.html\"") && !page.contains("http-equiv"), "{page}");
    assert!(!page.contains("<script"), "{page}");
}
