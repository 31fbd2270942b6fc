//! `Field`: parses one value of a table as its expected type.
//!
//! It supports types of values: texts, lists, counts, choices, quantities. Their meaning belongs to the files
//! of the sections.

use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::absolute_path::absolute;
use super::context::{ParseContext, Placed, Text, Value};
use crate::diagnostic::{Diagnostic, SourceSpan};
use tidegate_model::FieldPath;
use tidegate_model::suggest::{did_you_mean, listed};

/// One value, with its name for messages.
#[derive(Clone, Copy)]
pub(crate) struct Field<'t> {
    pub(crate) name: &'t str,
    value: &'t Value<'t>,
}

impl<'t> Field<'t> {
    /// A value with the name `name` in messages.
    pub(crate) fn of(name: &'t str, value: &'t Value<'t>) -> Self {
        Self { name, value }
    }

    pub(crate) fn value(self) -> &'t Value<'t> {
        self.value
    }

    pub(crate) fn place(self, reading: &ParseContext<'_>) -> SourceSpan {
        reading.place(self.value.span())
    }

    pub(crate) fn text(self, reading: &mut ParseContext<'_>) -> Option<Text> {
        reading.text(self.name, self.value, "a text")
    }

    /// A text that is not empty.
    pub(crate) fn filled_text(self, reading: &mut ParseContext<'_>) -> Option<Text> {
        let text = self.text(reading)?;
        if text.value.is_empty() {
            let message = format!("`{}` is empty", self.name);
            reading.report(Diagnostic::error_at(&text.place, message));
            return None;
        }
        Some(text)
    }

    /// A path, relative to the file that names it; returned as absolute.
    pub(crate) fn path(self, reading: &mut ParseContext<'_>) -> Option<Placed<PathBuf>> {
        let text = self.filled_text(reading)?;
        Some(Placed { value: absolute(&reading.folder().join(text.value)), place: text.place })
    }

    /// A list of texts that is not empty.
    pub(crate) fn texts(self, reading: &mut ParseContext<'_>) -> Option<Vec<Text>> {
        if !self.value.get_ref().is_array() {
            reading.wrong_type(self.name, self.value, "a list of texts");
            return None;
        }
        self.text_or_texts(reading)
    }

    /// One text, or a list of texts that is not empty. Invalid elements are left out, so that the others are
    /// checked.
    pub(crate) fn text_or_texts(self, reading: &mut ParseContext<'_>) -> Option<Vec<Text>> {
        match self.value.get_ref() {
            DeValue::Array(values) if values.is_empty() => {
                let message = format!("`{}` is an empty list", self.name);
                let diagnostic = Diagnostic::error_at(&self.place(reading), message);
                reading.report(diagnostic.help(format!("add an element, or leave `{}` out", self.name)));
                None
            }
            DeValue::Array(values) => {
                let name = format!("{}[…]", self.name);
                Some(values.iter().filter_map(|value| reading.text(&name, value, "a text")).collect())
            }
            _ => Some(vec![reading.text(self.name, self.value, "a text or a list of texts")?]),
        }
    }

    pub(crate) fn boolean(self, reading: &mut ParseContext<'_>) -> Option<bool> {
        let answer = self.value.get_ref().as_bool();
        if answer.is_none() {
            reading.wrong_type(self.name, self.value, "`true` or `false`");
        }
        answer
    }

    /// A whole number of at least `min`.
    pub(crate) fn count(self, reading: &mut ParseContext<'_>, min: u64) -> Option<u64> {
        let Some(integer) = self.value.get_ref().as_integer() else {
            reading.wrong_type(self.name, self.value, "a whole number");
            return None;
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        match number.and_then(|number| u64::try_from(number).ok()) {
            // Larger numbers than TOML's are refused here too, so that a file has the same meaning
            // everywhere.
            Some(count) if count >= min && i64::try_from(count).is_ok() => Some(count),
            Some(count) if count >= min => {
                self.refuse(reading, format!("`{}` is too large", self.name));
                None
            }
            _ => {
                let too_large = number.is_none_or(|number| number > 0) && min == 0;
                let words = if too_large { "is too large".into() } else { format!("must be {min} or more") };
                self.refuse(reading, format!("`{}` {words}", self.name));
                None
            }
        }
    }

    /// A whole number of at least `min`, and below 2^32.
    pub(crate) fn small_count(self, reading: &mut ParseContext<'_>, min: u64) -> Option<u32> {
        let count = u32::try_from(self.count(reading, min)?);
        if count.is_err() {
            self.refuse(reading, format!("`{}` is too large", self.name));
        }
        count.ok()
    }

    /// A number, with or without a point.
    pub(crate) fn number(self, reading: &mut ParseContext<'_>) -> Option<f64> {
        let number = match self.value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            reading.wrong_type(self.name, self.value, "a number");
        }
        number
    }

