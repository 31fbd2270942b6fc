//! JSON values: convert TOML values to JSON, for `config = { … }`.

use std::sync::Arc;

use serde_json::{Map, Number, Value as Json};
use toml::de::{DeInteger, DeTable, DeValue};

use super::context::{ParseContext, Value};
use super::field::Field;
use super::table::TableReader;
use crate::diagnostic::Diagnostic;
use tidegate_model::Secret;

/// The table as a JSON object. Values without a JSON form are reported and become `null`.
pub(crate) fn object(reading: &mut ParseContext<'_>, table: &DeTable<'_>) -> Json {
    let entries = table.iter().map(|(key, value)| (key.get_ref().to_string(), json(reading, value)));
    Json::Object(entries.collect::<Map<_, _>>())
}

/// The field `config` of a step, gate or monitor, and the parts that must not be shown; an empty object if it
/// is missing.
pub(crate) fn config(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> (Arc<Json>, Vec<Secret>) {
    let before = reading.secrets.len();
    let table = section.field("config").and_then(|field| field.table(reading));
    let config = table.map_or_else(|| Json::Object(Map::new()), |table| object(reading, table));
    (Arc::new(config), reading.secrets[before..].to_vec())
}

/// The value as JSON, as [`object`] does it.
pub(crate) fn json(reading: &mut ParseContext<'_>, value: &Value<'_>) -> Json {
    match value.get_ref() {
        DeValue::String(raw) => {
            if let Some(typed) = reading.typed(raw, value) {
                return typed.unwrap_or_default();
            }
            let text = Field::of("config", value).text(reading);
            text.map_or(Json::Null, |text| Json::String(text.value))
        }
        DeValue::Integer(integer) => number(integer).map_or_else(
            || refuse(reading, value, format!("`{integer}` has more than 64 bits")),
            Json::Number,
        ),
        DeValue::Float(float) => {
            let number = float.as_str().parse().ok().and_then(Number::from_f64);
            let refused = || refuse(reading, value, format!("`{float}` has no JSON form"));
            number.map_or_else(refused, Json::Number)
        }
        DeValue::Boolean(answer) => Json::Bool(*answer),
        DeValue::Datetime(datetime) => Json::String(datetime.to_string()),
        DeValue::Array(values) => Json::Array(values.iter().map(|value| json(reading, value)).collect()),
        DeValue::Table(table) => object(reading, table),
    }
}

fn number(integer: &DeInteger<'_>) -> Option<Number> {
    let (digits, radix) = (integer.as_str(), integer.radix());
    let signed = i64::from_str_radix(digits, radix).map(Number::from);
    signed.or_else(|_| u64::from_str_radix(digits, radix).map(Number::from)).ok()
}

fn refuse(reading: &mut ParseContext<'_>, value: &Value<'_>, message: String) -> Json {
    let place = reading.place(value.span());
    let help = "write it as a text";
    reading.report(Diagnostic::error_at(&place, message).help(help));
    Json::Null
}
