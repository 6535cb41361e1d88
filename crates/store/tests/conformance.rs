//! What every store must do. A new store adds a test that passes itself to [`conforms`].

use planaria_store::hash::sha256;
use planaria_store::stores::local::Local;
use planaria_store::{Entry, Error, Found, Location, Object, Store, Written};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::sync::{Arc, Mutex};

#[test]
fn local_files_conform() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    conforms(&Local, root);
    assert_eq!(Local.list("").unwrap(), Local.list(".").unwrap());
    let url = Location::parse(&format!("file://{root}/by-url")).unwrap();
    conforms(url.store.as_ref(), &url.name);
    let leftovers: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(leftovers.len(), 2, "no temporary files: {leftovers:?}");
}

#[test]
fn a_store_in_memory_conforms() {
    let memory = Memory::default();
    conforms(&memory, "bucket");
    let root: Vec<String> = memory.list("").unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(root, ["bucket"]);
}

/// The contract of [`Store`], tried in an empty `folder` of it.
fn conforms(store: &dyn Store, folder: &str) {
    let name = |n: &str| format!("{folder}/{n}");
    let write = |n: &str, bytes: &[u8]| store.write(&name(n), &mut &bytes[..]);

    // Nothing is there.
    assert_eq!(store.look(&name("a")).unwrap(), None);
    assert!(matches!(store.open(&name("a")), Err(Error::Missing { .. })));
    assert!(matches!(store.list(&name("none")), Err(Error::Missing { .. })));
    store.remove(&name("a")).unwrap();

    // Written bytes come back, whole and in ranges, with their sum.
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let written = write("set/a", &bytes).unwrap();
    assert_eq!(written.bytes, 3_000_000);
    assert_eq!(written.sha256, sha256(&bytes));
    let object = store.open(&name("set/a")).unwrap();
    assert_eq!(object.bytes(), 3_000_000);
    for range in [0..0, 0..1, 7..9, 1_048_570..1_048_590, 2_999_999..3_000_000, 0..3_000_000] {
        let mut out = vec![0; range.len()];
        object.read(range.start as u64, &mut out).unwrap();
        assert_eq!(out, &bytes[range]);
    }
    for (at, length) in [(2_999_999, 2), (3_000_000, 1), (1 << 60, 1)] {
        assert!(object.read(at, &mut vec![0; length]).is_err(), "{at}+{length} is past the end");
    }

    // Any thread may read.
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (object, bytes) = (&object, &bytes);
            scope.spawn(move || {
                for i in 0..200 {
                    let at = (i * 7919 + thread * 101) % 2_900_000;
                    let mut out = [0; 64];
                    object.read(at as u64, &mut out).unwrap();
                    assert_eq!(out, bytes[at..at + 64]);
                }
            });
        }
    });

    // A version names the content, and is what looking tells.
    let version = object.version().to_owned();
    let looked = store.look(&name("set/a")).unwrap();
    assert_eq!(looked, Some(Found::Object { bytes: 3_000_000, version: version.clone() }));
    write("set/a", &bytes[..10]).unwrap();
    let newer = store.open(&name("set/a")).unwrap();
    assert_ne!(newer.version(), version);
    assert_eq!(newer.bytes(), 10);

    // What was open gives its own bytes or fails.
    let mut out = [0; 20];
    if object.read(100, &mut out).is_ok() {
        assert_eq!(out, bytes[100..120]);
    }

    // A failed write leaves the old object and nothing else.
    let mut broken = Read::chain(&b"half"[..], Broken);
    assert!(store.write(&name("set/a"), &mut broken).is_err());
    assert!(store.write(&name("set/b"), &mut Broken).is_err());
    assert_eq!(store.open(&name("set/a")).unwrap().bytes(), 10);
    assert_eq!(store.look(&name("set/b")).unwrap(), None);

    // Lists are sorted, and one level deep.
    write("set/c/deep", b"x").unwrap();
    write("set/Z", b"").unwrap();
    let list = store.list(&name("set")).unwrap();
    let names: Vec<&str> = list.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["Z", "a", "c"]);
    assert_eq!(list[2].found, Found::Folder);
    assert_eq!(store.look(&name("set/c")).unwrap(), Some(Found::Folder));
    assert!(store.open(&name("set/c")).is_err(), "a folder is no object");
    assert_eq!(store.open(&name("set/Z")).unwrap().bytes(), 0);

    // The root has no name.
    let root = store.list("").unwrap();
    assert!(root.is_sorted_by(|a, b| a.name < b.name), "{root:?}");
    assert!(root.iter().all(|entry| !entry.name.is_empty() && !entry.name.contains('/')));
    assert_eq!(store.look("").unwrap(), Some(Found::Folder));
    assert!(store.open("").is_err(), "the root is no object");

    store.remove(&name("set/a")).unwrap();
    assert_eq!(store.look(&name("set/a")).unwrap(), None);
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the line is cut"))
    }
}

/// The second implementation: as an object store is, without folders of its own.
#[derive(Debug, Default)]
struct Memory(Mutex<(u64, BTreeMap<String, Arc<Held>>)>);

#[derive(Debug)]
struct Held {
    version: String,
    bytes: Vec<u8>,
}

impl Store for Memory {
    fn list(&self, folder: &str) -> Result<Vec<Entry>, Error> {
        let held = self.0.lock().unwrap();
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let inside = held.1.keys().filter_map(|name| name.strip_prefix(&prefix));
        let names: BTreeSet<&str> =
            inside.map(|name| name.split('/').next().unwrap_or(name)).collect();
        let found = |name: &str| match held.1.get(&format!("{prefix}{name}")) {
            Some(object) => object.found(),
            None => Found::Folder,
        };
        let list: Vec<Entry> =
            names.iter().map(|name| Entry { name: (*name).into(), found: found(name) }).collect();
        match list.is_empty() {
            true => Err(Error::Missing { name: folder.into() }),
            false => Ok(list),
        }
    }

    fn look(&self, name: &str) -> Result<Option<Found>, Error> {
        let object = self.0.lock().unwrap().1.get(name).map(|object| object.found());
        Ok(object.or_else(|| self.list(name).ok().map(|_| Found::Folder)))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Object>, Error> {
        let object = self.0.lock().unwrap().1.get(name).cloned();
        Ok(object.ok_or_else(|| Error::Missing { name: name.into() })?)
    }

    fn write(&self, name: &str, from: &mut dyn Read) -> Result<Written, Error> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).map_err(|e| Error::io("write", name, e))?;
        let written = Written { bytes: bytes.len() as u64, sha256: sha256(&bytes) };
        let mut held = self.0.lock().unwrap();
        held.0 += 1;
        let version = held.0.to_string();
        held.1.insert(name.into(), Arc::new(Held { version, bytes }));
        Ok(written)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.0.lock().unwrap().1.remove(name);
        Ok(())
    }
}

impl Held {
    fn found(&self) -> Found {
        Found::Object { bytes: self.bytes.len() as u64, version: self.version.clone() }
    }
}

impl Object for Held {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Error> {
        let range = at as usize..at as usize + out.len();
        let found = self.bytes.get(range).ok_or_else(|| Error::Changed {
            name: "memory".into(),
            what: format!("it has {} bytes", self.bytes.len()),
        })?;
        out.copy_from_slice(found);
        Ok(())
    }
}
