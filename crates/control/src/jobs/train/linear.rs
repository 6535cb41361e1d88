//! The weights of a linear model as a file of its own: by the names of their features, in full.

use planaria_learn::linear::Model;

/// Full-precision weights as a table, a line for each feature.
pub fn weights_csv(
    model: &Model,
    values: &[f64],
    features: &[String],
    classes: &[String],
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
            text.push_str(&format!(",{:?}", column[i]));
        }
        text.push('\n');
    }
    text
}

fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}
