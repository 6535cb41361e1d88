//! Files, good and bad: what is read from them, and what is said of them.

mod support;

use planaria_data::{Error, Kind, Loader, Role, Target, Targets, open, open_part, peek};
use planaria_recipe::sections::{Format, Normalize, Part};
use planaria_recipe::shape::Shape;
use proptest::prelude::*;
use support::{cifar, data, folder, gzip, idx, path, xz};

const IMAGES: &str = "train-images-idx3-ubyte";
const LABELS: &str = "train-labels-idx1-ubyte";

fn images(n: u32) -> Vec<u8> {
    let values: Vec<u8> = (0..n * 6).map(|i| i as u8).collect();
    idx(8, &[n, 2, 3], &values)
}

fn labels(n: u32) -> Vec<u8> {
    let values: Vec<u8> = (0..n).map(|i| (i % 4) as u8).collect();
    idx(8, &[n], &values)
}

/// All inputs and targets of a part as stored.
fn content(part: &planaria_data::Part) -> (Vec<f32>, Targets) {
    let mut batch = Default::default();
    let loader = Loader::evaluation(part.clone(), &Normalize::default()).unwrap();
    loader.fill(0, 0..part.len(), &mut batch).unwrap();
    (batch.inputs, batch.targets)
}

#[test]
fn an_idx_folder_gives_its_train_and_test_files() {
    let train: &[u8] = &gzip(&images(8));
    let files = folder(&[
        ("train-images-idx3-ubyte.gz", train),
        (LABELS, &labels(8)),
        ("t10k-images.idx3-ubyte", &images(3)),
        ("t10k-labels.idx1-ubyte.xz", &xz(&labels(3))),
        ("notes.txt", b"hello"),
    ]);
    let mut section = data(files.path());
    section.test = path(files.path());
    let facts = peek(&section, 1).unwrap();
    assert_eq!(facts.input, Shape::Image { height: 2, width: 3, channels: 1 });
    assert_eq!((facts.classes(), facts.train, facts.validation, facts.test), (Some(4), 8, 0, 3));
    assert_eq!(facts.files.len(), 4);
    assert_eq!(facts.files[0].bytes, train.len() as u64);
    let set = open(&section, 1).unwrap();
    assert_eq!(set.facts, facts);
    let (inputs, targets) = content(&set.train);
    let expect: Vec<f32> = (0..48u8).map(|v| f32::from(v) * (1.0 / 255.0f64) as f32).collect();
    assert_eq!(inputs, expect);
    assert_eq!(targets, Targets::Classes(vec![0, 1, 2, 3, 0, 1, 2, 3]));
    assert_eq!(set.test.unwrap().len(), 3);
    // Both held-out parts by the same files: read once.
    section.validation = path(files.path());
    let set = open(&section, 1).unwrap();
    let (validation, test) = (set.validation.unwrap(), set.test.unwrap());
    assert!(std::sync::Arc::ptr_eq(validation.source(), test.source()));
    assert_eq!((set.facts.validation, set.facts.test, set.facts.files.len()), (3, 3, 4));
}

#[test]
fn gzip_members_follow_each_other() {
    let bytes = images(4);
    let packed = [gzip(&bytes[..20]), gzip(&bytes[20..])].concat();
    let files = folder(&[("train-images-idx3-ubyte.gz", &packed), (LABELS, &labels(4))]);
    assert_eq!(open(&data(files.path()), 1).unwrap().train.len(), 4);
}

#[test]
fn every_value_type_of_idx_is_read() {
    let check = |kind: u8, raw: &[u8], expect: &[f32]| {
        let n = expect.len() as u32;
        let files = folder(&[
            ("images-idx2-any", &idx(kind, &[n, 1], raw)),
            ("labels-idx1-any", &labels(n)),
        ]);
        let set = open(&data(files.path()), 1).unwrap();
        assert_eq!(set.facts.input, Shape::Vector(1));
        assert_eq!(content(&set.train).0, expect);
    };
    check(0x08, &[0, 255], &[0.0, 1.0]);
    check(0x09, &[0xFF, 5], &[-1.0, 5.0]);
    check(0x0B, &[0xFF, 0xFE, 1, 0], &[-2.0, 256.0]);
    check(0x0C, &[0xFF, 0xFF, 0xFF, 0xFD, 0, 1, 0, 0], &[-3.0, 65536.0]);
    check(0x0D, &[0x3F, 0x80, 0, 0, 0xC0, 0, 0, 0], &[1.0, -2.0]);
    check(0x0E, &[0x3F, 0xF8, 0, 0, 0, 0, 0, 0], &[1.5]);
}

