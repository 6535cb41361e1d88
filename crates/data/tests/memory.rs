//! Data that does not fit into memory: the same examples, targets and marks as data that does.

mod support;

use planaria_data::{Batch, DataSet, Error, Kind, Loader, Memory, open, open_within};
use planaria_recipe::sections::{Augment, Data, Part};
use planaria_recipe::table::{Bins, Column, Table};
use std::path::Path;
use support::{cifar, data, folder, gzip, idx, path, xz};

/// Shuffled and ordered batches of every part, and the marks of the files.
fn content(set: &DataSet, section: &Data) -> (Vec<Batch>, Vec<String>) {
    let augment = Augment::default();
    let train = Loader::training(set.train.clone(), 3, &section.normalize, &augment).unwrap();
    let held_out = [&set.validation, &set.test].into_iter().flatten();
    let held_out = held_out.map(|p| Loader::evaluation(p.clone(), &section.normalize).unwrap());
    let mut batches = Vec::new();
    for loader in std::iter::once(train).chain(held_out) {
        let count = loader.part().len();
        for places in [0..count, count / 2..count, 0..1] {
            let mut batch = Batch::default();
            loader.fill(1, places, &mut batch).unwrap();
            batches.push(batch);
        }
    }
    (batches, set.marks.iter().map(|m| format!("{} {}", m.name, m.content)).collect())
}

fn check(section: &Data) {
    let in_memory = Memory::limited(1 << 30);
    let expect = content(&open_within(section, 5, &in_memory).unwrap(), section);
    assert_eq!(content(&open(section, 5).unwrap(), section), expect);
    for limit in [0, 1000, 20_000] {
        let memory = Memory::limited(limit);
        let set = open_within(section, 5, &memory).unwrap();
        assert!(memory.left() <= limit);
        assert_eq!(content(&set, section), expect, "{limit} bytes of memory");
        drop(set);
        assert_eq!(memory.left(), limit, "what was kept is given back");
    }
}

#[test]
fn idx_files() {
    let images = idx(8, &[500, 5, 4], &(0..10_000u32).map(|i| (i % 251) as u8).collect::<Vec<_>>());
    let labels = idx(8, &[500], &(0..500u32).map(|i| (i % 7) as u8).collect::<Vec<_>>());
    let floats: Vec<u8> = (0..2000).flat_map(|i| (i as f32 * 0.5).to_be_bytes()).collect();
    let floats = idx(0x0D, &[500, 4], &floats);
    let numbers: Vec<u8> = (0..1000).flat_map(|i| (f64::from(i) - 0.25).to_be_bytes()).collect();
    let numbers = idx(0x0E, &[500, 2], &numbers);
    for (images, name) in [(&images, "images-idx3-ubyte"), (&floats, "images-idx2-float")] {
        for (labels, label_name) in [(&labels, "labels-idx1-ubyte"), (&numbers, "labels-idx2-f")] {
            let packed = [(name.to_owned(), images.clone()), (format!("{name}.gz"), gzip(images))];
            for (name, bytes) in packed {
                let files = folder(&[(&name, &bytes), (label_name, labels)]);
                let mut section = data(files.path());
                section.validation = Some(Part::Share(0.2));
                check(&section);
            }
        }
    }
}

#[test]
fn cifar_files() {
    let labels: Vec<u8> = (0..40).map(|i| i % 10).collect();
    let files = folder(&[
        ("data_batch_1.bin", &cifar(&labels)),
        ("data_batch_2.bin.xz", &xz(&cifar(&labels[..7]))),
        ("data_batch_3.bin.gz", &gzip(&cifar(&labels[..30]))),
        ("test_batch.bin", &cifar(&labels[..9])),
    ]);
    let mut section = data(files.path());
    section.test = path(files.path());
    check(&section);
}

#[test]
fn csv_and_libsvm_tables() {
    let mut csv = String::from("a,b,word,y\n");
    let mut libsvm = String::new();
    for i in 0..900 {
        let (a, b) = (i * 37 % 101, f64::from(i) * 0.3);
        csv += &format!("{a},{b},{},{}\n", ["x", "y", ""][i as usize % 3], i % 2);
        libsvm += &format!("{} {}:{b} 40:{a}\n", i % 3, i % 30 + 1);
    }
    let files = folder(&[("t.csv", csv.as_bytes()), ("t.libsvm.gz", &gzip(libsvm.as_bytes()))]);
    let mut section = data(files.path().join("t.csv"));
    let named = |name: &str| Column::Name(name.into());
    section.table = Some(Table {
        label: Some(named("y")),
        one_hot: vec![named("word")],
        bins: vec![Bins { columns: vec![named("a")], count: 7, encode: Default::default() }],
        missing: planaria_recipe::table::Missing::Median,
        ..Table::default()
    });
    section.validation = Some(Part::Share(0.1));
    section.test = Some(Part::Share(0.2));
    check(&section);
    check(&data(files.path().join("t.libsvm.gz")));
}

#[test]
fn a_file_that_got_shorter_is_named() {
    let images = idx(8, &[500, 20], &[7; 10_000]);
    let files = folder(&[
        ("images-idx2-ubyte", &images),
        ("labels-idx1-ubyte", &idx(8, &[500], &[1; 500])),
    ]);
    let section = data(files.path());
    let set = open_within(&section, 5, &Memory::limited(0)).unwrap();
    let file = std::fs::File::options().write(true).open(files.path().join("images-idx2-ubyte"));
    file.unwrap().set_len(100).unwrap();
    let loader = Loader::evaluation(set.train, &section.normalize).unwrap();
    let error: Error = loader.fill(0, 0..500, &mut Batch::default()).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("images-idx2-ubyte") && said.contains("changed while"), "{said}");
    assert_eq!(error.kind(), Kind::Retry);
}

#[test]
fn a_store_that_there_is_not_is_named() {
    for table in [None, Some(Table { label: Some(Column::Name("y".into())), ..Table::default() })] {
        let mut section = data(Path::new("s3://bucket/set"));
        section.table = table;
        let error = open(&section, 1).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("no store is known for `s3://`; there are `file://`"), "{said}");
        assert_eq!((error.kind(), error.key()), (Kind::FixInput, Some("data.train")));
    }
    let files = folder(&[
        ("images-idx2-b", &idx(8, &[2, 1], &[1, 2])),
        ("labels-idx1-b", &idx(8, &[2], &[0, 1])),
    ]);
    let url = format!("file://{}", files.path().display());
    assert_eq!(open(&data(Path::new(&url)), 1).unwrap().train.len(), 2);
}
