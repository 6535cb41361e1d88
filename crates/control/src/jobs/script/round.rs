//! What is done on machines before processes start there: free ports, and what the job has made so
//! far. On a thread of its own, so that the machines hear meanwhile that the controller lives.

use crate::jobs::script::layout::Layout;
use crate::jobs::script::watch::Sources;
use planaria_fleet::files::Outputs;
use planaria_fleet::files::outputs::Levelled;
use planaria_fleet::provider::{Fault, Remedy};
use planaria_fleet::remote::Remote;
use planaria_runs::clock::Stopwatch;
use planaria_text::number::{counted, duration};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};

/// Files of a lost machine that are named.
const NAMED_MAX: usize = 4;

/// A round that is being made ready.
pub struct Readying(Receiver<Ready>);

/// What came of it.
pub type Ready = Result<Readied, Unready>;

/// A round that can begin.
pub struct Readied {
    /// Which process goes where, with ports.
    pub layout: Layout,
    /// What people are to be told.
    pub note: Option<String>,
}

/// What machines are given of what the job has made so far.
pub enum Made {
    /// It has made nothing yet.
    Nothing,
    /// Each its own, where it had such a file, else the first machine's.
    Own(Arc<Mutex<Outputs>>),
    /// All the same: the processes train together, and go on from one place.
    Same(Arc<Mutex<Outputs>>, Stopwatch),
}

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
    /// and what was made so far.
    pub fn new(layout: Layout, sources: Sources, port: Option<u16>, made: Made) -> Self {
        let (tell, told) = channel();
        let work = move || {
            let _ = tell.send(ready(layout, &sources, port, &made));
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

fn ready(mut layout: Layout, sources: &Sources, port: Option<u16>, made: &Made) -> Ready {
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
    }
    let note = give(&layout, sources, made)?;
    Ok(Readied { layout, note })
}

/// Gives machines what was made, and says what people are to know of it.
fn give(layout: &Layout, sources: &Sources, made: &Made) -> Result<Option<String>, Unready> {
    match made {
        Made::Nothing => Ok(None),
        Made::Own(outputs) => {
            let outputs = outputs.lock().expect("no thread panics with them");
            for (name, remote) in sources {
                outputs.give_back(name, remote).map_err(Unready::Lost)?;
            }
            Ok(None)
        }
        Made::Same(outputs, clock) => {
            let first = layout.processes.first().map(|process| layout.seat(process).name.as_str());
            let mut machines: Vec<(&str, &Remote)> =
                sources.iter().map(|(name, remote)| (name.as_str(), &**remote)).collect();
            machines.sort_by_key(|(name, _)| Some(*name) != first);
            let mut outputs = outputs.lock().expect("no thread panics with them");
            let levelled = outputs.level(&machines, &|| clock.elapsed());
            let levelled = levelled.map_err(|fault| match fault.remedy {
                Remedy::Fix => Unready::Never(fault),
                _ => Unready::Lost(fault),
            })?;
            Ok(said(&levelled))
        }
    }
}

/// What people are to know of files that machines were given.
fn said(levelled: &Levelled) -> Option<String> {
    let differed = levelled.from.as_ref().map(|from| {
        let differed = counted(levelled.differed as u64, "file");
        format!(
            "machines had different versions of {differed}; all go on with {from}'s, the newest"
        )
    });
    let Some(loss) = &levelled.loss else { return differed };
    let lost: Vec<String> = loss.lost.iter().map(|(name, paths)| lost(name, paths)).collect();
    let lost = lost.join(", ");
    let told = match &loss.back {
        Some(back) => format!(
            "{lost}: all machines go back to the newest whole set of outputs, which is {} old ({} \
             replaced, {} taken off; what they were is in `outputs/MACHINE`)",
            duration(back.age.as_secs_f64()),
            counted(back.replaced as u64, "newer file"),
            back.removed,
        ),
        None => format!(
            "warning: {lost}, and no whole set of outputs of all machines was brought here before: \
             ranks may go on from files of different moments"
        ),
    };
    Some(differed.into_iter().chain([told]).collect::<Vec<_>>().join("; "))
}

fn lost(machine: &str, paths: &[String]) -> String {
    let named: Vec<String> = paths.iter().take(NAMED_MAX).map(|path| format!("`{path}`")).collect();
    let more = paths.len().saturating_sub(NAMED_MAX);
    match (named.is_empty(), more) {
        (true, _) => format!("{machine} was lost before its outputs were seen"),
        (_, 0) => format!("{machine} was lost with {}", named.join(", ")),
        _ => format!("{machine} was lost with {} and {more} more", named.join(", ")),
    }
}

fn by(process: Option<&(u32, String)>) -> String {
    process.map_or_else(String::new, |(pid, name)| format!(" by process {pid}, `{name}`"))
}
