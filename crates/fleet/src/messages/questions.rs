//! What a controller asks of a host that has one answer: files there, and sockets.
//!
//! Owns the questions and answers. Each question has a number of its own, which comes back with the
//! answer; how many may wait for one is the controller's to bound, so that a host never holds more
//! than a few pieces of files.

use crate::made::Made;
use serde::{Deserialize, Serialize};

/// SHA-256 of a content.
pub type Hash = [u8; 32];

/// From the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// More files of a layout: [`Said::Done`].
    Entries {
        layout: u64,
        /// Its files, folders and links.
        entries: Vec<Entry>,
    },
    /// Lay them out in the work folder: [`Said::Laid`], or [`Said::Lacks`].
    Lay { layout: u64, how: Laying },
    /// Keep these contents: [`Said::Done`].
    Contents {
        /// Of one or many.
        pieces: Vec<Piece>,
    },
    /// Keep a piece of a file in the run's second copy: [`Said::Done`].
    Keep {
        /// In the copy's folder.
        name: String,
        /// Where the piece begins.
        at: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// Bytes of the whole file.
        length: u64,
    },
    /// Which files of the work folder match: [`Said::Found`].
    Find {
        /// See [`crate::files::Patterns`].
        patterns: Vec<String>,
    },
    /// A piece of a file of the work folder: [`Said::Piece`], or [`Said::Changed`].
    Read {
        /// In the work folder.
        path: String,
        /// How long it is.
        bytes: u64,
        /// When it was written.
        mtime_ns: i64,
        /// Where the piece begins.
        at: u64,
    },
    /// Whether what a step of the set-up made is as its mark says; a mark that does not hold is taken
    /// away: [`Said::Intact`].
    IsIntact { mark: String, made: Made },
    /// Have a mark say what its step made, as it is now: [`Said::Done`].
    Seal { mark: String, made: Made },
    /// Free ports: [`Said::Ports`].
    Ports {
        /// So many of any number.
        count: u16,
        wanted: Vec<u16>,
    },
    /// These ports may be given to others: [`Said::Done`].
    Release { ports: Vec<u16> },
    /// Whether a process or one that came of it has met the others: [`Said::Meets`].
    Meets {
        /// The first of them, as its machine numbers it.
        pid: u32,
        port: u16,
        meeting: Meeting,
    },
    /// What a process and those that came of it are connected to: [`Said::Peers`].
    Peers {
        /// The first of them, as its machine numbers it.
        pid: u32,
    },
    /// Take these files off the work folder: [`Said::Done`].
    Remove {
        /// In the work folder.
        paths: Vec<String>,
    },
}

/// What a host answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Said {
    Done,
    /// These contents are needed first.
    Lacks(Vec<Hash>),
    /// Everything is where it should be.
    Laid {
        /// The work folder.
        folder: String,
    },
    /// Files that match.
    Found {
        files: Vec<Found>,
        /// Whether there are more.
        is_cut: bool,
    },
    /// The bytes, up to [`crate::messages::PIECE_BYTES`].
    Piece(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The file is not what it was.
    Changed,
    Ports {
        /// Those that can be used; the wanted ones first.
        free: Vec<u16>,
        /// Those that were wanted and cannot be.
        taken: Vec<Taken>,
    },
    /// Whether it has met.
    Meets(bool),
    /// Its connections, and whether it computes at this moment.
    Peers {
        peers: Vec<Peer>,
        is_busy: bool,
    },
    /// Whether it is as it was.
    Intact(bool),
    /// It cannot be done.
    Failed {
        why: String,
        /// Whether the disk has no room.
        is_full: bool,
    },
}

/// What laying out does about what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Laying {
    /// It is the whole code: what a former one had more is removed.
    Code,
    /// Only what is not there is laid out, or is as it was laid out before.
    Missing,
    /// Each file is to have this content, whatever the script made of it.
    Same,
}

/// A piece of a content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub hash: Hash,
    /// Where it begins; pieces of one content come in order.
    pub at: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Bytes of the whole content.
    pub length: u64,
}

/// How a process meets others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meeting {
    /// It listens on the port.
    Listens,
    /// It has a connection to or from the port.
    Connects,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub local_port: u16,
    pub remote_port: u16,
    pub state: PeerState,
    /// Bytes that have come, and that the process has not read.
    pub unread_bytes: u32,
}

/// How a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerState {
    Connected,
    /// The other end has not answered.
    Connecting,
    /// The other end has closed it.
    Closed,
}

/// A port that another has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    pub port: u16,
    /// By which process and what it is called, where that can be seen.
    pub by: Option<(u32, String)>,
}

/// A file, folder or link of a work folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the work folder.
    pub path: String,
    pub mode: u32,
    /// When it was written, where that is to be kept.
    pub mtime_ns: Option<i64>,
    pub what: What,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    File {
        /// Of its content.
        hash: Hash,
        bytes: u64,
    },
    /// A folder, also where nothing is in it.
    Folder,
    /// A link that leads to something in the same work folder.
    Link {
        /// Relative to where the link is.
        to: String,
    },
}

/// A file of a machine's work folder that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Relative to the work folder.
    pub path: String,
    pub bytes: u64,
    /// When it was written, in nanoseconds since 1970 by the machine's clock.
    pub mtime_ns: i64,
    /// How long ago that was, by the same clock.
    pub age_ns: u64,
}
