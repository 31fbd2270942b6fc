//! What JSON a `body` makes of each job.

use toml::de::DeValue;

use super::super::field::Field;
use super::super::json::json;
use super::super::reading::{Reading, Value};
use super::super::template::template;
use crate::words::Secret;
use crate::words::template::{Fact, Part, Template};

/// JSON with places that each job fills.
#[derive(Clone, Debug)]
pub enum Shape {
    /// The same for every job; JSON.
    Fixed(String),
    /// The value at this place in the job, whatever it is.
    Value(Vec<String>),
    /// A text with values put in.
    Text(Template),
    List(Vec<Shape>),
    Map(Vec<(String, Shape)>),
}

impl Shape {
    /// Whether it says this of each attempt.
    pub(super) fn has(&self, fact: Fact) -> bool {
        match self {
            Self::Fixed(_) | Self::Value(_) => false,
            Self::Text(template) => template.has(fact),
            Self::List(shapes) => shapes.iter().any(|shape| shape.has(fact)),
            Self::Map(shapes) => shapes.iter().any(|(_, shape)| shape.has(fact)),
        }
    }

    /// What must not be shown of it.
    pub(super) fn secrets(&self) -> Vec<&Secret> {
        match self {
            Self::Fixed(_) | Self::Value(_) => Vec::new(),
            Self::Text(template) => template.secrets().collect(),
            Self::List(shapes) => shapes.iter().flat_map(Self::secrets).collect(),
            Self::Map(shapes) => shapes.iter().flat_map(|(_, shape)| shape.secrets()).collect(),
        }
    }
}

/// The shape that `value` is, `name` being what messages call it.
pub(super) fn read(reading: &mut Reading<'_>, name: &str, value: &Value<'_>) -> Option<Shape> {
    Some(match value.get_ref() {
        DeValue::String(_) => {
            let text = Field::of(name, value).text(reading)?;
            let template = template(reading, &text)?;
            match template.parts() {
                [Part::Field(path)] => Shape::Value(path.clone()),
                _ => Shape::Text(template),
            }
        }
        DeValue::Array(values) => {
            let name = format!("{name}[…]");
            let shapes: Vec<_> = values.iter().map(|value| read(reading, &name, value)).collect();
            Shape::List(shapes.into_iter().collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let mut shapes = Vec::new();
            for (key, value) in table {
                let key = key.get_ref().to_string();
                let shape = read(reading, &format!("{name}.{key}"), value);
                shapes.push(shape.map(|shape| (key, shape)));
            }
            Shape::Map(shapes.into_iter().collect::<Option<_>>()?)
        }
        _ => Shape::Fixed(json(reading, value).to_string()),
    })
}
