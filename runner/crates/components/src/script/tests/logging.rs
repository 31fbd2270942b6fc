//! Tests of logging: the log lines of scripts.

use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

use super::{body, script};

#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Runs `jobs`, and collects their log on `lines`.
pub(crate) fn with<T>(lines: &Lines, jobs: impl FnOnce() -> T) -> T {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(lines.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    tracing::subscriber::with_default(subscriber, jobs)
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

#[test]
fn logs_of_scripts_name_pipeline_step_and_index() {
    let lines = Lines::default();
    let made = with(&lines, || {
        body(
            "log_error(\"an error\"); log_warn(#{ a: [1, ()] }); log_info(`job ${job}`); log_debug(5); log_trace(());
             print(\"printed\"); debug(\"looked at\"); ()",
        )
        .run_all(&["1", "2"])
    });
    assert_eq!(made, "nothing");
    insta::assert_snapshot!(lines.text());
}

#[test]
fn a_message_is_cut_and_says_how_much_is_missing() {
    let lines = Lines::default();
    let texts = [
        "print(s)",
        "log_warn(s)",
        "debug(s)",
        "log_info(#{ s: s })",
        "let t = s.sub_string(0, 8192); print(t)",
    ];
    with(&lines, || {
        for text in texts {
            body(&format!("let s = \"ü\"; s.pad(20000, \"x\"); {text}")).run("1");
        }
    });
    let text = lines.text();
    let cut: Vec<String> = text.lines().map(|line| line.replace(&"x".repeat(1000), "(k)")).collect();
    insta::assert_snapshot!(cut.join("\n"));
}

#[test]
fn a_job_that_floods_the_log_is_counted() {
    let lines = Lines::default();
    let flood = "fn process(job) { for n in 0..job.n { print(n) } if job.fails { throw \"no\" } () }";
    with(&lines, || {
        script(flood).run_all(&[
            r#"{"n":100,"fails":false}"#,
            r#"{"n":1304,"fails":false}"#,
            r#"{"n":101,"fails":true}"#,
            r#"{"n":1,"fails":false}"#,
        ])
    });
    let text = lines.text();
    let counts =
        [7, 8, 9, 10].map(|index| text.lines().filter(|l| l.contains(&format!("index={index}"))).count());
    assert_eq!(counts, [100, 101, 101, 1]);
    let notes: Vec<&str> = text.lines().filter(|line| line.contains('…')).collect();
    insta::assert_snapshot!(notes.join("\n"), @r#"
     WARN tidegate::script: … 1,204 more messages of this job left out pipeline="shop" step="price" index=8
     WARN tidegate::script: … 1 more message of this job left out pipeline="shop" step="price" index=9
    "#);
}

#[test]
fn what_no_one_hears_is_not_counted() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.clone()).without_time().finish();
    tracing::subscriber::with_default(subscriber, || {
        body("for n in 0..500 { log_debug(n) } print(\"heard\"); ()").run("1");
    });
    assert_eq!(lines.text().lines().count(), 1, "{}", lines.text());
}
