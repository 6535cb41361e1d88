//! A host's service for files: questions about them, answered one after another on a thread of its own,
//! so that agents and logs never wait for a disk.
//!
//! Owns the work folder, which is gone when the service ends, the second copy of a run, and the
//! machine's store. How much may wait
//! here is bounded by the controller, which waits for answers.

use super::copy::Copy;
use super::store::{BYTES_MAX, Store};
use super::work::{Lay, WorkFolder};
use super::{Entry, Patterns, find};
use crate::messages::FromHost;
use crate::messages::questions::{Ask, Laying, Said};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Entries of one layout.
const ENTRIES_MAX: usize = 200_000;
/// Layouts that wait to be laid out.
const LAYOUTS_MAX: usize = 8;
/// How long the service may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Poll interval for that.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub struct FileService {
    asks: Option<Sender<(u64, Ask)>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FileService {
    /// Opens the service of a run. `home` is our folder in the user's home, `run` the run's in it.
    pub fn open(home: &Path, run: &Path, messages: SyncSender<FromHost>) -> io::Result<Self> {
        let (asks, asked) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let clerk = Clerk {
            store: Store::new(home),
            work: WorkFolder::open(run),
            copy: Copy::new(run),
            layouts: BTreeMap::new(),
            over: over.clone(),
        };
        let serve = move || clerk.serve(&asked, &messages);
        let thread = std::thread::Builder::new().name("files".into()).spawn(serve)?;
        Ok(Self { asks: Some(asks), over, thread: Some(thread) })
    }

    /// Takes a question; the answer goes to the controller.
    pub fn ask(&self, task: u64, ask: Ask) {
        if let Some(asks) = &self.asks {
            // Where the thread is gone there is no answer, and the asker gives up in time.
            let _ = asks.send((task, ask));
        }
    }

    /// Ends the service and removes the work folder. Nothing may run there any more.
    pub fn end(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.asks = None;
        let Some(thread) = self.thread.take() else { return };
        for _ in 0..END_WITHIN.as_millis() / LOOK_EVERY.as_millis() {
            if thread.is_finished() {
                return;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

struct Clerk {
    store: Store,
    work: WorkFolder,
    copy: Copy,
    layouts: BTreeMap<u64, Vec<Entry>>,
    over: Arc<AtomicBool>,
}

impl Clerk {
    fn serve(mut self, asked: &Receiver<(u64, Ask)>, messages: &SyncSender<FromHost>) {
        while let Ok((task, ask)) = asked.recv() {
            if self.over.load(Ordering::SeqCst) {
                break;
            }
            let said = self.answer(ask).unwrap_or_else(|e| Said::Failed {
                why: e.to_string(),
                is_full: matches!(
                    e.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ),
            });
            if messages.send(FromHost::Said { task, said }).is_err() {
                break;
            }
        }
        self.work.remove();
    }

    fn answer(&mut self, ask: Ask) -> io::Result<Said> {
        match ask {
            Ask::Entries { layout, entries } => self.note(layout, entries),
            Ask::Lay { layout, how } => self.lay(layout, how),
            Ask::Contents { pieces } => {
                pieces.iter().try_for_each(|piece| self.store.take(piece))?;
                Ok(Said::Done)
            }
            Ask::Keep { name, at, bytes, length } => {
                self.copy.take(&name, at, &bytes, length).map(|()| Said::Done)
            }
            Ask::Remove { paths } => self.work.take_off(&paths).map(|()| Said::Done),
            Ask::Find { patterns } => {
                let patterns = Patterns::new(&patterns).map_err(io::Error::other)?;
                let (files, is_cut) = find::find(&self.work, &patterns, &self.over)?;
                Ok(Said::Found { files, is_cut })
            }
            Ask::Read { path, bytes, mtime_ns, at } => {
                let read = find::read(&self.work.folder, &path, bytes, mtime_ns, at)?;
                Ok(read.map_or(Said::Changed, Said::Piece))
            }
            Ask::Ports { .. }
            | Ask::Release { .. }
            | Ask::Meets { .. }
            | Ask::Peers { .. }
            | Ask::IsIntact { .. }
            | Ask::Seal { .. } => {
                Err(io::Error::other("that is no question about a script's files"))
            }
        }
    }

    fn note(&mut self, layout: u64, entries: Vec<Entry>) -> io::Result<Said> {
        if !self.layouts.contains_key(&layout) && self.layouts.len() >= LAYOUTS_MAX {
            self.layouts.pop_first();
        }
        let known = self.layouts.entry(layout).or_default();
        if known.len() + entries.len() > ENTRIES_MAX {
            self.layouts.remove(&layout);
            return Err(io::Error::other(format!("there are more than {ENTRIES_MAX} files")));
        }
        known.extend(entries);
        Ok(Said::Done)
    }

    fn lay(&mut self, layout: u64, how: Laying) -> io::Result<Said> {
        // A folder with nothing in it was never told of.
        let entries = self.layouts.remove(&layout).unwrap_or_default();
        match self.work.lay(&entries, how, &mut self.store, &self.over)? {
            Lay::Lacks(lacks) => {
                self.layouts.insert(layout, entries);
                Ok(Said::Lacks(lacks))
            }
            Lay::Done => {
                if let Ok(now_ns) = self.work.now_ns() {
                    self.store.prune(BYTES_MAX, now_ns);
                }
                Ok(Said::Laid { folder: self.work.folder.display().to_string() })
            }
        }
    }
}
