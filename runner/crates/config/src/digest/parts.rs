//! Digest of a queue, source, sink or gate: its settings, by aspect.

use super::aspect::{GateAspect, QueueAspect, SinkAspect, SourceAspect};
use super::processors::{self, ProbeAspects};
use super::setting::{PartDigest, Scope};
use super::step;
use crate::model::push_source::{
    AcceptScript, BadLines, CommandSource, CursorRule, HttpSource, PushSource, ScheduleSource, Token,
};
use crate::model::{
    DataFormat, FileSink, FileSource, Gate, LineFormat, Meta, OnMismatch, PullSource, Queue, Retain, Sink,
    SinkFormat, SinkKind, Source, SourceKind,
};
use tidegate_model::{Missed, Restart, Schedule};

pub(super) fn queue(scope: &Scope<'_>, queue: &Queue) -> PartDigest<QueueAspect> {
    // `address` is the key of the digest.
    let Queue { address: _, retain, max_size, meta, dedupe, holds_errors, holds_events: _, source } = queue;
    let mut digest = PartDigest::new();
    digest.add(scope, QueueAspect::Retention, "retain", |it| match retain {
        Retain::Consumed => it.word("consumed"),
        Retain::For(time) => it.duration(*time),
        Retain::Forever => it.word("forever"),
    });
    digest.add(scope, QueueAspect::Retention, "max_size", |it| {
        it.optional(*max_size, "unlimited", super::encoder::Encoder::size);
    });
    self::meta(&mut digest, scope, QueueAspect::Meta, *meta);
    digest.add(scope, QueueAspect::Dedupe, "dedupe", |it| {
        it.optional(*dedupe, "none", super::encoder::Encoder::duration);
    });
    digest.derive(scope, QueueAspect::Errors, "holds errors", |it| it.flag(*holds_errors));
    match source {
        None => {}
        Some(PushSource::Http(source)) => http(&mut digest, scope, source),
        Some(PushSource::Schedule(source)) => schedule(&mut digest, scope, source),
        Some(PushSource::Exec(source)) => command(&mut digest, scope, source),
    }
    digest
}

fn meta<A: Copy + Ord>(digest: &mut PartDigest<A>, scope: &Scope<'_>, aspect: A, meta: Meta) {
    let Meta { index, time, transaction, place, dropped } = meta;
    let given = [(index, "index"), (time, "time"), (transaction, "tx"), (place, "place"), (dropped, "false")];
    let given: Vec<&str> = given.into_iter().filter(|(given, _)| *given).map(|(_, word)| word).collect();
    digest.add(scope, aspect, "meta", |it| {
        it.list(given.iter(), super::encoder::Encoder::word);
        it.between(if given.is_empty() { "none" } else { "" });
    });
}

fn http(digest: &mut PartDigest<QueueAspect>, scope: &Scope<'_>, source: &HttpSource) {
    let HttpSource { key, dedupe, max_body, max_waiting, token, schema, accept, due, delay } = source;
    digest.add(scope, QueueAspect::Source, "source.type", |it| it.word("http"));
    digest.add(scope, QueueAspect::Source, "source.key", |it| {
        it.optional(key.as_ref(), "none", |it, key| it.text(&key.to_string()));
    });
    digest.add(scope, QueueAspect::Source, "source.dedupe", |it| {
        it.optional(*dedupe, "forever", super::encoder::Encoder::duration);
    });
    digest.add(scope, QueueAspect::Source, "source.max_body", |it| it.size(*max_body as u64));
    digest.add(scope, QueueAspect::Source, "source.max_waiting", |it| {
        it.optional(*max_waiting, "unlimited", super::encoder::Encoder::number);
    });
    digest.add(scope, QueueAspect::Source, "source.token", |it| {
        it.optional(token.as_ref().map(Token::reveal), "none", super::encoder::Encoder::secret);
    });
    if let Some(AcceptScript { script, limits, timeout }) = accept.as_deref() {
        let aspect = QueueAspect::Source;
        processors::script(digest, scope, (aspect, "source.accept "), script);
        digest.add(scope, aspect, "source.limits.operations", |it| it.number(limits.operations));
        digest.add(scope, aspect, "source.limits.memory", |it| it.size(limits.memory));
        digest.add(scope, aspect, "source.limits.depth", |it| it.number(limits.depth as u64));
        digest.add(scope, aspect, "source.timeout", |it| it.duration(*timeout));
    }
    for (key, path) in [("due", due), ("delay", delay)] {
        digest.add(scope, QueueAspect::Source, format!("source.{key}"), |it| {
            it.optional(path.as_ref(), "none", |it, path| it.text(&path.to_string()));
        });
    }
    if let Some(schema) = schema {
        let path = scope.relative(&schema.path);
        digest
            .add(scope, QueueAspect::Source, format!("source.schema {path}"), |it| it.content(&schema.text));
    }
}

