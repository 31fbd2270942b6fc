//! Tests of tops: the code outside of functions runs once if it is data, and before each job otherwise.

use super::{EntryPoint, body, logging, script};

#[test]
fn a_top_that_does_more_than_make_data_runs_before_each_job() {
    assert_eq!(script("emit(\"\", 5);\nfn process(job) { () }").run_all(&["1", "2"]), "-> 5\n-> 5");
    assert_eq!(
        script("try { reject(\"no\") } catch {}\nfn process(job) { job }").run("1"),
        "nothing\nrejected: no\n  at process.rhai:1:7"
    );
    for text in ["log_info(\"top\")", "print(\"top\")", "debug(\"top\")"] {
        let log = logging::Lines::default();
        let made = logging::with(&log, || {
            script(&format!("{text};\nconst X = 1;\nfn process(job) {{ global::X }}")).run_all(&["1", "2"])
        });
        assert_eq!(made, "-> 1\n-> 1", "{text}");
        assert_eq!(log.text().lines().count(), 2, "{text}: {}", log.text());
    }
}

#[test]
fn a_top_that_makes_data_shares_it_with_all_jobs() {
    let counting = "for i in 0..800 { n += i; }";
    let counted = |top: &str| {
        let mut draft =
            script(&format!("{top}\nfn process(job) {{ let n = 0; {counting} n - global::SUM }}"));
        // Enough for the top or for a job, and too little for both.
        draft.limits.operations = 3_000;
        draft.run_all(&["1"; 3])
    };
    let sum = format!("let n = 0;\n{counting}\nconst SUM = n;");
    assert_eq!(counted(&sum), ["-> 0"; 3].join("\n"));
    let before_each = format!("{sum}\nlog_trace(n);");
    assert!(counted(&before_each).starts_with("nothing\nlimit: "), "{}", counted(&before_each));
}

#[test]
fn functions_are_called_as_ever_where_the_top_was_made_once() {
    let run = |functions: &str| {
        let mut draft =
            script(&format!("import \"m\" as m;\nconst X = 1;\nconst ADD = |x| x + 1;\n{functions}"))
                .beside("m.rhai", "const Y = 10;\nfn one() { global::Y }\nfn broken(job) {\n    job.nmae\n}")
                .beside("late.rhai", "fn two() { 2 }");
        draft.limits.operations = 10_000;
        draft.run("{\"name\":5}")
    };
    assert_eq!(run("fn process(job) { global::ADD.call(global::X) + m::one() }"), "-> 12");
    assert_eq!(run("fn process(job, ctx) { import \"late\" as late; late::two() + ctx.index }"), "-> 9");
    assert_eq!(run("fn process(job) { exit(5); 6 }"), "-> 5");
    assert_eq!(run("fn process(job) { return 7; 6 }"), "-> 7");
    assert_eq!(run("fn process(job) { }"), "nothing");
    let failed = [
        "fn process(job) {\n    helper(job)\n}\nfn helper(job) {\n    job.nmae\n}",
        "fn process(job) {\n    m::broken(job)\n}",
        "fn process(job) {\n    [1].map(|x| x - job)\n}",
        "fn process(job) {\n    throw \"no\"\n}",
        "fn process(job) {\n    reject(\"no\")\n}",
        "fn process(job) {\n    global::ELEPHANT\n}",
        "fn process(job) {\n    loop { }\n}",
        "fn process(job) {\n    process(job)\n}",
    ]
    .map(run);
    insta::assert_snapshot!(failed.join("\n"));
}

#[test]
fn a_gate_with_constants_is_asked_like_any_other() {
    let mut gate = script("const MOST = 60;\nfn open(answer, ctx) { answer.price <= global::MOST }");
    gate.entry = EntryPoint::Open;
    assert_eq!(gate.run("{\"price\":70}"), "-> false");
    let mut failing = script("const MOST = 60;\nfn open(answer) {\n    answer.elephant\n}");
    failing.entry = EntryPoint::Open;
    assert!(
        failing.run("{\"price\":70}").ends_with("at process.rhai:3:12"),
        "{}",
        failing.run("{\"price\":70}")
    );
}

#[test]
fn what_is_made_once_does_not_change_from_job_to_job() {
    let bodies = [
        "let t = global::T; t.n += 1; t.n",
        "let l = global::T.list; l.push(job); l.len()",
        "let f = global::F; f.call(job)",
        "let t = m::T; t.n += 1; t.n",
        "let c = ctx.config; c.n += 1; c.n",
    ];
    for text in bodies {
        let mut draft = body(text);
        draft.config = serde_json::json!({ "n": 1 });
        let step = format!(
            "import \"m\" as m;\nconst T = #{{ n: 1, list: [] }};\nconst F = |x| x + 1;\n{}",
            draft.scripts[0].text
        );
        draft.scripts[0].text = step.into();
        let made = draft.beside("m.rhai", "export const T = #{ n: 1 };").run_all(&["1", "1", "1"]);
        let lines: Vec<&str> = made.lines().collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| *line == lines[0]), "{text}: {made}");
    }
}
