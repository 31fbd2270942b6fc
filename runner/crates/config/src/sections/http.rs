//! HTTP requests: parses `http = { … }`, the request of `builtin:http` or of a sink of type `http`.

pub(crate) mod body;
pub(crate) mod url;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::diagnostic::Diagnostic;
use crate::model::{Body, Hosts, HttpRequest, METHODS, Method, Response, Shape};
use crate::parse::context::{ParseContext, Text};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use crate::parse::template::{template, templates};
use tidegate_model::suggest::listed;
use tidegate_model::template::Template;
use tidegate_model::{parse_duration, parse_size};

const RESPONSES: [(&str, Response); 2] = [("body", Response::Body), ("full", Response::Full)];
/// Headers that the request sets itself.
const NOT_BY_HAND: [&str; 6] =
    ["connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"];

/// Parses `http = { … }`.
pub(crate) fn options(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<HttpRequest> {
    let section = TableReader::open(reading, TableKind::Http, "http", field.value())?;
    request(reading, TableKind::Http, &section)
}

/// Parses a table that describes a request.
pub(crate) fn request(
    reading: &mut ParseContext<'_>,
    kind: TableKind,
    section: &TableReader<'_>,
) -> Option<HttpRequest> {
    let before = reading.diagnostics.len();
    let help = "name the address: `url = \"https://host/path/{field}\"`";
    let hosts = hosts(reading, section);
    let has_hosts = section.field("hosts").is_some();
    let url = section.required(reading, "url", help).and_then(|field| url(reading, field, has_hosts));
    let default = if kind == TableKind::HttpSink { Method::Post } else { Method::Get };
    let method = section.field("method").map(|field| field.choice(reading, &METHODS));
    let method = method.unwrap_or(Some(default));
    let headers = section.field("headers").map(|field| headers(reading, field));
    let body = body(reading, section, method);
    let timeout = section
        .field("timeout")
        .and_then(|field| field.quantity(reading, ("duration", "5s"), parse_duration, Some(&Duration::ZERO)));
    let max_response = section
        .field("max_response")
        .and_then(|field| field.quantity(reading, ("size", "1MiB"), parse_size, Some(&0)));
    let accept = section.field("accept").map(|field| statuses(reading, field));
    let response = section.field("response").map(|field| field.choice(reading, &RESPONSES));
    if reading.diagnostics.len() > before {
        return None;
    }
    Some(HttpRequest {
        url: url?,
        hosts,
        method: method?,
        headers: headers.unwrap_or_default(),
        body: body?,
        timeout,
        max_response,
        accept: accept.unwrap_or_else(|| vec![200..=299]),
        response: response.flatten().unwrap_or(Response::Body),
    })
}

pub(crate) fn url(reading: &mut ParseContext<'_>, field: Field<'_>, has_hosts: bool) -> Option<Template> {
    let text = field.filled_text(reading)?;
    let template = template(reading, &text)?;
    let checked = if has_hosts { url::check_path(&template) } else { url::check(&template) };
    let Err((message, help)) = checked else { return Some(template) };
    reading.report(Diagnostic::error_at(&text.place, message).help(help));
    None
}

/// `hosts` and `host`, which belong together.
fn hosts(reading: &mut ParseContext<'_>, section: &TableReader<'_>) -> Option<Hosts> {
    let (table, host) = match (section.field("hosts"), section.field("host")) {
        (None, None) => return None,
        (Some(hosts), None) => {
            let help = "name the field that chooses one: `host = \"{service}\"`";
            let diagnostic = Diagnostic::error_at(&hosts.place(reading), "`hosts` needs `host`");
            reading.report(diagnostic.help(help));
            return None;
        }
        (None, Some(host)) => {
            let help = "name the servers: `hosts = { a = \"https://a.example\" }`";
            let diagnostic = Diagnostic::error_at(&host.place(reading), "`host` needs `hosts`");
            reading.report(diagnostic.help(help));
            return None;
        }
        (Some(hosts), Some(host)) => (server_table(reading, hosts), host),
    };
    let text = host.filled_text(reading)?;
    let host = template(reading, &text)?;
    if host.is_fixed() {
        let help = "write a field of the job, such as `\"{service}\"`, or only `url`";
        let diagnostic = Diagnostic::error_at(&text.place, "`host` must depend on the job");
        reading.report(diagnostic.help(help));
    }
    Some(Hosts { host, table })
}

fn server_table(reading: &mut ParseContext<'_>, field: Field<'_>) -> BTreeMap<String, Template> {
    let before = reading.diagnostics.len();
    let mut table = BTreeMap::new();
    for (key, server) in templates(reading, field) {
        if let Err((message, help)) = url::check_server(&server) {
            let message = format!("{} in `hosts`: {message}", key.quoted());
            reading.report(Diagnostic::error_at(&key.place, message).help(help));
        }
        table.insert(key.value, server);
    }
    if table.is_empty() && reading.diagnostics.len() == before {
        let diagnostic = Diagnostic::error_at(&field.place(reading), "`hosts` is empty");
        reading.report(diagnostic.help("name the servers: `hosts = { a = \"https://a.example\" }`"));
    }
    table
}

pub(crate) fn headers(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<(String, Template)> {
    let mut headers: Vec<(String, Template)> = Vec::new();
    for (key, template) in templates(reading, field) {
        let name = key.value.to_ascii_lowercase();
        if let Some((message, help)) = wrong_header(&key, &name, &headers) {
            reading.report(Diagnostic::error_at(&key.place, message).help(help));
        } else {
            headers.push((name, template));
        }
    }
    headers
}

fn wrong_header(key: &Text, name: &str, others: &[(String, Template)]) -> Option<(String, &'static str)> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        let message = format!("{} is not a name of a header", key.quoted());
        return Some((message, "a name has letters, digits and `-`"));
    }
    if NOT_BY_HAND.contains(&name) {
        let message = format!("the header {} is set by the request itself", key.quoted());
        return Some((message, "leave it out"));
    }
    let twice = others.iter().any(|(other, _)| other == name);
    twice.then(|| (format!("the header {} occurs twice", key.quoted()), "names of headers ignore case"))
}
/// The body: by default the job, if the method has a body, or that of the key `body`.
fn body(reading: &mut ParseContext<'_>, section: &TableReader<'_>, method: Option<Method>) -> Option<Body> {
    let Some(field) = section.field("body") else {
        return Some(if method?.sends_jobs() { Body::Job } else { Body::None });
    };
    let body = match field.value().get_ref().as_str() {
        Some("job") => Body::Job,
        Some("none") => Body::None,
        _ => Body::Json(body::read(reading, "body", field.value())?),
    };
    if let Body::Json(Shape::Text(text)) = &body
        && text.is_fixed()
    {
        let message = "`body` must depend on the job";
        let help = "use `job`, `none`, a template like `\"{order}\"`, or a table: `body = { id = \"{id}\" }`";
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
        return None;
    }
    if let (Some(method @ (Method::Get | Method::Head)), Body::Job | Body::Json(_)) = (method, &body) {
        let message = format!("a `{}` request has no `body`", method.as_str());
        let help = "write `method = \"POST\"`, or put values into `url`";
        reading.report(Diagnostic::error_at(&field.place(reading), message).help(help));
        return None;
    }
    Some(body)
}

/// `["2xx", "404"]`
pub(crate) fn statuses(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<RangeInclusive<u16>> {
    let texts = field.texts(reading).unwrap_or_default();
    let mut accepted = Vec::new();
    for text in texts {
        let class = text.value.strip_suffix("xx").filter(|class| class.len() == 1);
        let range = match class {
            Some(class) => class.parse::<u16>().ok().map(|class| class * 100..=class * 100 + 99),
            None => text.value.parse::<u16>().ok().map(|status| status..=status),
        };
        match range.filter(|range| (200..600).contains(range.start())) {
            Some(range) => accepted.push(range),
            None => {
                let message = format!("{} in `{}` is not a status of an answer", text.quoted(), field.name);
                let help = format!("write them like {}", listed(["2xx", "404"], "or"));
                reading.report(Diagnostic::error_at(&text.place, message).help(help));
            }
        }
    }
    accepted
}
