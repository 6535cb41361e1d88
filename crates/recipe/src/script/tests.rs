//! Arguments, fields and counts of scripts.

use super::*;

#[test]
fn arguments_follow_from_epochs_and_data() {
    let script = |args: &[&str]| Script {
        args: args.iter().map(|text| Argument::Text((*text).into())).collect(),
        epochs: Some(5),
        data: Some(Data::One("set".into())),
        ..Script::new("a/train.py")
    };
    assert_eq!(script(&[]).arguments(), ["--epochs={{epochs}}", "--data={{data}}"]);
    let told = script(&["-n", "{{ epochs }}", "--in={{data}}"]);
    assert_eq!(told.arguments(), ["-n", "{{ epochs }}", "--in={{data}}"]);
    let sets = ["train", "test"].map(|name| (name.to_owned(), format!("../{name}")));
    let several = Script { data: Some(Data::Several(sets.into())), ..script(&["{{data_test}}"]) };
    assert_eq!(
        several.arguments(),
        ["{{data_test}}", "--epochs={{epochs}}", "--train={{data_train}}"]
    );
    assert!(several.fields().contains(&"data_train".to_owned()));
    assert_eq!(told.code_folder(), "a");
    assert_eq!(Script::new("train.py").code_folder(), ".");
    for (text, used, unclosed) in [
        ("{{rank}}/{{ data }}", &["rank", "data"][..], false),
        ("{{{{name}} {{rank}}", &["rank"], false),
        ("{{{{", &[], false),
        ("{{rank}} {{", &["rank"], true),
    ] {
        assert_eq!(fields(text).collect::<Vec<_>>(), used, "{text}");
        assert_eq!(is_unclosed(text), unclosed, "{text}");
    }
    assert!(!Script::new("train.py").fields().contains(&"data".to_owned()));
}

#[test]
fn roles_have_an_order() {
    let roles = [("worker", 2), ("ps", 1), ("chief", 1), ("actor", 3)];
    let mut script = Script::new("train.py");
    script.roles = roles.iter().map(|(role, n)| ((*role).to_owned(), *n)).collect();
    assert_eq!(script.role_names(), ["chief", "worker", "actor", "ps"]);
    assert!(script.fields().contains(&"ps_hosts".to_owned()));
}