#[test]
fn float_labels_are_numbers_to_learn() {
    let numbers: Vec<u8> = [1.5f32, -2.0, 0.0, 4.0].iter().flat_map(|v| v.to_be_bytes()).collect();
    let check = |dimensions: &[u32], width: usize| {
        let files = folder(&[
            (IMAGES, &images(dimensions[0])),
            ("train-labels-idx1-float", &idx(0x0D, dimensions, &numbers)),
        ]);
        let set = open(&data(files.path()), 1).unwrap();
        assert_eq!((set.facts.target, set.facts.classes()), (Target::Values { width }, None));
        assert_eq!(content(&set.train).1, Targets::Values(vec![1.5, -2.0, 0.0, 4.0]));
    };
    check(&[4], 1);
    check(&[2, 2], 2);
}

#[test]
fn cifar_planes_become_pixels() {
    let files = folder(&[
        ("data_batch_1.bin", &cifar(&[3, 9])),
        ("data_batch_2.bin.xz", &xz(&cifar(&[0]))),
        ("test_batch.bin.gz", &gzip(&cifar(&[7]))),
        ("batches.meta.txt", b"airplane"),
    ]);
    let mut section = data(files.path());
    section.test = path(files.path());
    let set = open(&section, 1).unwrap();
    assert_eq!(set.facts, peek(&section, 1).unwrap());
    assert_eq!((set.facts.train, set.facts.test, set.facts.classes()), (3, 1, Some(10)));
    let (inputs, targets) = content(&set.train);
    assert_eq!(targets, Targets::Classes(vec![3, 9, 0]));
    let byte = |v: f32| (v * 255.0 + 0.5) as u8;
    // Second record, sixth pixel: planes 80 apart.
    let pixel: Vec<u8> = inputs[3072 + 15..3072 + 18].iter().map(|v| byte(*v)).collect();
    assert_eq!(pixel, [55, 135, 215]);
    // One file alone, under any name.
    let alone = folder(&[("mine", &cifar(&[1, 2]))]);
    let part = open_part(alone.path().join("mine").to_str().unwrap(), Format::Auto, Role::Test, 1);
    assert_eq!(part.unwrap().len(), 2);
}

/// What is said of a folder with these files.
fn complaint(files: &[(&str, &[u8])]) -> Error {
    let files = folder(files);
    let error = open(&data(files.path()), 1).expect_err("this should not open");
    assert_eq!((error.kind(), error.key()), (Kind::FixInput, Some("data.train")), "{error}");
    error
}

