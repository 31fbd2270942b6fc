//! `Unknown`: a call that can only fail, with its message.

use rhai::Position;

/// A call that can only fail.
pub(crate) struct Unknown {
    pub(crate) message: String,
    pub(crate) position: Position,
    pub(crate) help: Option<String>,
}

/// The message for a function that is called with a wrong number of arguments.
pub(crate) fn wrong_count(
    name: &str,
    given: usize,
    counts: impl IntoIterator<Item = usize>,
) -> (String, Option<String>) {
    let takes: Vec<String> = counts.into_iter().map(arguments).collect();
    let message = format!("`{name}` is called with {}", arguments(given));
    (message, Some(format!("it takes {}", takes.join(" or "))))
}

fn arguments(count: usize) -> String {
    match count {
        0 => "no argument".to_owned(),
        1 => "1 argument".to_owned(),
        count => format!("{count} arguments"),
    }
}
