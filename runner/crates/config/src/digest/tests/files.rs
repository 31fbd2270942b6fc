//! `FILES`: a configuration with every key of the grammar.

/// Tables are separated by blank lines, and each key is on a line of its own.
pub(super) const FILES: [(&str, &str); 17] = [
    (
        "tidegate.toml",
        r#"[runner]
data = "state"
listen = "127.0.0.1:8484"
hosts = ["tide.example"]
workers = 3
shutdown_timeout = "45s"
plugins = "plugins"
config = { currency = "CHF", region = "eu" }

[log]
level = "debug"
format = "json"

[reload]
watch = true
poll = "31s"
tests = false

[queue_defaults]
max_size = "9GiB"

[plugin.geo]
sha256 = "abababababababababababababababababababababababababababababababab"

[retry.shared]
backoff = "exponential"
initial = "500ms"
factor = 1.5
max = "1h"
jitter = "equal"
max_attempts = 5
ttl = "1d"
then = "drop"
on = ["timeout", "http 5xx"]

[retry.listed]
backoff = "list"
delays = ["0s", "11s"]

[queuer.pools]
strategy = "one-round-parallel"
reads = "inputs"
writes = "outputs"
keys_missing = "none"
lane = "order.pool"
lane_missing = "default"
delay_window = "15s"
max_processing = 8
max_pending = 20
max_per_lane = 2
rate = "100/s"
lane_rate = "10/1m"
age = "at"
id = "id"

[queuer.urgent]
strategy = "priority"
priority = "urgency"
aging = "1m"

[queuer.turns]
strategy = "rounds"
pause = "7s"
max_search_ahead = 1000

[gate.gas]
run = ["gas.rhai", "builtin:http", "builtin:exec"]
every = "5s"
http = { url = "https://gas.example/" }
exec = { command = ["true"] }
timeout = "12s"
config = { most = 60 }

[table.hosts]
path = "hosts.dat"
key = "host"
format = "csv"
delimiter = "|"
"#,
    ),
    (
        "p.toml",
        r#"[pipeline]
errors = "failed"
delivery = "at-least-once"

[source.lines]
type = "file"
path = "data/*.csv"
format = "csv"
follow = true
max_line = "1MiB"
headers = false
delimiter = ";"
meta = ["place"]

[source.posts]
type = "http"
key = "order.id"
dedupe = "8d"
max_body = "2MiB"
max_waiting = 9
token = "${SECRET}"
schema = "order.schema.json"
accept = "accept.rhai"
limits = { memory = "7MiB", operations = 7777, depth = 7 }
timeout = "77s"
due = "send.at"
delay = "send.after"

[source.ticks]
type = "schedule"
cron = "30 2 * * mon-fri"
time_zone = "Europe/Berlin"
missed = "once"
payload = { report = "daily" }

[source.beats]
type = "schedule"
every = "6m"

[source.blocks]
type = "http-pull"
url = "https://node.example/blocks/{index}"
headers = { authorization = "Token ${SECRET}" }
first = 100
until = 900
not_yet = ["410"]
accept = ["203"]
every = "6s"
concurrency = 9
timeout = "14s"
max_response = "9MiB"
retry = { backoff = "fixed", initial = "16s" }
meta = ["place", "index"]

[source.prints]
type = "exec"
command = ["sh", "-c", "print {it}"]
env = { TOKEN = "${SECRET}" }
cwd = "./lib"
format = "csv"
headers = true
delimiter = "^"
max_line = "23MiB"
cursor = "seq"
restart = "always"
retry = { backoff = "fixed", initial = "3s" }
max_waiting = 17

[queue.done]
retain = "7d"
max_size = "1GiB"
meta = ["tx", "index"]
dedupe = "2d"
allow_cycle = true

[step.work]
from = "lines"
begin_at = "newest"
to = { good = "done", "odd-ones" = "odd" }
run = ["work.rhai", "lib/other.rhai"]
when = "job.total > 0"
types = ["order", "refund"]
topics = ["shop"]
config = { currency = "EUR", login = "Basic ${SECRET}" }
limits = { operations = 1000, memory = "16MiB", depth = 16 }
timeout = "5s"
errors = "unworked"
events = "worked"
delivery = "exactly-once"
crash_limit = 5
retry = "shared"

[step.asks]
from = "done"
run = ["builtin:http", "builtin:exec"]
http.url = "https://shop.example/{id}"
http.method = "PUT"
http.headers = { authorization = "Bearer ${SECRET}" }
http.body = { id = "{id}", list = [1, "a {b}"] }
http.timeout = "3s"
http.max_response = "3MiB"
http.accept = ["2xx", "404"]
http.response = "full"
exec.command = ["sh", "-c", "{id}"]
exec.env = { ID = "{id}" }
exec.cwd = "lib"
exec.timeout = "4s"
retry = "listed"

[step.plugged]
from = "done"
run = "plugin:geo/near"
isolate = "process"

[step.picks]
from = "posts"
queuer = "pools"
gate = "gas"
monitor.run = ["status.rhai", "builtin:http", "builtin:exec"]
monitor.every = "2s"
monitor.batch = 50
monitor.batch_by = "lane"
monitor.concurrency = 7
monitor.http = { url = "/status", hosts = { a = "https://status.example" }, host = "{0.service}" }
monitor.exec = { command = ["false"] }
monitor.timeout = "13s"
monitor.config = { x = 1 }

[step.hurries]
from = "posts"
queuer = "urgent"

[step.circles]
from = "posts"
queuer = "turns"

[step.joins]
join = { one = "ticks", two = "odd" }

[step.meets]
join = { uno = "ticks", due = "beats" }
on = { uno = "id", due = "ref.id" }
within = "1h"
max_waiting = 50
left = "uno"

[step.either]
alts = { one = "ticks", two = "beats" }
to = "odd"

[sink.file]
type = "file"
from = "done"
begin_at = "newest"
delivery = "exactly-once"
path = "out/file.ndjson"
format = "lines"
on_mismatch = "append"

[sink.shown]
type = "stdout"
from = "odd"
begin_at = "newest"
delivery = "at-most-once"
format = "lines"

[sink.service]
type = "http"
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

[sink.nowhere]
type = "null"
from = ["failed", "unworked", "unsent"]
begin_at = "newest"
delivery = "exactly-once"
"#,
    ),
    (
        "q.toml",
        r#"[pipeline]
name = "second"
config = { tenant = "second" }

[queue_defaults]
retain = "3d"
max_size = "3GiB"
meta = ["time"]
dedupe = "5h"

[step.on]
from = "p/done"
to = "end"

[step.after]
from = "end"
run = "local.rhai"
gate = "own"
retry = "own"
queuer = "own"

[retry.own]
backoff = "linear"

[queuer.own]
strategy = "serial"

[gate.own]
run = "gas.rhai"
every = "1m"

[table.ports]
path = "ports.ndjson"
key = "port"

[table.states]
queue = "states"
key = "of.state"
tombstone = "gone"
max_size = "77MiB"
"#,
    ),
    ("accept.rhai", "fn accept(job) { true }"),
    ("other_accept.rhai", "fn accept(job) { false }"),
    ("order.schema.json", "{ \"type\": \"object\" }"),
    ("other.schema.json", "{ \"type\": \"array\" }"),
    ("work.rhai", "import \"lib/helps\" as helps;\nfn process(job) { job }\n"),
    ("lib/other.rhai", "fn process(job) { job }\n"),
    ("lib/helps.rhai", "import \"lib/more\" as more;\nfn help(x) { x }\n"),
    ("lib/more.rhai", "fn more(x) { x + 1 }\n"),
    ("gas.rhai", "fn process(job) { job }\n"),
    ("status.rhai", "fn process(jobs) { jobs + 2 }\n"),
    (
        "local.rhai",
        "fn process(job) { job.local } fn rows() { lookup(\"hosts\", 1) + lookup(\"ports\", 2) + lookup(\"states\", 3) }\n",
    ),
    ("hosts.dat", "host,a|host|name\nx,y|z|n\n"),
    ("hosts2.dat", "host,a|host|name\n1,2|3|4\n"),
    ("ports.ndjson", "{\"port\":80}\n"),
];
