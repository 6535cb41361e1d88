//! Tables through the crate's face: what is learned, from which rows, and what is said of bad files.

mod support;

use planaria_data::table::{self, Encoder, Labels, Matrix, Rows, TableSet};
use planaria_data::{Loader, Reader, Schedule, open, peek};
use planaria_recipe::sections::{Data, Format, Part};
use planaria_recipe::table::{
    BinEncoding, Bins, Column, LabelKind, Missing, Standardize, Table, Word,
};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use support::{data, folder, gzip, xz};

fn name(name: &str) -> Column {
    Column::Name(name.into())
}

fn section(path: impl AsRef<Path>, table: Table) -> Data {
    Data { format: Format::Csv, table: Some(table), ..data(path) }
}

fn labelled(label: &str) -> Table {
    Table { label: Some(name(label)), ..Table::default() }
}

/// Encodes all of a table that was learned from all of it.
fn whole(
    text: &[u8],
    format: Format,
    table: Table,
) -> Result<(Encoder, Vec<Vec<f64>>, Labels), String> {
    let folder = folder(&[("t.txt", text)]);
    let data = Data { format, table: Some(table), ..data(folder.path().join("t.txt")) };
    let set = table::open(&data, 1).map_err(|e| e.to_string())?;
    let encoder = set.learn().map_err(|e| e.to_string())?;
    let dense = encoder.encode_dense::<f64>(&set.train).map_err(|e| e.to_string())?;
    let labels = encoder.labels(&set.train).map_err(|e| e.to_string())?;
    let rows = (0..dense.height()).map(|i| dense.row(i).to_vec()).collect();
    Ok((encoder, rows, labels))
}

fn names(encoder: &Encoder) -> Vec<String> {
    encoder.features().into_iter().map(|f| f.name).collect()
}

