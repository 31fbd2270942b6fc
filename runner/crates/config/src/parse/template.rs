//! Templates: parses a text with `{path.to.field}` parts.

use super::context::{ParseContext, Text};
use super::field::Field;
use crate::diagnostic::Diagnostic;
use tidegate_model::template::Template;

/// The template in `text`; reports its errors.
pub(crate) fn template(reading: &mut ParseContext<'_>, text: &Text) -> Option<Template> {
    match Template::parse(&text.value, &text.outside) {
        Ok(template) => Some(template),
        Err(mistakes) => {
            let inside = reading.inside(text);
            // Without escapes and inserted values it is unchanged in the file.
            let exact = inside.len() == text.value.len() && !text.secret;
            for mistake in mistakes {
                let span = if exact {
                    inside.start + mistake.span.start..inside.start + mistake.span.end
                } else {
                    text.place.span.clone()
                };
                let diagnostic = Diagnostic::error_at(&reading.place(span), mistake.message);
                reading.report(diagnostic.help(mistake.help));
            }
            None
        }
    }
}

/// The names and templates of a table like `headers` or `env`.
pub(crate) fn templates(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<(Text, Template)> {
    let mut all = Vec::new();
    let Some(table) = field.table(reading) else { return all };
    for (key, value) in table {
        let place = reading.place(key.span());
        let key = Text::written(key.get_ref().to_string(), place);
        let name = format!("{}.{}", field.name, key.value);
        let text = Field::of(&name, value).text(reading);
        let template = text.and_then(|text| template(reading, &text));
        all.extend(template.map(|template| (key, template)));
    }
    all
}
