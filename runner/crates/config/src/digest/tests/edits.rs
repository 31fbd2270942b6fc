//! `EDITS`: an edit of each key of the grammar.

use crate::parse::keys::TableKind::{self, *};

/// The parts that `[retry.shared]` and so on are settings of.
const RETRY: &[&str] = &["step p/work: retry"];
const PICKS: &[&str] = &["step p/picks: queuer"];
const PICKS_LIMITS: &[&str] = &["step p/picks: queuer limits"];
const ASKS: &[&str] = &["step p/asks: program"];
const SERVICE: &[&str] = &["sink p/service: request", "step p/service: program"];
const WORK: &[&str] = &["step p/work: program"];
const LINES: &[&str] = &["source p/lines: format"];
const POSTS: &[&str] = &["queue p/posts: source"];
const TICKS: &[&str] = &["queue p/ticks: source"];
const MONITOR: &[&str] = &["step p/picks: monitor"];
const GAS: &[&str] = &["gate gas: program"];
const AFTER: &[&str] = &["step second/after: program"];
const NONE: &[&str] = &[];

/// The kind of table, the key, the text that is replaced, its replacement, and the differing aspects.
pub(super) type Edit = (TableKind, &'static str, &'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip] // A row each.
pub(super) const EDITS: &[Edit] = &[
    // Tables of files: each is changed as a whole.
    (PipelineFile, "pipeline", "name = \"second\"", "delivery = \"exactly-once\"", RENAMED),
    (PipelineFile, "source", "[source.beats]\ntype = \"schedule\"\nevery = \"6m\"\n", "[source.beats]\ntype = \"http\"\n", &["queue p/beats: source"]),
    (PipelineFile, "queue", "[queue.done]", "[queue.odd]", MOVED_QUEUE),
    (PipelineFile, "retry", "[retry.own]", "[retry.own2]\nbackoff = \"fixed\"\n\n[retry.own]\nmax_attempts = 3", &["step second/after: retry"]),
    (PipelineFile, "queuer", "[queuer.own]\nstrategy = \"serial\"", "[queuer.own]\nstrategy = \"fifo\"", &["step second/after: queuer"]),
    (PipelineFile, "gate", "[gate.own]\nrun = \"gas.rhai\"", "[gate.own]\nrun = \"status.rhai\"", &["gate second/own: program"]),
    (PipelineFile, "step", "[step.on]", "[step.onward]", &["+ step second/onward", "- step second/on"]),
    (PipelineFile, "sink", "[sink.shown]", "[sink.printed]", &["+ sink p/printed", "+ step p/printed", "- sink p/shown", "- step p/shown"]),
    (SettingsFile, "runner", "workers = 3\n", "", &["runner: workers"]),
    (SettingsFile, "log", "[log]\nlevel = \"debug\"", "[log]", &["runner: log"]),
    (SettingsFile, "plugin", "[plugin.geo]", "[plugin.gis]", &["runner: plugins"]),
    (SettingsFile, "retry", "factor = 1.5\n", "", RETRY),
    (SettingsFile, "queuer", "pause = \"7s\"", "", &["step p/circles: queuer limits"]),
    (SettingsFile, "gate", "[gate.gas]", "[gate.oil]\nrun = \"gas.rhai\"\nevery = \"1s\"\n\n[gate.gas]", &["+ gate oil"]),
    (PipelineFile, "table", "[table.ports]", "[table.hosts]\npath = \"ports.ndjson\"\nkey = \"port\"\n\n[table.ports]", AFTER),
    (SettingsFile, "table", "x,y|z|n", "x,y|z|m", AFTER),
    (LookupTable, "path", "hosts.dat\"", "hosts2.dat\"", AFTER),
    (LookupTable, "key", "key = \"host\"", "key = \"name\"", AFTER),
    (LookupTable, "format", "path = \"ports.ndjson\"", "path = \"ports.ndjson\"\nformat = \"ndjson\"", NONE),
    (LookupTable, "delimiter", "delimiter = \"|\"", "delimiter = \",\"", AFTER),
    (Runner, "data", "data = \"state\"", "data = \"states\"", &["runner: data"]),
    (Runner, "listen", "127.0.0.1:8484", "127.0.0.1:8485", &["runner: listen"]),
    (Runner, "hosts", "tide.example", "tide2.example", &["runner: hosts"]),
    (Runner, "workers", "workers = 3", "workers = 4", &["runner: workers"]),
    (Runner, "shutdown_timeout", "\"45s\"", "\"46s\"", &["runner: shutdown_timeout"]),
    (Runner, "plugins", "plugins = \"plugins\"", "plugins = \"others\"", &["runner: plugins"]),
    // The step `work` has a currency of its own.
    (Runner, "config", "currency = \"CHF\", region", "currency = \"SEK\", region", NOT_WORK),
    (Log, "level", "level = \"debug\"", "level = \"warn\"", &["runner: log"]),
    (Log, "format", "format = \"json\"", "format = \"text\"", &["runner: log"]),
    (SettingsFile, "reload", "[reload]\nwatch = true\npoll = \"31s\"", "[reload]", &["runner: reload"]),
    (Reload, "watch", "watch = true\npoll = \"31s\"", "watch = false", &["runner: reload"]),
    (Reload, "tests", "tests = false", "tests = true", &["runner: reload"]),
    (Reload, "poll", "poll = \"31s\"", "poll = \"32s\"", &["runner: reload"]),
    (Plugin, "sha256", "sha256 = \"ab", "sha256 = \"cd", &["runner: plugins"]),
    (Pipeline, "name", "name = \"second\"", "name = \"third\"", RENAMED_THIRD),
    (Pipeline, "each", "name = \"second\"", "name = \"${each}\"\neach = { third = { x = 1 } }", RENAMED_THIRD),
    (Pipeline, "errors", "errors = \"failed\"", "errors = \"lost\"", LOST),
    (Pipeline, "delivery", "delivery = \"at-least-once\"", "delivery = \"exactly-once\"", PIPELINE_DELIVERY),
    (Pipeline, "config", "tenant = \"second\"", "tenant = \"2nd\"", &["gate second/own: config", "step second/after: config"]),
    (FileSource, "type", "type = \"file\"\npath = \"data/*.csv\"\nformat = \"csv\"\nfollow = true\nmax_line = \"1MiB\"\nheaders = false\ndelimiter = \";\"\nmeta = [\"place\"]", "type = \"http\"", TO_HTTP),
    (FileSource, "path", "data/*.csv", "data/*.txt", &["source p/lines: path"]),
    (FileSource, "format", "format = \"csv\"\nfollow = true\nmax_line = \"1MiB\"\nheaders = false\ndelimiter = \";\"", "format = \"csv\"\nfollow = true\nmax_line = \"1MiB\"\n", LINES),
    (FileSource, "follow", "follow = true", "follow = false", &["source p/lines: follow"]),
    (FileSource, "max_line", "\"1MiB\"", "\"4MiB\"", LINES),
    (FileSource, "headers", "headers = false", "headers = true", LINES),
    (FileSource, "delimiter", "delimiter = \";\"", "delimiter = \"\\t\"", LINES),
    (FileSource, "meta", "meta = [\"place\"]", "meta = [\"place\", \"index\"]", &["source p/lines: meta", "step p/work: inputs"]),
    (HttpSource, "type", "type = \"http\"\nkey = \"order.id\"\ndedupe = \"8d\"\nmax_body = \"2MiB\"\nmax_waiting = 9\ntoken = \"${SECRET}\"\nschema = \"order.schema.json\"\naccept = \"accept.rhai\"\nlimits = { memory = \"7MiB\", operations = 7777, depth = 7 }\ntimeout = \"77s\"\ndue = \"send.at\"\ndelay = \"send.after\"", "type = \"schedule\"\nevery = \"1h\"", POSTS),
    (HttpSource, "key", "\"order.id\"", "\"order.no\"", POSTS),
    (HttpSource, "dedupe", "\"8d\"", "\"9d\"", POSTS),
    (HttpSource, "max_body", "\"2MiB\"", "\"5MiB\"", POSTS),
    (HttpSource, "max_waiting", "max_waiting = 9", "max_waiting = 0", POSTS),
    (HttpSource, "schema", "schema = \"order.schema.json\"", "schema = \"other.schema.json\"", POSTS),
    (HttpSource, "accept", "accept = \"accept.rhai\"", "accept = \"other_accept.rhai\"", POSTS),
    (HttpSource, "accept", "fn accept(job) { true }", "fn accept(job) { 1 }", POSTS),
    (HttpSource, "limits", "operations = 7777", "operations = 7778", POSTS),
    (HttpSource, "timeout", "\"77s\"", "\"78s\"", POSTS),
    (HttpSource, "due", "send.at", "send.when", POSTS),
    (HttpSource, "delay", "send.after", "send.in", POSTS),
    (HttpSource, "token", "token = \"${SECRET}\"", "token = \"other\"", POSTS),
    (ScheduleSource, "type", "type = \"schedule\"\nevery", "type = \"schedule\"\npayload = { x = 1 }\nevery", &["queue p/beats: source"]),
    (ScheduleSource, "cron", "30 2 * * mon-fri", "31 2 * * mon-fri", TICKS),
    (ScheduleSource, "time_zone", "Europe/Berlin", "Europe/Paris", TICKS),
    (ScheduleSource, "every", "\"6m\"", "\"7m\"", &["queue p/beats: source"]),
    (ScheduleSource, "missed", "missed = \"once\"", "missed = \"all\"", TICKS),
    (ScheduleSource, "payload", "report = \"daily\"", "report = \"nightly\"", TICKS),
    (Queue, "retain", "retain = \"7d\"", "retain = \"forever\"", &["queue p/done: retention"]),
    (Queue, "max_size", "\"1GiB\"", "\"2GiB\"", &["queue p/done: retention"]),
    (Queue, "meta", "[\"tx\", \"index\"]", "[\"tx\"]", READERS_OF_DONE),
    (Queue, "dedupe", "\"2d\"", "\"3d\"", &["queue p/done: dedupe", "step p/work: dedupe"]),
    (PipelineFile, "queue_defaults", "[queue_defaults]\nretain = \"3d\"\nmax_size = \"3GiB\"\nmeta = [\"time\"]\ndedupe = \"5h\"", "", DEFAULTS_OF_END),
    (SettingsFile, "queue_defaults", "[queue_defaults]\nmax_size = \"9GiB\"", "", DEFAULT_SIZE),
    (QueueDefaults, "retain", "retain = \"3d\"", "retain = \"4d\"", &["queue second/end: retention"]),
    (QueueDefaults, "max_size", "\"3GiB\"", "\"4GiB\"", &["queue second/end: retention"]),
    (QueueDefaults, "meta", "meta = [\"time\"]", "meta = false", &["queue second/end: meta", "step second/after: inputs", "step second/on: outputs"]),
    (QueueDefaults, "dedupe", "dedupe = \"5h\"", "dedupe = \"6h\"", &["queue second/end: dedupe", "step second/on: dedupe"]),
    // It permits a graph, and has no effect on the run.
    (Queue, "allow_cycle", "allow_cycle = true\n", "", NONE),
    (Retry, "backoff", "backoff = \"exponential\"\ninitial = \"500ms\"\nfactor = 1.5", "backoff = \"fibonacci\"\ninitial = \"500ms\"", RETRY),
    (Retry, "initial", "\"500ms\"", "\"600ms\"", RETRY),
    (Retry, "factor", "factor = 1.5", "factor = 2.5", RETRY),
    (Retry, "max", "max = \"1h\"", "max = \"2h\"", RETRY),
    (Retry, "delays", "\"11s\"", "\"12s\"", &["step p/asks: retry"]),
    (Retry, "jitter", "jitter = \"equal\"", "jitter = \"none\"", RETRY),
    (Retry, "max_attempts", "max_attempts = 5", "max_attempts = 6", RETRY),
    (Retry, "ttl", "ttl = \"1d\"", "ttl = \"2d\"", RETRY),
    (Retry, "ttl_field", "ttl = \"1d\"", "ttl = \"1d\"\nttl_field = \"until\"", RETRY),
    (Retry, "quick", "ttl = \"1d\"", "ttl = \"1d\"\nquick = 3", RETRY),
    (Retry, "quick_delay", "factor = 1.5", "factor = 1.5\nquick = 2\nquick_delay = \"2s\"", RETRY),
    (Retry, "halt_on", "ttl = \"1d\"", "ttl = \"1d\"\nhalt_on = [\"rejected\"]", RETRY),
    (Retry, "then", "then = \"drop\"", "then = \"halt\"", RETRY),
    (Retry, "on", "[\"timeout\", \"http 5xx\"]", "[\"timeout\"]", RETRY),
    // The order of words has no meaning.
    (Retry, "on", "[\"timeout\", \"http 5xx\"]", "[\"http 5xx\", \"timeout\"]", NONE),
    (Queuer, "strategy", "strategy = \"one-round-parallel\"\nreads = \"inputs\"\nwrites = \"outputs\"\nkeys_missing = \"none\"", "strategy = \"one-round-serial\"", PICKS),
    (Queuer, "lane", "\"order.pool\"", "\"order.account\"", PICKS),
    (Queuer, "lane_missing", "lane_missing = \"default\"", "lane_missing = \"error\"", PICKS),
    (Queuer, "delay_window", "\"15s\"", "\"17s\"", PICKS_LIMITS),
    (Queuer, "max_processing", "max_processing = 8", "max_processing = 9", PICKS_LIMITS),
    (Queuer, "max_pending", "max_pending = 20", "max_pending = 21", PICKS_LIMITS),
    (Queuer, "max_search_ahead", "max_search_ahead = 1000", "max_search_ahead = 0", &["step p/circles: queuer limits"]),
    (Queuer, "max_per_lane", "max_per_lane = 2", "max_per_lane = 1", PICKS_LIMITS),
    (Queuer, "rate", "rate = \"100/s\"", "rate = \"100/2s\"", PICKS_LIMITS),
    (Queuer, "lane_rate", "lane_rate = \"10/1m\"", "lane_rate = \"11/1m\"", PICKS_LIMITS),
    (Queuer, "age", "age = \"at\"", "age = \"time\"", PICKS),
    (Queuer, "id", "id = \"id\"\n", "id = \"no\"\n", PICKS),
    (Queuer, "reads", "reads = \"inputs\"", "reads = \"ins\"", PICKS),
    (Queuer, "writes", "writes = \"outputs\"", "writes = \"outs\"", PICKS),
    (Queuer, "keys_missing", "keys_missing = \"none\"", "keys_missing = \"error\"", PICKS),
    (Queuer, "priority", "priority = \"urgency\"", "priority = \"rank\"", &["step p/hurries: queuer"]),
    (Queuer, "aging", "aging = \"1m\"", "aging = \"2m\"", &["step p/hurries: queuer"]),
    (Queuer, "pause", "pause = \"7s\"", "pause = \"8s\"", &["step p/circles: queuer limits"]),
    (Gate, "run", "[\"gas.rhai\", \"builtin:http\", \"builtin:exec\"]", "[\"gas.rhai\", \"builtin:exec\", \"builtin:http\"]", GAS),
    (Gate, "every", "every = \"5s\"", "every = \"25s\"", &["gate gas: every"]),
    (Gate, "http", "https://gas.example/", "https://oil.example/", GAS),
    (Gate, "exec", "[\"true\"]", "[\"true\", \"x\"]", GAS),
    (Gate, "timeout", "\"12s\"", "\"22s\"", &["gate gas: timeout"]),
    (Gate, "config", "most = 60", "most = 61", &["gate gas: config"]),
    // Each `was` takes effect once.
    (Pipeline, "was", "name = \"second\"", "name = \"second\"\nwas = \"former\"", NONE),
    (FileSource, "was", "type = \"file\"\npath = \"data/*.csv\"", "type = \"file\"\nwas = \"former\"\npath = \"data/*.csv\"", NONE),
    (HttpSource, "was", "key = \"order.id\"", "key = \"order.id\"\nwas = \"former\"", NONE),
    (ScheduleSource, "was", "every = \"6m\"", "every = \"6m\"\nwas = \"former\"", NONE),
    (Queue, "was", "[queue.done]", "[queue.done]\nwas = \"formerly\"", NONE),
    (Step, "was", "crash_limit = 5\n", "crash_limit = 5\nwas = \"former\"\n", NONE),
    (Step, "from", "[step.hurries]\nfrom = \"posts\"", "[step.hurries]\nfrom = \"done\"", &["step p/hurries: inputs"]),
    (Step, "join", "join = { one = \"ticks\"", "join = { uno = \"ticks\"", &["step p/joins: inputs"]),
    (Step, "alts", "alts = { one = \"ticks\", two = \"beats\" }", "alts = { one = \"ticks\", two = \"posts\" }", &["step p/either: inputs"]),
    (Step, "begin_at", "from = \"lines\"\nbegin_at = \"newest\"", "from = \"lines\"\nbegin_at = 7", &["step p/work: begin_at"]),
    (Step, "to", "good = \"done\"", "fine = \"done\"", &["step p/work: outputs"]),
    (Step, "to", "\"odd-ones\" = \"odd\"", "\"odd-ones\" = \"nowhere\"", &["step p/work: outputs"]),
    (Step, "run", "\"lib/other.rhai\"", "\"local.rhai\"", WORK),
    (Step, "http", "http.response = \"full\"\n", "", ASKS),
    (Step, "exec", "exec.env = { ID = \"{id}\" }\n", "", ASKS),
    (Step, "when", "job.total > 0", "job.total > 1", WORK),
    (Step, "types", "[\"order\", \"refund\"]", "[\"order\"]", WORK),
    (Step, "types", "[\"order\", \"refund\"]", "[\"refund\", \"order\"]", NONE),
    (Step, "topics", "topics = [\"shop\"]", "topics = [\"shops\"]", WORK),
    (Step, "config", "currency = \"EUR\"", "currency = \"USD\"", &["step p/work: config"]),
    (Step, "limits", "limits = { operations = 1000, memory = \"16MiB\", depth = 16 }\n", "", &["step p/work: limits"]),
    (Step, "timeout", "timeout = \"5s\"", "timeout = \"50s\"", &["step p/work: timeout"]),
    (Step, "errors", "errors = \"unworked\"", "errors = \"failed\"", UNWORKED),
    (Step, "events", "events = \"worked\"\n", "", &["step p/work: events", "- queue p/worked"]),
    (Step, "delivery", "delivery = \"exactly-once\"\ncrash_limit", "delivery = \"at-least-once\"\ncrash_limit", &["step p/work: delivery"]),
    (Step, "crash_limit", "crash_limit = 5", "crash_limit = 6", &["step p/work: crash_limit"]),
    (Step, "isolate", "isolate = \"process\"", "isolate = \"none\"", &["step p/plugged: isolate"]),
    (Step, "retry", "retry = \"shared\"", "retry = { backoff = \"fixed\", max_attempts = 3 }", RETRY),
    (Step, "queuer", "queuer = \"turns\"", "queuer = \"urgent\"", &["step p/circles: queuer", "step p/circles: queuer limits"]),
    (Step, "gate", "queuer = \"pools\"\ngate = \"gas\"\n", "queuer = \"pools\"\n", &["step p/picks: gate"]),
    (Step, "monitor", "monitor.every = \"2s\"", "monitor.every = \"3s\"", MONITOR),
    (Monitor, "run", "\"status.rhai\", \"builtin:http\"", "\"gas.rhai\", \"builtin:http\"", MONITOR),
    (Monitor, "every", "monitor.every = \"2s\"", "monitor.every = \"4s\"", MONITOR),
    (Monitor, "batch", "batch = 50", "batch = 51", MONITOR),
    (Monitor, "batch_by", "monitor.batch_by = \"lane\"\n", "", MONITOR),
    (Monitor, "concurrency", "concurrency = 7", "concurrency = 8", MONITOR),
    (Monitor, "http", "\"/status\"", "\"/state\"", MONITOR),
    (Http, "hosts", "https://status.example", "https://state.example", MONITOR),
    (Http, "host", "{0.service}", "{0.server}", MONITOR),
    (Monitor, "exec", "[\"false\"]", "[\"true\", \"y\"]", MONITOR),
    (Monitor, "ttl", "batch = 50", "batch = 50\nmonitor.ttl = \"1h\"", MONITOR),
    (Monitor, "max_checks", "batch = 50", "batch = 50\nmonitor.max_checks = 9", MONITOR),
    (Monitor, "then", "batch = 50", "batch = 50\nmonitor.ttl = \"1h\"\nmonitor.then = \"resubmit\"", MONITOR),
    (Monitor, "timeout", "\"13s\"", "\"23s\"", MONITOR),
    (Monitor, "config", "{ x = 1 }", "{ x = 2 }", MONITOR),
    (Limits, "operations", "operations = 1000,", "operations = 1001,", &["step p/work: limits"]),
    (Limits, "memory", "memory = \"16MiB\"", "memory = \"17MiB\"", &["step p/work: limits"]),
    (Limits, "depth", "depth = 16", "depth = 17", &["step p/work: limits"]),
    (Http, "url", "https://shop.example/{id}", "https://shop.example/{no}", ASKS),
    (Http, "method", "\"PUT\"", "\"POST\"", ASKS),
    (Http, "headers", "Bearer ${SECRET}", "Basic! ${SECRET}", ASKS),
    (Http, "body", "\"a {b}\"", "\"a {c}\"", ASKS),
    (Http, "timeout", "http.timeout = \"3s\"", "http.timeout = \"4s\"", ASKS),
    (Http, "max_response", "\"3MiB\"", "\"6MiB\"", ASKS),
    (Http, "accept", "[\"2xx\", \"404\"]", "[\"2xx\", \"405\"]", ASKS),
    (Http, "response", "response = \"full\"", "response = \"body\"", ASKS),
    (Exec, "command", "\"-c\", \"{id}\"", "\"-c\", \"{no}\"", ASKS),
    (Exec, "env", "{ ID = \"{id}\" }", "{ NO = \"{id}\" }", ASKS),
    (Exec, "cwd", "cwd = \"lib\"", "cwd = \".\"", ASKS),
    (Exec, "timeout", "exec.timeout = \"4s\"", "exec.timeout = \"5s\"", ASKS),
    (FileSink, "type", "type = \"file\"\nfrom = \"done\"\nbegin_at = \"newest\"\ndelivery = \"exactly-once\"\npath = \"out/file.ndjson\"\nformat = \"lines\"\non_mismatch = \"append\"", "type = \"null\"\nfrom = \"done\"\nbegin_at = \"newest\"\ndelivery = \"exactly-once\"", FILE_TO_NULL),
    (FileSink, "from", "type = \"file\"\nfrom = \"done\"", "type = \"file\"\nfrom = \"odd\"", &["step p/file: inputs"]),
    (FileSink, "begin_at", "type = \"file\"\nfrom = \"done\"\nbegin_at = \"newest\"", "type = \"file\"\nfrom = \"done\"", &["step p/file: begin_at"]),
    (FileSink, "delivery", "delivery = \"exactly-once\"\npath", "delivery = \"at-least-once\"\npath", &["step p/file: delivery"]),
    (FileSink, "path", "out/file.ndjson", "out/file2.ndjson", &["sink p/file: target"]),
    (FileSink, "format", "format = \"lines\"\non_mismatch", "format = \"ndjson\"\non_mismatch", &["sink p/file: format"]),
    (FileSink, "on_mismatch", "on_mismatch = \"append\"", "on_mismatch = \"refuse\"", &["sink p/file: on_mismatch"]),
    (StdoutSink, "type", "type = \"stdout\"\nfrom = \"odd\"\nbegin_at = \"newest\"\ndelivery = \"at-most-once\"\nformat = \"lines\"", "type = \"null\"\nfrom = \"odd\"\nbegin_at = \"newest\"\ndelivery = \"at-most-once\"", STDOUT_TO_NULL),
    (StdoutSink, "from", "from = \"odd\"\nbegin_at", "from = \"done\"\nbegin_at", &["step p/shown: inputs"]),
    (StdoutSink, "begin_at", "from = \"odd\"\nbegin_at = \"newest\"", "from = \"odd\"", &["step p/shown: begin_at"]),
    (StdoutSink, "delivery", "delivery = \"at-most-once\"\nformat", "delivery = \"exactly-once\"\nformat", &["step p/shown: delivery"]),
    (StdoutSink, "format", "delivery = \"at-most-once\"\nformat = \"lines\"", "delivery = \"at-most-once\"\nformat = \"ndjson\"", &["sink p/shown: format"]),
    (HttpSink, "type", SERVICE_KEYS, "type = \"null\"\nfrom = \"done\"\n", HTTP_TO_NULL),
    (HttpSink, "from", "type = \"http\"\nfrom = \"done\"", "type = \"http\"\nfrom = \"odd\"", &["step p/service: inputs"]),
    (HttpSink, "begin_at", "begin_at = \"newest\"\ndelivery = \"exactly-once\"\nerrors", "begin_at = 3\ndelivery = \"exactly-once\"\nerrors", &["step p/service: begin_at"]),
    (HttpSink, "delivery", "delivery = \"exactly-once\"\nerrors", "delivery = \"at-least-once\"\nerrors", &["step p/service: delivery"]),
    (HttpSink, "errors", "errors = \"unsent\"", "errors = \"failed\"", UNSENT),
    (HttpSink, "retry", "{ backoff = \"fixed\" }", "{ backoff = \"fixed\", initial = \"9s\" }", &["step p/service: retry"]),
    (HttpSink, "queuer", "{ strategy = \"fifo\" }", "{ strategy = \"serial\" }", &["step p/service: queuer"]),
    (HttpSink, "gate", "{ strategy = \"fifo\" }\ngate = \"gas\"", "{ strategy = \"fifo\" }", &["step p/service: gate"]),
    (HttpSink, "url", "\"/in\"", "\"/into\"", SERVICE),
    (HttpSink, "hosts", "https://service.example", "https://services.example", SERVICE),
    (HttpSink, "host", "{who}", "{whom}", SERVICE),
    (HttpSink, "method", "method = \"PATCH\"", "method = \"POST\"", SERVICE),
    (HttpSink, "headers", "{ kind = \"order\" }", "{ kind = \"orders\" }", SERVICE),
    (HttpSink, "body", "body = \"job\"", "body = { job = \"{id}\" }", SERVICE),
    (HttpSink, "timeout", "timeout = \"8s\"", "timeout = \"9s\"", &["sink p/service: request", "step p/service: program", "step p/service: timeout"]),
    (HttpSink, "accept", "[\"201\"]", "[\"202\"]", SERVICE),
    (NullSink, "type", "type = \"null\"", "type = \"file\"\npath = \"out/nowhere\"", NULL_TO_FILE),
    (NullSink, "from", "[\"failed\", \"unworked\", \"unsent\"]", "[\"failed\", \"unworked\", \"unsent\", \"odd\"]", &["+ step p/nowhere-odd"]),
    (NullSink, "begin_at", "\"unsent\"]\nbegin_at = \"newest\"", "\"unsent\"]", &["step p/nowhere-failed: begin_at", "step p/nowhere-unsent: begin_at", "step p/nowhere-unworked: begin_at"]),
    (NullSink, "delivery", "\"unsent\"]\nbegin_at = \"newest\"\ndelivery = \"exactly-once\"", "\"unsent\"]\nbegin_at = \"newest\"\ndelivery = \"at-least-once\"", &["step p/nowhere-failed: delivery", "step p/nowhere-unsent: delivery", "step p/nowhere-unworked: delivery"]),
    // Scripts and their imports.
    (HttpSource, "schema", "{ \"type\": \"object\" }", "{ \"type\": \"text\" }", POSTS),
    (Step, "run", "fn more(x) { x + 1 }", "fn more(x) { x + 2 }", WORK),
    (Step, "run", "fn process(job) { job.local }", "fn process(job) { job.global }", &["step second/after: program"]),
    (Monitor, "run", "jobs + 2", "jobs + 3", MONITOR),
];

