//! `planaria scale RUN machines=+2`: a live run goes on with more or fewer machines.
//!
//! Owns the order: machines first where there are more, workers first where there are fewer, so that
//! no worker waits for room or is lost with its machine. Which machines come and go is the pool's to
//! say.

use super::{Amount, WORKERS_MAX, insist, pass_on, scale, traits};
use crate::commands::print;
use crate::commands::stop::not_running;
use planaria_control::detached::{self, Away};
use planaria_control::holdings;
use planaria_control::live::scale::ask_machines;
use planaria_control::talk::{Progress, Talk};
use planaria_fleet::pool::resources;
use planaria_recipe::pool::{MACHINES_MAX, Pool};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::history::History;
use planaria_runs::run_dir::lock::Holder;
use planaria_text::number::counted;
use serde_json::json;
use std::path::Path;

/// What is asked for, spelled out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    before: u32,
    machines: u32,
    workers: u32,
}

/// `4`, `+2` or `-1`.
pub(super) fn parse(change: &str, value: &str) -> Result<Amount> {
    let amount = match value.strip_prefix(['+', '-']) {
        Some(_) => value.parse().ok().filter(|by| *by != 0).map(Amount::By),
        None => value.parse().ok().filter(|to| *to > 0).map(Amount::To),
    };
    amount.ok_or_else(|| {
        let message = format!("`{change}`: `machines` cannot be `{value}`");
        Failure::user(message).hint("write `machines=4`, `machines=+2` or `machines=-1`, say")
    })
}

/// Scales and says so.
pub(super) fn run(folder: &Path, amount: Amount, json: bool, talk: Talk) -> Result<()> {
    let path = folder.display();
    let away = followed(folder, talk)?;
    let history = detached::history(folder)?;
    if away.is_none() && !Holder::of(folder)?.is_live() {
        return Err(not_running(&history));
    }
    let pool = holdings::pool(folder)?;
    let mut target = target(&history, &pool, amount)?;
    if let Some(away) = away {
        within_held(folder, target.machines)?;
        return pass_on(&away, &format!("machines={}", target.machines), json, talk);
    }
    if let Some(most) = traits(folder).and_then(|traits| traits.workers_max) {
        target.workers = target.workers.min(most as u32);
    }
    if target.machines > target.before {
        resize(folder, target.machines)?;
        scale(folder, target.workers)?;
    } else {
        scale(folder, target.workers)?;
        resize(folder, target.machines)?;
    }
    let Target { before, machines, workers } = target;
    if json {
        let document = json!({
            "run": path.to_string(),
            "machines": machines,
            "machines_before": before,
            "workers": workers,
            "before": history.workers,
        });
        return print(&format!("{document:#}\n"));
    }
    let (machines, workers) =
        (counted(machines.into(), "machine"), counted(workers.into(), "worker"));
    let note = format!("run {path} goes on with {machines} instead of {before}, and {workers}");
    Progress::new(talk).note(&note);
    Ok(())
}

/// A run that is left to machines, where this one is: it must live.
fn followed(folder: &Path, talk: Talk) -> Result<Option<Away>> {
    let Some(mut away) = Away::find(folder)? else { return Ok(None) };
    match away.lives(talk)? {
        true => Ok(Some(away)),
        false => Err(not_running(&detached::history(folder)?)),
    }
}

/// Refuses more machines than a run that is left to them was given.
fn within_held(folder: &Path, machines: u32) -> Result<()> {
    let held = resources::held(folder);
    let held = held.context(|| format!("cannot read in `{}`", folder.display()))?.len();
    if machines as usize <= held {
        return Ok(());
    }
    let path = folder.display();
    let held = counted(held as u64, "machine");
    let message = format!("run `{path}` is left to {held}, and cannot get {machines}");
    let hint = "stop it by `planaria stop`, then `planaria resume` it, which can have others; hosts \
                that `pool.hosts` lists beyond `machines` are spare ones";
    Err(Failure::user(message).hint(hint))
}

/// How many machines that is, and how many workers go with them.
fn target(history: &History, pool: &Pool, amount: Amount) -> Result<Target> {
    let path = history.folder.display();
    if !pool.has_machines() {
        let message = format!("run `{path}` has no machines of a pool to scale");
        return Err(Failure::user(message).hint("scale its `workers`, such as `workers=4`"));
    }
    let before = history.machines_wanted.unwrap_or(pool.machine_count() as u32);
    let machines = match amount {
        Amount::To(machines) => machines,
        Amount::By(by) => before.saturating_add_signed(by),
    };
    let most = pool.machines_max() as u32;
    if machines == 0 || machines > most {
        let room = match most {
            1 => "1 machine".to_owned(),
            most => format!("1 to {most} machines"),
        };
        let message = format!("run `{path}` can have {room}, but not {machines}");
        let failure = Failure::user(message);
        return Err(match most < MACHINES_MAX as u32 {
            true => failure.hint(format!("its recipe lists {most}; it has {before} now")),
            false => failure,
        });
    }
    // As many on each new machine as on the others.
    let each = history.workers.div_ceil(before.max(1)).max(1);
    let each = pool.slots.map_or(each, |slots| each.min(slots as u32));
    let change = (i64::from(machines) - i64::from(before)) * i64::from(each);
    let workers = (i64::from(history.workers) + change).max(1).max(pool.workers.min() as i64);
    Ok(Target { before, machines, workers: (workers as u32).min(WORKERS_MAX) })
}

/// Asks until the run says that it goes on with so many.
fn resize(folder: &Path, machines: u32) -> Result<()> {
    insist(folder, |_| Ok(()), |console, within| ask_machines(console, machines, within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_or_refused() {
        for (value, expect) in [("4", Amount::To(4)), ("+2", Amount::By(2)), ("-1", Amount::By(-1))]
        {
            assert_eq!(parse("machines=…", value).unwrap(), expect);
        }
        for value in ["", "0", "+0", "-0", "two", "+", "1.5", "++1"] {
            let failure = parse(&format!("machines={value}"), value).unwrap_err();
            assert!(failure.message.contains("cannot be") && failure.hint.is_some(), "{value}");
        }
    }

    #[test]
    fn workers_go_with_machines() {
        let check = |pool: &str, workers: u32, amount: Amount, expect: Result<(u32, u32), &str>| {
            let pool: Pool = serde_json::from_str(pool).unwrap();
            let mut history = History::of(Path::new("runs/net-1"), Holder::Free, &[]);
            history.workers = workers;
            match (target(&history, &pool, amount), expect) {
                (Ok(found), Ok(expect)) => assert_eq!((found.machines, found.workers), expect),
                (Err(failure), Err(expect)) => {
                    assert!(failure.message.contains(expect), "{}", failure.message);
                }
                (found, expect) => panic!("{found:?} instead of {expect:?}"),
            }
        };
        let docker = r#"{"provider": "docker", "machines": 2, "workers": {"min": 2, "max": 4}}"#;
        check(docker, 4, Amount::By(2), Ok((4, 8)));
        check(docker, 4, Amount::To(1), Ok((1, 2)));
        check(docker, 4, Amount::By(-2), Err("1 to 1024 machines, but not 0"));
        let ssh = r#"{"provider": "ssh", "hosts": ["a", "b", "c"], "machines": 2, "workers": 2}"#;
        check(ssh, 2, Amount::By(1), Ok((3, 3)));
        check(ssh, 2, Amount::By(2), Err("1 to 3 machines, but not 4"));
        check(r#"{"workers": 3}"#, 3, Amount::By(1), Err("has no machines"));
    }
}
