//! `Parameters`: the decoded parameters of an address.

use std::str::FromStr;

use super::response::HttpRefusal;

/// Names and values, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// # Errors
    /// A name or value is not text in percent-encoding, or a name occurs twice.
    pub(crate) fn of(query: Option<&str>) -> Result<Self, HttpRefusal> {
        let mut all: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(HttpRefusal::wrong(format!("parameter `{pair}` is not in percent-encoding")));
            };
            if all.iter().any(|(known, _)| *known == name) {
                return Err(HttpRefusal::wrong(format!("parameter `{name}` occurs twice")));
            }
            all.push((name, value));
        }
        Ok(Self(all))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// The value as a number or a truth value. `example` shows a valid one.
    pub(crate) fn parsed<T: FromStr>(&self, name: &str, example: &str) -> Result<Option<T>, HttpRefusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let wrong =
            |_| HttpRefusal::wrong(format!("`{value}` is not a value of `{name}`: write `{name}={example}`"));
        value.parse().map(Some).map_err(wrong)
    }
}

/// `a%20b` and `a+b` are `a b`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let parameters = Parameters::of(Some("key=a%2Fb+c%C3%BC&limit=5&payload")).unwrap();
        assert_eq!(parameters.get("key"), Some("a/b cü"));
        assert_eq!(parameters.get("payload"), Some(""));
        assert_eq!(parameters.get("other"), None);
        assert_eq!(parameters.parsed::<u64>("limit", "100").unwrap(), Some(5));
        for wrong in ["key=%2", "key=%zz", "key=%ff", "a=1&a=2"] {
            assert!(Parameters::of(Some(wrong)).is_err(), "{wrong}");
        }
        let wrong = parameters.parsed::<u64>("key", "100").unwrap_err();
        assert_eq!(wrong.to_string(), "400 `a/b cü` is not a value of `key`: write `key=100`");
    }
}
