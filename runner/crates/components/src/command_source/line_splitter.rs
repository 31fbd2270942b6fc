//! `LineSplitter`: turns the output of a command into jobs and cursors.
//!
//! It does no I/O. With cursors on lines of their own, the lines before a cursor are held until it comes, so that
//! they are committed with it.

use memchr::memchr;

use super::printed_lines::{BadLine, PrintedLines};
use crate::script::json;
use crate::source::codec::{Codec, head};
use tidegate_config::{CursorRule, DataFormat, LineFormat};
use tidegate_model::{format_size, scalar};

/// Maximum bytes of a cursor; an environment variable takes 128 KiB.
const CURSOR_MAX: usize = 64 << 10;
/// Maximum bytes of lines that wait for their cursor.
const HELD_MAX: usize = 64 << 20;

/// Why the output of a command cannot be read on.
#[derive(Debug)]
pub(crate) struct Broken {
    /// A sentence fragment that continues the name of the command.
    pub(crate) why: String,
    /// A line is no job, and the source stops at such a line.
    pub(crate) is_bad_line: bool,
}

impl From<String> for Broken {
    fn from(why: String) -> Self {
        Self { why, is_bad_line: false }
    }
}

#[derive(Debug)]
pub(crate) struct LineSplitter {
    codec: Codec,
    rule: Option<CursorRule>,
    /// Whether a line that is no job is an error.
    stops: bool,
    max_line: usize,
    /// Output without a line end.
    rest: Vec<u8>,
    /// The number of the next line.
    line: u64,
    /// The beginning of a line that is too long, whose rest is skipped.
    long: Option<Vec<u8>>,
    /// Lines without their cursor.
    held: PrintedLines,
    ready: PrintedLines,
}

impl LineSplitter {
    pub(crate) fn new(lines: LineFormat, rule: Option<CursorRule>, stops: bool) -> Self {
        Self {
            codec: Codec::of_output(lines),
            rule,
            stops,
            max_line: lines.max_line,
            rest: Vec::new(),
            line: 1,
            long: None,
            held: PrintedLines::default(),
            ready: PrintedLines::default(),
        }
    }

    /// Adds output.
    ///
    /// # Errors
    /// The command breaks its rules. The lines before are ready.
    pub(crate) fn push(&mut self, output: Vec<u8>) -> Result<(), Broken> {
        let mut bytes = std::mem::take(&mut self.rest);
        if bytes.is_empty() {
            bytes = output;
        } else {
            bytes.extend_from_slice(&output);
        }
        let mut at = 0;
        while at < bytes.len() {
            let window = &bytes[at..];
            if let Some(beginning) = self.long.take() {
                let Some(end) = memchr(b'\n', window) else {
                    self.long = Some(beginning);
                    return Ok(());
                };
                self.bad(&beginning, self.codec.too_long(self.max_line))?;
                (at, self.line) = (at + end + 1, self.line + 1);
                continue;
            }
            let Some(end) = self.end_of_record(window) else {
                if window.len() > self.max_line {
                    self.long = Some(head(window).to_vec());
                } else {
                    self.rest = window.to_vec();
                }
                return Ok(());
            };
            self.record(&window[..end])?;
            at += end + 1;
        }
        Ok(())
    }

    /// The output is complete: bytes without a line end are a line, and lines need no cursor any more.
    ///
    /// # Errors
    /// As of [`Self::push`].
    pub(crate) fn finish(&mut self) -> Result<(), Broken> {
        let rest = std::mem::take(&mut self.rest);
        if let Some(beginning) = self.long.take() {
            self.bad(&beginning, self.codec.too_long(self.max_line))?;
        } else if !rest.is_empty() {
            self.record(&rest)?;
        }
        self.ready.append(std::mem::take(&mut self.held));
        Ok(())
    }

    /// Takes the lines that can be committed.
    pub(crate) fn take(&mut self) -> PrintedLines {
        std::mem::take(&mut self.ready)
    }

    /// A cursor is a line, also where a record may have several.
    fn end_of_record(&self, window: &[u8]) -> Option<usize> {
        if self.begins_cursor(window) { memchr(b'\n', window) } else { self.codec.record_end(window) }
    }

    fn begins_cursor(&self, record: &[u8]) -> bool {
        matches!(&self.rule, Some(CursorRule::Prefix(prefix)) if record.starts_with(prefix.as_bytes()))
    }