fn schedule(digest: &mut PartDigest<QueueAspect>, scope: &Scope<'_>, source: &ScheduleSource) {
    let ScheduleSource { schedule, missed, payload } = source;
    digest.add(scope, QueueAspect::Source, "source.type", |it| it.word("schedule"));
    match schedule {
        Schedule::Cron { cron, zone } => {
            digest.add(scope, QueueAspect::Source, "source.cron", |it| it.word(cron));
            let zone = zone.iana_name().unwrap_or("UTC");
            digest.add(scope, QueueAspect::Source, "source.time_zone", |it| it.word(zone));
        }
        Schedule::Every(every) => {
            digest.add(scope, QueueAspect::Source, "source.every", |it| it.duration(*every));
        }
    }
    digest.add(scope, QueueAspect::Source, "source.missed", |it| {
        it.word(match missed {
            Missed::Skip => "skip",
            Missed::Once => "once",
            Missed::All => "all",
        });
    });
    for (key, value) in payload {
        digest.add(scope, QueueAspect::Source, format!("source.payload.{key}"), |it| it.json(value));
    }
}

fn command(digest: &mut PartDigest<QueueAspect>, scope: &Scope<'_>, source: &CommandSource) {
    let CommandSource { command, lines, cursor, restart, retry, max_waiting, bad_lines } = source;
    let LineFormat { format, max_line, headers, delimiter } = lines;
    let aspect = QueueAspect::Source;
    digest.add(scope, aspect, "source.type", |it| it.word("exec"));
    processors::program(digest, scope, (aspect, "source."), command);
    digest.add(scope, aspect, "source.format", |it| it.word(data_format(*format)));
    digest.add(scope, aspect, "source.max_line", |it| it.size(*max_line as u64));
    digest.add(scope, aspect, "source.headers", |it| it.flag(*headers));
    digest.add(scope, aspect, "source.delimiter", |it| {
        it.text(&char::from(*delimiter).escape_debug().to_string());
    });
    match cursor {
        None => digest.add(scope, aspect, "source.cursor", |it| it.word("none")),
        Some(CursorRule::Field(path)) => {
            digest.add(scope, aspect, "source.cursor", |it| it.text(&path.to_string()));
        }
        Some(CursorRule::Prefix(prefix)) => {
            digest.add(scope, aspect, "source.cursor_prefix", |it| it.text(prefix));
        }
    }
    digest.add(scope, aspect, "source.restart", |it| {
        it.word(match restart {
            Restart::OnFailure => "on-failure",
            Restart::Always => "always",
            Restart::Never => "never",
        });
    });
    step::retry(digest, scope, (aspect, "source."), Some(retry));
    digest.add(scope, aspect, "source.max_waiting", |it| {
        it.optional(*max_waiting, "unlimited", super::encoder::Encoder::number);
    });
    digest.add(scope, aspect, "source.errors", |it| match bad_lines {
        BadLines::Queue(queue) => it.text(&queue.to_string()),
        BadLines::Drop => it.word("drop"),
        BadLines::Stop => it.word("none"),
    });
}

fn data_format(format: DataFormat) -> &'static str {
    match format {
        DataFormat::Ndjson => "ndjson",
        DataFormat::Lines => "lines",
        DataFormat::Csv => "csv",
        DataFormat::Bytes => "bytes",
    }
}

pub(super) fn source(scope: &Scope<'_>, source: &Source) -> PartDigest<SourceAspect> {
    let Source { address: _, kind, meta } = source;
    let mut digest = PartDigest::new();
    match kind {
        SourceKind::File(file) => self::file(&mut digest, scope, file),
        SourceKind::Service(service) => self::service(&mut digest, scope, service),
    }
    self::meta(&mut digest, scope, SourceAspect::Meta, *meta);
    digest
}

impl PartDigest<SourceAspect> {
    /// Framing of its files: the settings that decide which job of a file has which index. `None` for a service.
    #[must_use]
    pub fn framing(&self) -> Option<String> {
        let shown = |key| self.shown(key).unwrap_or_default();
        Some(match self.shown("format")? {
            "ndjson" | "lines" => "a job for each line".to_owned(),
            "csv" => format!("csv, headers = {}, delimiter = {}", shown("headers"), shown("delimiter")),
            format => format.to_owned(),
        })
    }
}

