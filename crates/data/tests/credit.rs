//! The UCI credit-default table, where it is at hand: encoded as in the report of 2019, and learned
//! by a plain linear support vector machine, so that a fault of the encoding shows as lost quality.

mod support;

use planaria_data::table::{self, Csr, Encoder, Matrix, TableSet};
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

fn judge(set: &TableSet, encoder: &Encoder) -> Scores {
    let train = encoder.encode::<f64>(&set.train).unwrap();
    let test = encoder.encode::<f64>(set.test.as_ref().unwrap()).unwrap();
    let weights = squared_hinge(&csr(train.matrix), &train.labels.numbers(Some(2)));
    scores(&outputs(&csr(test.matrix), &weights), &test.labels.numbers(Some(2)))
}

#[test]
fn a_support_vector_machine_learns_the_credit_table() {
    let Some(section) = section() else { return };
    let set = table::open(&section, 0).unwrap();
    assert_eq!((set.train.len(), set.test.as_ref().unwrap().len()), (20_000, 10_000));
    let encoder = set.learn().unwrap();
    assert!(encoder.features().iter().all(|f| f.binary));
    assert_eq!(encoder.classes().unwrap(), ["0", "1"]);
    let scores = judge(&set, &encoder);
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

#[test]
#[ignore = "prints the figures of docs/design/coded-data.md: ten splits, a minute"]
fn quality_over_seeds() {
    let Some(section) = section() else { return };
    for seed in 0..10 {
        let set = table::open(&section, seed).unwrap();
        let encoder = set.learn().unwrap();
        let scores = judge(&set, &encoder);
        #[expect(clippy::disallowed_macros, reason = "a measurement says what it found")]
        {
            println!("seed {seed}: {} features, {scores:?}", encoder.width());
        }
    }
}
