//! Public data sets, fetched from where they are published.
//!
//! Owns the list of sets, with the hash of every file, and the order in which mirrors are tried.
//! Nothing has its name before its hash was right. The bytes are brought by `curl` or `wget`
//! ([`program`]): a client with TLS and root certificates of our own would lengthen every build for
//! what is done once. Never fetches what was not asked for by name.

mod program;
#[cfg(test)]
mod tests;

use crate::talk::{Progress, Talk};
use planaria_protocol::hash::{Hasher, hex};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_text::number::bytes;
use program::Program;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// A data set.
#[derive(Debug)]
pub struct Set {
    pub name: &'static str,
    pub about: &'static str,
    /// What is fetched.
    fetched: &'static [Piece],
    /// What is in the archive that is fetched, where it is one.
    unpacked: &'static [Piece],
    /// Where the fetched files are, each behind a `/`.
    mirrors: &'static [&'static str],
}

/// A file of a set.
#[derive(Debug)]
pub struct Piece {
    pub name: &'static str,
    pub bytes: u64,
    sha256: &'static str,
}

const fn piece(name: &'static str, bytes: u64, sha256: &'static str) -> Piece {
    Piece { name, bytes, sha256 }
}

/// Every set there is.
pub const SETS: &[Set] = &[
    Set {
        name: "mnist",
        about: "handwritten digits: 60,000 and 10,000 for test, 28×28 grey",
        fetched: &[
            piece(
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            piece(
                "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            piece(
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            piece(
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ],
        unpacked: &[],
        mirrors: &[
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ],
    },
    Set {
        name: "fashion-mnist",
        about: "ten kinds of clothing: 60,000 and 10,000 for test, 28×28 grey",
        fetched: &[
            piece(
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            piece(
                "train-labels-idx1-ubyte.gz",
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            piece(
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            piece(
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ],
        unpacked: &[],
        mirrors: &["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"],
    },
    Set {
        name: "cifar10",
        about: "ten kinds of things: 50,000 and 10,000 for test, 32×32 in colour",
        fetched: &[piece(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        )],
        unpacked: &[
            piece(
                "data_batch_1.bin",
                30_730_000,
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            ),
            piece(
                "data_batch_2.bin",
                30_730_000,
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            ),
            piece(
                "data_batch_3.bin",
                30_730_000,
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            ),
            piece(
                "data_batch_4.bin",
                30_730_000,
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            ),
            piece(
                "data_batch_5.bin",
                30_730_000,
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ),
            piece(
                "test_batch.bin",
                30_730_000,
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
        ],
        mirrors: &["https://www.cs.toronto.edu/~kriz", "https://cave.cs.toronto.edu/kriz"],
    },
];

/// Bytes hashed at a time.
const PIECE_BYTES: usize = 1 << 20;

impl Set {
    /// The set of a name.
    pub fn named(name: &str) -> Result<&'static Self> {
        let known: Vec<&str> = SETS.iter().map(|set| set.name).collect();
        SETS.iter().find(|set| set.name == name).ok_or_else(|| {
            let hint = match planaria_recipe::nearest(name, &known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!(
                    "there are {}; a file of your own is named in a recipe as it is",
                    known.join(", ")
                ),
            };
            Failure::user(format!("there is no data set `{name}` to fetch")).hint(hint)
        })
    }

    /// Bytes that are fetched.
    pub fn bytes(&self) -> u64 {
        self.fetched.iter().map(|piece| piece.bytes).sum()
    }

    /// What there is in the end.
    pub fn files(&self) -> &'static [Piece] {
        if self.unpacked.is_empty() { self.fetched } else { self.unpacked }
    }

    /// Fetches into a folder what is not there, from `from` alone where it is given.
    pub fn get(&self, folder: &Path, from: Option<&str>, talk: Talk) -> Result<()> {
        let mut progress = Progress::new(talk);
        if self.is_there(folder)? {
            progress.note(&format!("{} is in {} already", self.name, folder.display()));
            return Ok(());
        }
        fs::create_dir_all(folder).context(|| format!("cannot create `{}`", folder.display()))?;
        let own = from.map(checked).transpose()?;
        let mirrors: Vec<&str> = match &own {
            Some(own) => vec![own],
            None => self.mirrors.to_vec(),
        };
        for piece in self.fetched {
            piece.get(folder, &mirrors, &mut progress)?;
        }
        match self.unpacked.is_empty() {
            true => Ok(()),
            false => self.unpack(folder, &mut progress),
        }
    }

    /// Whether all files are there; one of other content is an error.
    fn is_there(&self, folder: &Path) -> Result<bool> {
        let mut all = true;
        for piece in self.files() {
            all &= piece.is_there(folder)?;
        }
        Ok(all)
    }

    fn unpack(&self, folder: &Path, progress: &mut Progress) -> Result<()> {
        let [archive] = self.fetched else { return Ok(()) };
        let (archive, room) = (folder.join(archive.name), folder.join("unpacked.part"));
        progress.note(&format!("unpacking {}", archive.display()));
        // What an earlier one that was killed has left.
        let _ = fs::remove_dir_all(&room);
        fs::create_dir(&room).context(|| format!("cannot create `{}`", room.display()))?;
        program::unpack(&archive, &room)?;
        for piece in self.unpacked {
            if !piece.is_there(&room)? {
                let archive = archive.display();
                return Err(Failure::failed(format!("`{archive}` holds no `{}`", piece.name)));
            }
            settle(&room.join(piece.name), &folder.join(piece.name))?;
        }
        // Nothing is lost where these stay.
        let _ = fs::remove_dir_all(&room);
        let _ = fs::remove_file(&archive);
        Ok(())
    }
}

impl Piece {
    /// Whether it is in a folder; with other content it is an error.
    fn is_there(&self, folder: &Path) -> Result<bool> {
        let path = folder.join(self.name);
        if !path.exists() {
            return Ok(false);
        }
        if self.is_content_of(&path)? {
            return Ok(true);
        }
        let message = format!("`{}` is there, but it is not the published file", path.display());
        Err(Failure::user(message).hint("move it away, or fetch into another folder with `--to`"))
    }

    fn get(&self, folder: &Path, mirrors: &[&str], progress: &mut Progress) -> Result<()> {
        if self.is_there(folder)? {
            return Ok(());
        }
        let part = folder.join(format!("{}.part", self.name));
        let mut failed = Vec::new();
        for mirror in mirrors {
            let url = format!("{mirror}/{}", self.name);
            progress.note(&format!("{} ({}) from {url}", self.name, bytes(self.bytes)));
            match self.fetch(&url, &part, progress)? {
                None => return settle(&part, &folder.join(self.name)),
                Some(why) => failed.push(format!("{url}: {why}")),
            }
        }
        // `wget` leaves an empty file where it reached nothing.
        if fs::metadata(&part).is_ok_and(|found| found.len() == 0) {
            remove(&part)?;
        }
        let message = format!("`{}` could not be fetched:\n  {}", self.name, failed.join("\n  "));
        let kept = match part.exists() {
            true => format!(
                "; what has come is kept in `{}`: the same command continues there",
                part.display()
            ),
            false => String::new(),
        };
        let hint = format!("try again later, or name another mirror with `--from URL`{kept}");
        Err(Failure::failed(message).hint(hint))
    }

    /// Fetches it whole into `part`, or says why it could not be.
    fn fetch(&self, url: &str, part: &Path, progress: &mut Progress) -> Result<Option<String>> {
        let come = fs::metadata(part).map_or(0, |found| found.len());
        if come != self.bytes {
            if come > self.bytes {
                remove(part)?;
            }
            let program = Program::find()?;
            let mut shares = program::Shares::new(self.bytes, progress);
            let mut fetched = program.fetch(url, part, &mut shares)?;
            if come > 0 && fetched.as_ref().is_some_and(|why| why.cannot_go_on) {
                remove(part)?;
                fetched = program.fetch(url, part, &mut shares)?;
            }
            if let Some(why) = fetched {
                return Ok(Some(why.text));
            }
        }
        let length = fs::metadata(part).map_or(0, |found| found.len());
        if length == self.bytes && self.is_content_of(part)? {
            return Ok(None);
        }
        remove(part)?;
        Ok(Some(format!(
            "{length} bytes came that are not the published file, which has {} and the SHA-256 {}",
            self.bytes, self.sha256
        )))
    }

    fn is_content_of(&self, path: &Path) -> Result<bool> {
        let read = || {
            let (mut file, mut hash) = (File::open(path)?, Hasher::new());
            let mut room = vec![0; PIECE_BYTES];
            loop {
                match file.read(&mut room) {
                    Ok(0) => return Ok(hex(&hash.finish())),
                    Ok(length) => hash.update(&room[..length]),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        };
        let found = read().context(|| format!("cannot read `{}`", path.display()))?;
        Ok(found == self.sha256)
    }
}

/// Gives a file its name once it is on the disk.
fn settle(from: &Path, to: &Path) -> Result<()> {
    let settled = File::open(from).and_then(|file| file.sync_all());
    let settled = settled.and_then(|()| fs::rename(from, to));
    settled.context(|| format!("cannot write `{}`", to.display()))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(e).context(|| format!("cannot remove `{}`", path.display()))
        }
        _ => Ok(()),
    }
}

/// A mirror of one's own, without its last `/`.
fn checked(url: &str) -> Result<String> {
    let is_url = ["http://", "https://", "ftp://"].iter().any(|scheme| url.starts_with(scheme));
    match is_url {
        true => Ok(url.trim_end_matches('/').to_owned()),
        false => Err(Failure::user(format!("`--from {url}` is no URL of a folder"))
            .hint("write `http://`, `https://` or `ftp://` and where the files are")),
    }
}

/// Where a set goes when nothing is said.
pub fn default_folder(set: &Set) -> PathBuf {
    Path::new("data").join(set.name)
}