const RENAMED: &[&str] = &[
    "+ gate q/own",
    "+ pipeline q",
    "+ queue q/end",
    "+ step q/after",
    "+ step q/on",
    "- gate second/own",
    "- pipeline second",
    "- queue second/end",
    "- step second/after",
    "- step second/on",
];
const RENAMED_THIRD: &[&str] = &[
    "+ gate third/own",
    "+ pipeline third",
    "+ queue third/end",
    "+ step third/after",
    "+ step third/on",
    "- gate second/own",
    "- pipeline second",
    "- queue second/end",
    "- step second/after",
    "- step second/on",
];
const MOVED_QUEUE: &[&str] = &[
    "queue p/done: dedupe",
    "queue p/done: meta",
    "queue p/done: retention",
    "queue p/odd: dedupe",
    "queue p/odd: meta",
    "queue p/odd: retention",
    "step p/asks: inputs",
    "step p/either: dedupe",
    "step p/file: inputs",
    "step p/joins: inputs",
    "step p/plugged: inputs",
    "step p/service: inputs",
    "step p/shown: inputs",
    "step second/on: inputs",
];
const LOST: &[&str] = &[
    "+ queue p/lost",
    "queue p/failed: errors",
    "queue p/failed: retention",
    "step p/asks: errors",
    "step p/circles: errors",
    "step p/either: errors",
    "step p/file: errors",
    "step p/hurries: errors",
    "step p/joins: errors",
    "step p/nowhere-failed: errors",
    "step p/nowhere-unsent: errors",
    "step p/nowhere-unworked: errors",
    "step p/picks: errors",
    "step p/plugged: errors",
    "step p/shown: errors",
];
const PIPELINE_DELIVERY: &[&str] = &[
    "step p/asks: delivery",
    "step p/circles: delivery",
    "step p/either: delivery",
    "step p/hurries: delivery",
    "step p/joins: delivery",
    "step p/picks: delivery",
    "step p/plugged: delivery",
];
const TO_HTTP: &[&str] = &["+ queue p/lines", "- source p/lines", "step p/work: inputs"];
const DEFAULTS_OF_END: &[&str] = &[
    "queue second/end: dedupe",
    "queue second/end: meta",
    "queue second/end: retention",
    "step second/after: inputs",
    "step second/on: dedupe",
];
const DEFAULT_SIZE: &[&str] = &[
    "queue p/beats: retention",
    "queue p/failed: retention",
    "queue p/odd: retention",
    "queue p/posts: retention",
    "queue p/ticks: retention",
    "queue p/unsent: retention",
    "queue p/unworked: retention",
    "queue p/worked: retention",
];
const NOT_WORK: &[&str] = &[
    "gate gas: config",
    "gate second/own: config",
    "step p/picks: monitor",
    "step p/plugged: config",
    "step second/after: config",
];
const READERS_OF_DONE: &[&str] = &[
    "queue p/done: meta",
    "step p/asks: inputs",
    "step p/file: inputs",
    "step p/plugged: inputs",
    "step p/service: inputs",
    "step second/on: inputs",
];
const UNWORKED: &[&str] = &["step p/work: errors", "queue p/unworked: errors", "queue p/unworked: retention"];
const UNSENT: &[&str] = &["step p/service: errors", "queue p/unsent: errors", "queue p/unsent: retention"];
const FILE_TO_NULL: &[&str] =
    &["sink p/file: format", "sink p/file: on_mismatch", "sink p/file: target", "step p/file: outputs"];
