//! Generation tests: check the diagnostics for mistakes in scripts.

use tempfile::TempDir;

use super::Generation;
use tidegate_config::LoadOptions;

/// Output of `check` for a configuration of these files, in a folder called `configs`.
fn shown(files: &[(&str, &str)]) -> String {
    shown_in(&TempDir::new().unwrap(), files)
}

/// Like [`shown`], in a folder that may have other files.
fn shown_in(folder: &TempDir, files: &[(&str, &str)]) -> String {
    for (name, text) in files {
        let path = folder.path().join("configs").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let text = match Generation::load(&folder.path().join("configs"), &LoadOptions::default()) {
        Ok(generation) => generation.warnings.render(false),
        Err(mistakes) => mistakes.render(false),
    };
    text.replace(&format!("{}/", folder.path().display()), "")
}

/// Output of `check` for one step with `lines`, and these files beside it.
fn step(lines: &str, files: &[(&str, &str)]) -> String {
    let toml = format!(
        "[source.events]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\n[step.price]\nfrom = \"events\"\n{lines}\n"
    );
    shown(&[&[("shop.toml", &*toml)], files].concat())
}

/// Output of `check` for a step that runs `text`.
fn script(text: &str) -> String {
    step("run = \"price.rhai\"", &[("price.rhai", text)])
}

#[test]
fn a_script_that_does_not_compile_is_shown_at_its_own_place() {
    insta::assert_snapshot!(script("fn process(job) {\n    let x = ;\n    job\n}\n"));
}

#[test]
fn a_script_that_ends_too_early_is_shown_at_its_end() {
    insta::assert_snapshot!(script("fn process(job) {\n    job\n"));
}

#[test]
fn a_name_that_nothing_gives_is_shown_where_it_stands() {
    insta::assert_snapshot!(script(
        "const RATE = 2;\nfn process(job) {\n    job.ü = RATE;\n    job\n}\n"
            .replace("job.ü", "job[\"ü\"]")
            .as_str()
    ));
}

#[test]
fn a_function_that_there_is_not_is_shown_where_it_is_called() {
    let calls =
        ["retry_after(\"15s\", \"busy\")", "emit_after(\"x\", job, \"1s\")", "pause()", "convret(job)"];
    let shown = calls.map(|call| {
        script(&format!(
            "fn convert(job) {{ job }}\nfn process(job) {{\n    if job.late {{\n        {call};\n    }}\n    convert(job)\n}}\n"
        ))
    });
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_call_with_too_many_or_too_few_arguments_is_shown() {
    let calls = ["convert(job)", "emit(\"x\")", "pending()", "log_info()"];
    let shown = calls.map(|call| {
        script(&format!("fn convert(job, rate) {{ job }}\nfn process(job) {{\n    {call};\n    job\n}}\n"))
    });
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn what_a_script_asks_for_or_catches_is_not_told_to_be_missing() {
    let bodies = [
        "if is_def_fn(\"foo\", 1) { foo(1) } job",
        "try { nofn(1) } catch {} job",
        "try { [1].map(|x| nofn(x)); if job.late { convert(1) } } catch (error) { log_info(error); } job",
    ];
    for body in bodies {
        assert_eq!(script(&format!("fn convert(job, rate) {{ job }}\nfn process(job) {{ {body} }}\n")), "");
    }
    assert!(script("fn process(job) { try { a(1) } catch { b(1) } c(1); job }\n").contains("function `b`"));
}

#[test]
fn what_can_be_called_is_not_told_to_be_missing() {
    let text = "import \"more\" as more;\nfn twice(x) { x * 2 }\nfn process(job, ctx) {\n    \
        let double = |x| twice(x) + job.n;\n    let named = Fn(\"twice\");\n    let held = #{ run: |x| x };\n    \
        print(type_of(job)); debug(double.call(2)); held.run(1); call(named, 3); more::more(4);\n    \
        if is_def_fn(\"other\", 1) { log_info(named); }\n    \
        if job.n in [1, 2] { retry(\"a\"); retry_in(1, \"b\"); reject(\"c\"); gate_closed(\"d\"); pending(ctx.token) }\n    \
        emit(\"x\", job); emit_in(\"x\", job, 1); emit_at(\"x\", job, ctx.now);\n    \
        let text = `${job.n.to_string()}`.to_upper(); text += parse_int(\"1\") ?? max(1, 2);\n    \
        for i in range(0, 3) { job.list[i] += -abs(1); }\n    \
        log_error(1); log_warn(2); log_debug(3); log_trace(4); len([1].map(|x| x + 1));\n    job\n}\n";
    let files = [("price.rhai", text), ("more.rhai", "fn more(x) { x }\n"), PORT];
    assert_eq!(step("run = \"price.rhai\"", &files), "");
}

const PORT: (&str, &str) = ("tidegate.toml", "[runner]\nlisten = \"127.0.0.1:0\"\n");

#[test]
fn a_pending_job_that_nothing_can_finish_is_worth_a_word() {
    let bare = ("price.rhai", "fn process(job) {\n    if job.late { pending(job.id) }\n    job\n}\n");
    let token = ("price.rhai", "fn process(job, ctx) { pending(ctx.token) }\n");
    let run = "run = \"price.rhai\"";
    let shown = [step(run, &[bare, PORT]), step(run, &[token])];
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_pending_job_that_a_monitor_or_the_outside_finishes_is_fine() {
    let bare = ("price.rhai", "fn process(job) { pending(job.id) }\n");
    let monitor = "run = \"price.rhai\"\nmonitor = { run = \"status.rhai\", every = \"1s\" }";
    let status = ("status.rhai", "fn status(jobs) { jobs.map(|job| \"pending\") }\n");
    assert_eq!(step(monitor, &[bare, status]), "");
    let passed = "run = [\"builtin:http\", \"price.rhai\"]\n\
                  http = { url = \"http://h/\", method = \"POST\", body = { call = [\"t={ctx.token}\"] } }";
    assert_eq!(step(passed, &[bare, PORT]), "");
    let command = "run = [\"builtin:exec\", \"price.rhai\"]\nexec = { command = [\"true\"] }";
    assert_eq!(step(command, &[bare, PORT]), "");
    // A function of the script's own with the same name does not count, and a function that gets `ctx` may
    // pass the token on.
    let own = ("price.rhai", "fn pending(x) { x }\nfn process(job) { pending(job) }\n");
    assert_eq!(step("run = \"price.rhai\"", &[own]), "");
    let passing =
        ("price.rhai", "import \"lib\" as l;\nfn process(job, ctx) { l::send(ctx); pending(job.id) }\n");
    assert_eq!(
        step("run = \"price.rhai\"", &[passing, ("lib.rhai", "fn send(ctx) { ctx.token }\n"), PORT]),
        ""
    );
}

#[test]
fn a_closure_that_captures_a_variable_calls_nothing_that_is_missing() {
    assert_eq!(script("fn process(job) { let n = 1; [1, 2].map(|x| x + n + job.n) }\n"), "");
}

#[test]
fn a_script_has_a_process() {
    insta::assert_snapshot!(script("fn convert(job) { job }\n"));
}

#[test]
fn a_process_that_is_misspelt_is_recognised() {
    insta::assert_snapshot!(script("fn proces(job) { job }\n"));
}

#[test]
fn process_takes_one_or_two_parameters() {
    insta::assert_snapshot!(script("fn process() { 1 }\n"));
    insta::assert_snapshot!(script("fn process(job, ctx, more) { job }\n"));
}

#[test]
fn an_empty_script_has_no_process() {
    insta::assert_snapshot!(script(""));
}

#[test]
fn a_when_that_does_not_compile_is_shown_inside_the_file() {
    insta::assert_snapshot!(step("when = \"job.mag > \"", &[]));
    insta::assert_snapshot!(step("when = 'job.place == \"Öland\" && mag > 4'", &[]));
    insta::assert_snapshot!(step("when = \"\"\"\njob.mag > 4\n    && job.mag < ) 5\"\"\"", &[]));
}

#[test]
fn a_when_with_escapes_is_shown_as_a_whole() {
    insta::assert_snapshot!(step("when = \"job.place == \\\"sea\\\" && mag > 4\"", &[]));
}

#[test]
fn an_import_that_is_broken_is_shown_in_its_own_file() {
    let run = "run = \"price.rhai\"";
    let importing = ("price.rhai", "import \"rates\" as rates;\nfn process(job) { rates::of(job) }\n");
    insta::assert_snapshot!(step(run, &[importing, ("rates.rhai", "fn of(job) {\n    job.\n}\n")]));
    insta::assert_snapshot!(step(run, &[importing]));
}

#[test]
fn mistakes_of_scripts_and_of_the_configuration_come_together() {
    let lines = "run = [\"one.rhai\", \"two.rhai\", \"three.rhai\"]\nwhen = \"job.\"\ntimeuot = \"5s\"";
    let files = [("one.rhai", "fn process(job) { job +* 2 }\n"), ("two.rhai", "fn proces(job) { job }\n")];
    insta::assert_snapshot!(step(lines, &files));
}

const BRANCHES: &str = "[source.s]\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\n\
     [sink.out]\ntype = \"null\"\n[step.meet]\njoin = { l = \"l\", r = \"r\" }\nto = \"out\"\n";

/// Output of `check` for a join with these steps as branches.
fn branches(steps: &str) -> String {
    shown(&[("shop.toml", &[BRANCHES, steps].concat()), ("x.rhai", "fn process(job) { job }")])
}

const RIGHT: &str = "[step.b]\nfrom = \"s\"\nto = \"r\"\n";
const EXEC: &str = "run = \"builtin:exec\"\nexec = { command = [\"true\"] }\n";

#[test]
fn a_join_behind_a_step_that_delivers_as_jobs_finish_is_refused() {
    let direct = format!("[step.a]\nfrom = \"s\"\n{EXEC}to = \"l\"\n{RIGHT}");
    insta::assert_snapshot!(branches(&direct));
    // The mistake is also found behind steps that keep the order they get.
    let further = format!(
        "[step.a]\nfrom = \"s\"\n{EXEC}to = \"q\"\n[step.c]\nfrom = \"q\"\nrun = \"x.rhai\"\nto = \"l\"\n{RIGHT}"
    );
    assert!(
        branches(&further).contains("the step `a` delivers them as they finish"),
        "{}",
        branches(&further)
    );
    let asked = format!("[step.a]\nfrom = \"s\"\nqueuer = {{ strategy = \"fifo\" }}\nto = \"l\"\n{RIGHT}");
    assert!(branches(&asked).contains("cannot pair jobs in order"), "{}", branches(&asked));
}

#[test]
fn a_join_whose_branches_stand_in_one_order_is_fine() {
    let serial =
        format!("[step.a]\nfrom = \"s\"\n{EXEC}queuer = {{ strategy = \"serial\" }}\nto = \"l\"\n{RIGHT}");
    assert_eq!(branches(&serial), "");
    // Order that is lost before the fork does not matter: both branches have the order of `q`.
    let before = format!(
        "[step.a]\nfrom = \"s\"\n{EXEC}to = \"q\"\n[step.c]\nfrom = \"q\"\nrun = \"x.rhai\"\nto = \"l\"\n\
         [step.b]\nfrom = \"q\"\nto = \"r\"\n"
    );
    assert_eq!(branches(&before), "");
}

#[test]
fn a_join_in_order_cannot_follow_a_join_by_key_whose_tuples_are_complete_in_any_order() {
    let by_key = "[step.a]\njoin = { x = \"s\", y = \"t\" }\non = \"id\"\nto = \"l\"\n[step.b]\nfrom = \"s\"\nto = \"r\"\n\
                  [step.c]\nfrom = \"s\"\nto = \"t\"\n";
    let shown = branches(by_key);
    let message = "the join `meet` cannot pair jobs in order: the step `a-join` delivers them as they finish";
    assert!(shown.contains(message), "{shown}");
    assert!(shown.contains("join what comes before it, or pair the jobs by a field with `on`"), "{shown}");
}

#[test]
fn a_policy_that_holds_later_jobs_back_for_long_is_worth_a_word() {
    let with = |retry: &str| {
        step(&format!("run = \"price.rhai\"\n{retry}"), &[("price.rhai", "fn process(job) { job }")])
    };
    insta::assert_snapshot!(with("retry = { initial = \"1s\", max_attempts = 9 }"));
    for fine in [
        "retry = { max_attempts = 7 }",
        "retry = { max = \"1m\" }",
        "retry = { backoff = \"fixed\", initial = \"2h\", max_attempts = 1 }",
        "retry = { initial = \"1s\" }\nqueuer = { strategy = \"fifo\" }",
        "retry = { initial = \"1s\" }\ndelivery = \"at-most-once\"",
    ] {
        assert!(!with(fine).contains("holds all later ones back"), "{}", with(fine));
    }
}

#[test]
fn an_import_is_a_file_of_bounded_length() {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("configs")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("configs/zero.rhai")).unwrap();
    let long = format!("//{}\n", " ".repeat(16 << 20));
    let toml = "[source.events]\ntype = \"file\"\npath = \"in\"\nformat = \"lines\"\n\
                [step.a]\nfrom = \"events\"\nrun = [\"a.rhai\", \"b.rhai\"]\n";
    insta::assert_snapshot!(shown_in(
        &folder,
        &[
            ("shop.toml", toml),
            ("a.rhai", "import \"zero\" as z;\nfn process(job) { job }\n"),
            ("b.rhai", "import \"long\" as l;\nfn process(job) { job }\n"),
            ("long.rhai", &long),
        ]
    ));
}

#[test]
fn a_schema_that_is_not_valid_is_shown_with_its_source() {
    let settings = "[runner]\nlisten = \"127.0.0.1:8484\"\n";
    let toml = "[source.posts]\ntype = \"http\"\nschema = \"post.schema.json\"\n\n\
                [sink.out]\nfrom = \"posts\"\ntype = \"null\"\n";
    let schema =
        |text: &str| shown(&[("tidegate.toml", settings), ("shop.toml", toml), ("post.schema.json", text)]);
    let broken = schema("{\n  \"type\": object\n}\n");
    let wrong = schema(r#"{ "properties": { "id": { "type": "text" } } }"#);
    let fetched = schema(r#"{ "$ref": "https://schemas.example/post.json" }"#);
    assert!(
        broken.contains("error: the schema is not JSON: ") && broken.contains("post.schema.json:2:"),
        "{broken}"
    );
    for shown in [&wrong, &fetched] {
        assert!(shown.contains("error: the schema is not valid") && shown.contains("named here"), "{shown}");
    }
    assert_eq!(schema(r#"{ "type": "object" }"#), "");
}
