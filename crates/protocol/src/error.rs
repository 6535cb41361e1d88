//! What can go wrong between two processes. Fragments in lower case: what failed, which value,
//! where.

use crate::agent::Agent;
use std::time::Duration;

/// Why a link could not be made, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
    /// An address could not be reached.
    #[error("connecting to {address}: {why}")]
    Connect { address: String, why: String },
    #[error("the system gives no random bytes")]
    Random,
    /// A secret is 64 hexadecimal digits.
    #[error("secret is not 64 hexadecimal digits, but {0} bytes of something else")]
    SecretText(usize),
    /// The other end does not speak this.
    #[error("the other end does not speak planaria: its first bytes are {0:02x?}")]
    Stranger([u8; 4]),
    /// The other end speaks without TLS.
    #[error("the other end speaks without TLS, and links of this run are under TLS only")]
    Plain,
    /// The other end speaks TLS.
    #[error("the other end speaks TLS, and this process was given no certificate of its run")]
    Sealed,
    /// Not both ends have shown a certificate of the run.
    #[error("no TLS with the other end: {0}")]
    Handshake(String),
    /// Certificates cannot be made or used.
    #[error("the run's certificates: {0}")]
    Certificate(String),
    /// The other end speaks another version.
    #[error("the other end speaks version {theirs} of the protocol, this one version {ours}")]
    Version {
        /// Of this build.
        ours: u16,
        /// Of the other.
        theirs: u16,
    },
    /// The other end does not know the run's secret.
    #[error("the other end does not know the run's secret")]
    WrongSecret,
    /// The other end's certificate is of another process than it says to be.
    #[error("the other end says to be {claimed}, but its certificate is of {certified}")]
    Impostor { claimed: String, certified: String },
    /// The other end is not the process that was to be reached.
    #[error("{whom} was to be reached, but the other end's certificate is of {certified}")]
    OtherProcess { whom: String, certified: String },
    /// The other end's machine was given up.
    #[error("the certificate of {0} is of before its machine was given up")]
    GivenUp(String),
    /// The other end knows a secret of others than it says to be.
    #[error("the other end says to be {agent}, but knows the secret of {of}")]
    WrongRole { agent: Agent, of: &'static str },
    /// So many connections are being checked.
    #[error("{0} connections are being checked already")]
    NoPlace(usize),
    /// The other end has not shown who it is, and there are many that want to.
    #[error("it had not shown who it is when its place was needed")]
    Crowded,
    /// The other end hung up while the secret was checked.
    #[error(
        "the other end hung up during {0}; it may not know the run's secret, or be of another run"
    )]
    HungUp(&'static str),
    /// Nothing, or too little, came in time.
    #[error("{what} was not there within {within:?}")]
    TooLate {
        /// What was waited for.
        what: &'static str,
        within: Duration,
    },
    /// A frame does not begin with the magic number.
    #[error("frame begins with {found:#06x} instead of {expected:#06x}")]
    Magic { found: u16, expected: u16 },
    /// A frame of an unknown kind.
    #[error("frame is of kind {0}, and only 0 is known")]
    Kind(u16),
    /// A message is longer than the bound.
    #[error("control message of {bytes} bytes, at most {most} allowed")]
    ControlTooLong { bytes: u64, most: u64 },
    /// Bulk is longer than the bound.
    #[error("bulk of {bytes} bytes, at most {most} allowed")]
    BulkTooLong { bytes: u64, most: u64 },
    /// A frame of another session of the run.
    #[error("frame of generation {found} on a link of generation {expected}")]
    Generation { found: u64, expected: u64 },
    /// A frame was lost, repeated or moved.
    #[error("frame has number {found} where {expected} is next")]
    Sequence { found: u64, expected: u64 },
    /// The bytes are not a message of the expected type.
    #[error("control message of {bytes} bytes cannot be read: {source}")]
    Undecodable {
        bytes: usize,
        /// The reader's finding.
        source: postcard::Error,
    },
    /// A message is followed by bytes that belong to nothing.
    #[error("control message of {bytes} bytes has {trailing} left over at its end")]
    Trailing {
        bytes: usize,
        /// Of these left over.
        trailing: usize,
    },
    /// A message cannot be written as bytes.
    #[error("writing a control message: {0}")]
    Unencodable(postcard::Error),
    /// The next message was asked for while bulk of the last one is unread.
    #[error("{bytes} bytes of bulk are still unread")]
    BulkLeft { bytes: usize },
    /// More bulk was asked for than there is.
    #[error("{asked} bytes of bulk asked for where {left} are left")]
    BulkShort { asked: usize, left: usize },
    /// The peer hung up in the middle of a frame.
    #[error("the other end hung up in the middle of {0}")]
    Cut(&'static str),
    /// The peer takes nothing.
    #[error("the other end has taken nothing for {within:?}; {queued} bytes wait for it")]
    Stalled {
        within: Duration,
        /// Bytes that wait.
        queued: usize,
    },
    /// The link was closed at this end.
    #[error("the link is closed")]
    Closed,
    /// The link had failed before.
    #[error("the link has failed: {0}")]
    Broken(String),
    /// A link began with something other than `Join`.
    #[error("the other end hung up instead of joining")]
    NotJoined,
}

impl Error {
    /// The system's refusal of `what`.
    pub(crate) fn io(what: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
