//! Where rows are from: what tells the rows of one recording from those of others once they are together.

use std::collections::BTreeMap;

/// Where all rows of a file are from; `None` is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The machine that was recorded on.
    pub host: Option<String>,
    /// Name of the recording's content, the same wherever a copy of it lies; `None`: there is no recording,
    /// as probes have timed the calls.
    pub recording: Option<String>,
    /// What is added to a time of perf's clock to get real time, ns since 1970.
    pub realtime_offset_ns: Option<i64>,
    /// What the user says of the recording.
    pub labels: Labels,
}

/// Labels in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<String, String>);

/// A label as it is typed: `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    key: String,
    value: String,
}

impl std::str::FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("no key=value")?;
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !key.starts_with(|c: char| c.is_ascii_lowercase()) || !key.chars().all(is_word) {
            return Err(format!(
                "the key '{key}' is none: take a to z, 0 to 9 and _, and begin with a letter"
            ));
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

impl Labels {
    /// Of those that were typed.
    ///
    /// # Errors
    /// The key that is there twice.
    pub fn new(all: &[Label]) -> Result<Self, String> {
        let mut labels = BTreeMap::new();
        for Label { key, value } in all {
            if labels.insert(column(key), value.clone()).is_some() {
                return Err(key.clone());
            }
        }
        Ok(Self(labels))
    }

    /// The names of their columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Their values, in the order of the columns.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    /// Columns and values.
    #[must_use]
    pub fn by_column(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

/// The column of a label: no other column begins so, now or later.
fn column(key: &str) -> String {
    format!("label_{key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_of_columns() {
        let parse = |text: &str| text.parse::<Label>();
        assert_eq!(parse("build=v2=x"), Ok(Label { key: "build".into(), value: "v2=x".into() }));
        for wrong in ["", "=", "=v", "B=v", "1a=v", "a-b=v", "a b=v", "build"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_stands_once_and_in_order() {
        let label = |text: &str| text.parse::<Label>().unwrap();
        let labels = Labels::new(&[label("rack=7"), label("build=v2")]).unwrap();
        assert_eq!(labels.columns().collect::<Vec<_>>(), ["label_build", "label_rack"]);
        assert_eq!(labels.values().collect::<Vec<_>>(), ["v2", "7"]);
        assert_eq!(Labels::new(&[label("rack=7"), label("rack=8")]), Err("rack".to_owned()));
    }
}
