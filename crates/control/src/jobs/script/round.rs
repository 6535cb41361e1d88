//! What is done on machines before processes start there: free ports, and what the job has made so
//! far. On a thread of its own, so that the machines hear meanwhile that the controller lives.

use crate::jobs::script::layout::Layout;
use crate::jobs::script::watch::Sources;
use planaria_fleet::files::Outputs;
use planaria_fleet::provider::Fault;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};

/// A round that is being made ready.
pub struct Readying(Receiver<Ready>);

/// What came of it.
pub type Ready = Result<Layout, Unready>;

/// Why a round cannot begin.
#[derive(Debug)]
pub enum Unready {
    /// A machine did not answer: others, or the same again, may.
    Lost(Fault),
    /// The recipe wants something that cannot be.
    Never(Fault),
}

impl Readying {
    /// Begins: ports for each process of a layout, whose machines are `sources`, in the same order;
    /// and, where it is not the first round, all that was brought back.
    pub fn new(
        layout: Layout,
        sources: Sources,
        port: Option<u16>,
        outputs: Option<Arc<Mutex<Outputs>>>,
    ) -> Self {
        let (tell, told) = channel();
        let work = move || {
            let _ = tell.send(ready(layout, &sources, port, outputs.as_deref()));
        };
        // Without a thread nothing is told, which reads as a fault.
        let _ = std::thread::Builder::new().name("round".into()).spawn(work);
        Self(told)
    }

    /// What came of it, once that is known.
    pub fn take(&self) -> Option<Ready> {
        match self.0.try_recv() {
            Ok(ready) => Some(ready),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(Unready::Never(Fault::retry("here", "a thread cannot be started"))))
            }
        }
    }
}

fn ready(
    mut layout: Layout,
    sources: &Sources,
    port: Option<u16>,
    outputs: Option<&Mutex<Outputs>>,
) -> Ready {
    for (seat, (name, remote)) in sources.iter().enumerate() {
        let count = layout.on_seat(seat) as u16;
        let wanted: Vec<u16> =
            port.map_or_else(Vec::new, |first| (first..first.saturating_add(count)).collect());
        let others = if port.is_some() { 0 } else { count };
        let (free, taken) = remote.ports(others, &wanted).map_err(Unready::Lost)?;
        if let Some(taken) = taken.first() {
            let what = format!("port {} is taken{}", taken.port, by(taken.by.as_ref()));
            let hint = "end what has it, or leave `script.port` out: free ones are chosen then";
            return Err(Unready::Never(Fault::fix(name, what, hint)));
        }
        let mut free = free.into_iter();
        for process in layout.processes.iter_mut().filter(|process| process.seat == seat) {
            let short = || Fault::retry(name, "it has no free port");
            process.port = free.next().ok_or_else(|| Unready::Lost(short()))?;
        }
        if let Some(outputs) = outputs {
            let outputs = outputs.lock().expect("no thread panics with them");
            outputs.give_back(name, remote).map_err(Unready::Lost)?;
        }
    }
    Ok(layout)
}

fn by(process: Option<&(u32, String)>) -> String {
    process.map_or_else(String::new, |(pid, name)| format!(" by process {pid}, `{name}`"))
}
