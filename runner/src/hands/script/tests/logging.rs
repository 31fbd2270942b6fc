//! What a script writes into the log.

use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

use super::body;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

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
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(lines.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    let made = tracing::subscriber::with_default(subscriber, || {
        body(
            "log_error(\"an error\"); log_warn(#{ a: [1, ()] }); log_info(`job ${job}`); log_debug(5); log_trace(());
             print(\"printed\"); debug(\"looked at\"); ()",
        )
        .run_all(&["1", "2"])
    });
    assert_eq!(made, "nothing");
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    insta::assert_snapshot!(text);
}
