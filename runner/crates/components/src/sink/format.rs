//! Lines of a sink: are built from payloads.

use tidegate_plugin::Payloads;

use tidegate_config::SinkFormat;

/// Appends each payload as a line. Payloads are JSON on one line. With [`SinkFormat::Lines`], a string with
/// newlines is written unchanged, and becomes several lines.
pub(crate) fn append_lines(format: SinkFormat, payloads: &Payloads, lines: &mut Vec<u8>) {
    lines.reserve(payloads.byte_len() + payloads.len());
    for payload in payloads.iter() {
        match format {
            SinkFormat::Ndjson => lines.extend_from_slice(payload),
            SinkFormat::Lines => append_text(payload, lines),
        }
        lines.push(b'\n');
    }
}

fn append_text(payload: &[u8], lines: &mut Vec<u8>) {
    let text = payload.starts_with(b"\"").then(|| serde_json::from_slice::<String>(payload).ok()).flatten();
    match text {
        Some(text) => lines.extend_from_slice(text.as_bytes()),
        None => lines.extend_from_slice(payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(format: SinkFormat, payloads: &[&str]) -> String {
        let payloads = payloads.iter().map(|payload| payload.as_bytes()).collect();
        let mut lines = Vec::new();
        append_lines(format, &payloads, &mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn each_payload_is_a_line() {
        assert_eq!(lines(SinkFormat::Ndjson, &[r#"{"a":1}"#, r#""x""#]), "{\"a\":1}\n\"x\"\n");
    }

    #[test]
    fn strings_are_written_as_their_text() {
        assert_eq!(
            lines(SinkFormat::Lines, &[r#""a \"b\" ä""#, r#"{"a":1}"#, r#""two\nlines""#, "7"]),
            "a \"b\" ä\n{\"a\":1}\ntwo\nlines\n7\n"
        );
    }
}
