//! `HttpRequest`: the request that `builtin:http`, or a sink of type `http`, makes for each job.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_model::template::{Fact, Template};
use tidegate_model::{FieldPath, Secret};

/// The methods by their names.
pub(crate) const METHODS: [(&str, Method); 7] = [
    ("GET", Method::Get),
    ("HEAD", Method::Head),
    ("POST", Method::Post),
    ("PUT", Method::Put),
    ("PATCH", Method::Patch),
    ("DELETE", Method::Delete),
    ("OPTIONS", Method::Options),
];
/// A request for each job.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// Begins with a scheme and a host that are the same for every job; with `hosts`, with `/`.
    pub url: Template,
    pub hosts: Option<Hosts>,
    pub method: Method,
    /// In lowercase.
    pub headers: Vec<(String, Template)>,
    pub body: Body,
    /// `None`: the time of the attempt.
    pub timeout: Option<Duration>,
    /// Maximum bytes of the answer's body. `None`: `limits.memory`.
    pub max_response: Option<u64>,
    /// The statuses that are no failures.
    pub accept: Vec<RangeInclusive<u16>>,
    pub response: Response,
}

/// A server for each job, out of a fixed table.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The name of the server.
    pub host: Template,
    /// By name: scheme and host, perhaps with the beginning of a path, without a `/` at the end. The same for every job.
    pub table: BTreeMap<String, Template>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

/// The body of the request.
#[derive(Clone, Debug)]
pub enum Body {
    None,
    Job,
    Json(Shape),
}

/// The output of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The answer's body.
    Body,
    /// A map of the job, and the answer's status, headers and body.
    Full,
}

impl HttpRequest {
    /// The parts that must not be shown.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let hosts = self.hosts.iter().flat_map(|hosts| hosts.table.values());
        let headers = self.headers.iter().map(|(_, value)| value);
        let templates = hosts.chain(headers).chain([&self.url]);
        templates.flat_map(Template::secrets).chain(self.body.secrets())
    }

    /// Whether it sends the token with which the service completes a job.
    #[must_use]
    pub fn passes_token(&self) -> bool {
        let in_body = matches!(&self.body, Body::Json(shape) if shape.has(Fact::Token));
        let headers = self.headers.iter().map(|(_, template)| template);
        in_body || headers.chain([&self.url]).any(|template| template.has(Fact::Token))
    }
}

impl Body {
    /// The parts that must not be shown.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let shape = if let Self::Json(shape) = self { Some(shape) } else { None };
        shape.into_iter().flat_map(Shape::secrets)
    }
}

impl Method {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        METHODS.iter().find(|(_, method)| *method == self).map_or("GET", |(word, _)| word)
    }

    /// Whether the job is the body by default.
    pub(crate) fn sends_jobs(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

/// JSON with parts that are filled from each job.
#[derive(Clone, Debug)]
pub enum Shape {
    /// The same for every job; JSON.
    Fixed(String),
    /// The value at this path in the job, of any type.
    Value(FieldPath),
    /// A text with inserted values.
    Text(Template),
    List(Vec<Shape>),
    Map(Vec<(String, Shape)>),
}

impl Shape {
    /// Whether it contains this fact of an attempt.
    fn has(&self, fact: Fact) -> bool {
        match self {
            Self::Fixed(_) | Self::Value(_) => false,
            Self::Text(template) => template.has(fact),
            Self::List(shapes) => shapes.iter().any(|shape| shape.has(fact)),
            Self::Map(shapes) => shapes.iter().any(|(_, shape)| shape.has(fact)),
        }
    }

    /// The parts that must not be shown.
    pub(crate) fn secrets(&self) -> Vec<&Secret> {
        match self {
            Self::Fixed(_) | Self::Value(_) => Vec::new(),
            Self::Text(template) => template.secrets().collect(),
            Self::List(shapes) => shapes.iter().flat_map(Self::secrets).collect(),
            Self::Map(shapes) => shapes.iter().flat_map(|(_, shape)| shape.secrets()).collect(),
        }
    }
}
