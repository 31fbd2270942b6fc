//! Base64: encodes bytes as text by RFC 4648, with padding.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, &byte| group << 8 | u32::from(byte));
        let group = group << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let bits = (group >> (18 - 6 * digit)) & 0b11_1111;
            text.push(if digit > chunk.len() { '=' } else { char::from(DIGITS[bits as usize]) });
        }
    }
    text
}

/// The bytes that [`encode`] turns into this text; `None` if there are none.
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (groups, rest) = text.as_bytes().as_chunks();
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for (number, &group) in groups.iter().enumerate() {
        let is_last = number + 1 == groups.len();
        let len = match group {
            [_, _, b'=', b'='] if is_last => 1,
            [_, _, _, b'='] if is_last => 2,
            _ => 3,
        };
        let mut bits = 0;
        for digit in &group[..=len] {
            bits = bits << 6 | value(*digit)?;
        }
        bits <<= 6 * (3 - len);
        let [_, decoded @ ..] = u32::to_be_bytes(bits);
        // The bits that are cut off must be zero.
        if decoded[len..].iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&decoded[..len]);
    }
    rest.is_empty().then_some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    let (start, first) = match digit {
        b'A'..=b'Z' => (b'A', 0),
        b'a'..=b'z' => (b'a', 26),
        b'0'..=b'9' => (b'0', 52),
        b'+' => (b'+', 62),
        b'/' => (b'/', 63),
        _ => return None,
    };
    Some(first + u32::from(digit - start))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(encode(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zh==", "Zm9=", "Zm 9", "Zm-v", "ä==="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn no_two_texts_decode_to_the_same_bytes(text in "[A-D/+=]{0,9}") {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