    fn record(&mut self, record: &[u8]) -> Result<(), Broken> {
        if let Some(CursorRule::Prefix(prefix)) = &self.rule
            && let Some(text) = record.strip_prefix(prefix.as_bytes())
        {
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let text = std::str::from_utf8(text);
            let text =
                text.map_err(|_| format!("printed a cursor that is not UTF-8 (line {})", self.line))?;
            let cursor = self.checked(text)?;
            self.ready.append(std::mem::take(&mut self.held));
            self.ready.cursor = Some(cursor);
            self.line += 1;
            return Ok(());
        }
        let lines = 1 + self.codec.inner_lines(record);
        if !self.codec.is_blank(record) {
            if self.codec.wants_header() {
                let set = self.codec.set_header(record);
                set.map_err(|why| format!("printed a header that cannot be used: the header {why}"))?;
            } else {
                self.job(record)?;
            }
        }
        self.line += lines;
        Ok(())
    }

    fn job(&mut self, record: &[u8]) -> Result<(), Broken> {
        if record.len() > self.max_line {
            self.bad(record, self.codec.too_long(self.max_line))?;
            return self.bounded();
        }
        let holds = matches!(self.rule, Some(CursorRule::Prefix(_)));
        let jobs = if holds { &mut self.held.jobs } else { &mut self.ready.jobs };
        let is_json = match self.codec {
            Codec::Ndjson => json::check(record).map_err(|error| format!("the line is not JSON: {error}")),
            _ => Ok(()),
        };
        let before = jobs.len();
        if let Err(why) = is_json.and_then(|()| self.codec.encode(record, jobs)) {
            self.bad(record, why)?;
        } else if let Some(CursorRule::Field(path)) = &self.rule
            && let Some(written) = jobs.get(before).and_then(|job| path.find(job))
            && written != "null"
        {
            let text = scalar(written).unwrap_or(written.into()).into_owned();
            self.ready.cursor = Some(self.checked(&text)?);
        }
        self.bounded()
    }

    fn bounded(&self) -> Result<(), Broken> {
        if self.held.byte_len() > HELD_MAX {
            let most = format_size(HELD_MAX as u64);
            return Err(format!("printed more than {most} without a cursor").into());
        }
        Ok(())
    }

    fn bad(&mut self, record: &[u8], message: String) -> Result<(), Broken> {
        if self.stops {
            let why = format!("printed a line that is no job (line {}): {message}", self.line);
            return Err(Broken { why, is_bad_line: true });
        }
        let holds = matches!(self.rule, Some(CursorRule::Prefix(_)));
        let lines = if holds { &mut self.held } else { &mut self.ready };
        let (text, position) = (head(record).to_vec(), lines.jobs.len());
        lines.bad.push(BadLine { line: self.line, text, message, position });
        Ok(())
    }

    /// A cursor that the next start can receive.
    fn checked(&self, cursor: &str) -> Result<String, String> {
        if cursor.len() > CURSOR_MAX {
            let most = format_size(CURSOR_MAX as u64);
            return Err(format!("printed a cursor that exceeds {most} (line {})", self.line));
        }
        if cursor.contains('\0') {
            return Err(format!("printed a cursor with the character 0 (line {})", self.line));
        }
        Ok(cursor.to_owned())
    }
}