const STDOUT_TO_NULL: &[&str] =
    &["sink p/shown: format", "sink p/shown: target", "step p/shown: dedupe", "step p/shown: outputs"];
const NULL_TO_FILE: &[&str] = &[
    "sink p/nowhere: format",
    "sink p/nowhere: on_mismatch",
    "sink p/nowhere: target",
    "step p/nowhere-failed: outputs",
    "step p/nowhere-unsent: outputs",
    "step p/nowhere-unworked: outputs",
];
const HTTP_TO_NULL: &[&str] = &[
    "queue p/unsent: errors",
    "queue p/unsent: retention",
    "sink p/service: request",
    "sink p/service: target",
    "step p/service: begin_at",
    "step p/service: dedupe",
    "step p/service: delivery",
    "step p/service: errors",
    "step p/service: gate",
    "step p/service: outputs",
    "step p/service: program",
    "step p/service: queuer",
    "step p/service: queuer limits",
    "step p/service: retry",
    "step p/service: timeout",
];

const SERVICE_KEYS: &str = r#"type = "http"
from = "done"
begin_at = "newest"
delivery = "exactly-once"
errors = "unsent"
retry = { backoff = "fixed" }
queuer = { strategy = "fifo" }
gate = "gas"
url = "/in"
hosts = { a = "https://service.example", b = "https://${SECRET}.example" }
host = "{who}"
method = "PATCH"
headers = { kind = "order" }
body = "job"
timeout = "8s"
accept = ["201"]
"#;
