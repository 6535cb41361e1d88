//! The UCI credit-default table, where it is at hand: encoded as in the report of 2019, and learned
//! by a plain linear support vector machine, so that a fault of the encoding shows as lost quality.

mod support;

use planaria_data::table::{self, Csr, Encoder, Matrix, Rows, TableSet};
use planaria_recipe::sections::{Data, Format, Part};
use planaria_recipe::table::{BinEncoding, Bins, Column, Table, Word};
use support::{data, real};

/// Full-batch iterations, as many as the figures this is compared with took.
const ITERATIONS: usize = 300;

fn names(list: &[&str]) -> Vec<Column> {
    list.iter().map(|n| Column::Name((*n).into())).collect()
}

/// All columns but the client's number: 9 of categories, 14 cut into quantile bins.
fn section() -> Option<Data> {
    let bins = |columns: &[&str], count: usize| Bins {
        columns: names(columns),
        count,
        encode: BinEncoding::OneHot,
    };
    let amounts = [
        "BILL_AMT1",
        "BILL_AMT2",
        "BILL_AMT3",
        "BILL_AMT4",
        "BILL_AMT5",
        "BILL_AMT6",
        "PAY_AMT1",
        "PAY_AMT2",
        "PAY_AMT3",
        "PAY_AMT4",
        "PAY_AMT5",
        "PAY_AMT6",
    ];
    let categories =
        ["SEX", "EDUCATION", "MARRIAGE", "PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"];
    let table = Table {
        label: Some(Column::Name("default.payment.next.month".into())),
        positive: Some(Word::Number(1.0)),
        drop: names(&["ID"]),
        one_hot: names(&categories),
        bins: vec![bins(&["LIMIT_BAL", "AGE"], 11), bins(&amounts, 10)],
        ..Table::default()
    };
    let path = real("credit-default")?.join("UCI_Credit_Card.csv");
    // A third of the rows; 0.333333 of 30,000 is rounded to 10,000.
    let test = Some(Part::Share(0.333_333));
    Some(Data { format: Format::Csv, table: Some(table), test, ..data(path) })
}

/// What a model says of held-out rows.
#[derive(Debug)]
#[expect(dead_code, reason = "precision and recall are printed")]
struct Scores {
    accuracy: f64,
    precision: f64,
    recall: f64,
    f1: f64,
}

fn csr(matrix: Matrix<f64>) -> Csr<f64> {
    match matrix {
        Matrix::Csr(csr) => csr,
        Matrix::Dense(_) => panic!("one value in ten is not zero: rows are sparse"),
    }
}

/// X·w + b.
fn outputs(x: &Csr<f64>, weights: &[f64]) -> Vec<f64> {
    let (bias, weights) = weights.split_last().unwrap();
    let output = |i: usize| {
        let (columns, values) = x.row(i);
        columns.iter().zip(values).map(|(c, v)| weights[*c as usize] * v).sum::<f64>() + bias
    };
    (0..x.height()).map(output).collect()
}

/// Minimises the mean of max(0, 1 − y·f)² by gradient descent with momentum; the bias comes last.
fn squared_hinge(x: &Csr<f64>, y: &[f64]) -> Vec<f64> {
    let (rate, momentum, decay) = (0.02, 0.95, 1e-4);
    let mut weights = vec![0.0; x.width + 1];
    let mut speed = weights.clone();
    for _ in 0..ITERATIONS {
        let mut gradient: Vec<f64> = weights.iter().map(|w| decay * w).collect();
        gradient[x.width] = 0.0;
        for (i, z) in outputs(x, &weights).into_iter().enumerate() {
            let g = -2.0 * y[i] * (1.0 - y[i] * z).max(0.0) / y.len() as f64;
            let (columns, values) = x.row(i);
            columns.iter().zip(values).for_each(|(c, v)| gradient[*c as usize] += g * v);
            gradient[x.width] += g;
        }
        for ((w, s), g) in weights.iter_mut().zip(&mut speed).zip(&gradient) {
            *s = momentum * *s - rate * g;
            *w += *s;
        }
    }
    weights
}

fn scores(z: &[f64], y: &[f64]) -> Scores {
    let count = |said: bool, is: bool| {
        z.iter().zip(y).filter(|(z, y)| (**z > 0.0) == said && (**y > 0.0) == is).count() as f64
    };
    let (hit, alarm, miss) = (count(true, true), count(true, false), count(false, true));
    let (precision, recall) = (hit / (hit + alarm), hit / (hit + miss));
    let f1 = 2.0 * precision * recall / (precision + recall);
    Scores { accuracy: (hit + count(false, false)) / y.len() as f64, precision, recall, f1 }
}

/// Learns encoding and weights from some rows, and judges them by others.
fn judge(section: &Data, train: &Rows, test: &Rows) -> (Encoder, Scores) {
    let encoder = Encoder::learn(train, section.table.as_ref().unwrap()).unwrap();
    let train = encoder.encode::<f64>(train).unwrap();
    let test = encoder.encode::<f64>(test).unwrap();
    let weights = squared_hinge(&csr(train.matrix), &train.labels.numbers(Some(2)));
    let scores = scores(&outputs(&csr(test.matrix), &weights), &test.labels.numbers(Some(2)));
    #[expect(clippy::disallowed_macros, reason = "the figures of docs/design/coded-data.md")]
    {
        println!("{} features: {scores:?}", encoder.width());
    }
    (encoder, scores)
}

#[test]
fn a_support_vector_machine_learns_the_credit_table() {
    let Some(section) = section() else { return };
    let split = |seed: u64| {
        let TableSet { train, test, .. } = table::open(&section, seed).unwrap();
        (train, test.unwrap())
    };
    let (train, test) = split(0);
    assert_eq!((train.len(), test.len()), (20_000, 10_000));
    let (encoder, first) = judge(&section, &train, &test);
    assert!(encoder.features().iter().all(|f| f.binary));
    assert_eq!(encoder.classes().unwrap(), ["0", "1"]);
    assert!(first.accuracy >= 0.82 && first.f1 >= 0.46, "{first:?}");
    // One split may be lucky: the mean of ten is not.
    let others = (1..10).map(split).map(|(train, test)| judge(&section, &train, &test).1);
    let all: Vec<Scores> = std::iter::once(first).chain(others).collect();
    let mean = |of: fn(&Scores) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    assert!(mean(|s| s.accuracy) >= 0.82 && mean(|s| s.f1) >= 0.46, "{all:?}");
}

#[test]
fn rows_in_the_order_of_the_file() {
    let Some(mut section) = section() else { return };
    section.test = None;
    let rows = table::open(&section, 0).unwrap().train;
    let (encoder, scores) = judge(&section, &rows.slice(0..20_000), &rows.slice(20_000..30_000));
    assert_eq!(encoder.width(), 219);
    assert!(scores.accuracy >= 0.82 && scores.f1 >= 0.46, "{scores:?}");
}

#[test]
fn the_credit_table_has_219_features() {
    let Some(mut section) = section() else { return };
    section.test = None;
    let encoder = table::open(&section, 0).unwrap().learn().unwrap();
    assert_eq!(encoder.width(), 219);
    let csr = csr(encoder.encode::<f64>(&table::open(&section, 0).unwrap().train).unwrap().matrix);
    assert_eq!((csr.height(), csr.values.len()), (30_000, 23 * 30_000), "one feature a column");
}
