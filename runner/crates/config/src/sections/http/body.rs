//! `Shape`: parses the JSON template of a `body`.

use toml::de::DeValue;

use crate::model::Shape;
use crate::parse::context::{ParseContext, Value};
use crate::parse::field::Field;
use crate::parse::json::json;
use crate::parse::template::template;
use tidegate_model::template::TemplatePart;

/// The shape of `value`, whose name in messages is `name`.
pub(crate) fn read(reading: &mut ParseContext<'_>, name: &str, value: &Value<'_>) -> Option<Shape> {
    Some(match value.get_ref() {
        DeValue::String(_) => {
            let text = Field::of(name, value).text(reading)?;
            let template = template(reading, &text)?;
            match template.parts() {
                [TemplatePart::Field(path)] => Shape::Value(path.clone()),
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
