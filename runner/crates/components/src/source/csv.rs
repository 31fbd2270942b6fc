//! `Table`: splits CSV records, and turns them into JSON.

use csv_core::{ReadRecordResult, ReaderBuilder, Terminator};
use memchr::{memchr, memchr2};
use tidegate_plugin::Payloads;
use tidegate_plugin::words::utf16_help;

/// The end of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordEnd {
    /// At the newline at this position.
    At(usize),
    /// Not in these bytes; `quoted`: they end inside quotes.
    Beyond { quoted: bool },
}

/// Finds the end of the record at the start of `bytes`. A quote opens a field only at its start, as in the
/// parser; newlines within quotes belong to the field.
pub(crate) fn record_end(bytes: &[u8], delimiter: u8) -> RecordEnd {
    let mut at = 0;
    loop {
        if bytes.get(at) == Some(&b'"') {
            at += 1;
            loop {
                let Some(quote) = memchr(b'"', &bytes[at..]) else {
                    return RecordEnd::Beyond { quoted: true };
                };
                at += quote + 1;
                if bytes.get(at) != Some(&b'"') {
                    break;
                }
                at += 1;
            }
        }
        match memchr2(delimiter, b'\n', &bytes[at..]) {
            None => return RecordEnd::Beyond { quoted: false },
            Some(stop) if bytes[at + stop] == b'\n' => return RecordEnd::At(at + stop),
            Some(stop) => at += stop + 1,
        }
    }
}

/// Turns records into JSON: objects of strings by header, or arrays of strings.
#[derive(Debug)]
pub(crate) struct Table {
    delimiter: u8,
    /// The names of the fields as JSON, each with its colon. `None` before the header.
    keys: Option<Vec<String>>,
    parser: Box<csv_core::Reader>,
    /// The fields of the present record, back to back, and the end of each.
    fields: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl Table {
    pub(crate) fn new(delimiter: u8) -> Self {
        let parser = ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::Any(b'\n')).build();
        Self {
            delimiter,
            keys: None,
            parser: Box::new(parser),
            fields: vec![0; 1024],
            ends: vec![0; 64],
            count: 0,
        }
    }

    pub(crate) fn delimiter(&self) -> u8 {
        self.delimiter
    }

    pub(crate) fn has_header(&self) -> bool {
        self.keys.is_some()
    }

    /// Uses `record` (without its newline) as the names of the fields.
    ///
    /// # Errors
    /// A sentence fragment that continues "the header …".
    pub(crate) fn set_header(&mut self, record: &[u8]) -> Result<(), String> {
        self.parse(record);
        let mut keys = Vec::with_capacity(self.count);
        for position in 0..self.count {
            let name = self.field(position).map_err(|_| match utf16_help(record) {
                Some(help) => format!("is not UTF-8; {help}"),
                None => "is not UTF-8".to_owned(),
            })?;
            let key = format!("{}:", serde_json::Value::from(name));
            if keys.contains(&key) {
                return Err(format!("names the field `{name}` twice"));
            }
            keys.push(key);
        }
        self.keys = Some(keys);
        Ok(())
    }

    /// Appends the JSON of `record` (without its newline).
    ///
    /// # Errors
    /// A sentence fragment: why the record is invalid.
    pub(crate) fn encode(&mut self, record: &[u8], payloads: &mut Payloads) -> Result<(), String> {
        self.parse(record);
        if let Some(keys) = &self.keys
            && keys.len() != self.count
        {
            return Err(format!(
                "the record has {}, but the header names {}",
                count_of(self.count, "field"),
                keys.len()
            ));
        }
        payloads.push_with(|json| {
            json.push(if self.keys.is_some() { b'{' } else { b'[' });
            for position in 0..self.count {
                if position > 0 {
                    json.push(b',');
                }
                if let Some(key) = self.keys.as_ref().and_then(|keys| keys.get(position)) {
                    json.extend_from_slice(key.as_bytes());
                }
                let text = self.field(position)?;
                serde_json::to_writer(&mut *json, text).map_err(|error| error.to_string())?;
            }
            json.push(if self.keys.is_some() { b'}' } else { b']' });
            Ok(())
        })
    }

