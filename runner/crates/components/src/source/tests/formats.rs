//! Tests of formats: each turns a file into jobs and faults.

use super::*;

fn read(format: DataFormat, content: impl AsRef<[u8]>) -> String {
    let mut world = World::new("in").format(format);
    world.put("in", content);
    table(&world.run(1))
}

#[test]
fn ndjson_lines_stay_as_they_are() {
    insta::assert_snapshot!(read(DataFormat::Ndjson, "{\"a\" : 1}\r\n\n  \t\r\n \t[2] \nno json\n\n\"last\""), @r#"
    1 in:1 {"a" : 1}
    2 in:4 [2]
    3 in:5 no json
    4 in:7 "last"
    "#);
}

#[test]
fn lines_become_strings() {
    insta::assert_snapshot!(read(DataFormat::Lines, b"a \"b\"\t\r\n\n \nnul \0\nno \xff text\n\xc3\xa4"), @r#"
    1 in:1 "a \"b\"\t"
    2 in:4 "nul \u0000"
    3 in:5 !the line is not UTF-8
    4 in:6 "ä"
    "#);
}

#[test]
fn a_file_in_utf16_is_told_as_that() {
    let encoded = |text: &str| {
        let units = "\u{feff}".encode_utf16().chain(text.encode_utf16());
        units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
    };
    insta::assert_snapshot!(read(DataFormat::Lines, encoded("größe")), @"1 in:1 !the line is not UTF-8; it looks like UTF-16: convert it to UTF-8, as with `iconv -f UTF-16 -t UTF-8`");
    let world = World::new("in").format(DataFormat::Csv);
    world.put("in", encoded("id,name\n1,a\n"));
    let source = world.open().unwrap();
    let message =
        source.reader(1, None).read(BatchLimit { jobs: 1, bytes: 1 << 20 }).unwrap_err().to_string();
    assert!(message.contains("is not UTF-8; it looks like UTF-16: convert it"), "{message}");
}

#[test]
fn csv_records_become_objects() {
    insta::assert_snapshot!(
        read(DataFormat::Csv, b"\nid,\"full name\"\r\n1,\"a\nb\"\r\n\r\n2,\"say \"\"hi\"\"\"\n3\n4,\xff\n5,x,y\n6,last"),
        @r#"
    1 in:3 {"id":"1","full name":"a\nb"}
    2 in:6 {"id":"2","full name":"say \"hi\""}
    3 in:7 !the record has 1 field, but the header names 2
    4 in:8 !field 2 of the record is not UTF-8
    5 in:9 !the record has 3 fields, but the header names 2
    6 in:10 {"id":"6","full name":"last"}
    "#
    );
}

#[test]
fn csv_without_headers_becomes_arrays() {
    let mut world = World::new("in").format(DataFormat::Csv);
    (world.spec.headers, world.spec.delimiter) = (false, b'\t');
    world.put("in", "1\ta,b\n2\n\t\n");
    assert_eq!(texts(&world.run(1)), [r#"["1","a,b"]"#, r#"["2"]"#, r#"["",""]"#]);
}

#[test]
fn a_quote_that_stays_open_is_a_fault() {
    let read = read(DataFormat::Csv, "id\n1\n\"2\n3\n");
    insta::assert_snapshot!(read, @r#"
    1 in:2 {"id":"1"}
    2 in:3 !the file ends inside the quotes of the record
    "#);
}

#[test]
fn a_csv_header_is_no_job_and_names_fields_once() {
    assert_eq!(read(DataFormat::Csv, "a,b\n"), "");
    assert_eq!(read(DataFormat::Csv, "a,b"), "");
    let mut world = World::new("in").format(DataFormat::Csv);
    world.put("in", "a,a\n1,2\n");
    insta::assert_snapshot!(world.error(1), @"the header of `in` names the field `a` twice");
}

#[test]
fn a_file_is_a_job_with_bytes() {
    let mut world = World::new("in").format(DataFormat::Bytes);
    world.put("in/a.txt", "\u{feff}text\n").put("in/b", b"\xff\xfe").put("in/c", "");
    let seen = world.run(1);
    assert_eq!(
        texts(&seen),
        [
            "{\"path\":\"in/a.txt\",\"size\":8,\"text\":\"\u{feff}text\\n\"}",
            r#"{"path":"in/b","size":2,"base64":"//4="}"#,
            r#"{"path":"in/c","size":0,"text":""}"#,
        ]
    );
    assert_eq!(world.run(4), []);
    world.put("in/d", "d").put("in/b", "changed");
    let seen = world.run(4);
    assert_eq!(
        texts(&seen),
        [r#"{"path":"in/b","size":7,"text":"changed"}"#, r#"{"path":"in/d","size":1,"text":"d"}"#]
    );
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    assert_eq!(read(DataFormat::Ndjson, b"\xef\xbb\xbf1\n2\n"), "1 in:1 1\n2 in:2 2\n");
    assert_eq!(read(DataFormat::Csv, b"\xef\xbb\xbfa\nx\n"), "1 in:2 {\"a\":\"x\"}\n");
}

#[test]
fn what_is_empty_has_no_jobs() {
    for content in ["", "\n", "\r\n \r\n", "\u{feff}", "  "] {
        assert_eq!(read(DataFormat::Ndjson, content), "", "{content:?}");
    }
    let mut world = World::new("in");
    fs::create_dir(world.path("in")).unwrap();
    assert_eq!(world.run(1), []);
}

#[test]
fn a_line_of_16_mib_is_read_and_its_memory_given_back() {
    let long = format!("\"{}\"", "x".repeat((16 << 20) - 2));
    let mut world = World::new("in");
    world.put("in", format!("1\n{long}\n3\n"));
    let seen = world.run(1);
    assert_eq!(seen.len(), 3);
    assert!(seen[1].text == long);
    assert_eq!(seen[2].place, "in:3");
}

#[test]
fn a_line_that_is_too_long_is_a_fault_and_reading_goes_on() {
    for format in [DataFormat::Ndjson, DataFormat::Csv] {
        // Complete in one window, and longer than any.
        for len in [2000, 3 << 20] {
            let mut world = World::new("in").format(format).max_line(1500);
            world.spec.headers = false;
            world.put("in", format!("1\n{}\n3\n{}", "x".repeat(len), "y".repeat(len)));
            let source = world.open().unwrap();
            let Read::Batch(read) = world.reader(&source, 1).read(LIMIT).unwrap() else { panic!() };
            assert_eq!(read.batch.payloads.lengths().skip(1).step_by(2).collect::<Vec<_>>(), [1024, 1024]);
            let table = table(&world.see(&read.batch)).replace("[\"", "").replace("\"]", "");
            let fault = match format {
                DataFormat::Ndjson => "the line exceeds `max_line` (1500 bytes)",
                _ => "the record exceeds `max_line` (1500 bytes); perhaps a quote is not closed",
            };
            assert_eq!(table, format!("1 in:1 1\n2 in:2 !{fault}\n3 in:3 3\n4 in:4 !{fault}\n"));
        }
    }
}

#[test]
fn compressed_files_without_content_are_passed_until_they_have_some() {
    for name in ["in.gz", "in*.gz"] {
        for follow in [false, true] {
            for empty in [gzip(""), gzip("")[..5].to_vec(), b"no gzip".to_vec()] {
                let mut world = World::new(name);
                world.spec.follow = follow;
                world.put("in.gz", &empty);
                for _ in 0..2 {
                    let source = world.open().unwrap();
                    let mut reader = source.reader(1, None);
                    // A damaged file is an error.
                    let _ = world.drain(&mut reader);
                    let _ = world.drain(&mut reader);
                }
                world.put("in.gz", gzip("1\n2\n"));
                assert_eq!(texts(&world.run(1)), ["1", "2"], "{name} {follow} {empty:?}");
            }
        }
    }
}

#[test]
fn gzip_is_read_by_its_ending() {
    let lines = numbers(1..=50_000);
    let (one, two) = lines.split_at(100_003);
    let mut world = World::new("in.gz");
    world.put("in.gz", [gzip(one), gzip(two)].concat());
    let seen = world.run(1);
    assert_eq!(seen.len(), 50_000);
    assert_eq!((seen[49_999].text.as_str(), seen[49_999].place.as_str()), ("50000", "in.gz:50000"));
    assert_eq!(texts(&world.run(49_999)), ["49999", "50000"]);
    assert_eq!(world.run(50_001), []);
}

#[test]
fn broken_gzip_gives_what_is_before_the_break() {
    let lines = numbers(1..=50_000);
    let mut world = World::new("in.gz");
    let whole = gzip(&lines);
    world.put("in.gz", &whole[..whole.len() / 2]);
    let source = world.open().unwrap();
    let mut reader = world.reader(&source, 1);
    let mut count = 0;
    let error = loop {
        match reader.read(LIMIT) {
            Ok(Read::Batch(read)) => {
                world.commit(&read);
                count += read.batch.len();
            }
            Ok(read) => panic!("{read:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, SourceError::Gzip { offset, .. } if *offset > 10_000), "{error:?}");
    assert!(count > 1000);
    // Still damaged, then repaired.
    assert!(reader.read(LIMIT).is_err());
    world.put("in.gz", &whole);
    let next = count as u64 + 1;
    assert_eq!(world.run(next).len(), 50_000 - count);
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    insta::assert_snapshot!(World::new("in").error(1), @"source `quakes/events` reads `in`, which does not exist; with `follow = true` it would wait for it");
    insta::assert_snapshot!(World::new("none/*.ndjson").error(1), @"source `quakes/events` reads `none`, which does not exist; with `follow = true` it would wait for it");
    let mut world = World::new("in");
    world.spec.path = "/dev/null".into();
    insta::assert_snapshot!(world.error(1), @"`/dev/null` is neither a regular file nor a folder; for the output of a program use `… | tidegate queue push PIPELINE/QUEUE`");
}

#[test]
fn a_folder_is_read_in_order_of_name() {
    let mut world = World::new("in");
    world.put("in/b", "3\n").put("in/a", "1\n2").put("in/B", "0\n").put("in/.hidden", "x\n");
    world.put("in/sub/c", "x\n").put("in/empty", "");
    insta::assert_snapshot!(table(&world.run(1)), @r#"
    1 in/B:1 0
    2 in/a:1 1
    3 in/a:2 2
    4 in/b:1 3
    "#);
}

#[test]
fn a_glob_is_read_in_order_of_name() {
    let mut world = World::new("*/x-?.ndjson");
    world.put("b/x-1.ndjson", "2\n").put("a/x-2.ndjson", "1\n").put("a/.x-1.ndjson", "x\n").put("a/y", "x\n");
    insta::assert_snapshot!(table(&world.run(1)), @r#"
    1 a/x-2.ndjson:1 1
    2 b/x-1.ndjson:1 2
    "#);
}

#[test]
fn the_rotated_files_of_a_glob_are_read_before_their_log() {
    let mut world = World::new("app.*");
    world.put("app.log", "6\n").put("app.log.1", "5\n").put("app.log.2", "4\n").put("app.log.10", "3\n");
    world.put("app.log-20260131", "2\n").put("app.log-20260130", "1\n");
    world.put("app.log.bak", "7\n").put("app.out", "8\n").put("app.out-2", "10\n").put("app.out-1", "9\n");
    insta::assert_snapshot!(table(&world.run(1)), @r#"
    1 app.log-20260130:1 1
    2 app.log-20260131:1 2
    3 app.log.10:1 3
    4 app.log.2:1 4
    5 app.log.1:1 5
    6 app.log:1 6
    7 app.log.bak:1 7
    8 app.out:1 8
    9 app.out-1:1 9
    10 app.out-2:1 10
    "#);
}