impl Codec {
    /// The codec of a command's output, which is never a file.
    pub(crate) fn of_output(lines: LineFormat) -> Self {
        let LineFormat { format, headers, delimiter, max_line: _ } = lines;
        match format {
            DataFormat::Lines => Self::Lines,
            DataFormat::Csv => Self::csv(delimiter, headers),
            DataFormat::Ndjson | DataFormat::Bytes => Self::Ndjson,
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_model::FieldPath;

    use super::*;

    fn splitter(format: DataFormat, rule: Option<CursorRule>) -> LineSplitter {
        LineSplitter::new(LineFormat { format, max_line: 40, headers: true, delimiter: b',' }, rule, false)
    }

    fn prefix() -> CursorRule {
        CursorRule::Prefix("AT=".into())
    }

    fn push(lines: &mut LineSplitter, output: &str) -> String {
        match lines.push(output.as_bytes().to_vec()) {
            Ok(()) => shown(&lines.take()),
            Err(broken) => broken.why,
        }
    }

    fn shown(lines: &PrintedLines) -> String {
        let jobs: Vec<_> = lines.jobs.iter().map(String::from_utf8_lossy).collect();
        let bad: Vec<_> =
            lines.bad.iter().map(|bad| format!(" !{}@{} {}", bad.line, bad.position, bad.message)).collect();
        let cursor = lines.cursor.as_deref().map(|cursor| format!(" >{cursor}")).unwrap_or_default();
        format!("{}{}{cursor}", jobs.join(" "), bad.concat())
    }

    #[test]
    fn a_line_is_a_job_once_it_is_complete() {
        let mut lines = splitter(DataFormat::Ndjson, None);
        assert_eq!(push(&mut lines, "1\n{\"a\""), "1");
        assert_eq!(push(&mut lines, ": 2}\n\n \n3"), "{\"a\": 2}");
        lines.finish().unwrap();
        assert_eq!(shown(&lines.take()), "3");
    }

    #[test]
    fn a_line_that_is_no_job_has_its_number_and_its_place() {
        let mut lines = splitter(DataFormat::Ndjson, None);
        let json = push(&mut lines, "1\n\nno\n2\n");
        assert!(json.starts_with("1 2 !3@1 the line is not JSON: "), "{json}");
        let mut lines = splitter(DataFormat::Lines, None);
        assert_eq!(push(&mut lines, &format!("a\n{}", "x".repeat(41))), "\"a\"");
        assert_eq!(push(&mut lines, "x\nb\n"), "\"b\" !2@0 the line exceeds `max_line` (40 bytes)");
    }

    #[test]
    fn a_source_without_an_error_queue_stops_at_a_line_that_is_no_job() {
        let rule = Some(CursorRule::Field(FieldPath::parse("n").unwrap()));
        let mut lines = LineSplitter { stops: true, ..splitter(DataFormat::Ndjson, rule) };
        let broken = lines.push(b"{\"n\":1}\nno\n{\"n\":3}\n".to_vec()).unwrap_err();
        assert!(broken.is_bad_line && broken.why.starts_with("printed a line that is no job (line 2): "));
        assert_eq!(shown(&lines.take()), "{\"n\":1} >1");
    }

    #[test]
    fn lines_wait_for_their_cursor() {
        let mut lines = splitter(DataFormat::Lines, Some(prefix()));
        assert_eq!(push(&mut lines, "a\nb\n"), "");
        assert_eq!(push(&mut lines, "AT=2\nc\nAT=3\nd\n"), "\"a\" \"b\" \"c\" >3");
        // Another start prints `d` again.
        assert_eq!(shown(&lines.take()), "");
        lines.finish().unwrap();
        assert_eq!(shown(&lines.take()), "\"d\"");
    }

    #[test]
    fn a_field_of_each_job_is_its_cursor() {
        let rule = || Some(CursorRule::Field(FieldPath::parse("at.seq").unwrap()));
        let mut lines = splitter(DataFormat::Ndjson, rule());
        assert_eq!(
            push(&mut lines, "{\"at\":{\"seq\":7}}\n{\"b\":1}\n"),
            "{\"at\":{\"seq\":7}} {\"b\":1} >7"
        );
        assert_eq!(push(&mut lines, "{\"at\":{\"seq\":null}}\n"), "{\"at\":{\"seq\":null}}");
        assert_eq!(push(&mut lines, "{\"at\":{\"seq\":\"ä\\n\"}}\n"), "{\"at\":{\"seq\":\"ä\\n\"}} >ä\n");
        assert_eq!(
            push(&mut lines, "{\"at\":{\"seq\":\"\\u0000\"}}\n"),
            "printed a cursor with the character 0 (line 5)"
        );
    }

    #[test]
    fn csv_has_a_header_at_each_start_and_cursors_between_its_records() {
        let mut lines = splitter(DataFormat::Csv, Some(prefix()));
        assert_eq!(
            push(&mut lines, "a,b\n1,\"x\ny\"\nAT=1 \"\n2,z\nAT=2\n"),
            r#"{"a":"1","b":"x\ny"} {"a":"2","b":"z"} >2"#
        );
    }

    #[test]
    fn a_cursor_without_lines_counts() {
        let mut lines = splitter(DataFormat::Ndjson, Some(prefix()));
        assert_eq!(push(&mut lines, "AT=\n"), " >");
        let long = format!("AT={}\n", "x".repeat(CURSOR_MAX + 1));
        assert_eq!(push(&mut lines, &long), "printed a cursor that exceeds 64.0 KiB (line 2)");
    }
}
