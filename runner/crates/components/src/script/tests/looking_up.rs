//! Tests of `lookup`: a script reads rows of the tables of its step.

use std::sync::Arc;

use tidegate_config::{LookupTable, QueueTable};
use tidegate_model::{Address, FieldPath, Name};
use tidegate_plugin::{Outputs, Payloads, Step as _};

use super::{Draft, ScriptTables, body, job, listed, script};
use crate::table_rows::TableRows;

/// A configuration with a table of hosts and one of ports.
fn tables() -> ScriptTables {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("hosts.csv", "host,region\na,eu\n7,us\ntrue,\"a \"\"b\"\"\"\n");
    write("ports.ndjson", "{\"port\":80,\"big\":123456789012345678901,\"of\":{\"a\":[1.50]}}\n");
    write("x.rhai", "fn process(job) { lookup(job.table, 1) }");
    write(
        "a.toml",
        "[source.s]\ntype = \"schedule\"\nevery = \"1s\"\n[step.x]\nfrom = \"s\"\nrun = \"x.rhai\"\n\
         [table.hosts]\npath = \"hosts.csv\"\nkey = \"host\"\n[table.ports]\npath = \"ports.ndjson\"\nkey = \"port\"\n",
    );
    let draft = tidegate_config::load(folder.path(), &tidegate_config::LoadOptions::default());
    let (configuration, _) = draft.finish().unwrap();
    ScriptTables::new(&configuration.steps[0].tables, |_| None).unwrap()
}

fn reading(text: &str) -> Draft {
    let mut draft = body(text);
    draft.tables = tables();
    draft
}

#[test]
fn a_row_is_found_by_a_text_a_number_or_a_truth_value() {
    let shown = |text: &str| reading(text).run("{\"n\":7}");
    insta::assert_snapshot!(shown("lookup(\"hosts\", \"a\")"), @r#"-> {"host":"a","region":"eu"}"#);
    insta::assert_snapshot!(shown("lookup(\"hosts\", job.n).region"), @r#"-> "us""#);
    insta::assert_snapshot!(shown("lookup(\"hosts\", \"7\").region"), @r#"-> "us""#);
    insta::assert_snapshot!(shown("lookup(\"hosts\", true)"), @r#"-> {"host":"true","region":"a \"b\""}"#);
    insta::assert_snapshot!(shown("lookup(\"ports\", \"80\")"), @r#"-> {"big":123456789012345678901,"of":{"a":[1.5]},"port":80}"#);
    insta::assert_snapshot!(shown("[lookup(\"ports\", 81) == (), lookup(\"ports\", ()) == ()]"), @r#"
    -> true
    -> true
    "#);
}

#[test]
fn an_unknown_table_and_an_impossible_key_are_errors_of_the_job() {
    let shown = |text: &str| reading(text).run("{\"table\":\"host\"}");
    insta::assert_snapshot!(shown("lookup(job.table, 1)"), @r#"
    nothing
    failed: table `host` is unknown; did you mean `hosts`?
      at process.rhai:1:24
    "#);
    insta::assert_snapshot!(shown("lookup(\"hosts\", [1])"), @r#"
    nothing
    failed: the key of `lookup` must be a text, a number or a truth value, not an array
      at process.rhai:1:24
    "#);
    insta::assert_snapshot!(shown("lookup(\"hosts\", #{})"), @r#"
    nothing
    failed: the key of `lookup` must be a text, a number or a truth value, not a map
      at process.rhai:1:24
    "#);
    insta::assert_snapshot!(body("lookup(\"hosts\", 1)").run("{}"), @r#"
    nothing
    failed: table `hosts` is unknown; declare it, in the pipeline or for all in tidegate.toml: `[table.hosts]`
      at process.rhai:1:24
    "#);
}

#[test]
fn a_row_that_a_script_changes_is_unchanged_for_the_next_job() {
    let draft = reading("let row = lookup(\"hosts\", \"a\"); row.region += \"!\"; row.region");
    insta::assert_snapshot!(draft.run_all(&["{}", "{}"]), @r#"
    -> "eu!"
    -> "eu!"
    "#);
}

#[test]
fn the_expression_of_a_filter_can_look_up() {
    let draft = reading("job").when("lookup(\"hosts\", job.host) != ()");
    insta::assert_snapshot!(draft.run("{\"host\":\"a\"}"), @r#"-> {"host":"a"}"#);
    insta::assert_snapshot!(draft.run("{\"host\":\"b\"}"), @"nothing");
}

/// The rows of a queue, and a draft that reads them as `states`.
fn reading_queue(text: &str, max_size: u64) -> (Arc<TableRows>, Draft) {
    let queue = QueueTable {
        queue: Address::parse("p/states").unwrap(),
        key: FieldPath::parse("id").unwrap(),
        tombstone: None,
        max_size,
    };
    let rows = Arc::new(TableRows::new(queue.clone()));
    let tables = [(Name::new("states").unwrap(), Arc::new(LookupTable::Queue(queue)))].into();
    let mut draft = body(text);
    draft.tables = ScriptTables::new(&tables, |_| Some(Arc::clone(&rows))).unwrap();
    (rows, draft)
}

fn add(rows: &TableRows, first: u64, text: &str) {
    rows.add(first, &Payloads::from_iter([text.as_bytes()]));
}

#[test]
fn a_batch_sees_the_rows_of_a_queue_as_they_were_at_its_begin() {
    let (rows, draft) = reading_queue("lookup(\"states\", job.id)?.n", 1 << 20);
    add(&rows, 1, "{\"id\":1,\"n\":1}");
    let mut step = draft.try_build().unwrap();
    let mut batch = |add_between: &dyn Fn()| {
        step.begin_batch();
        let mut outputs = Outputs::new([""]);
        for _ in 0..2 {
            step.process(&job(7, "{\"id\":1}"), &mut outputs).unwrap();
            add_between();
        }
        step.end_batch();
        listed(&outputs)
    };
    assert_eq!(batch(&|| add(&rows, rows.counts().next, "{\"id\":1,\"n\":2}")), "-> 1\n-> 1\n");
    assert_eq!(batch(&|| {}), "-> 2\n-> 2\n");
}

#[test]
fn a_constant_of_a_row_of_a_queue_is_read_for_each_job() {
    let (rows, _) = reading_queue("", 1 << 20);
    let tables = [(Name::new("states").unwrap(), Arc::new(LookupTable::Queue(rows.table().clone())))].into();
    let mut draft = script("const N = lookup(\"states\", 1)?.n; fn process(job) { global::N }");
    draft.tables = ScriptTables::new(&tables, |_| Some(Arc::clone(&rows))).unwrap();
    let mut step = draft.try_build().unwrap();
    let mut read = || {
        step.begin_batch();
        let mut outputs = Outputs::new([""]);
        step.process(&job(7, "{}"), &mut outputs).unwrap();
        step.end_batch();
        listed(&outputs)
    };
    add(&rows, 1, "{\"id\":1,\"n\":1}");
    assert_eq!(read(), "-> 1\n");
    add(&rows, 2, "{\"id\":1,\"n\":2}");
    assert_eq!(read(), "-> 2\n");
}

#[test]
fn a_table_that_exceeds_its_limit_fails_the_job() {
    let (rows, draft) = reading_queue("lookup(\"states\", 1)", 100);
    add(&rows, 1, "{\"id\":1,\"n\":1}");
    let shown = draft.run("{}");
    assert!(shown.contains("failed: the table `states` exceeds its `max_size` of 100 B"), "{shown}");
}
