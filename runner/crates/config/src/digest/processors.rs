//! Digests of processors: scripts, plugins and built-ins, of a step, a gate or a monitor.

use std::ops::RangeInclusive;
use std::path::Path;

use super::setting::{PartDigest, Scope};
use crate::model::{
    DataFormat, FileTable, Hosts, HttpRequest, LookupTable, LookupTables, ProbeConfig, Processor, QueueTable,
    Response, Script,
};
use crate::sections::exec::ExecCommand;
use serde_json::Value as Json;

/// The processors in `run`, and all that they consist of. `table` begins the keys: empty, or `monitor.`.
pub(super) fn run<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspect, table): (A, &str),
    processors: &[Processor],
) {
    digest.add(scope, aspect, format!("{table}run"), |it| {
        it.list(processors.iter(), |it, processor| match processor {
            Processor::Script(script) => it.path(&script.path),
            Processor::Plugin(plugin) if plugin.secret => it.secret(&plugin.full_name()),
            Processor::Plugin(plugin) => {
                it.word("plugin:");
                it.word(plugin.full_name());
            }
            Processor::Http(_) => it.word("builtin:http"),
            Processor::Exec(_) => it.word("builtin:exec"),
        });
        it.between(if processors.is_empty() { "none" } else { "" });
    });
    for processor in processors {
        match processor {
            Processor::Script(script) => self::script(digest, scope, (aspect, table), script),
            Processor::Plugin(plugin) => {
                let key = format!("{table}plugin {}", plugin.named());
                digest.add(scope, aspect, key, |it| {
                    it.hash(&plugin.sha256);
                    it.between(if plugin.has_effects { ", with external effects" } else { "" });
                });
                let key = format!("{table}plugin {} effects", plugin.named());
                digest.derive(scope, aspect, key, |it| it.flag(plugin.has_effects));
            }
            Processor::Http(request) => {
                self::request(digest, scope, (aspect, &format!("{table}http.")), request);
            }
            Processor::Exec(command) => {
                self::command(digest, scope, (aspect, &format!("{table}exec.")), command);
            }
        }
    }
}

/// The text of a script, and of all that it imports.
pub(super) fn script<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspect, table): (A, &str),
    script: &Script,
) {
    let imports = script.imports.iter().map(|import| (&import.path, &*import.text));
    for (path, text) in std::iter::once((&script.path, &*script.text)).chain(imports) {
        let path = scope.relative(path);
        digest.add(scope, aspect, format!("{table}script {path}"), |it| it.content(text));
    }
}

/// The lookup tables that scripts may read.
pub(super) fn tables<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspect, prefix): (A, &str),
    tables: &LookupTables,
) {
    for (name, table) in tables {
        let table = match &**table {
            LookupTable::File(table) => table,
            LookupTable::Queue(table) => {
                queue_table(digest, scope, (aspect, &format!("{prefix}table {name}")), table);
                continue;
            }
        };
        let FileTable { path, key, format, delimiter, text, rows: _ } = table;
        digest.add(scope, aspect, format!("{prefix}table {name}"), |it| it.content(text));
        digest.add(scope, aspect, format!("{prefix}table {name} path"), |it| it.path(path));
        digest.add(scope, aspect, format!("{prefix}table {name} key"), |it| it.text(&key.to_string()));
        let format = if *format == DataFormat::Csv { "csv" } else { "ndjson" };
        digest.add(scope, aspect, format!("{prefix}table {name} format"), |it| it.word(format));
        digest.add(scope, aspect, format!("{prefix}table {name} delimiter"), |it| {
            it.number((*delimiter).into());
        });
    }
}

/// The settings of a table whose rows are in a queue. The rows are no part of the configuration.
fn queue_table<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspect, title): (A, &str),
    table: &QueueTable,
) {
    let QueueTable { queue, key, tombstone, max_size } = table;
    digest.add(scope, aspect, format!("{title} queue"), |it| it.text(&queue.to_string()));
    digest.add(scope, aspect, format!("{title} key"), |it| it.text(&key.to_string()));
    digest.add(scope, aspect, format!("{title} tombstone"), |it| {
        it.optional(tombstone.as_ref(), "none", |it, path| it.text(&path.to_string()));
    });
    digest.add(scope, aspect, format!("{title} max_size"), |it| it.size(*max_size));
}

