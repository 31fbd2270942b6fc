//! Tests of `Filling`: values of jobs are inserted, or refused.

use tidegate_plugin::Job;

use super::{Encoding, TemplateContext, encode, key};
use tidegate_model::template::Template;
use tidegate_model::{DeliveryHash, TokenKey};

const JOB: &str = r#"{"id": 7, "order": {"id": "a/b?c#d&é ..", "sum": 123456789012345678901234567890, "none": null},
    "items": [{"n": 1.50}, "x"], "a b": true, "twice": 1, "twice": "last", "empty": "", "up": ".."}"#;

fn fill(template: &str, encoding: Encoding) -> Result<String, String> {
    let job = Job::new(3, JOB.as_bytes()).attempted(2, 5).hashed(0xab);
    let (key, token_key) = (&key(&job, 1), &TokenKey::new(&[7; 32]).unwrap());
    let filling = TemplateContext { job: &job, key, pipeline: "p", step: "s", token_key };
    let template = Template::parse(template, &[]).unwrap();
    filling.text(&template, encoding).map_err(|failure| format!("{}: {failure}", failure.word()))
}

#[test]
fn values_come_out_as_the_job_has_them() {
    let cases = [
        ("{id}", "7"),
        ("{order.sum}", "123456789012345678901234567890"),
        ("{items.0.n}-{items.1}", "1.50-x"),
        ("{a b} {twice} [{empty}]", "true last []"),
        (
            "{ctx.hash} {ctx.attempt} {ctx.index} {ctx.now} {ctx.pipeline}/{ctx.step}",
            "000000000000000000000000000000ab 2 3 5 p/s",
        ),
    ];
    for (template, text) in cases {
        assert_eq!(fill(template, Encoding::Plain).as_deref(), Ok(text), "{template}");
    }
}

#[test]
fn a_token_is_that_of_the_job_whatever_piece_of_it_goes_out() {
    let token = TokenKey::new(&[7; 32]).unwrap().token(DeliveryHash(0xab));
    assert_eq!(fill("http://h/?token={ctx.token}", Encoding::Url), Ok(format!("http://h/?token={token}")));
}

#[test]
fn a_value_never_changes_the_structure_of_a_url() {
    let url = fill("http://h/{order.id}?q={order.id}&e={empty}", Encoding::Url);
    assert_eq!(url.as_deref(), Ok("http://h/a%2Fb%3Fc%23d%26%C3%A9%20..?q=a%2Fb%3Fc%23d%26%C3%A9%20..&e="));
    assert!(fill("http://h/{empty}/x", Encoding::Url).unwrap_err().contains("`empty` is empty"));
}

#[test]
fn a_field_that_is_mistyped_gets_the_nearest_one() {
    let refusal = |template| fill(template, Encoding::Plain).unwrap_err();
    assert_eq!(refusal("{idd}"), "payload: the job has no `idd`; did you mean `id`?");
    assert_eq!(refusal("{order.summ}"), "payload: the job has no `order.summ`; did you mean `order.sum`?");
    assert_eq!(refusal("{itmes.0.n}"), "payload: the job has no `itmes.0.n`; did you mean `items.0.n`?");
    assert_eq!(refusal("{elephant}"), "payload: the job has no `elephant`");
}

#[test]
fn what_is_not_there_or_is_no_text_is_named() {
    let templates =
        ["{none}", "{order}", "{items}", "{order.none}", "{id.x}", "{items.2}", "{items.x}", "{items.0.y}"];
    let refusal = templates.map(|template| fill(template, Encoding::Plain).unwrap_err());
    insta::assert_debug_snapshot!(refusal);
}

#[test]
fn a_job_that_is_no_map_has_no_fields() {
    for payload in ["7", "\"x\"", "null", "true", "1.5", "-3", "[]", "{", ""] {
        let job = Job::new(1, payload.as_bytes()).hashed(0);
        let token_key = &TokenKey::NONE;
        let filling = TemplateContext { job: &job, key: "", pipeline: "p", step: "s", token_key };
        assert!(filling.text(&Template::parse("{a.b}", &[]).unwrap(), Encoding::Plain).is_err(), "{payload}");
    }
}

#[test]
fn pieces_of_a_job_have_keys_of_their_own() {
    let job = Job::new(1, b"1");
    assert_eq!(key(&job, 1), "00000000000000000000000000000001");
    assert_eq!(key(&job, 3), "00000000000000000000000000000001-3");
}

proptest::proptest! {
    #[test]
    fn whatever_is_encoded_stays_one_value(value: String) {
        let mut url = String::new();
        encode(&value, &mut url);
        proptest::prop_assert!(url.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte)));
        let mut decoded = Vec::new();
        let mut bytes = url.bytes();
        while let Some(byte) = bytes.next() {
            decoded.push(if byte == b'%' {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap()
            } else {
                byte
            });
        }
        proptest::prop_assert_eq!(decoded, value.into_bytes());
    }
}
