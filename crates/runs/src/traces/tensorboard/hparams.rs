//! What TensorBoard's HPARAMS tab shows of a run: its settings, how it ended and its final figures.
//!
//! After `plugin_data.proto` and `api.proto` of TensorBoard's plugin `hparams`. A run is one of its
//! *sessions*. Pure: messages as bytes.

use super::bytes::{put_bytes, put_double, put_number, scalar};
use planaria_protocol::message::Outcome;
use planaria_recipe::Recipe;
use planaria_recipe::train::Optimizer;

/// The figures of the final weights that the tab has a column for: tags and titles.
const FIGURES: [(&str, &str); 4] = [
    ("final_loss", "final loss"),
    ("final_accuracy", "final accuracy"),
    ("final_rmse", "final RMSE"),
    ("final_r2", "final R²"),
];

/// `DataType` of `api.proto`.
const TEXT: u64 = 1;
const NUMBER: u64 = 3;

/// A setting, as a `google.protobuf.Value`.
#[derive(Debug, Clone, PartialEq)]
enum Setting {
    Number(f64),
    Text(String),
}

/// The settings of a run that one compares runs by.
#[derive(Debug, Clone, PartialEq)]
pub struct Hparams {
    name: String,
    settings: Vec<(&'static str, Setting)>,
}

impl Hparams {
    /// Of the run named `name`, with this recipe.
    pub fn of(name: &str, recipe: &Recipe) -> Self {
        use Setting::{Number, Text};
        let train = &recipe.train;
        let optimizer = match &train.optimizer {
            Optimizer::Sgd(_) => "sgd",
            Optimizer::Adam(_) => "adam",
            Optimizer::Adamw(_) => "adamw",
            Optimizer::Rmsprop(_) => "rmsprop",
        };
        // Written as in the recipe: 0.1 in 32 bits is 0.10000000149 in 64.
        let rate = train.optimizer.learning_rate();
        let settings = vec![
            ("learning_rate", Number(rate.to_string().parse().unwrap_or(f64::from(rate)))),
            ("batch", Number(train.batch as f64)),
            ("shards", Number(train.shards as f64)),
            ("optimizer", Text(optimizer.to_owned())),
            ("epochs", Number(train.epochs as f64)),
            ("method", Text(train.traits().name.to_owned())),
            ("seed", Number(recipe.seed as f64)),
        ];
        Self { name: name.to_owned(), settings }
    }

    /// Values of the summary that begins a session.
    pub(super) fn start(&self, unix_seconds: f64) -> Vec<Vec<u8>> {
        let mut session = Vec::new();
        for (name, setting) in &self.settings {
            let mut value = Vec::new();
            match setting {
                Setting::Number(number) => put_double(&mut value, 2, *number),
                Setting::Text(text) => put_bytes(&mut value, 3, text.as_bytes()),
            }
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, name.as_bytes());
            put_bytes(&mut entry, 2, &value);
            put_bytes(&mut session, 1, &entry);
        }
        put_bytes(&mut session, 4, self.name.as_bytes());
        put_double(&mut session, 5, unix_seconds);
        vec![
            summary("_hparams_/experiment", 2, &self.experiment()),
            summary("_hparams_/session_start_info", 3, &session),
        ]
    }

    /// Which columns there are. The same for every run, as TensorBoard takes those of any.
    fn experiment(&self) -> Vec<u8> {
        let mut experiment = Vec::new();
        for (name, setting) in &self.settings {
            let kind = if matches!(setting, Setting::Number(_)) { NUMBER } else { TEXT };
            let mut info = Vec::new();
            put_bytes(&mut info, 1, name.as_bytes());
            put_number(&mut info, 4, kind);
            put_bytes(&mut experiment, 4, &info);
        }
        for (tag, title) in FIGURES {
            let (mut name, mut info) = (Vec::new(), Vec::new());
            put_bytes(&mut name, 2, tag.as_bytes());
            put_bytes(&mut info, 1, &name);
            put_bytes(&mut info, 3, title.as_bytes());
            put_bytes(&mut experiment, 5, &info);
        }
        experiment
    }
}

/// The final figures, in the order of their columns.
pub(super) fn figures(figures: [Option<f64>; FIGURES.len()]) -> Vec<Vec<u8>> {
    let tagged = FIGURES.into_iter().zip(figures);
    tagged.filter_map(|((tag, _), value)| Some(scalar(tag, value?))).collect()
}

/// Values of the summary that ends a session.
pub(super) fn end(outcome: Outcome, unix_seconds: f64) -> Vec<Vec<u8>> {
    // `Status` of `api.proto`; an interrupted run may go on.
    let status = match outcome {
        Outcome::Completed | Outcome::StoppedEarly => 1,
        Outcome::Failed => 2,
        Outcome::Interrupted => 0,
    };
    let mut session = Vec::new();
    put_number(&mut session, 1, status);
    put_double(&mut session, 2, unix_seconds);
    vec![summary("_hparams_/session_end_info", 4, &session)]
}

/// A value of a summary whose content is for the plugin: `field` of its `HParamsPluginData`.
fn summary(tag: &str, field: u64, message: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    put_bytes(&mut content, field, message);
    let (mut plugin, mut metadata) = (Vec::new(), Vec::new());
    put_bytes(&mut plugin, 1, b"hparams");
    put_bytes(&mut plugin, 2, &content);
    put_bytes(&mut metadata, 1, &plugin);
    // The value itself says nothing: a tensor of no floats.
    let (mut shape, mut tensor) = (Vec::new(), Vec::new());
    put_bytes(&mut shape, 2, &[]);
    put_number(&mut tensor, 1, 1);
    put_bytes(&mut tensor, 2, &shape);
    let mut value = Vec::new();
    put_bytes(&mut value, 1, tag.as_bytes());
    put_bytes(&mut value, 8, &tensor);
    put_bytes(&mut value, 9, &metadata);
    value
}
