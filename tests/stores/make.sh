#!/usr/bin/env bash
# Writes the store of one version: ./make.sh VERSION TIDEGATE FOLDER
#
# VERSION is the version of the store's format (1 to 12), TIDEGATE a runner that writes it, FOLDER the new folder for
# the result. README.md names the commit of each version. The runner is killed in the middle of its work.
set -euo pipefail
version=$1 tidegate=$(realpath "$2") folder=$3
here=$(dirname "$(realpath "$0")")
mkdir "$folder" && cd "$folder"
cp "$here"/pipeline/* .

# from VERSION <<TOML: a part of the configuration that exists from this version on.
from() { if [ "$version" -ge "$1" ]; then cat >> p.toml; else cat > /dev/null; fi; }
# until COMMAND…: waits until the command succeeds.
until_ok() { for _ in $(seq 100); do "$@" > /dev/null 2>&1 && return; sleep 0.1; done; echo "never: $*" >&2; tail -n 4 stderr >&2; exit 1; }
# has QUEUE COUNT: the queue has COUNT jobs.
has() { [ "$("$tidegate" queue show "p/$1" --format json | grep -c '"job":')" -ge "$2" ]; }
lines() { [ "$(wc -l < "$1")" -ge "$2" ]; }

from 1 << 'TOML'
[source.in]
type = "file"
path = "in.ndjson"
format = "ndjson"
follow = true

[step.sort]
from = "in"
when = "job.id != 3"
run = "sort.rhai"
to = { kept = "kept", even = "even" }
errors = "failed"
config = { mended = false }

[queue.kept]
retain = "forever"
TOML
from 2 << 'TOML'
meta = ["index"]
dedupe = "36500d"
TOML
from 1 << 'TOML'

[step.stuck]
from = "kept"
run = "stuck.rhai"
to = "stuck"
config = { mended = false }

[queue.stuck]
retain = "forever"

[sink.even]
type = "file"
path = "even.ndjson"
on_mismatch = "append"
TOML
from 2 << 'TOML'

[step.pair]
join = { a = "kept", b = "twice" }
to = "pairs"

[step.twice]
from = "kept"
when = "job.id > 6"
to = "twice"

[queue.pairs]
retain = "forever"
TOML
from 10 << 'TOML'
dedupe = "36500d"
TOML
from 2 << 'TOML'

[step.pad]
from = "kept"
run = "pad.rhai"
to = "shown"

[sink.shown]
type = "stdout"
TOML
from 3 << 'TOML'

[step.again]
from = "kept"
run = "again.rhai"
to = "again"
errors = "failed"
queuer = { strategy = "fifo" }
retry = { backoff = "list", delays = ["36500d"], max_attempts = 3 }

[queue.again]
retain = "forever"

[step.late]
from = "kept"
run = "late.rhai"
to = { now = "due", later = "due" }

[queue.due]
retain = "forever"

[step.begun]
from = "kept"
run = "builtin:exec"
exec = { command = ["./begun.sh"] }
timeout = "10m"
to = "begun"

[queue.begun]
retain = "forever"

[source.http]
type = "http"
key = "id"

[step.took]
from = "http"
to = "took"

[queue.took]
retain = "forever"

[step.asked]
from = "kept"
run = "asked.rhai"
to = "asked"

[step.asked.monitor]
run = "status.rhai"
every = "100ms"
config = { mended = false }

[queue.asked]
retain = "forever"
TOML
from 4 << 'TOML'

[step.told]
from = "kept"
run = "told.rhai"
to = "told"

[queue.told]
retain = "forever"

[source.tick]
type = "schedule"
cron = "0 0 29 2 *"

[sink.ticks]
type = "null"
from = "tick"
TOML

cat > tidegate.toml << 'TOML'
[runner]
data = "state"
TOML
if [ "$version" -ge 3 ]; then echo 'listen = "127.0.0.1:0"' >> tidegate.toml; fi

for id in 1 2 3 4 5 6 7 8 9 10; do echo "{\"id\":$id}"; done > in.ndjson

# Standard output is a pipe that is read up to the first long line, and never again.
"$tidegate" run . > >(echo $BASHPID > reader; head -c 1000 > shown; exec sleep 60) 2> stderr & runner=$!
trap 'kill -9 $runner "$(cat reader)" 2> /dev/null || true; touch go' EXIT
until_ok lines even.ndjson 5
until_ok has stuck 3
if [ "$version" -ge 2 ]; then
    until_ok has pairs 2
fi
if [ "$version" -ge 3 ]; then
    until_ok test -e began
    until_ok has again 5
    until_ok has due 5
    port=$(grep -o '127\.0\.0\.1:[0-9]*' stderr | head -1)
    for id in 1 2; do
        curl --noproxy '*' -sSf "$port/sources/p/http" -H 'content-type: application/json' -d "{\"id\":$id}" > /dev/null
    done
    until_ok has took 2
    until_ok has asked 5
fi
if [ "$version" -ge 4 ]; then
    until_ok has told 5
    "$tidegate" step pause p/told > /dev/null
    pending=$("$tidegate" delayed list --step p/told --format json)
    token=$(grep -o '"handle": *"[^"]*"' <<< "$pending" | cut -d '"' -f 4)
    curl --noproxy '*' -sSf "$port/jobs/p/kept/5/complete" -H "authorization: Bearer $token" \
        -d '{"status":"committed","result":{"id":8,"by":"us"}}' > /dev/null
fi
if [ "$version" -ge 2 ]; then
    for id in 11 13 15 17; do echo "{\"id\":$id}"; done >> in.ndjson
    until_ok test -s shown
fi
# edit_errors: leaves a dropped and a retried error.
edit_errors() { "$tidegate" errors drop p/failed/2 --yes && "$tidegate" errors retry p/failed/3 --yes; }
# From version 12 on, the last commits are in the write-ahead log, and a command without a runner would empty it.
if [ "$version" -ge 12 ]; then edit_errors; fi
kill -9 $runner && wait $runner 2> /dev/null || true
kill -9 "$(cat reader)" 2> /dev/null || true
trap - EXIT
touch go
if [ "$version" -ge 3 ] && [ "$version" -lt 12 ]; then edit_errors; fi
if [ "$version" -ge 2 ] && [ "$version" -lt 12 ]; then "$tidegate" store compact; fi
rm -f in.ndjson shown reader stderr go began ./*.rhai begun.sh state/lock state/control.sock state/setups
gzip -9n state/*
mv state/*.gz . && rmdir state
