//! Instances: parses `[pipeline.each]`.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use crate::diagnostic::Diagnostic;
use crate::parse::context::{ParseContext, Text};
use crate::parse::field::Field;
use crate::parse::instance::{Instance, Parameter};
use crate::parse::reference::name;

/// The instances in `[pipeline.each]`, in the order of the file.
pub(crate) fn instances(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<Instance> {
    let Some(table) = field.table(reading) else { return Vec::new() };
    if table.is_empty() {
        let diagnostic = Diagnostic::error_at(&field.place(reading), "`[pipeline.each]` has no instance");
        reading.report(diagnostic.help("write one line for each pipeline: `eu = { url = \"…\" }`"));
    }
    let mut entries: Vec<_> = table.iter().collect();
    // The tree is sorted by key; the file is read from the top.
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut instances = Vec::new();
    for (key, value) in entries {
        let place = reading.place(key.span());
        let text = Text::written(key.get_ref().to_string(), place);
        let named = name(reading, "pipeline", &text);
        let values = Field::of(key.get_ref(), value).table(reading).map(|table| parameters(reading, table));
        instances.extend(named.zip(values).map(|(name, values)| Instance::new(name.value, values)));
    }
    instances
}

fn parameters(reading: &mut ParseContext<'_>, table: &DeTable<'_>) -> BTreeMap<String, Parameter> {
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let name = key.get_ref().to_string();
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name {
            let message = format!("`{name}` is not a name of a parameter");
            let diagnostic = Diagnostic::error_at(&reading.place(key.span()), message);
            reading.report(diagnostic.help("use ASCII letters, digits and `_`"));
            continue;
        }
        let plain = |value: String| Some(Parameter { value, secret: false });
        let parameter = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => plain(number.as_str().to_owned()),
            DeValue::Float(number) => plain(number.as_str().to_owned()),
            DeValue::Boolean(truth) => plain(truth.to_string()),
            _ => reading
                .text(&name, value, "a text, a number or a boolean")
                .map(|text| Parameter { secret: text.secret, value: text.value }),
        };
        values.extend(parameter.map(|parameter| (name, parameter)));
    }
    values
}
