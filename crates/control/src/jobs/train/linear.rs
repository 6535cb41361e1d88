//! The weights of a linear model as a file of its own: by the names of their features, in full, and
//! in the label's units.

use planaria_learn::linear::Model;
use planaria_numerics::regression::TargetScale;

/// Full-precision weights as a table, a line for each feature.
pub fn weights_csv(
    model: &Model,
    values: &[f64],
    features: &[String],
    classes: &[String],
    scale: TargetScale,
) -> String {
    let columns: Vec<&[f64]> = values.chunks_exact(model.width().max(1)).collect();
    let heads: Vec<String> = match columns.len() {
        1 => vec!["weight".into()],
        n => (0..n).map(|i| classes.get(i).cloned().unwrap_or_else(|| i.to_string())).collect(),
    };
    let mut text = format!(
        "feature,{}\n",
        heads.iter().map(|head| quoted(head)).collect::<Vec<_>>().join(",")
    );
    for i in 0..model.width() {
        let name = features.get(i).filter(|_| i < model.features).map_or("(bias)", String::as_str);
        text.push_str(&quoted(name));
        for column in &columns {
            // The shortest digits that give the same number back.
            text.push_str(&format!(",{:?}", restored(column[i], i < model.features, scale)));
        }
        text.push('\n');
    }
    if model.width() == model.features && scale.mean != 0.0 {
        text.push_str(&format!("(bias),{:?}\n", scale.mean));
    }
    text
}

/// A weight of standardised labels, as it is of the labels themselves; only the bias has their mean.
fn restored(weight: f64, is_feature: bool, scale: TargetScale) -> f64 {
    match is_feature {
        _ if scale == TargetScale::default() => weight,
        true => scale.std * weight,
        false => scale.restored(weight),
    }
}

fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}