fn file(digest: &mut PartDigest<SourceAspect>, scope: &Scope<'_>, file: &FileSource) {
    let FileSource { path, format, follow, max_line, headers, delimiter } = file;
    digest.add(scope, SourceAspect::Path, "path", |it| it.path(path));
    digest.add(scope, SourceAspect::Format, "format", |it| it.word(data_format(*format)));
    digest.add(scope, SourceAspect::Follow, "follow", |it| it.flag(*follow));
    digest.add(scope, SourceAspect::Format, "max_line", |it| it.size(*max_line as u64));
    digest.add(scope, SourceAspect::Format, "headers", |it| it.flag(*headers));
    digest.add(scope, SourceAspect::Format, "delimiter", |it| {
        it.text(&char::from(*delimiter).escape_debug().to_string());
    });
}

fn service(digest: &mut PartDigest<SourceAspect>, scope: &Scope<'_>, service: &PullSource) {
    let PullSource {
        url,
        headers,
        first,
        until,
        not_yet,
        accept,
        every,
        concurrency,
        timeout,
        max_response,
        retry,
    } = service;
    digest.add(scope, SourceAspect::Path, "type", |it| it.word("http-pull"));
    digest.add(scope, SourceAspect::Path, "url", |it| it.template(url));
    digest.add(scope, SourceAspect::Path, "first", |it| it.number(*first));
    let request = SourceAspect::Request;
    for (name, value) in headers {
        digest.add(scope, request, format!("headers.{name}"), |it| it.template(value));
    }
    digest.add(scope, request, "until", |it| {
        it.optional(*until, "none", super::encoder::Encoder::number);
    });
    for (key, statuses) in [("not_yet", not_yet), ("accept", accept)] {
        digest.add(scope, request, key, |it| processors::statuses(it, statuses));
    }
    digest.add(scope, request, "every", |it| it.duration(*every));
    digest.add(scope, request, "concurrency", |it| it.number(*concurrency as u64));
    digest.add(scope, request, "timeout", |it| it.duration(*timeout));
    digest.add(scope, request, "max_response", |it| it.size(*max_response));
    step::retry(digest, scope, (request, ""), Some(retry));
}

pub(super) fn sink(scope: &Scope<'_>, sink: &Sink) -> PartDigest<SinkAspect> {
    let Sink { address: _, kind } = sink;
    let mut digest = PartDigest::new();
    let word = match kind {
        SinkKind::File(_) => "file",
        SinkKind::Stdout(_) => "stdout",
        SinkKind::Http(_) => "http",
        SinkKind::Null => "null",
    };
    digest.add(scope, SinkAspect::Target, "type", |it| it.word(word));
    match kind {
        SinkKind::File(FileSink { path, format, on_mismatch }) => {
            digest.add(scope, SinkAspect::Target, "path", |it| it.path(path));
            digest.add(scope, SinkAspect::Format, "format", |it| it.word(self::format(*format)));
            digest.add(scope, SinkAspect::OnMismatch, "on_mismatch", |it| {
                it.word(match on_mismatch {
                    OnMismatch::Refuse => "refuse",
                    OnMismatch::Append => "append",
                });
            });
        }
        SinkKind::Stdout(format) => {
            digest.add(scope, SinkAspect::Format, "format", |it| it.word(self::format(*format)));
        }
        SinkKind::Http(request) => {
            processors::request(&mut digest, scope, (SinkAspect::Request, ""), request);
        }
        SinkKind::Null => {}
    }
    digest
}

fn format(format: SinkFormat) -> &'static str {
    match format {
        SinkFormat::Ndjson => "ndjson",
        SinkFormat::Lines => "lines",
    }
}

pub(super) fn gate(scope: &Scope<'_>, gate: &Gate) -> PartDigest<GateAspect> {
    // The rest is the key of the digest.
    let Gate { name: _, pipeline: _, inquiry } = gate;
    let mut digest = PartDigest::new();
    let aspects = ProbeAspects {
        program: GateAspect::Program,
        config: GateAspect::Config,
        every: GateAspect::Every,
        timeout: GateAspect::Timeout,
    };
    processors::probe(&mut digest, scope, (&aspects, ""), inquiry);
    digest
}
