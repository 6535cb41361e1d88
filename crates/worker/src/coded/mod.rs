//! A worker of a coded run: holds the coded rows of one slot and multiplies them.
//!
//! Owns its block, which outlives it in the machine's cache, the plain labels, and held-out rows that
//! it was told to score: all it ever has of the data, and all from the source. Products, entries and
//! sums leave at once; weights come with every step. Never opens data, and never decides whose turn
//! it is.
//!
//! # Layout
//! - [`block`]: what it has of the data; [`source`]: where that comes from; [`cache`]: blocks on the
//!   disk
//! - [`bench`]: the arithmetic of every order
//! - [`round`]: what is done of a step, and what waits for others; pure
//! - [`peers`]: links to the other workers
//! - [`session`]: joined once: orders and letters in, answers out
//! - [`run`](run()): one session after another

pub mod bench;
pub mod block;
pub mod cache;
pub mod peers;
pub mod round;
pub mod session;
pub mod source;

use crate::links::clear_up;
use crate::run::{LEASE, Log, RETRY, join};
use bench::Bench;
use peers::{Door, Peers};
use planaria_learn::linear::number::Number;
use planaria_numerics::coding::exact::Residue;
use planaria_numerics::coding::generator::Generator;
use planaria_numerics::coding::scalar::Element;
use planaria_protocol::Passport;
use planaria_protocol::clock::Clock;
use planaria_protocol::launch::Launch;
use planaria_protocol::message::Trouble;
use planaria_protocol::methods::coded::{Coefficient, Travel};
use planaria_recipe::train::CodedPrecision;
use session::{End, Session, Setting};

/// What coded products are computed in, how it travels, and which code it has.
pub trait Value: Number + Travel + Element<Scalar: Coefficient> {
    /// The code of these sizes.
    fn code(
        threshold: usize,
        machines: usize,
    ) -> Result<Generator<<Self as Element>::Scalar>, planaria_numerics::coding::Error>;
}

impl Value for f32 {
    fn code(
        threshold: usize,
        machines: usize,
    ) -> Result<Generator<f64>, planaria_numerics::coding::Error> {
        Generator::stored(threshold, machines)
    }
}

impl Value for f64 {
    fn code(
        threshold: usize,
        machines: usize,
    ) -> Result<Generator<f64>, planaria_numerics::coding::Error> {
        Generator::stored(threshold, machines)
    }
}

impl Value for Residue {
    fn code(
        threshold: usize,
        machines: usize,
    ) -> Result<Generator<Residue>, planaria_numerics::coding::Error> {
        Generator::cauchy(threshold, machines)
    }
}

/// Works until the coordinator says that the run is over.
pub fn run(launch: &Launch, index: u32, clock: &dyn Clock, log: Log) -> Result<(), Trouble> {
    let code = launch.recipe.train.code().ok_or_else(|| Trouble::new("the recipe has no code"))?;
    match code.precision {
        CodedPrecision::F32 => sessions::<f32>(launch, index, clock, &log),
        CodedPrecision::F64 => sessions::<f64>(launch, index, clock, &log),
        CodedPrecision::Exact => sessions::<Residue>(launch, index, clock, &log),
    }
}

/// One session after another. The block is for life.
fn sessions<E: Value>(
    launch: &Launch,
    index: u32,
    clock: &dyn Clock,
    log: &Log,
) -> Result<(), Trouble> {
    let passport = Passport::of(launch).map_err(Trouble::new)?;
    let address = launch.coordinator.as_deref().unwrap_or_default();
    let join = join(launch, index);
    let door = Door::open(launch, &passport, log.clone())?;
    let peers = Peers::new(&passport, &join);
    let setting = Setting {
        address,
        passport: &passport,
        join: &join,
        door: &door,
        peers: &peers,
        clock,
        log,
    };
    let mut bench: Option<Bench<E>> = None;
    let (mut heard_at, mut retrying) = (clock.now(), false);
    std::thread::scope(|scope| {
        loop {
            let why = match Session::join(scope, &setting) {
                Ok(mut session) => {
                    retrying = false;
                    match session.work(launch, &mut bench) {
                        Err(trouble) => {
                            session.fail(&trouble);
                            return Err(trouble);
                        }
                        Ok(End::Finished) => return Ok(()),
                        Ok(End::Again) => {}
                    }
                    if session.was_spoken_to() {
                        heard_at = clock.now();
                        log("this session is over; joining again");
                    }
                    "it hung up".to_owned()
                }
                Err(error) => {
                    if !std::mem::replace(&mut retrying, true) {
                        log(&format!("cannot join the coordinator yet: {error}"));
                    }
                    error.to_string()
                }
            };
            if clock.now().saturating_sub(heard_at) > LEASE {
                let seconds = LEASE.as_secs();
                return Err(Trouble::new(format!(
                    "no word from a coordinator at {address} for {seconds} seconds: {why}"
                )));
            }
            // The end of the last session's threads may end it early, once.
            std::thread::park_timeout(RETRY);
            clear_up(clock.now());
        }
    })
}
