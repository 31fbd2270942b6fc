//! Partial jobs: a script that uses few fields makes the same of a job as one for which the whole job is parsed.

use proptest::prelude::*;
use serde_json::Value;
use tidegate_plugin::{Outputs, Step as _};

use super::{Draft, body, failure_text, script};
use crate::script::attempt::ScriptAttempt;
use crate::script::compile;
use crate::script::compile::used_fields::UsedFields;
use crate::script::json;
use crate::script::partial::plain_text_len;
use crate::script::step::ScriptStep;

/// The parts of the job that a function of this text uses, as one line.
fn used(text: &str) -> String {
    let draft = script(text);
    let attempt = ScriptAttempt::new(&draft.limits);
    let mut engine = compile::engine(&draft.limits, &attempt);
    let compiled = compile::compile(&mut engine, &draft.scripts[0], draft.entry, &attempt).unwrap();
    let params = if compiled.wants_context { 2 } else { 1 };
    match UsedFields::of_function(&compiled.ast, compiled.entry, params) {
        UsedFields::Whole { .. } => "the whole job".to_owned(),
        used @ UsedFields::Fields(_) => shown(&used),
    }
}

fn shown(used: &UsedFields) -> String {
    match used {
        UsedFields::Whole { changes: false } => "read".to_owned(),
        UsedFields::Whole { changes: true } => "changed".to_owned(),
        UsedFields::Fields(fields) => {
            let fields = fields.iter().map(|(name, used)| format!("{name}: {}", shown(used)));
            let mut fields: Vec<_> = fields.collect();
            fields.sort_unstable();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// A use that is not certain is one of the whole job.
#[test]
fn fields_are_used_as_far_as_the_code_names_them() {
    let cases = [
        ("job.added = job.id * 2; job", "{added: changed, id: read}"),
        ("job", "{}"),
        ("#{ one: job, two: [job.order] }", "{order: {}}"),
        ("job.left.added = job.right.id; job.left", "{left: {added: changed}, right: {id: read}}"),
        ("let total = job.order.price; total += 1; #{ total: total }", "{order: {price: read}}"),
        ("job.order.items.push(1); job", "{order: {items: changed}}"),
        ("job.items[0] = 3; job", "{items: changed}"),
        ("let i = job.items[job.at].name; job", "{at: read, items: read}"),
        ("job[\"a\"][\"b\"] += 1; return job;", "{a: {b: changed}}"),
        ("if \"vip\" in job && job.contains(\"id\") { emit(\"\", job); }", "{id: read, vip: read}"),
        ("if job.a > 1 { job } else if job.b { return #{ x: job } } else { () }", "{a: read, b: read}"),
        ("switch job.kind { \"a\" => job, \"b\" => { job.n = 1; job } _ => () }", "{kind: read, n: changed}"),
        ("emit_in(\"\", #{ job: job }, \"5s\"); throw job.why;", "{why: read}"),
        ("for item in job.items { log_info(item.name); } job", "{items: read}"),
        ("`${job.name}!`", "{name: read}"),
        ("job.a = job; job", "the whole job"),
        ("let copy = job; copy.a = 1; copy", "the whole job"),
        ("job.keys()", "the whole job"),
        ("for key in job.keys() { } job", "the whole job"),
        ("log_info(job); job", "the whole job"),
        ("job == #{}", "the whole job"),
        ("let key = \"a\"; job[key]", "the whole job"),
        ("job[\"\"] = 1; job", "the whole job"),
        ("job = #{}; job", "the whole job"),
        ("let job = #{}; job.a = 1; job", "the whole job"),
        ("for job in [1] { log_info(`${job}`); } job", "the whole job"),
        ("try { job.a } catch (job) { job }", "the whole job"),
        ("let f = || job.a; f.call()", "the whole job"),
        ("throw job", "the whole job"),
        ("if job { 1 } else { 2 }", "the whole job"),
        ("while job.more { job.more = false } [job]", "{more: changed}"),
        ("let x = if true { job } else { () }; x", "the whole job"),
        ("job.remove(\"a\"); job", "the whole job"),
    ];
    for (code, expected) in cases {
        let found = used(&format!("fn process(job) {{ {code} }}"));
        assert_eq!(found, expected, "{code}");
    }
    let own = "fn emit(name, job) { job.clear() } fn process(job) { emit(\"\", job); job }";
    assert_eq!(used(own), "the whole job");
    let helper = "fn price(order) { order.price } fn process(order, ctx) { price(order) }";
    assert_eq!(used(helper), "the whole job");
}

#[test]
fn the_rest_of_a_job_stays_as_it_came() {
    let cases = [
        (
            r#"{"z":1.50,"a":[1e2, {"b":"\u00e9"}],"id":2}"#,
            "job.n = job.id; job",
            r#"{"z":1.50,"a":[1e2, {"b":"\u00e9"}],"id":2,"n":2}"#,
        ),
        (r#"{ "z" : 1.0 , "id" : 1 }"#, "job.id += 1; job", r#"{ "z" : 1.0 , "id" : 2 }"#),
        ("{}", "job.b = 1; job.a = 2; job", r#"{"a":2,"b":1}"#),
        (
            r#"{"z":"\ud83d\ude00 \uDBFF\uDFFF","o":{"":1.0},"id":1}"#,
            "job.id += 1; job",
            r#"{"z":"\ud83d\ude00 \uDBFF\uDFFF","o":{"":1.0},"id":2}"#,
        ),
        // Parsed as a whole.
        (r#"{"z":1.0,"":{"b":1,"a":2},"id":1}"#, "job.id += 1; job", r#"{"":{"a":2,"b":1},"id":2,"z":1.0}"#),
        (r#"{"z":1.50,"o":{"\u0061":1},"id":1}"#, "job.id += 1; job", r#"{"id":2,"o":{"a":1},"z":1.5}"#),
        (
            r#"{"id":123456789012345678901234567890,"n":1}"#,
            "job.n = 2; job",
            r#"{"id":123456789012345678901234567890,"n":2}"#,
        ),
        (r#"{"left":{"z":1,"a":2},"right":3}"#, "job.left.b = job.right; job.left", r#"{"z":1,"a":2,"b":3}"#),
        (r#"{"o":{"z":1.0,"a":2},"n":1.0}"#, "#{ it: job.o, n: job.n }", r#"{"it":{"z":1.0,"a":2},"n":1.0}"#),
        (r#"{ "o" : { "z" : 1.0 } }"#, "job.o", r#"{ "z" : 1.0 }"#),
        (
            r#"{ "o" : { "z" : 1.0 } , "n" : 2 }"#,
            "job.o.n = job.n; job",
            r#"{ "o" : { "z" : 1.0 ,"n":2} , "n" : 2 }"#,
        ),
        (r#"{ "o" : [ 1 ] , "n" : 2 }"#, "job.o[0] = job.n; job", r#"{ "o" : [2] , "n" : 2 }"#),
        (r#" { "z" : 1.0 } "#, "job.n = 2; job", r#"{ "z" : 1.0 ,"n":2}"#),
    ];
    for (job, code, expected) in cases {
        assert_eq!(body(code).run(job), format!("-> {expected}"), "{code}");
    }
}

#[test]
fn plain_text_ends_at_its_first_quote_backslash_or_control_character() {
    for filler in [b' ', b'!', b'#', b'~', 0x7F, 0x80, 0xA2, 0xDC, 0xFF] {
        assert_eq!(plain_text_len(&[filler; 20]), None, "{filler}");
        for (byte, place) in (0..=u8::MAX).flat_map(|byte| (0..20).map(move |place| (byte, place))) {
            let mut bytes = [filler; 21];
            // Bytes behind the end do not count.
            (bytes[place], bytes[20]) = (byte, b'"');
            let ends = matches!(byte, 0..0x20 | b'"' | b'\\');
            assert_eq!(plain_text_len(&bytes), Some(if ends { place } else { 20 }), "{bytes:?}");
        }
    }
}

#[test]
fn an_object_with_many_keys_stays_as_it_came_unless_a_key_is_repeated() {
    for keys in [2, 63, 64, 65, 1000] {
        let fields: Vec<String> = (0..keys).rev().map(|key| format!("\"f{key}\":1.0")).collect();
        let fields = fields.join(",");
        let unchanged = format!("-> {{\"id\":7,\"o\":{{{fields}}},\"n\":7}}");
        let run =
            |last: &str| body("job.n = job.id; job").run(&format!("{{\"id\":7,\"o\":{{{fields}{last}}}}}"));
        assert_eq!(run(""), unchanged, "{keys}");
        // The last of repeated keys counts, so it is parsed as a whole.
        let repeated = run(",\"f1\":2");
        assert!(repeated.contains("\"f1\":2") && !repeated.contains("\"f1\":1"), "{repeated}");
    }
}

/// The keys of the first job are expected in the others.
#[test]
fn a_job_whose_keys_are_not_those_of_an_earlier_one_stays_as_it_came_unless_a_key_is_repeated() {
    let many: Vec<String> = (0..300).map(|key| format!("\"f{key}\":1.0,")).collect();
    let many = many.concat();
    let cases = [
        (r#"{"a":1.0,"b":2.0,"c":3.0,"d":4.0,"id":1}"#, r#"{"a":1.0,"b":2.0,"c":3.0,"d":4.0,"id":1,"n":1}"#),
        // Without some of them, in another order, and with others.
        (r#"{"b":2.0,"id":2}"#, r#"{"b":2.0,"id":2,"n":2}"#),
        (r#"{"id":3,"a":1.0,"b":2.0}"#, r#"{"id":3,"a":1.0,"b":2.0,"n":3}"#),
        (r#"{"a":1.0,"x":2.0,"b":3.0,"id":4}"#, r#"{"a":1.0,"x":2.0,"b":3.0,"id":4,"n":4}"#),
        (r#"{"aa":1.0,"a":2.0,"id":5}"#, r#"{"aa":1.0,"a":2.0,"id":5,"n":5}"#),
        (r#"{"a" :1.0,"b":2.0,"id":6}"#, r#"{"a" :1.0,"b":2.0,"id":6,"n":6}"#),
        (r#"{"a":1.0,"b":"\ud83d\ude00","id":7}"#, r#"{"a":1.0,"b":"\ud83d\ude00","id":7,"n":7}"#),
        (&format!("{{{many}\"id\":8}}"), &format!("{{{many}\"id\":8,\"n\":8}}")),
        (r#"{"a":{"a":1.0,"b":2.0},"b":3.0,"id":9}"#, r#"{"a":{"a":1.0,"b":2.0},"b":3.0,"id":9,"n":9}"#),
        // Repeated keys: parsed as a whole.
        (r#"{"a":1.0,"b":2.0,"a":3.0,"id":10}"#, r#"{"a":3.0,"b":2.0,"id":10,"n":10}"#),
        (r#"{"a":1.0,"a":2.0,"id":11}"#, r#"{"a":2.0,"id":11,"n":11}"#),
        (r#"{"a":1.0,"x":2.0,"a":3.0,"id":12}"#, r#"{"a":3.0,"id":12,"n":12,"x":2.0}"#),
    ];
    let [mut step, _] = partial_and_whole(&body("job.n = job.id; job"));
    for (job, expected) in cases.iter().cycle().take(40 * cases.len()) {
        let mut outputs = Outputs::new([""]);
        step.process(&super::job(7, job), &mut outputs).unwrap();
        // Floats of whole jobs are written in Rhai's form, which is the same for these.
        let output = String::from_utf8(outputs.get(0).unwrap().iter().next().unwrap().to_vec()).unwrap();
        assert_eq!(output, *expected);
    }
}

#[test]
fn the_rest_of_a_job_stays_as_it_came_through_a_chain_of_scripts() {
    let job = r#"{"z":1.50,"b":2,"a":[1e2],"id":7}"#;
    let cases = [
        ("job.n = job.id; job", "job.b += job.n; job", r#"-> {"z":1.50,"b":9,"a":[1e2],"id":7,"n":7}"#),
        (
            "[job, #{ id: job.b, of: job }]",
            "job.id += 1; job",
            concat!(
                r#"-> {"z":1.50,"b":2,"a":[1e2],"id":8}"#,
                "\n",
                r#"-> {"id":3,"of":{"a":[100.0],"b":2,"id":7,"z":1.5}}"#
            ),
        ),
    ];
    for (first, second, expected) in cases {
        let chain = body(first).then("more.rhai", &format!("fn process(job) {{ {second} }}"));
        assert_eq!(chain.run(job), expected, "{first}");
    }
}

#[test]
fn a_script_behind_another_one_has_all_fields() {
    let job = r#"{"inner":{"b":1,"a":2},"c":3}"#;
    let cases = [
        ("job.inner", "job.keys()", "-> \"a\"\n-> \"b\""),
        ("job.inner", "job.b", "-> 1"),
        ("#{ x: job.inner }", "job.x.a", "-> 2"),
        ("#{ x: job }", "job.x.inner.a", "-> 2"),
        ("[[job.inner]]", "job[0].a", "-> 2"),
        ("job.inner.n = 5; job.inner", "#{ n: job.n, b: job.b }", r#"-> {"b":1,"n":5}"#),
        ("job.c = job.inner; job", "job.c.b", "-> 1"),
        ("job.inner.c = #{ it: job.inner.b }; job", "job.inner.c.it", "-> 1"),
    ];
    for (first, second, expected) in cases {
        let chain = body(first).then("more.rhai", &format!("fn process(job) {{ {second} }}"));
        assert_eq!(chain.run(job), expected, "{first}");
    }
}

#[test]
fn a_value_that_fills_the_memory_between_two_scripts_fails_the_job() {
    let job = format!(r#"{{"inner":{{"f0":"few","f1":[{}0]}}}}"#, "0,".repeat(100_000));
    let mut chain = body("job.inner").then("more.rhai", "fn process(job) { job.f0 }");
    assert_eq!(chain.run(&job), "-> \"few\"");
    chain.limits.memory = 1 << 20;
    let failed = chain.run(&job);
    assert!(failed.contains("the values of the job exceed `limits.memory`"), "{failed}");
}

#[test]
fn a_job_whose_fields_are_the_outputs_is_handed_on_with_all_of_them() {
    let forked = body("job").to(&["one", "two"]);
    assert_eq!(forked.run(r#"{"two":[{"id":1}],"one":2}"#), "-> one: 2\n-> two: {\"id\":1}");
}

/// The step that parses some fields of its jobs, and the one that parses all.
fn partial_and_whole(draft: &Draft) -> [ScriptStep; 2] {
    let [partial, mut whole] = [(); 2].map(|()| draft.try_build().unwrap());
    assert!(partial.parses_partial_jobs(), "{:?}", draft.scripts);
    whole.parse_whole_jobs();
    [partial, whole]
}

/// The outcome of a job, with outputs in the form of a whole job: sorted keys, and digits as Rhai writes them.
fn outcome(step: &mut ScriptStep, payload: &str) -> Result<Vec<String>, String> {
    let mut outputs = Outputs::new([""]);
    step.process(&super::job(7, payload), &mut outputs).map_err(|failure| failure_text(&failure))?;
    let normal = |output: &[u8]| {
        let mut text = Vec::new();
        json::write(&json::read(output).unwrap(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    Ok(outputs.get(0).unwrap().iter().map(normal).collect())
}

fn field() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "d"])
}

/// A statement over `job`, which may fail.
fn statement() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        (0..5_i64).prop_map(|number| number.to_string()),
        field().prop_map(|field| format!("job.{field}")),
        (field(), field()).prop_map(|(one, other)| format!("job.{one}.{other}")),
        field().prop_map(|field| format!("(\"{field}\" in job)")),
        field().prop_map(|field| format!("job[\"{field}\"]")),
        field().prop_map(|field| format!("`${{job.{field}}}`")),
        field().prop_map(|field| format!("job.{field}[0]")),
    ];
    prop_oneof![
        (field(), value.clone()).prop_map(|(field, value)| format!("job.{field} = {value};")),
        (field(), field(), value.clone()).prop_map(|(a, b, value)| format!("job.{a}.{b} = {value};")),
        (field(), value.clone()).prop_map(|(field, value)| format!("job.{field} += {value};")),
        (field(), value.clone()).prop_map(|(field, value)| format!("job.{field}.push({value});")),
        value.clone().prop_map(|value| format!("if {value} == 1 {{ return job; }}")),
        value.clone().prop_map(|value| format!("emit(\"\", #{{ v: {value}, job: job }});")),
        field().prop_map(|field| format!("emit(\"\", job.{field});")),
        value.prop_map(|value| format!("let x = {value};")),
    ]
}

fn end() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("job".to_owned()),
        Just("[job, job]".to_owned()),
        field().prop_map(|field| format!("job.{field}")),
        field().prop_map(|field| format!("#{{ inner: job.{field}, all: [job] }}")),
        field().prop_map(|field| format!("if job.{field} == 1 {{ job }} else {{ #{{ job: job }} }}")),
    ]
}

/// A JSON text, which may be damaged.
fn job() -> impl Strategy<Value = String> {
    let text = "[ab\\\\\"é\u{1}]{0,4}";
    let leaf = prop_oneof![
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?",
        prop::sample::select(vec!["true", "false", "null", "1", "[1]", "[]", "{}", "01", "1.", "tru"])
            .prop_map(str::to_owned),
        text.prop_map(|text| Value::from(text).to_string()),
        text.prop_map(|text| format!("\"{text}\"")),
        prop::sample::select(vec![
            r#""\u00e9""#,
            r#""\ud83d\ude00""#,
            r#""\ud83d""#,
            r#""\/\b""#,
            r#""\u12""#
        ])
        .prop_map(str::to_owned),
    ];
    let key = prop::sample::select(vec!["a", "b", "c", "d", "e", "é", "\\u0061", ""]);
    let space = prop::sample::select(vec!["", "", "", " ", "\t", "\n"]);
    let value = leaf.prop_recursive(3, 24, 5, move |inner| {
        let field = (space.clone(), key.clone(), space.clone(), inner.clone());
        let object = prop::collection::vec(field, 0..5).prop_map(|fields| {
            let fields =
                fields.iter().map(|(one, key, two, value)| format!("{one}\"{key}\"{two}:{two}{value}{one}"));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        });
        let list = prop::collection::vec(inner, 0..3).prop_map(|values| format!("[{}]", values.join(",")));
        prop_oneof![4 => object, 1 => list]
    });
    (value, 0..400_usize).prop_map(|(value, cut)| {
        // Some texts end early.
        let end = (0..=cut.min(value.len())).rev().find(|&end| value.is_char_boundary(end)).unwrap_or(0);
        if cut < 40 { value[..end].to_owned() } else { value }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_partial_job_has_the_outcome_of_the_whole_one(
        statements in prop::collection::vec(statement(), 0..4),
        end in end(),
        jobs in prop::collection::vec(job(), 1..6),
    ) {
        let draft = body(&format!("{} {end}", statements.join(" ")));
        let [mut partial, mut whole] = partial_and_whole(&draft);
        for job in &jobs {
            prop_assert_eq!(outcome(&mut partial, job), outcome(&mut whole, job), "{}", job);
        }
    }

    #[test]
    fn a_partial_job_has_the_outcome_of_the_whole_one_through_a_chain(
        scripts in prop::collection::vec((prop::collection::vec(statement(), 0..3), end()), 2..4),
        jobs in prop::collection::vec(job(), 1..6),
    ) {
        let mut texts = scripts.iter().map(|(statements, end)| format!("{} {end}", statements.join(" ")));
        let first = body(&texts.next().unwrap());
        let draft = (1..).zip(texts).fold(first, |draft, (number, text)| {
            draft.then(&format!("{number}.rhai"), &format!("fn process(job) {{ {text} }}"))
        });
        let [mut partial, mut whole] = partial_and_whole(&draft);
        for job in &jobs {
            prop_assert_eq!(outcome(&mut partial, job), outcome(&mut whole, job), "{}", job);
        }
    }
}
