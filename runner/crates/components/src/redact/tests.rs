//! Tests of `Scrub`: secrets are found in every encoding.

use proptest::prelude::*;

use super::*;

fn clean(secrets: &[&str], text: &str) -> String {
    let secrets: Vec<Secret> = secrets.iter().copied().map(Secret::new).collect();
    Redactor::new(&secrets).clean(text)
}

#[test]
fn secrets_are_taken_out_and_short_texts_are_none() {
    let secrets = ["hunter2", "hunter22", "", "ab", " padded \n"];
    assert_eq!(clean(&secrets, "ab: hunter22, hunter2, padded"), "ab: …, …, …");
    assert_eq!(clean(&[], "100% \\o/"), "100% \\o/");
}

#[test]
fn a_secret_is_found_however_a_url_or_json_writes_it() {
    let secret = "p/ä\"s w=1";
    for text in [
        "p/ä\"s w=1",
        "p%2F%C3%A4%22s%20w%3D1",
        "p%2f%c3%a4%22s+w%3d1",
        "p/%C3%A4%22s+w=1",
        "p/ä\\\"s w=1",
        "p\\/\\u00e4\\\"s w=1",
        "p\\u002F\\u00E4\\u0022s\\u0020w\\u003d1",
        // JSON in JSON, and a form in a form.
        "p\\\\/\\\\u00e4\\\\\\\"s w=1",
        "p%252F%25C3%25A4%2522s%2Bw%253D1",
        "p%2F%5Cu00e4%5C%22s%20w%3D1",
    ] {
        assert_eq!(clean(&[secret], &format!("a {text}, b")), "a …, b", "{text}");
    }
    assert_eq!(clean(&["a😀b"], "\\\"a\\ud83d\\ude00b\\\""), "\\\"…\\\"");
}

#[test]
fn a_secret_is_found_in_base64_wherever_it_begins() {
    for user in ["", "u", "us", "use", "user"] {
        let both = format!("{user}:s3cr3t>>>?key!");
        let encoded = BASE64_STANDARD.encode(both.as_bytes());
        for encoded in [encoded.replace('+', "-").replace('/', "_"), encoded] {
            let shown = clean(&["s3cr3t>>>?key"], &format!("authorization: Basic {encoded}"));
            let left = shown.strip_prefix("authorization: Basic ").unwrap();
            let (before, behind) = left.split_once('…').unwrap();
            assert!(before.len() <= (user.len() + 1) * 8 / 6 && behind.len() <= 4, "{user}: {shown}");
        }
    }
}

#[test]
fn what_only_looks_like_an_escape_is_left_as_it_is() {
    let text = "100%, %zz, %, \\, \\x, \\u12, \\ud800, a+b, %E4 ä";
    assert_eq!(clean(&["hunter2"], text), text);
}

/// One of the encodings of a text.
fn encode(way: u8, text: &str) -> String {
    let percent = |byte: u8, upper: bool| if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
    match way {
        0 => text.to_owned(),
        1 => text.bytes().map(|byte| percent(byte, true)).collect(),
        2 | 3 => {
            let one = |byte: u8| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    char::from(byte).to_string()
                }
                b' ' if way == 3 => "+".to_owned(),
                _ => percent(byte, way == 2),
            };
            text.bytes().map(one).collect()
        }
        4 => {
            let quoted = serde_json::Value::from(text).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        }
        5 => text.encode_utf16().fold(String::new(), |text, unit| format!("{text}\\u{unit:04x}")),
        _ => BASE64_STANDARD.encode(text.as_bytes()),
    }
}

/// Decodes the text, to check whether the secret is still in it.
fn decode(way: u8, text: &str) -> Option<String> {
    match way {
        0 => Some(text.to_owned()),
        1..=3 => {
            let mut bytes = Vec::new();
            let mut rest = text.as_bytes();
            while let [first, after @ ..] = rest {
                rest = after;
                let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                match (first, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
                    (b'%', Some(byte)) => {
                        bytes.push(byte);
                        rest = &after[2..];
                    }
                    (b'+', _) => bytes.push(b' '),
                    _ => bytes.push(*first),
                }
            }
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        4 | 5 => serde_json::from_str(&format!("\"{text}\"")).ok(),
        _ => BASE64_STANDARD.decode(text).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    }
}

proptest! {
    /// With any text beside it, and in any encoding, even a double one.
    #[test]
    fn no_secret_is_left(
        secret in "[ -~äß漢😀]{4,20}".prop_filter("blanks are no secret", |secret| secret.trim().len() >= 4),
        before in "[a-z äö:]{0,5}",
        behind in "[a-z äö:]{0,5}",
        (inner, outer) in (0_u8..7, 0_u8..6),
    ) {
        let secret = secret.trim();
        let encoded = encode(outer, &encode(inner, &format!("{before}{secret}{behind}")));
        let shown = clean(&[secret], &encoded);
        prop_assert!(shown.contains('…'), "{} shows {}", encoded, shown);
        let read = decode(outer, &shown).and_then(|text| decode(inner, &text));
        prop_assert!(!read.unwrap_or_default().contains(secret), "{} shows {}", encoded, shown);
    }

    #[test]
    fn a_text_without_a_secret_stays_as_it_is(text in "[ -~äß漢😀]{0,60}") {
        prop_assert_eq!(clean(&["\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}"], &text), text);
    }
}
