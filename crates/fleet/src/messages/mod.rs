//! What a controller and a host say to each other: frames of `postcard`, each after its length in
//! four bytes, little end first.
//!
//! Owns the messages and their bounds. The host speaks first ([`FromHost::Hello`]). Either end that
//! reads what it cannot understand ends the channel.

pub mod questions;

use crate::ending::Ending;
use planaria_protocol::message::Agent;
use questions::{Ask, Said};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// Version of these messages; both ends must have the same, and are of one build anyway.
pub const VERSION: u16 = 6;
/// Longest frame, in bytes. Files and logs go in pieces of [`PIECE_BYTES`].
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// A piece of a file or log.
pub const PIECE_BYTES: usize = 256 << 10;

/// From the controller to a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToHost {
    /// Start an agent. Its orders are the JSON of a `Launch`.
    Start {
        /// Number that the controller knows the process by, and the process itself in its orders.
        process: u32,
        agent: Agent,
        /// For its standard input.
        #[serde(with = "serde_bytes")]
        orders: Vec<u8>,
    },
    /// Write a line to an agent's standard input, after its orders.
    Say {
        process: u32,
        #[serde(with = "serde_bytes")]
        line: Vec<u8>,
    },
    /// End an agent at once.
    Kill { process: u32 },
    /// Ask an agent to end by itself.
    Dismiss { process: u32 },
    /// Which of these addresses can be reached (one after another, all at the same time; a second
    /// or two)?
    Reach {
        /// `address:port` each, the preferred first.
        addresses: Vec<String>,
    },
    /// Write a piece of a file, for a step of the set-up.
    Put {
        /// Comes back in the answer to the last piece.
        task: u64,
        /// Where: absolute, `~/…`, or relative to the run's folder on that machine.
        path: String,
        mode: u32,
        #[serde(with = "serde_bytes")]
        piece: Vec<u8>,
        /// Whether this is the first piece.
        is_first: bool,
        /// Whether this is the last piece: the file is renamed to where it should be.
        is_last: bool,
    },
    /// Run a command of the set-up, unless its mark is there.
    Do {
        /// Comes back in answers.
        task: u64,
        /// Hash of the step and all it depends on: done once, a mark is left, and it is not done
        /// again. Nothing: it is always done.
        mark: Option<String>,
        /// For `sh -c`.
        command: String,
        /// Variables set for it alone.
        env: Vec<(String, String)>,
        /// How long it may take, in seconds.
        seconds_max: u64,
    },
    /// Is there a mark?
    Done {
        /// Comes back in the answer.
        task: u64,
        mark: String,
    },
    /// A question about files or sockets.
    Ask {
        /// Comes back in the answer.
        task: u64,
        ask: Ask,
    },
    /// Let go of this channel and become another process, which needs none.
    Detach {
        /// For that process' standard input.
        #[serde(with = "serde_bytes")]
        orders: Vec<u8>,
        next: Next,
    },
    /// The controller lives.
    Alive,
    /// End all agents, and then yourself.
    End,
}

/// What a host that lets go of its channel becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Next {
    /// The run's controller. Others call it: the answer says where.
    Controller,
    /// A host that calls the controller, and becomes the controller should it be lost. Others call it
    /// then: the answer says where.
    Successor,
    /// A host that calls the controller.
    Host,
}

/// From a host to its controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromHost {
    /// The first message.
    Hello(Hello),
    /// News of an agent.
    Agent(AgentNews),
    /// The first of the addresses that was reached.
    Reached {
        address: Option<String>,
    },
    /// What a command of the set-up wrote.
    Output {
        task: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// A task has ended.
    Task {
        task: u64,
        outcome: TaskOutcome,
    },
    /// The answer to a question.
    Said {
        task: u64,
        said: Said,
    },
    /// It lets go of this channel.
    Detaching {
        /// The port on which it is called; 0 where it is not.
        port: u16,
    },
    Alive,
    /// The last message: everything has ended, and the run's folder there is gone.
    Bye,
}

/// What a host tells of the agents that it has started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum AgentNews {
    Started {
        process: u32,
        /// Its number on that machine.
        pid: u32,
    },
    NotStarted {
        process: u32,
        why: String,
    },
    Ended {
        process: u32,
        ending: Ending,
    },
    /// What it logged.
    Log {
        agent: Agent,
        /// The bytes, as they came.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
}