#[test]
fn bad_idx_files_are_named_with_the_record() {
    let check = |images: &[u8], labels: &[u8], expect: &str| {
        let error = complaint(&[(IMAGES, images), (LABELS, labels)]).to_string();
        assert!(error.contains(expect), "{error}\n  wanted: {expect}");
    };
    let (good, tags) = (images(8), labels(8));
    let cut = &good[..16 + 3 * 6 + 2];
    check(cut, &tags, "train-images-idx3-ubyte: record 3 of 8 is cut short (2 of 6 bytes)");
    check(&good[..16], &tags, "record 0 of 8 is cut short (0 of 6 bytes)");
    check(&good[..9], &tags, "the header is cut short");
    check(&[], &tags, "train-images-idx3-ubyte: the file is empty");
    check(&good, &[], "train-labels-idx1-ubyte: the file is empty");
    check(&[&good[..], &[1]].concat(), &tags, "goes on after the 8 records");
    check(&good, &labels(7), "it has 8 examples, but `train-labels-idx1-ubyte` has 7 labels");
    check(b"\x89PNG....", &tags, "not an idx file: it begins with 89 50 4e 47");
    check(&idx(0x0A, &[1, 1], &[0]), &labels(1), "value type 0x0a is unknown");
    check(&idx(8, &[1, 1, 1, 1, 1], &[0]), &labels(1), "it has 5 dimensions");
    check(&idx(8, &[0, 28, 28], &[]), &labels(1), "it holds no values (0×28×28)");
    check(&idx(8, &[u32::MAX; 4], &[]), &tags, "more than the limit of 1024 TiB");
    check(&idx(8, &[1 << 31, 2, 3], &[]), &labels(8), "record 0 of 2147483648 is cut short");
    check(
        &good,
        &idx(9, &[8], &[1, 2, 255, 4, 5, 6, 7, 8]),
        "record 2 has label -1, which is no class",
    );
    check(&good, &idx(8, &[4, 2], &[0; 8]), "labels have 2 dimensions");
    let nan = idx(0x0D, &[1, 1], &f32::NAN.to_be_bytes());
    check(&nan, &labels(1), "record 0 holds NaN");
}

#[test]
fn bad_packed_files_are_named_with_the_record() {
    let check = |images: &[u8], expect: &str| {
        let files = [("train-images-idx3-ubyte.gz", images), (LABELS, &labels(5000)[..])];
        let error = complaint(&files).to_string();
        assert!(error.starts_with("train-images-idx3-ubyte.gz: "), "{error}");
        assert!(error.contains(expect), "{error}\n  wanted: {expect}");
    };
    let packed = gzip(&images(5000));
    check(&packed[..packed.len() / 2], "of 5000");
    check(&packed[..packed.len() / 2], "the packed data is damaged or cut short");
    let mut wrong = packed.clone();
    let checksum = wrong.len() - 6;
    wrong[checksum] ^= 1;
    check(&wrong, "after the last record");
    check(&images(5000), "the name says gzip, but its first bytes do not");
    check(&packed[..5], "header: the packed data is damaged or cut short");
}

#[test]
fn bad_cifar_files_are_named_with_the_record() {
    let check = |name: &str, bytes: &[u8], expect: &str| {
        let error = complaint(&[("data_batch_1.bin", &cifar(&[0])), (name, bytes)]).to_string();
        assert!(error.starts_with(name) && error.contains(expect), "{error}\n  wanted: {expect}");
    };
    let good = cifar(&[1, 2, 3]);
    let cut = &good[..good.len() - 10];
    check("data_batch_2.bin", cut, "record 2 is cut short (3063 of 3073 bytes)");
    check("data_batch_2.bin.gz", &gzip(cut), "record 2 is cut short (3063 of 3073 bytes)");
    check("data_batch_2.bin.xz", &xz(cut), "record 2 is cut short (3063 of 3073 bytes)");
    check("data_batch_2.bin", &cifar(&[1, 10]), "record 1 has label 10");
    check("data_batch_2.bin", &[], "the file is empty");
    check("data_batch_2.bin.gz", &gzip(&[]), "it holds no records");
    let packed = xz(&good);
    check("data_batch_2.bin.xz", &packed[..packed.len() - 9], "xz index at its end is damaged");
    let mut wrong = packed.clone();
    wrong[60] ^= 0x55;
    check("data_batch_2.bin.xz", &wrong, "of 3: the packed data is damaged or cut short");
}

#[test]
fn missing_files_are_named_with_what_is_there() {
    let check = |files: &[(&str, &[u8])], expect: &str| {
        let error = complaint(files).to_string();
        assert!(error.contains(expect), "{error}\n  wanted: {expect}");
    };
    check(&[], "it is empty");
    check(&[("a.csv", b"1,2")], "no data of a known format");
    check(&[("a.csv", b"1,2")], "it holds `a.csv`");
    check(&[(IMAGES, &images(2))], "has no `train-labels-idx1-ubyte` (or .gz) beside it");
    check(&[("t10k-images-idx3-ubyte", &images(2))], "has no `train*-images-idx3-ubyte` (or .gz)");
    check(&[("test_batch.bin", &cifar(&[1]))], "has no `data_batch_*.bin`");
    let error = open(&data("no/such/folder"), 1).unwrap_err();
    assert_eq!(error.kind(), Kind::FixInput);
    assert!(error.to_string().contains("`no/such/folder` does not exist"), "{error}");
}

