//! Jobs and events that tests of commands use.

use planaria_protocol::event::{Event, What};
use planaria_recipe::{Job, JobSource};

/// The job of a recipe, without its name.
pub fn job(text: &str) -> Job {
    let text = format!("{{name: x, {text}}}");
    match JobSource::parse("x.yaml", text.as_bytes(), &[]) {
        Ok(source) => source.recipe().clone(),
        Err(mistakes) => panic!("{mistakes}"),
    }
}

pub fn joined(agent: &str, machine: &str) -> What {
    What::Joined {
        agent: agent.into(),
        pid: 0,
        engine: None,
        threads: None,
        machine: Some(machine.to_owned()),
        downloaded: None,
    }
}

pub fn restarted(agent: Option<&str>, restarts: u32, reason: &str) -> What {
    let (agent, reason) = (agent.map(str::to_owned), reason.to_owned());
    let with_machine = reason.contains("lost with its machine");
    What::Restarted { agent, restarts, reason, with_machine }
}

pub fn events(whats: Vec<What>) -> Vec<Event> {
    let event = |what| Event { seconds: 1.5, unix_seconds: 1e9, generation: 1, what };
    whats.into_iter().map(event).collect()
}