    fn field(&self, position: usize) -> Result<&str, String> {
        let start = if position == 0 { 0 } else { self.ends[position - 1] };
        std::str::from_utf8(&self.fields[start..self.ends[position]])
            .map_err(|_| format!("field {} of the record is not UTF-8", position + 1))
    }

    /// Splits `record` into `fields`, `ends` and `count`.
    fn parse(&mut self, record: &[u8]) {
        self.parser.reset();
        // Unquoting only shortens.
        if self.fields.len() < record.len() {
            self.fields.resize(record.len(), 0);
        }
        let (mut read, mut written) = (0, 0);
        self.count = 0;
        loop {
            let (result, took, wrote, ended) = self.parser.read_record(
                &record[read..],
                &mut self.fields[written..],
                &mut self.ends[self.count..],
            );
            read += took;
            written += wrote;
            self.count += ended;
            match result {
                // Without more input, the next iteration ends the record.
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => return,
            }
        }
    }
}

/// `1 field`, `2 fields`.
fn count_of(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(table: &mut Table, record: &str) -> Result<String, String> {
        let mut payloads = Payloads::new();
        table.encode(record.as_bytes(), &mut payloads)?;
        Ok(String::from_utf8(payloads.bytes().to_vec()).unwrap())
    }

    #[test]
    fn newlines_inside_quotes_do_not_end_a_record() {
        for (text, end) in [
            ("a,b\nc", RecordEnd::At(3)),
            ("\"a\nb\",c\nd", RecordEnd::At(7)),
            ("\"a\"\"\n\",c\nd", RecordEnd::At(8)),
            ("a\"b\nc\"", RecordEnd::At(3)),
            ("\"a\"b\nc", RecordEnd::At(4)),
            ("\"a\nb", RecordEnd::Beyond { quoted: true }),
            ("\"a\"", RecordEnd::Beyond { quoted: false }),
            ("", RecordEnd::Beyond { quoted: false }),
            ("\n", RecordEnd::At(0)),
        ] {
            assert_eq!(record_end(text.as_bytes(), b','), end, "{text:?}");
        }
    }

    #[test]
    fn a_record_becomes_an_object_in_the_order_of_the_header() {
        let mut table = Table::new(b',');
        table.set_header(b"z,\"a \"\"b\"\"\",m").unwrap();
        assert_eq!(json(&mut table, "1,\"x\ny\",").unwrap(), r#"{"z":"1","a \"b\"":"x\ny","m":""}"#);
    }

    #[test]
    fn without_a_header_a_record_becomes_an_array() {
        let mut table = Table::new(b';');
        assert_eq!(json(&mut table, "1;b,c;\"d;e\"").unwrap(), r#"["1","b,c","d;e"]"#);
        assert_eq!(json(&mut table, "x").unwrap(), r#"["x"]"#);
        let wide = vec!["v"; 200].join(";");
        assert_eq!(json(&mut table, &wide).unwrap().matches("\"v\"").count(), 200);
    }

    #[test]
    fn a_record_that_does_not_fit_the_header_is_a_fault() {
        let mut table = Table::new(b',');
        table.set_header(b"a,b").unwrap();
        insta::assert_snapshot!(json(&mut table, "1").unwrap_err(), @"the record has 1 field, but the header names 2");
        insta::assert_snapshot!(json(&mut table, "1,2,3").unwrap_err(), @"the record has 3 fields, but the header names 2");
        let mut payloads = Payloads::new();
        insta::assert_snapshot!(table.encode(b"1,\xff", &mut payloads).unwrap_err(), @"field 2 of the record is not UTF-8");
        assert!(payloads.is_empty());
    }

    #[test]
    fn a_header_names_each_field_once() {
        insta::assert_snapshot!(Table::new(b',').set_header(b"a,b,a").unwrap_err(), @"names the field `a` twice");
    }
}