/// The settings of an HTTP request.
pub(super) fn request<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspect, table): (A, &str),
    request: &HttpRequest,
) {
    let HttpRequest { url, hosts, method, headers, body, timeout, max_response, accept, response } = request;
    let key = |key: &str| format!("{table}{key}");
    digest.add(scope, aspect, key("url"), |it| it.template(url));
    if let Some(Hosts { host, table }) = hosts {
        digest.add(scope, aspect, key("host"), |it| it.template(host));
        for (name, server) in table {
            digest.add(scope, aspect, key(&format!("hosts.{name}")), |it| it.template(server));
        }
    }
    digest.add(scope, aspect, key("method"), |it| it.word(method.as_str()));
    for (name, value) in headers {
        digest.add(scope, aspect, key(&format!("headers.{name}")), |it| it.template(value));
    }
    digest.add(scope, aspect, key("body"), |it| it.body(body));
    digest.add(scope, aspect, key("timeout"), |it| {
        it.optional(*timeout, "that of the attempt", super::encoder::Encoder::duration);
    });
    digest.add(scope, aspect, key("max_response"), |it| {
        it.optional(*max_response, "limits.memory", super::encoder::Encoder::size);
    });
    digest.add(scope, aspect, key("accept"), |it| statuses(it, accept));
    let response = match response {
        Response::Body => "body",
        Response::Full => "full",
    };
    digest.add(scope, aspect, key("response"), |it| it.word(response));
}

fn command<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspect, table): (A, &str),
    command: &ExecCommand,
) {
    program(digest, scope, (aspect, table), command);
    digest.add(scope, aspect, format!("{table}timeout"), |it| {
        it.optional(command.timeout, "that of the attempt", super::encoder::Encoder::duration);
    });
}

/// Statuses of an answer.
pub(super) fn statuses(it: &mut super::encoder::Encoder<'_>, statuses: &[RangeInclusive<u16>]) {
    it.list(statuses.iter(), |it, range| {
        it.number((*range.start()).into());
        it.between("–");
        it.number((*range.end()).into());
    });
}

/// A command without its timeout.
pub(super) fn program<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspect, table): (A, &str),
    command: &ExecCommand,
) {
    let ExecCommand { program, arguments, environment, folder, timeout: _ } = command;
    let key = |key: &str| format!("{table}{key}");
    digest.add(scope, aspect, key("command"), |it| {
        // A name without a folder is searched in `PATH`.
        if program.parent() == Some(Path::new("")) {
            it.text(&program.to_string_lossy());
        } else {
            it.path(program);
        }
        it.between(if arguments.is_empty() { "" } else { " " });
        it.list(arguments.iter(), super::encoder::Encoder::template);
    });
    for (name, value) in environment {
        digest.add(scope, aspect, key(&format!("env.{name}")), |it| it.template(value));
    }
    digest.add(scope, aspect, key("cwd"), |it| it.path(folder));
}

/// `config`, by its keys.
pub(super) fn config<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspect, table): (A, &str),
    config: &Json,
) {
    for (key, value) in config.as_object().into_iter().flatten() {
        digest.add(scope, aspect, format!("{table}config.{key}"), |it| it.json(value));
    }
}

/// The aspects of the settings of a probe.
pub(super) struct ProbeAspects<A> {
    pub(super) program: A,
    pub(super) config: A,
    pub(super) every: A,
    pub(super) timeout: A,
}

/// The settings of a gate or a monitor.
pub(super) fn probe<A: Copy + Ord>(
    digest: &mut PartDigest<A>,
    scope: &Scope<'_>,
    (aspects, table): (&ProbeAspects<A>, &str),
    probe: &ProbeConfig,
) {
    // `secrets` and `shared` are parts of `config`.
    let ProbeConfig { run, every, timeout, config, secrets: _, shared: _, tables } = probe;
    self::run(digest, scope, (aspects.program, table), run);
    self::tables(digest, scope, (aspects.program, table), tables);
    digest.add(scope, aspects.every, format!("{table}every"), |it| it.duration(*every));
    digest.add(scope, aspects.timeout, format!("{table}timeout"), |it| it.duration(*timeout));
    self::config(digest, scope, (aspects.config, table), config);
}
