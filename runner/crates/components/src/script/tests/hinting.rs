//! Tests of hints: suggestions for authors who know other languages, or mistype.

use super::{Draft, body, script, shown};
use crate::script::{EntryPoint, check_script};

/// Each text with the message of `check`.
fn checked(texts: &[&str], beside: &[(&str, &str)]) -> String {
    let shown = texts.iter().map(|text| {
        let draft = beside.iter().fold(script(text), |draft, (name, text)| draft.beside(name, text));
        let hint = match check_script(&draft.scripts[0], &draft.limits, EntryPoint::Process) {
            Ok(_) => "in order".to_owned(),
            Err(error) => {
                let place = error.line.zip(error.column).map(|(line, column)| format!("{line}:{column}: "));
                let help = error.help.map(|help| format!("\n    help: {help}"));
                format!("{}{}{}", place.unwrap_or_default(), error.message, help.unwrap_or_default())
            }
        };
        format!("{text}\n    {hint}")
    });
    shown.collect::<Vec<_>>().join("\n\n")
}

#[test]
fn words_of_other_languages_are_known() {
    let texts = [
        "fn process(job) { job.kind == 'order' }",
        "def process(job) { job }",
        "function process(job) { job }",
        "fn process(job) { return null }",
        "fn process(job) { if job == nil { 1 } }",
        "fn process(job) { job.ok == True }",
        "fn process(job) { size(job) }",
        "fn process(job) { parseInt(job.n) }",
        "fn process(job) { let f = |x, y| x + y; f.curry(1) }",
        "fn process(job) { curry(|x, y| x + y, 1) }",
        "fn process(job) { job.default }",
        "fn process(job) { job.order.in = 1; job }",
        "fn process(job) { #{ id: job.id, new: true } }",
        "fn process(job) { #{ if: 1 } }",
        "fn process(job) { let match = 1; match }",
        "fn process(job) { #{ a: 1 b: 2 } }",
        "fn process(job) { job.items.0 }",
    ];
    insta::assert_snapshot!(checked(&texts, &[]));
}

#[test]
fn a_name_that_is_nearly_right_is_suggested() {
    let texts = [
        "fn process(job) { jobb }",
        "fn process(job) { let total = 1; totl + 1 }",
        "fn process(job) { for line in job.lines { print(lin) } }",
        "fn process(job, context) { contxt.config }",
        "fn process(job) { elephant }",
    ];
    insta::assert_snapshot!(checked(&texts, &[]));
    let filters = ["jobb.level > 1", "level == \"warn\"", "job.level == 'warn'"];
    let shown = filters.map(|when| format!("{when}\n    {}", Draft::new().when(when).run("{}")));
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_block_that_is_not_closed_is_told_with_its_beginning() {
    let texts = [
        "fn process(job) {\n    if job.a {\n        job.b = 1;\n    job\n}\n",
        "fn one() { 1 }\n\nfn process(job) {\n    job\n",
        "fn process(job) {\n    #{ a: 1, b: 2\n}\n",
    ];
    insta::assert_snapshot!(checked(&texts, &[]));
}

#[test]
fn what_an_import_does_not_have_is_found_before_a_run() {
    let prices = "export const VAT = 1.5;\nconst HIDDEN = 1;\nfn vat(net) { net * global::VAT }\nprivate fn secret() { 1 }";
    let with = |text: &str| format!("import \"prices\" as p;\nfn process(job) {{ {text} }}");
    let texts = [
        "p::vat(1) + p::VAT",
        "p::vatt(1)",
        "p::vat(1, 2)",
        "p::elephant()",
        "p::secret()",
        "p::VATT",
        "p::HIDDEN",
        "try { p::vatt(1) } catch { 1 }",
        "import \"prices\" as other; other::vatt(1)",
    ]
    .map(with);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    insta::assert_snapshot!(checked(&texts, &[("prices.rhai", prices)]));
}

#[test]
fn methods_and_fields_that_are_called_otherwise_here_are_suggested() {
    let bodies = [
        "job.text.substring(1, 2)",
        "job.text.length()",
        "job.tags.length",
        "job.tags.size",
        "job.text.indexOf(\"x\")",
        "job.tags.includes(1)",
        "job.text.elephant()",
        "job.text.sub_string(\"x\")",
        "job.text.own()",
        "ctx.hsah",
        "ctx.elephant",
        "let order = #{ total: 5 }; order.totla",
        "let order = #{ total: 5 }; order.elephant",
        "let line = job; line.txet",
    ];
    insta::assert_snapshot!(shown(r#"{"text":"abc","tags":[1,2]}"#, &bodies));
}

#[test]
fn a_field_that_the_config_lacks_is_told_as_one_of_the_config() {
    let bodies = [
        "ctx.config.thresh",
        "ctx.config.thresh ?? 5",
        "ctx.config[\"thresh\"]",
        "ctx.config.elephant",
        "ctx.config.rates.uds",
        "ctx.config.rates.empty.a",
        "ctx.config.table.k5",
        "ctx.config.table.k5000",
        "ctx.config.get(\"thresh\") ?? 5",
        "job.thresh",
    ];
    let config = serde_json::json!({
        "threshold": 1,
        "limit": 2,
        "rates": { "usd": 1.5, "empty": {} },
        "table": (0..100).map(|n| (format!("k{n:03}"), n.into())).collect::<serde_json::Map<_, _>>(),
    });
    let shown = bodies.map(|text| {
        let mut draft = body(text);
        draft.config = config.clone();
        format!("{text}\n    {}", draft.run("{\"a\":1}").replace('\n', "\n    "))
    });
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn a_fork_that_is_given_the_job_itself_says_so() {
    let fork = |text: &str| body(text).to(&["audit", "matched"]).run(r#"{"id":1,"amount":2.5}"#);
    let bodies = ["job", "#{ elephant: job }", "#{ mathced: job, id: 1 }", "#{ matched: job, id: 1 }"];
    let shown = bodies.map(|text| format!("{text}\n    {}", fork(text)));
    insta::assert_snapshot!(shown.join("\n"));
}