    /// A field path: `id`, `order.id`, or `items.0`.
    pub(crate) fn path_in_job(self, reading: &mut ParseContext<'_>) -> Option<FieldPath> {
        let text = self.filled_text(reading)?;
        let Some(path) = FieldPath::parse(&text.value) else {
            let message = format!("{} in `{}` is not the path of a field", text.quoted(), self.name);
            let help = "write the name of a field, like `id`, or the path to it, like `order.id`; in a list, write the position, like `items.0`";
            reading.report(Diagnostic::error_at(&text.place, message).help(help));
            return None;
        };
        if let [first, rest @ ..] = path.names()
            && first == "job"
            && !rest.is_empty()
        {
            let message = format!(
                "{} in `{}` is the path to a field inside the job's field `job`",
                text.quoted(),
                self.name
            );
            let help = format!("for a field of the job itself, write `{}`", rest.join("."));
            let help = (!text.secret).then_some(help);
            reading.doubts.push(Diagnostic::warning_at(&text.place, message).help_if(help));
        }
        Some(path)
    }

    /// One of several words, each with its value.
    pub(crate) fn choice<T: Copy>(
        self,
        reading: &mut ParseContext<'_>,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.text(reading)?;
        self.chosen(reading, choices, &text)
    }

    /// Several of the words, each at most once.
    pub(crate) fn choices<T: Copy>(
        self,
        reading: &mut ParseContext<'_>,
        choices: &[(&'static str, T)],
    ) -> Option<Vec<T>> {
        let texts = self.texts(reading)?;
        let mut chosen = Vec::new();
        for (position, text) in texts.iter().enumerate() {
            if let Some(first) = texts[..position].iter().find(|earlier| earlier.value == text.value) {
                let message = format!("`{}` has {} twice", self.name, text.quoted());
                let diagnostic = Diagnostic::error_at(&text.place, message);
                reading.report(diagnostic.related(first.place.clone(), "first here"));
                continue;
            }
            chosen.extend(self.chosen(reading, choices, text));
        }
        Some(chosen)
    }

    fn chosen<T: Copy>(
        self,
        reading: &mut ParseContext<'_>,
        choices: &[(&'static str, T)],
        text: &Text,
    ) -> Option<T> {
        if let Some((_, meaning)) = choices.iter().find(|(word, _)| *word == text.value) {
            return Some(*meaning);
        }
        let words = choices.iter().map(|(word, _)| *word);
        let message = format!("`{}` cannot be {}", self.name, text.quoted());
        let help = (!text.secret).then(|| did_you_mean(&text.value, words.clone())).flatten();
        let help = help.unwrap_or_else(|| format!("use {}", listed(words, "or")));
        reading.report(Diagnostic::error_at(&text.place, message).help(help));
        None
    }

    /// A quantity like a duration or a size, which `parse` reads, and which must not be `zero`.
    pub(crate) fn quantity<T: PartialEq>(
        self,
        reading: &mut ParseContext<'_>,
        (what, example): (&str, &str),
        parse: impl Fn(&str) -> Result<T, String>,
        zero: Option<&T>,
    ) -> Option<T> {
        let text = reading.text(self.name, self.value, &format!("a text like `\"{example}\"`"))?;
        match parse(&text.value) {
            Ok(quantity) if zero == Some(&quantity) => {
                self.refuse(reading, format!("`{}` must be more than zero", self.name));
                None
            }
            Ok(quantity) => Some(quantity),
            // The error quotes the text.
            Err(_) if text.secret => {
                self.refuse(reading, format!("the value given here for `{}` is not a {what}", self.name));
                None
            }
            Err(reason) => {
                self.refuse(reading, format!("`{}`: {reason}", self.name));
                None
            }
        }
    }

    /// A list of quantities that is not empty; `None` if one of them is invalid.
    pub(crate) fn quantities<T: PartialEq>(
        self,
        reading: &mut ParseContext<'_>,
        named: (&str, &str),
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let Some(values) = self.value.get_ref().as_array().filter(|values| !values.is_empty()) else {
            // The error is reported as for texts.
            self.texts(reading);
            return None;
        };
        let name = format!("{}[…]", self.name);
        let fields = values.iter().map(|value| Field::of(&name, value));
        let quantities: Vec<_> = fields.map(|field| field.quantity(reading, named, &parse, None)).collect();
        quantities.into_iter().collect()
    }

    pub(crate) fn table(self, reading: &mut ParseContext<'_>) -> Option<&'t DeTable<'t>> {
        let table = self.value.get_ref().as_table();
        if table.is_none() {
            reading.wrong_type(self.name, self.value, "a table");
        }
        table
    }

    pub(crate) fn refuse(self, reading: &mut ParseContext<'_>, message: String) {
        let place = self.place(reading);
        reading.report(Diagnostic::error_at(&place, message));
    }
}