/// What a machine is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u16,
    /// Which build it runs.
    pub build: String,
    /// The host's process.
    pub pid: u32,
    /// What the machine calls itself.
    pub hostname: String,
    pub cores: u32,
    pub gpus: u32,
    pub memory_bytes: u64,
    /// Free space where our folder is.
    pub disk_free_bytes: u64,
    /// Its clock, in seconds since 1970.
    pub unix_seconds: f64,
    /// Its addresses, the one the channel came in by first.
    pub addresses: Vec<String>,
    /// Where the channel came from, as it sees it.
    pub controller: Option<String>,
    /// The run's folder on that machine.
    pub folder: String,
    /// A port for testing whether the machine can be reached; nothing is sent there.
    pub probe: Option<u16>,
}

/// How a task has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskOutcome {
    Done,
    /// It had been done before.
    Skipped,
    /// With this exit code (128 and the signal where one ended it).
    Failed(i32),
    /// Not in time.
    TimedOut,
    /// It could not be done at all.
    Impossible(String),
}

/// Writes one message and flushes it.
pub fn write_message(to: &mut dyn Write, message: &impl Serialize) -> io::Result<()> {
    let mut frame = vec![0; 4];
    frame = postcard::to_extend(message, frame).map_err(io::Error::other)?;
    let bytes = u32::try_from(frame.len() - 4).map_err(io::Error::other)?;
    frame[..4].copy_from_slice(&bytes.to_le_bytes());
    to.write_all(&frame)?;
    to.flush()
}

/// Reads one message; nothing where the other end has closed the channel between two.
pub fn read_message<M: DeserializeOwned>(from: &mut dyn Read) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    let mut read = 0;
    while read < length.len() {
        match from.read(&mut length[read..]) {
            Ok(0) if read == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let bytes = u32::from_le_bytes(length) as usize;
    if bytes > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the frame is too long"));
    }
    // Not all at once: what is announced may never come.
    let mut frame = Vec::new();
    from.take(bytes as u64).read_to_end(&mut frame)?;
    if frame.len() != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&frame)
        .map(Some)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            version: VERSION,
            build: "b".into(),
            pid: 7,
            hostname: "node1".into(),
            cores: 2,
            gpus: 1,
            memory_bytes: 1 << 34,
            disk_free_bytes: 1 << 40,
            unix_seconds: 1.5e9,
            addresses: vec!["10.0.0.2".into()],
            controller: None,
            folder: "/x".into(),
            probe: Some(4711),
        }
    }

    #[test]
    fn messages_come_over_as_they_were_sent() {
        let to = [
            ToHost::Start { process: 1 << 23, agent: Agent::Worker(2), orders: b"{}".to_vec() },
            ToHost::Kill { process: 3 },
            ToHost::Reach { addresses: vec!["10.0.0.1:4711".into()] },
            ToHost::Done { task: 9, mark: "aa".into() },
            ToHost::Ask { task: 4, ask: Ask::Ports { count: 2, wanted: vec![80] } },
            ToHost::Alive,
            ToHost::End,
        ];
        let from = [
            FromHost::Hello(hello()),
            FromHost::Agent(AgentNews::Ended { process: 3, ending: Ending::Signal(9) }),
            FromHost::Agent(AgentNews::Log { agent: Agent::Server(0), bytes: vec![0, 255] }),
            FromHost::Task { task: 9, outcome: TaskOutcome::Failed(137) },
            FromHost::Said { task: 4, said: Said::Lacks(vec![[7; 32]]) },
            FromHost::Bye,
        ];
        let mut bytes = Vec::new();
        to.iter().for_each(|message| write_message(&mut bytes, message).unwrap());
        let mut reading = &bytes[..];
        for message in &to {
            assert_eq!(read_message(&mut reading).unwrap().as_ref(), Some(message));
        }
        assert_eq!(
            read_message::<ToHost>(&mut reading).unwrap(),
            None,
            "the end between two messages"
        );
        let mut bytes = Vec::new();
        from.iter().for_each(|message| write_message(&mut bytes, message).unwrap());
        let mut reading = &bytes[..];
        for message in &from {
            assert_eq!(read_message(&mut reading).unwrap().as_ref(), Some(message));
        }
    }

    #[test]
    fn a_message_that_is_cut_off_or_too_long_is_an_error() {
        let mut bytes = Vec::new();
        write_message(&mut bytes, &FromHost::Hello(hello())).unwrap();
        for end in 1..bytes.len() {
            assert!(read_message::<FromHost>(&mut &bytes[..end]).is_err(), "{end} bytes");
        }
        let long = (FRAME_BYTES_MAX as u32 + 1).to_le_bytes();
        assert!(read_message::<FromHost>(&mut &long[..]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_from_a_machine_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let length = (bytes.len() as u32).to_le_bytes();
            let frame = [&length[..], &bytes].concat();
            let _ = read_message::<FromHost>(&mut &frame[..]);
            let _ = read_message::<ToHost>(&mut &bytes[..]);
        }
    }
}
