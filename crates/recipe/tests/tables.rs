//! `data.table`: what is accepted, and what is said of mistakes.

use planaria_recipe::sections::Format;
use planaria_recipe::table::{BinEncoding, Bins, Column, Missing, Standardize, Table, Word};
use planaria_recipe::{DataFacts, Shape, Source};

fn parse(data: &str) -> Result<Source, String> {
    let text = format!("name: a\nmodel: {{preset: mlp}}\ndata: {data}\n");
    Source::parse("r.yaml", text.as_bytes(), &[]).map_err(|mistakes| {
        let line = |d: &planaria_recipe::Diagnostic| {
            let hint = d.hint.as_ref().map(|h| format!(" // {h}")).unwrap_or_default();
            format!("{}{hint}", d.message)
        };
        mistakes.list.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

#[track_caller]
fn check(table: &str, expect: &str) {
    let found = parse(&format!("{{train: a.csv, format: csv, table: {table}}}")).err();
    assert_eq!(found.as_deref(), Some(expect), "{table}");
}

#[test]
fn a_table_with_everything() {
    let source = parse(
        "{train: a.csv, format: csv, table: {label: y, positive: 1, header: false, skip_rows: 1, \
         delimiter: \"\\t\", missing: {value: 0}, drop: [ID, -1], one_hot: [SEX], \
         bins: [{columns: [AGE, 7], count: 5, encode: ordinal}, {columns: [B]}], standardize: [S]}}",
    )
    .unwrap();
    let data = &source.recipe().data;
    let name = |n: &str| Column::Name(n.into());
    let bins = |columns, count, encode| Bins { columns, count, encode };
    let expect = Table {
        label: Some(name("y")),
        positive: Some(Word::Number(1.0)),
        header: false,
        skip_rows: 1,
        delimiter: "\t".into(),
        missing: Missing::Value(0.0),
        drop: vec![name("ID"), Column::Number(-1)],
        one_hot: vec![name("SEX")],
        bins: vec![
            bins(vec![name("AGE"), Column::Number(7)], 5, BinEncoding::Ordinal),
            bins(vec![name("B")], 10, BinEncoding::OneHot),
        ],
        standardize: Standardize::Columns(vec![name("S")]),
        ..Table::default()
    };
    assert_eq!((data.format, data.table.as_ref()), (Format::Csv, Some(&expect)));
    assert!(parse("{train: a.svm, format: libsvm}").is_ok());
    assert!(parse("{train: a.csv, table: {label: 1, missing: median}}").is_ok());
}

#[test]
fn a_table_feeds_a_network() {
    let source = parse("{train: a.csv, format: csv, table: {label: -1}}").unwrap();
    let facts = DataFacts { input: Shape::Vector(219), classes: Some(2), examples: 20_000 };
    let plan = source.plan(&facts).unwrap();
    assert_eq!(plan.layers.last().map(|l| l.output), Some(Shape::Vector(2)));
}

#[test]
fn mistakes() {
    let label = "`format: csv` needs to know which column is learned // write `table: {label: …}` \
                 with the column's name or number (-1 is the last)";
    assert_eq!(parse("{train: a, format: csv}").unwrap_err(), label);
    check("{}", label);
    check("{label: 0}", "columns count from 1 (the first) or from -1 (the last), but one is 0");
    check("{label: y, drop: [y]}", "column `y` is in `label` and in `drop` // keep one of them");
    check(
        "{label: y, one_hot: [3, 3]}",
        "column `3` stands twice in `one_hot` // keep one of them",
    );
    check(
        "{label: y, bins: [{columns: []}]}",
        "`data.table.bins` has 10 bins of no column // list its columns, or leave it out",
    );
    check(
        "{label: y, delimiter: tab}",
        "`data.table.delimiter` must be one character that no number holds, but is `tab` // write \
         `\",\"`, `\";\"`, `\"|\"` or `\"\\t\"` (with double quotes)",
    );
    check(
        "{label: y, target: number, positive: 1}",
        "`data.table.positive` names a class, but `target: number` has none // leave out one of \
         the two",
    );
    check(
        "{label: y, standardize_target: false}",
        "`data.table.standardize_target` is for numbers to predict, but labels are classes // leave \
         it out, or write `target: number`",
    );
    check(
        "{label: y, one_hots: [a]}",
        "unknown key `one_hots` in `data.table` // did you mean `one_hot`?",
    );
    check(
        "{label: y, bins: [{columns: [a], count: 1}]}",
        "`data.table.bins.0.count` must be a whole number from 2 to 10000, but is 1",
    );
    let sparse = parse("{train: a, format: libsvm, table: {drop: [1]}}").unwrap_err();
    let expect = "`data.table.drop` is for `format: csv` // LIBSVM files hold a label and features \
                  that are used as they are";
    assert_eq!(sparse, expect);
    let images = parse("{train: a, format: idx, table: {label: y}}").unwrap_err();
    assert!(images.starts_with("`data.table` is for tables, but `data.format` names images"));
    let pixels = parse("{train: a, format: libsvm, normalize: {mean: [0.5]}}").unwrap_err();
    assert!(pixels.starts_with("`data.normalize` is for images, but the data is a table"));
}
