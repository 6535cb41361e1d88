//! The source of a coded run: rows of its data, encoded for workers that never see it.
//!
//! Runs in the coordinator's process, which is where the data is. Each worker that wants rows has
//! a link of its own for them, served here on a thread of its own, so that control never waits
//! behind them. Owns the opened data, and what tells one coding from another. Never holds a block:
//! rows are encoded as they are sent, a piece at a time.
//!
//! # Layout
//! - [`encode`]: the rows of blocks, labels and held-out batches, made of the data

pub mod encode;

use crate::data::{data_trouble, same_data};
use crate::features;
use crate::methods::Serving;
use crate::session::shell::Log;
use encode::Rows;
use planaria_data::DataSet;
use planaria_protocol::hash::{Hasher, hex};
use planaria_protocol::launch::{Coding, Launch};
use planaria_protocol::link::{Receiver, Sender};
use planaria_protocol::message::{Agent, Join, Trouble};
use planaria_protocol::transfer::rows::{Ask, Wanted};
use planaria_protocol::transfer::{Fault, Line, PREPARING_EVERY};
use planaria_recipe::shape::Shape;
use planaria_recipe::{Json as _, Recipe};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The data once it is open, or why it is not.
type Opened = Result<Arc<dyn Rows>, Trouble>;

/// Serves rows of a coded run.
pub struct RowServer {
    digest: String,
    log: Log,
    opened: Mutex<Option<Opened>>,
    changed: Condvar,
}

impl RowServer {
    /// Begins to open the data, on a thread of its own.
    pub fn open(launch: &Launch, log: Log) -> Result<Arc<Self>, Trouble> {
        let coding = launch.facts.coding.as_ref();
        let digest = coding.ok_or_else(|| Trouble::new("the run has no code"))?.digest.clone();
        let (opened, changed) = (Mutex::default(), Condvar::new());
        let source = Arc::new(Self { digest, log, opened, changed });
        let (own, launch) = (source.clone(), launch.clone());
        let open = move || {
            let opened = open(&launch);
            if let Err(trouble) = &opened {
                (own.log)(&format!("the data cannot be served: {}", trouble.message));
            }
            *own.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
            own.changed.notify_all();
        };
        let started = std::thread::Builder::new().name("source".into()).spawn(open);
        started.map_err(|e| Trouble::new(format!("cannot start a thread: {e}")))?;
        Ok(source)
    }

    /// Serves a worker's link until it ends.
    pub fn serve(&self, join: &Join, sender: Sender, receiver: Receiver) {
        let who = join.agent;
        let Ok(mut giver) = Line::new(sender, receiver) else { return };
        let served = match who {
            Agent::Worker(_) => self.answer(who, &mut giver),
            _ => Err(Fault::refused(format!("{who} has no rows"))),
        };
        match served {
            Ok(()) => {}
            Err(Fault::Refused(trouble)) => {
                (self.log)(&format!("{who}: refused rows: {}", trouble.message));
                giver.refuse(trouble);
            }
            Err(fault) => (self.log)(&format!("{who}: sending rows: {fault}")),
        }
    }

    fn answer(&self, who: Agent, giver: &mut Line<Ask>) -> Result<(), Fault> {
        while let Some(ask) = giver.hear()? {
            let rows = self.wait(giver)?;
            if ask.coding != self.digest {
                return Err(Fault::refused("it asks for rows of another coding"));
            }
            let (length, head) = rows.look(ask.wanted).map_err(Fault::Refused)?;
            giver.give(&ask, length, &head, |some, out| rows.fill(ask.wanted, some, out))?;
            if let Wanted::Block { slot } = ask.wanted {
                let (first, all) = (ask.first, length.units);
                (self.log)(&format!("{who}: was sent rows {first} to {all} of slot {slot}"));
            }
        }
        Ok(())
    }

    /// The data; a worker that waits for it is told that it takes a while.
    fn wait(&self, giver: &Line<Ask>) -> Result<Arc<dyn Rows>, Fault> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(opened) = &*opened {
                return opened.clone().map_err(Fault::Refused);
            }
            let waited = self.changed.wait_timeout(opened, PREPARING_EVERY);
            let (found, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            opened = found;
            if timeout.timed_out() {
                giver.say_preparing()?;
            }
        }
    }
}

fn open(launch: &Launch) -> Opened {
    let recipe = &launch.recipe;
    let data = features::open(recipe, launch.size.threads as usize).map_err(data_trouble)?;
    same_data(launch, &data)?;
    encode::of(recipe, launch.facts.input, data)
}

/// Gives rows to workers.
pub fn serving(launch: &Launch, log: &Log) -> Result<Serving, Trouble> {
    let server = RowServer::open(launch, log.clone())?;
    Ok(Arc::new(move |join, sender, receiver| server.serve(join, sender, receiver)))
}

/// Finds what is wrong with the data of a coded recipe, before anything is made or asked for.
pub fn check(recipe: &Recipe, input: Shape, data: &DataSet) -> Result<(), Trouble> {
    encode::of(recipe, input, data.clone()).map(|_| ())
}

/// What workers of a coded recipe must know of its data; nothing for other recipes.
pub fn coding(recipe: &Recipe, marks: &[(String, String)], data: &DataSet) -> Option<Coding> {
    recipe.train.code()?;
    let mut hash = Hasher::new();
    let parts = [
        recipe.data.to_json(),
        recipe.model.to_json(),
        recipe.train.coded.to_json(),
        recipe.train.loss.to_json(),
        serde_json::to_string(marks).unwrap_or_default(),
        serde_json::to_string(&data.encoder.as_deref()).unwrap_or_default(),
        format!("{} {}", recipe.seed, data.train.len()),
    ];
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hex(&hash.finish());
    let target = data.target_scale().unwrap_or_default();
    Some(Coding { digest, class_names: data.class_names(), target })
}
