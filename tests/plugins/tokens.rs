//! Tests of tokens: plugins leave jobs pending, and external systems complete them with their tokens.

use super::{c_count, compile, folder};
use crate::http_client::{Client, address};
use crate::project::{Project, jobs};

/// The code that makes the plugin in C submit: the external system identifies a job by its token.
const SUBMITS: &str = "uint8_t token[TIDEGATE_TOKEN_LEN];
    const TidegateHost *host = counter->host;
    if (!TIDEGATE_HAS(host, token)
        || host->token(host->context, job->hash_high, job->hash_low, token) != TIDEGATE_OK) {
        answer->say(answer->target, text(\"there are no tokens\"));
        return TIDEGATE_REJECT;
    }
    TidegateBytes handle = { token, sizeof token };
    answer->say(answer->target, handle);
    return TIDEGATE_PENDING;";

/// A step whose jobs arrive over HTTP and become pending by a plugin of `plugins`.
fn submitter(run: &str, plugins: &str) -> Project {
    let toml = format!(
        "[source.in]\ntype = \"http\"\n[step.submit]\nfrom = \"in\"\n{run}\nto = \"out\"\n\
         [sink.out]\ntype = \"file\"\npath = \"out.ndjson\"\n"
    );
    Project::new()
        .file("tidegate.toml", format!("[runner]\nlisten = \"127.0.0.1:0\"\nplugins = \"{plugins}\"\n"))
        .file("p.toml", toml)
}

/// Makes a job pending, kills the runner, and completes the job.
fn hands_a_job_on(project: &Project, job: &str) {
    let mut running = project.start(&["run", "."]);
    let mut client = Client::new(&address(&mut running));
    client.push("p/in", job);
    let mut token = String::new();
    running.wait_until("it is pending", || {
        let at_submit = &client.job("p/in/1")["steps"][0];
        at_submit["handle"].as_str().unwrap_or_default().clone_into(&mut token);
        at_submit["status"] == "pending"
    });
    assert_eq!(token.len(), 32, "{token}");
    assert!(running.kill());
    let mut running = project.start(&["run", "."]);
    let place = address(&mut running);
    let say = |token: &str| {
        let header = format!("authorization: Bearer {token}");
        let body = r#"{"status":"committed","result":{"id":7}}"#;
        Client::new(&place).request("POST /jobs/p/in/1/complete", &[&header], body)
    };
    assert_eq!(say(&"0".repeat(32)).status, 403);
    assert_eq!(say(&token).status, 200);
    let again = say(&token);
    assert_eq!((again.status, &again.body["known"]), (200, &serde_json::json!(true)));
    running.wait_until("it is delivered", || project.read_if_there("out.ndjson") == "{\"id\":7}\n");
    running.stop().done();
    assert_eq!(project.read("out.ndjson"), "{\"id\":7}\n");
    project.assert_sound();
}

#[test]
fn an_outside_system_finishes_what_a_plugin_handed_to_it() {
    for isolate in ["none", "process"] {
        let run = format!("run = \"plugin:flaky\"\nisolate = \"{isolate}\"");
        hands_a_job_on(&submitter(&run, &folder().display().to_string()), r#"{"do":"token"}"#);
    }
}

#[test]
fn the_token_of_a_piece_speaks_for_its_job() {
    let run = "run = [\"split.rhai\", \"plugin:flaky\"]";
    let script = "fn process(job) { [#{ \"do\": \"drop\" }, #{ \"do\": \"token\" }] }";
    let project = submitter(run, &folder().display().to_string()).file("split.rhai", script);
    hands_a_job_on(&project, "{}");
}

#[test]
fn a_plugin_in_c_has_tokens_too() {
    let project = submitter("run = \"plugin:c-count\"", "plugins");
    project.write("plugins/readme", "");
    let source = c_count()
        .replace("counter->seen++;", SUBMITS)
        .replace(".schema = schema,", ".flags = TIDEGATE_HAS_EFFECTS, .schema = schema,");
    compile(&source, &project.path().join("plugins/libc_count.so"), &["-pedantic"]);
    hands_a_job_on(&project, r#"{"id":1}"#);
}

#[test]
fn a_plugin_from_before_there_were_tokens_goes_on_working() {
    for isolate in ["none", "process"] {
        let project = Project::pipeline(&format!(
            "[step.count]\nfrom = \"in\"\nrun = \"plugin:c-count\"\nisolate = \"{isolate}\"\nto = \"out\"\n"
        ))
        .file("in.ndjson", jobs(1..=1))
        // It is found before the present one.
        .file("tidegate_plugin.h", include_str!("before_tokens.h"));
        let made_for = "_Static_assert(sizeof(TidegateHost) == 48, \"it is the old one\");\n";
        compile(&(c_count() + made_for), &project.path().join("libc_count.so"), &["-DVERSION=\"old\""]);
        project.tidegate(&["run", ".", "--plugins", "."]).done();
        assert_eq!(project.read("out.ndjson"), "{\"bytes\":8,\"digits\":1,\"seen\":1,\"by\":\"old\"}\n");
    }
}