#[test]
fn parts_must_fit_together() {
    let files = folder(&[
        (IMAGES, &images(8)),
        (LABELS, &labels(8)),
        ("test-images-idx3-ubyte", &idx(8, &[2, 3, 3], &[0; 18])),
        ("test-labels-idx1-ubyte", &labels(2)),
        ("val-images-idx3-ubyte", &images(2)),
        ("val-labels-idx1-ubyte", &idx(0x0D, &[2], &[0; 8])),
    ]);
    let mut section = data(files.path());
    section.test = path(files.path());
    let check = |section: &_, expect: &str, key: &str| {
        for error in [open(section, 1).map(|_| ()), peek(section, 1).map(|_| ())] {
            let error = error.unwrap_err();
            assert!(error.to_string().contains(expect), "{error}\n  wanted: {expect}");
            assert_eq!(error.key(), Some(key));
        }
    };
    check(&section, "`data.test` holds examples of 3×3×1, but `data.train` of 2×3×1", "data.test");
    section.test = None;
    section.validation = path(files.path());
    check(&section, "has a number as targets, but `data.train` has classes", "data.validation");
    section.validation = path(files.path().join(IMAGES));
    check(&section, "the same files as `data.train`", "data.validation");
    section.validation = Some(Part::Share(1.5));
    check(&section, "a share must be above 0 and below 1, but is 1.5", "data.validation");
    section.validation = Some(Part::Share(0.95));
    check(&section, "none is left to learn from", "data");
}

#[test]
fn examples_and_shares_limit_the_parts() {
    let files = folder(&[(IMAGES, &images(40)), (LABELS, &labels(40))]);
    let mut section = data(files.path());
    section.examples = Some(20);
    section.validation = Some(Part::Share(0.1));
    section.test = Some(Part::Share(0.2));
    let set = open(&section, 3).unwrap();
    assert_eq!(set.facts, peek(&section, 3).unwrap());
    let sizes = (set.train.len(), set.validation.unwrap().len(), set.test.unwrap().len());
    assert_eq!(sizes, (14, 2, 4));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn hostile_bytes_never_panic(
        mut bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            Just(images(3)), Just(gzip(&images(3))), Just(xz(&images(3))),
            Just(cifar(&[1, 2])), Just(xz(&cifar(&[1, 2]))), Just(gzip(&cifar(&[1]))),
        ],
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in prop::option::of(any::<prop::sample::Index>()),
        name in prop::sample::select(vec![
            IMAGES, "train-images-idx3-ubyte.gz", "data_batch_1.bin", "data_batch_1.bin.xz", "x",
        ]),
        format in prop::sample::select(vec![Format::Auto, Format::Idx, Format::Cifar10]),
    ) {
        for (at, value) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        }
        if let Some(end) = end {
            bytes.truncate(end.index(bytes.len() + 1));
        }
        let files = folder(&[(name, &bytes), (LABELS, &labels(3))]);
        for target in [files.path().to_path_buf(), files.path().join(name)] {
            let mut section = data(target);
            section.format = format;
            let _ = peek(&section, 1);
            if let Ok(set) = open(&section, 1) {
                content(&set.train);
            }
        }
    }
}

#[test]
fn looking_sees_a_plain_file_that_is_cut_short() {
    let whole = images(8);
    let files = folder(&[(IMAGES, &whole[..whole.len() - 3]), (LABELS, &labels(8))]);
    let error = peek(&data(files.path()), 1).unwrap_err();
    assert!(error.to_string().contains("record 7 of 8 is cut short (3 of 6 bytes)"), "{error}");
}
