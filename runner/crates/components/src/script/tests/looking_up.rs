//! Tests of `lookup`: a script reads rows of the tables of its step.

use super::{Draft, body};
use tidegate_config::LookupTables;

/// A configuration with a table of hosts and one of ports.
fn tables() -> LookupTables {
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
    configuration.steps[0].tables.clone()
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
