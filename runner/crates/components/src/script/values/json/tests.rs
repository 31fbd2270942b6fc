//! Tests of JSON in scripts: values that only JSON or only Rhai has.

use proptest::prelude::*;

use super::*;

fn round_trip(text: &str) -> String {
    let value = read(text.as_bytes()).unwrap();
    let mut buffer = Vec::new();
    write(&value, &mut buffer).unwrap();
    String::from_utf8(buffer).unwrap()
}

#[test]
fn values_come_back_as_they_were() {
    for text in [
        "null",
        "true",
        "-1",
        "1.5",
        "\"a\\n\\\"ü\\u0001\"",
        "[]",
        "{}",
        "[1,[2,{\"a\":null}]]",
        "9223372036854775807",
        "-9223372036854775808",
        "0.1",
        "1e300",
        "5e-324",
    ] {
        let back = round_trip(text);
        let (before, after): (serde_json::Value, serde_json::Value) =
            (serde_json::from_str(text).unwrap(), serde_json::from_str(&back).unwrap());
        assert_eq!(before, after, "{text} became {back}");
    }
}

#[test]
fn a_number_is_read_alike_beside_a_number_past_64_bits() {
    let of = |value: &Dynamic| format!("{} {value:?}", value.type_name());
    for number in ["-0", "0", "-1", "-0.0", "0e0", "1e2"] {
        let alone = read(number.as_bytes()).unwrap();
        let beside = read(format!("[{number},1e19]").as_bytes()).unwrap();
        assert_eq!(of(&beside.as_array_ref().unwrap()[0]), of(&alone), "{number}");
    }
}

#[test]
fn numbers_past_64_bits_keep_their_digits() {
    for text in [
        "9223372036854775808",
        "123456789012345678901234567890",
        "-9223372036854775809",
        "{\"a\":[1,18446744073709551616],\"b\":1.5}",
        "{\"a\":[1,18446744073709551615],\"b\":1.5}",
    ] {
        assert_eq!(round_trip(text), text);
    }
    assert_eq!(round_trip("[1e20]"), "[1e+20]");
    assert_eq!(round_trip("[1e999,-1e999]"), "[1e999,-1e999]");
}

#[test]
fn keys_come_out_in_alphabetical_order_and_the_last_of_two_counts() {
    assert_eq!(round_trip(r#"{"b":1,"a":2,"b":3}"#), r#"{"a":2,"b":3}"#);
}

#[test]
fn what_is_no_json_is_told_with_its_column() {
    let texts: [&[u8]; 9] =
        [b"", b"{\"a\":1", b"{a:1}", b"nul", b"1 2", b"\"\xff\"", b"-", b"\"\\ud800\"", b"[1,]"];
    let errors: Vec<String> = texts.iter().map(|text| read(text).unwrap_err().to_string()).collect();
    insta::assert_debug_snapshot!(errors);
}

#[test]
fn what_json_cannot_say_is_an_error_that_names_the_field() {
    let mut map = Map::new();
    map.insert("rate".into(), Dynamic::from_float(f64::NAN));
    let error = write(&Dynamic::from_map(map), &mut Vec::new()).unwrap_err();
    insta::assert_snapshot!(error, @"JSON has no number for `NaN` (in `rate`)");
    let mut deep = Dynamic::UNIT;
    for _ in 0..10_000 {
        deep = Dynamic::from_array(vec![deep]);
    }
    let error = write(&deep, &mut Vec::new()).unwrap_err();
    insta::assert_snapshot!(error, @"values nest deeper than 120 levels");
}

#[test]
fn deep_nesting_is_refused_on_both_sides_of_the_slow_way() {
    let deep = format!("{}1e300{}", "[".repeat(121), "]".repeat(121));
    assert!(read(deep.as_bytes()).is_err());
    let fits = format!("{}1e300{}", "[".repeat(119), "]".repeat(119));
    assert!(read(fits.as_bytes()).is_ok());
}

#[test]
fn what_is_checked_is_what_can_be_read() {
    let deep = format!("{}{}", "[".repeat(121), "]".repeat(121));
    let texts: [&[u8]; 8] = [
        b"{\"a\":[1,null,\"\xc3\xbc\"]}",
        b"\"\xff\"",
        b"\"\\ud800\"",
        b"1e400",
        b"[1,]",
        b"1 2",
        deep.as_bytes(),
        b"{\"a\":1",
    ];
    for text in texts {
        assert_eq!(check(text).is_ok(), read(text).is_ok(), "{}", String::from_utf8_lossy(text));
    }
}

proptest! {
    #[test]
    fn a_double_comes_back_bit_for_bit(value in prop::num::f64::NORMAL) {
        let text = serde_json::to_string(&value).unwrap();
        let back: f64 = round_trip(&text).parse().unwrap();
        prop_assert_eq!(back.to_bits(), value.to_bits());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = read(&bytes);
    }
}
