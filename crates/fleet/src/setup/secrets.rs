//! Secrets: looked up here, handed to the one step that needs them, shown nowhere.
//!
//! Owns the look-up and its bounds. A value leaves this process only inside a step's variables or a
//! filled-in template, over the channel.

use crate::home::at_home;
use crate::provider::Fault;
use planaria_recipe::setup::{SecretSource, SecretText};
use std::fmt;
use std::fs::File;
use std::io::Read;

/// Longest secret.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    /// Whether it came from outside of the recipe.
    is_referred: bool,
}

impl Secret {
    /// Text that may be shown.
    pub(super) fn plain(text: String) -> Self {
        Self { text, is_referred: false }
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// The text, where it must not be shown: text of the recipe itself is no secret.
    pub fn hidden(&self) -> Option<&str> {
        self.is_referred.then_some(&self.text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Looks a secret up, in the environment and the files of this machine.
pub fn resolve(text: &SecretText) -> Result<Secret, Fault> {
    match text.source().map_err(|why| unsound(text, &why))? {
        SecretSource::Here(text) => Ok(Secret::plain(text.to_owned())),
        SecretSource::Env(name) => match std::env::var(name) {
            Ok(value) if value.contains('\0') => Err(unsound(text, "it holds a zero byte")),
            Ok(value) => Ok(Secret { text: value, is_referred: true }),
            Err(std::env::VarError::NotPresent) => Err(Fault::fix(
                "setup",
                format!("the recipe refers to `{text}`, but there is no variable `{name}` here"),
                format!("set it before the command, such as `export {name}=…`"),
            )),
            Err(std::env::VarError::NotUnicode(_)) => Err(unsound(text, "it is not UTF-8 text")),
        },
        SecretSource::File(path) => read(text, path),
    }
}

fn read(text: &SecretText, path: &str) -> Result<Secret, Fault> {
    let refuse = |why: String| {
        let what = format!("the recipe refers to `{text}`, but that file cannot be read: {why}");
        Fault::fix("setup", what, "paths are relative to the current directory, or begin with `~/`")
    };
    let mut bytes = Vec::new();
    let file = File::open(at_home(path)).map_err(|e| refuse(e.to_string()))?;
    let read = file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|e| refuse(e.to_string()))?;
    if bytes.len() as u64 > SECRET_BYTES_MAX {
        return Err(refuse(format!("it is longer than {SECRET_BYTES_MAX} bytes")));
    }
    let value = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8 text".into()))?;
    let value = value.trim_end_matches(['\n', '\r']);
    if value.contains('\0') {
        return Err(refuse("it holds a zero byte".into()));
    }
    Ok(Secret { text: value.to_owned(), is_referred: true })
}

fn unsound(text: &SecretText, why: &str) -> Fault {
    let hint = "a reference stands alone: `${env:NAME}` or `file:PATH`";
    Fault::fix("setup", format!("the recipe refers to `{text}`, but {why}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_looked_up_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "hunter2\n").unwrap();
        let file = resolve(&SecretText::new(format!("file:{}", path.display()))).unwrap();
        assert_eq!((file.reveal(), file.hidden()), ("hunter2", Some("hunter2")));
        assert_eq!(format!("{file} {file:?}"), "*** Secret(***)");
        let variable = resolve(&SecretText::new("${env:PATH}")).unwrap();
        assert_eq!(variable.reveal(), std::env::var("PATH").unwrap());
        let text = resolve(&SecretText::new("plain")).unwrap();
        assert_eq!((text.reveal(), text.hidden()), ("plain", None));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (reference, said) in [
            ("${env:NO_SUCH_VARIABLE_1}", "no variable `NO_SUCH_VARIABLE_1`"),
            ("file:/no/such/file", "`file:/no/such/file`, but that file cannot be read"),
            ("file:/dev/zero", "longer than"),
            ("${env:A}x", "text follows"),
        ] {
            let fault = resolve(&SecretText::new(reference)).unwrap_err();
            assert!(fault.what.contains(said), "{fault}");
            assert_eq!(fault.remedy, crate::provider::Remedy::Fix);
        }
    }
}