#[test]
fn every_kind_of_column() {
    let text = b"id,colour,size,weight,age,label\n1,red,1,10,5,no\n2,blue,2,10,6,yes\n\
                 3,red,3,10,7,yes\n4,\"light, blue\",4,10,8,no\n";
    let table = Table {
        positive: Some(Word::Text("yes".into())),
        drop: vec![Column::Number(1)],
        one_hot: vec![name("colour")],
        bins: vec![
            Bins { columns: vec![name("size")], count: 2, encode: BinEncoding::OneHot },
            Bins { columns: vec![name("age")], count: 4, encode: BinEncoding::Ordinal },
        ],
        ..labelled("label")
    };
    let (encoder, rows, labels) = whole(text, Format::Csv, table).unwrap();
    let expect = ["colour=blue", "colour=light, blue", "colour=red", "size<2.5", "size>=2.5"];
    assert_eq!(names(&encoder)[..5], expect);
    assert_eq!(names(&encoder)[5..], ["weight", "age"]);
    assert_eq!(encoder.features().iter().filter(|f| f.binary).count(), 5);
    assert_eq!(rows[0], [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(rows[3], [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 3.0]);
    assert_eq!(encoder.classes().unwrap(), ["no", "yes"]);
    assert_eq!(labels, Labels::Classes(vec![0, 1, 1, 0]));
    assert_eq!(labels.numbers(Some(2)), [-1.0, 1.0, 1.0, -1.0]);
}

#[test]
fn columns_standardise_and_numbers_are_learned() {
    let table = Table { target: LabelKind::Number, ..labelled("y") };
    let text = b"a,b,y\n1,5,0.5\n3,5,-1e3\n";
    let (_, rows, labels) = whole(text, Format::Csv, table.clone()).unwrap();
    assert_eq!(rows, [[-1.0, 0.0], [1.0, 0.0]]);
    assert_eq!(labels, Labels::Numbers(vec![0.5, -1e3]));
    let some = Table { standardize: Standardize::Columns(vec![name("a")]), ..table.clone() };
    assert_eq!(whole(text, Format::Csv, some).unwrap().1, [[-1.0, 5.0], [1.0, 5.0]]);
    let none = Table { standardize: Standardize::All(false), ..table };
    assert_eq!(whole(text, Format::Csv, none).unwrap().1, [[1.0, 5.0], [3.0, 5.0]]);
}

#[test]
fn spreadsheets_have_their_ways() {
    // A title row, a byte order mark, semicolons, Windows' line ends, and empty fields at the end.
    let text = "\u{feff}X1;X2;Y;;\r\nID;\"AGE\";default payment next month\r\n1;20;1;;\r\n\"2\";30;0\r\n;\r\n";
    let table =
        Table { skip_rows: 1, delimiter: ";".into(), ..labelled("default payment next month") };
    let error = whole(text.as_bytes(), Format::Csv, table.clone()).unwrap_err();
    assert!(error.contains("line 5 has 2 fields, but the header has 3"), "{error}");
    let text = text.replace("\r\n;\r\n", "\r\n\r\n");
    let table = Table { drop: vec![name("ID")], ..table };
    let (encoder, rows, labels) = whole(text.as_bytes(), Format::Csv, table).unwrap();
    assert_eq!((names(&encoder), rows), (vec!["AGE".into()], vec![vec![-1.0], vec![1.0]]));
    assert_eq!(labels, Labels::Classes(vec![1, 0]));
    // No header: columns by number, the last by -1.
    let table = Table { header: false, label: Some(Column::Number(-1)), ..Table::default() };
    let (encoder, rows, _) = whole(b"1,2,a\n3,2,b\n", Format::Csv, table).unwrap();
    assert_eq!(names(&encoder), ["column 1", "column 2"]);
    assert_eq!(rows, [[-1.0, 0.0], [1.0, 0.0]]);
}

#[test]
fn missing_values_stop_or_are_filled() {
    let text = b"a,c,y\n1,x,0\n?,x,1\n2,NA,0\n6,z,1\n";
    let table =
        Table { one_hot: vec![name("c")], standardize: Standardize::All(false), ..labelled("y") };
    let error = whole(text, Format::Csv, table.clone()).unwrap_err();
    let expect = "t.txt: line 3, column 1 (`a`) holds `?`, a missing value; say what fills it";
    assert!(error.starts_with(expect), "{error}");
    for (missing, fill) in
        [(Missing::Mean, 3.0), (Missing::Median, 2.0), (Missing::Value(-1.0), -1.0)]
    {
        let (_, rows, _) = whole(text, Format::Csv, Table { missing, ..table.clone() }).unwrap();
        assert_eq!(rows, [[1.0, 1.0, 0.0], [fill, 1.0, 0.0], [2.0, 0.0, 0.0], [6.0, 0.0, 1.0]]);
    }
}

#[test]
fn faults_name_file_line_column_value_and_remedy() {
    let check = |text: &str, table: Table, expect: &str| {
        let error = whole(text.as_bytes(), Format::Csv, table).unwrap_err();
        assert!(error.contains(expect), "{error}");
    };
    let y = || labelled("y");
    check(
        "a,y\n1,0\nbig,1\n",
        y(),
        "t.txt: line 3, column 1 (`a`) holds `big`, which is not a finite number",
    );
    check(
        "a,y\n1,0\ninf,1\n",
        y(),
        "holds `inf`, which is not a finite number; name the column in `data.tab",
    );
    check("a,y\n1,0\n1,\n", y(), "line 3, column 2 (`y`) holds ``, but a label is needed");
    check("a,y\n1,0\n1,2,3\n", y(), "line 3 has 3 fields, but the header has 2");
    check("a,y\n", y(), "it has a header but no rows");
    check("\n\n", y(), "it has no rows");
    check("a,y\n1,0\n2,0\n", y(), "all training rows have the label `0`");
    check("a,b\n1,0\n", y(), "`data.table.label` names `y`, which is no column of `");
    check("y,y\n1,0\n", y(), "which columns 1 and 2 are both called of `");
    check(
        "a,y\n1,0\n",
        Table { drop: vec![Column::Number(3)], ..y() },
        "names column 3, but the tab",
    );
    check(
        "a,y\n1,0\n",
        Table { drop: vec![Column::Number(1)], ..y() },
        "no column left to learn from",
    );
    let twice = Table { drop: vec![Column::Number(1)], one_hot: vec![name("a")], ..y() };
    check("a,y\n1,0\n", twice, "column `a` of `");
    let third = Table { positive: Some(Word::Number(3.0)), ..y() };
    check(
        "a,y\n1,0\n2,1\n",
        third,
        "`data.table.positive` is `3`, but the training rows have the labels `0`, `1`",
    );
    let number = Table { target: LabelKind::Number, ..y() };
    check(
        "a,y\n1,x\n",
        number,
        "line 2, column 2 (`y`) holds `x`, which is not a finite number; leave out",
    );
    let packed = gzip("a,y\n1,0\n".repeat(9).as_bytes());
    let error = whole(&packed[..packed.len() - 6], Format::Csv, y()).unwrap_err();
    assert!(error.contains("the packed data is damaged or cut short"), "{error}");
    let error = whole(b"a,y\n1,\xff\n", Format::Csv, y()).unwrap_err();
    assert!(error.contains("line 2, column 2 (`y`) is not UTF-8 text"), "{error}");
}

/// What is wrong with a section, as `key: message (hint)`.
fn mistakes(text: &str, table: Table) -> Vec<String> {
    let folder = folder(&[("t.csv", text.as_bytes())]);
    let error = open(&section(folder.path().join("t.csv"), table), 1).unwrap_err();
    let told = |m: planaria_data::Mistake| {
        format!("{}: {} ({})", m.key, m.message, m.hint.unwrap_or_default())
    };
    error.mistakes().into_iter().map(told).collect()
}

#[track_caller]
fn told(found: &[String], expect: &[(&str, &str)]) {
    assert_eq!(found.len(), expect.len(), "{found:#?}");
    for (found, (start, rest)) in found.iter().zip(expect) {
        assert!(found.starts_with(start) && found.contains(rest), "{found} lacks {start} {rest}");
    }
}

#[test]
fn all_wrong_columns_are_told_each_at_its_key() {
    let table = Table {
        label: Some(name("pirce")),
        drop: vec![name("id"), name("nowhere"), Column::Number(-9)],
        one_hot: vec![name("colour"), name("id")],
        bins: vec![Bins { columns: vec![name("sise")], count: 2, encode: BinEncoding::OneHot }],
        standardize: Standardize::Columns(vec![Column::Number(2024)]),
        ..Table::default()
    };
    let found = mistakes("id,colour,size,price,2024\n1,red,2,3,4\n", table);
    told(
        &found,
        &[
            ("data.table.label: ", "names `pirce`, which is no column of `"),
            ("data.table.drop.1: ", "(the columns are `id`, `colour`, `size`, `price`, `2024`)"),
            ("data.table.drop.2: ", "names column -9, but the table has 5 columns"),
            ("data.table.one_hot.1: ", "is in `data.table.drop` and in `data.table.one_hot`"),
            ("data.table.bins.0.columns.0: ", "(did you mean `size`?)"),
            ("data.table.standardize.0: ", "(write `\"2024\"` for the column of that name)"),
        ],
    );
    assert!(found[0].ends_with("(did you mean `price`?)"), "{}", found[0]);
}

#[test]
fn what_follows_from_a_mistake_is_not_told_too() {
    // Without the label, all columns are dropped; that is for when there is a label.
    let table = Table { drop: vec![name("a")], ..labelled("x") };
    told(&mistakes("a\n1\n", table), &[("data.table.label: ", "names `x`")]);
    let two = Table { drop: vec![name("a"), name("b")], ..labelled("b") };
    told(&mistakes("a,b\n1,2\n", two), &[("data.table.drop.1: ", "keep one")]);
    // One column only because of the delimiter: no name in it is looked for.
    for (text, used, hint) in [
        ("a;b;price\n1,5;2;3\n", ",", "write `delimiter: \";\"` in `data.table`"),
        ("a\tb\tprice\n1\t2\t3\n", ",", "write `delimiter: \"\\t\"` in `data.table`"),
        ("a,b,price\n1,2,3\n", ";", "write `delimiter: \",\"` in `data.table`"),
    ] {
        let table = Table { delimiter: used.into(), drop: vec![name("a")], ..labelled("price") };
        told(&mistakes(text, table), &[("data.table.delimiter: ", hint)]);
    }
    // A held-out file that lacks a column is itself wrong.
    let folder = folder(&[("a.csv", b"a,y\n1,0\n2,1\n3,1\n"), ("b.csv", b"a,z\n1,0\n")]);
    let mut section = section(folder.path().join("a.csv"), labelled("y"));
    section.test = support::path(folder.path().join("b.csv"));
    let error = open(&section, 1).unwrap_err();
    assert_eq!(error.mistakes()[0].key, "data.test");
}

#[test]
fn libsvm_rows_are_sparse() {
    let text = b"+1 1:0.5 3:2 # remark\n\n-1 2:1e-3\n1.0 1:1 3:0\n";
    let (encoder, rows, labels) = whole(text, Format::Libsvm, Table::default()).unwrap();
    assert_eq!(rows, [[0.5, 0.0, 2.0], [0.0, 1e-3, 0.0], [1.0, 0.0, 0.0]]);
    assert_eq!(encoder.classes().unwrap(), ["-1", "1"]);
    assert_eq!(labels, Labels::Classes(vec![1, 0, 1]));
    let check = |text: &str, expect: &str| {
        let error = whole(text.as_bytes(), Format::Libsvm, Table::default()).unwrap_err();
        assert!(error.contains(expect), "{error}");
    };
    check("1 1:2\n1 0:3\n", "t.txt: line 2: `0:3`: indices count from 1");
    check("1 2:2 2:3\n", "`2:3`: index 2 after 2; sort them");
    check("1 2\n", "`2` is no `index:value`");
    check("1 1:x\n", "feature 1 is `x`, which is no finite number");
    check("a 1:1\n", "the label `a` is not a finite number");
    check("1 9999999999:1\n", "`9999999999` is no index");
    check("1\n0\n", "its training rows hold no feature");
    check("#\n", "it has no rows");
}

#[test]
fn held_out_files_packed_files_and_networks() {
    let rows = |from: u32, to: u32| -> String {
        (from..to).map(|i| format!("{i},{},{}\n", i % 3, i % 2)).collect()
    };
    let train = format!("a,c,y\n{}", rows(0, 60));
    // The columns come in another order, a category is new, another is missing.
    let test: String = (0..10).map(|i| format!("{},{},{i}\n", i % 2, 7 * (i % 2))).collect();
    let test = format!("y,c,a\n{test}");
    let folder =
        folder(&[("a.csv.gz", &gzip(train.as_bytes())), ("b.csv.xz", &xz(test.as_bytes()))]);
    let table = Table { one_hot: vec![name("c")], ..labelled("y") };
    let mut section = section(folder.path().join("a.csv.gz"), table);
    section.test = support::path(folder.path().join("b.csv.xz"));
    section.validation = Some(Part::Share(0.25));
    let set = table::open(&section, 3).unwrap();
    let encoder = set.learn().unwrap();
    assert_eq!((set.train.len(), set.marks.len()), (45, 2));
    let test = encoder.encode_dense::<f32>(set.test.as_ref().unwrap()).unwrap();
    assert_eq!(names(&encoder), ["a", "c=0", "c=1", "c=2"]);
    assert_eq!(test.row(0)[1..], [1.0, 0.0, 0.0]);
    assert_eq!(test.row(1)[1..], [0.0, 0.0, 0.0], "7 was never seen");
    // The same as examples of a network.
    let facts = peek(&section, 3).unwrap();
    let opened = open(&section, 3).unwrap();
    assert_eq!(opened.facts, facts);
    assert_eq!((facts.train, facts.validation, facts.test, facts.classes()), (45, 15, 10, Some(2)));
    let loader = Loader::training(opened.train, 3, &section.normalize, &section.augment).unwrap();
    let mut reader = Reader::start(loader, Schedule { batch: 45, epochs: 0..1, step: 0 }).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().inputs.len(), 45 * 4);
    section.test = support::path(folder.path().join("a.csv.gz"));
    assert!(table::open(&section, 3).unwrap_err().to_string().contains("same file"));
    section.train = folder.path().join("c.csv").to_str().unwrap().into();
    assert!(open(&section, 3).unwrap_err().to_string().contains("does not exist"));
}

#[test]
fn an_encoder_is_stored_and_large_numbers_are_refused() {
    let table = Table {
        standardize: Standardize::All(false),
        bins: vec![Bins { columns: vec![name("b")], count: 3, encode: BinEncoding::OneHot }],
        ..labelled("y")
    };
    let text = b"a,b,y\n1e300,0.1,0\n2,0.2,1\n3,0.3,1\n";
    let folder = folder(&[("t.csv", text)]);
    let set = table::open(&section(folder.path().join("t.csv"), table), 1).unwrap();
    let encoder = set.learn().unwrap();
    let stored = serde_json::to_string(&encoder).unwrap();
    assert_eq!(serde_json::from_str::<Encoder>(&stored).unwrap(), encoder);
    let error = encoder.encode_dense::<f32>(&set.train).unwrap_err().to_string();
    assert!(error.contains("row 1: `a` is too large a number"), "{error}");
    assert!(encoder.encode::<f64>(&set.train).is_ok());
}

/// A table of a name, a number that is binned and a number that is standardised.
fn table_text(rows: &[(u8, i16, i16, bool)]) -> String {
    let line =
        |(c, b, s, y): &(u8, i16, i16, bool)| format!("k{},{b},{s},{}\n", c % 5, u8::from(*y));
    format!("c,b,s,y\n{}", rows.iter().map(line).collect::<String>())
}

fn generated(text: &str, seed: u64) -> TableSet {
    let folder = folder(&[("t.csv", text.as_bytes())]);
    let table = Table {
        one_hot: vec![name("c")],
        bins: vec![Bins { columns: vec![name("b")], count: 4, encode: BinEncoding::OneHot }],
        positive: Some(Word::Number(1.0)),
        ..labelled("y")
    };
    let mut section = section(folder.path().join("t.csv"), table);
    section.test = Some(Part::Share(0.3));
    table::open(&section, seed).unwrap()
}

proptest! {
    #[test]
    fn held_out_rows_change_nothing(
        mut rows in prop::collection::vec(any::<(u8, i16, i16, bool)>(), 12..60),
        others in prop::collection::vec(any::<(u8, i16, i16)>(), 60),
        seed: u64,
    ) {
        let set = generated(&table_text(&rows), seed);
        let Ok(encoder) = set.learn() else { return Ok(()) };
        let train = encoder.encode::<f64>(&set.train).unwrap();
        for id in set.test.as_ref().unwrap().ids().iter() {
            let (c, b, s) = others[id as usize];
            rows[id as usize] = (c, b, s, c > 7);
        }
        let changed = generated(&table_text(&rows), seed);
        prop_assert_eq!(&changed.learn().unwrap(), &encoder);
        prop_assert_eq!(encoder.encode::<f64>(&changed.train).unwrap(), train);
    }

    #[test]
    fn sparse_equals_dense_and_blocks_equal_the_whole(
        rows in prop::collection::vec(any::<(u8, i16, i16, bool)>(), 12..60),
        seed: u64,
        cut in 0u64..60,
    ) {
        let set = generated(&table_text(&rows), seed);
        let Ok(encoder) = set.learn() else { return Ok(()) };
        for rows in [&set.train, set.test.as_ref().unwrap()] {
            let dense = encoder.encode_dense::<f64>(rows).unwrap();
            prop_assert_eq!(&encoder.encode_csr::<f64>(rows).unwrap().dense(), &dense);
            prop_assert_eq!(&encoder.encode::<f64>(rows).unwrap().matrix.into_dense(), &dense);
            let mut joined = Vec::new();
            for block in [rows.slice(0..cut), rows.slice(cut..u64::MAX)] {
                joined.extend(encoder.encode_dense::<f64>(&block).unwrap().values);
            }
            prop_assert_eq!(joined, dense.values);
            let single = encoder.encode_dense::<f32>(rows).unwrap();
            let binary = encoder.features();
            for i in 0..single.height() {
                for (value, feature) in single.row(i).iter().zip(&binary) {
                    prop_assert!(!feature.binary || *value == 0.0 || *value == 1.0);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(prop::sample::select(b"\",\n 1:-#ya?e".to_vec()), 1..80),
    ) {
        let _ = whole(&bytes, Format::Libsvm, Table::default());
        let table = Table { header: false, label: Some(Column::Number(1)), ..Table::default() };
        let _ = whole(&bytes, Format::Csv, table);
    }
}

#[test]
fn a_row_of_one_table_can_be_judged_by_another() {
    let folder = folder(&[("t.libsvm", b"1 1:1\n2 2:1\n"), ("u.libsvm", b"2 1:3 9:9\n3 1:1\n")]);
    let at = |name: &str| {
        let path = folder.path().join(name);
        let table = table::Table::open(&path, Format::Auto, &Table::default()).unwrap();
        Rows::whole(Arc::new(table))
    };
    let encoder = Encoder::learn(&at("t.libsvm"), &Table::default()).unwrap();
    let other = at("u.libsvm");
    // Feature 9 has no weight; class 3 has no meaning.
    let Matrix::Csr(csr) = encoder.encode::<f64>(&other.slice(0..1)).unwrap().matrix else {
        panic!("LIBSVM rows are sparse")
    };
    assert_eq!((csr.width, csr.row(0)), (2, (&[0][..], &[3.0][..])));
    let error = encoder.labels(&other).unwrap_err().to_string();
    assert!(error.contains("row 2 has the label `3`, which no training row has"), "{error}");
}
