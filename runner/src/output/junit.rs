//! `JUnit`: writes the outcomes of tests as XML, which continuous integration reads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::test_report::{TestRecord, plain_differences};

/// The results, one suite per pipeline.
pub(crate) fn xml(records: &[TestRecord], took: Duration) -> String {
    let mut suites: BTreeMap<&str, Vec<&TestRecord>> = BTreeMap::new();
    for record in records {
        suites.entry(&record.pipeline).or_default().push(record);
    }
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let failed =
        |records: &mut dyn Iterator<Item = &TestRecord>| records.filter(|record| !record.passed).count();
    let (tests, failures, time) = (records.len(), failed(&mut records.iter()), took.as_secs_f64());
    // A write to a string does not fail.
    let _ = writeln!(xml, "<testsuites tests=\"{tests}\" failures=\"{failures}\" time=\"{time:.3}\">");
    for (pipeline, records) in suites {
        let failures = failed(&mut records.iter().copied());
        let (name, tests) = (escaped(pipeline), records.len());
        let _ = writeln!(xml, "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\">");
        for record in records {
            case(record, &mut xml);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn case(record: &TestRecord, xml: &mut String) {
    let class = match &record.step {
        Some(step) => format!("{}/{step}", record.pipeline),
        None => record.pipeline.clone(),
    };
    let (name, class) = (escaped(&record.name), escaped(&class));
    let file = escaped(&record.file.display().to_string());
    let (line, time) = (record.line, Duration::from_millis(record.took_ms).as_secs_f64());
    let _ = write!(
        xml,
        "    <testcase name=\"{name}\" classname=\"{class}\" file=\"{file}\" line=\"{line}\" time=\"{time:.3}\""
    );
    let Some(first) = record.differences.first() else {
        xml.push_str("/>\n");
        return;
    };
    let (message, text) = (escaped(&first.message), escaped(&plain_differences(record)));
    let _ = writeln!(xml, ">\n      <failure message=\"{message}\">{text}</failure>\n    </testcase>");
}

/// The text within an attribute or an element. XML has no form for most control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(character),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::test_report::DifferenceRecord;

    fn record(name: &str, step: Option<&str>, passed: bool) -> TestRecord {
        let message = "`attempts` is 3, but 2 is expected".to_owned();
        let difference = DifferenceRecord { line: 9, message, expected: None, actual: None };
        TestRecord {
            pipeline: "orders".to_owned(),
            step: step.map(str::to_owned),
            name: name.to_owned(),
            file: "configs/orders.toml".into(),
            line: 7,
            passed,
            took_ms: 12,
            differences: if passed { Vec::new() } else { vec![difference] },
        }
    }

    #[test]
    fn results_are_suites_of_cases() {
        let records = [record("a \"quoted\" < name", None, true), record("retries", Some("price"), false)];
        insta::assert_snapshot!(xml(&records, Duration::from_millis(1500)));
    }

    #[test]
    fn a_character_that_xml_cannot_hold_is_replaced() {
        assert_eq!(escaped("a\u{1}&\n"), "a\u{fffd}&amp;\n");
    }
}
