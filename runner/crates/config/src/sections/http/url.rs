//! URL templates: checks that no job can change the structure of a URL.

use tidegate_model::template::{Template, TemplatePart};

/// The error and its fix. Quotes no text that may be a secret.
pub(crate) fn check(url: &Template) -> Result<(), (String, &'static str)> {
    let fixed: String = fixed_start(url);
    let rest = fixed.strip_prefix("https://").or_else(|| fixed.strip_prefix("http://"));
    let Some(rest) = rest else {
        return wrong(
            "`url` must begin with `https://` or `http://`",
            "for example `https://host/path/{field}`",
        );
    };
    let end = rest.find(['/', '?', '#']);
    let Some(authority) = end.map(|end| &rest[..end]).or_else(|| url.is_fixed().then_some(rest)) else {
        return wrong(
            "the host of `url` must be fixed: a job could otherwise choose the server",
            "write the host, then `/`, and use fields after it",
        );
    };
    check_authority(authority)?;
    check_rest(url)
}

/// As [`check`], for the beginning of URLs: scheme and host, perhaps with the beginning of a path.
pub(crate) fn check_server(server: &Template) -> Result<(), (String, &'static str)> {
    if !server.is_fixed() {
        return wrong("a server must be the same for every job", "use fields in `host` and `url`");
    }
    check(server)?;
    let text = plain(server);
    if text.contains('?') || text.ends_with('/') {
        return wrong(
            "a server has no `?`, and no `/` at the end",
            "write scheme and host, such as `https://a.example`, and the rest in `url`",
        );
    }
    Ok(())
}

/// As [`check`], for the end of URLs, after one of `hosts`.
pub(crate) fn check_path(url: &Template) -> Result<(), (String, &'static str)> {
    if !fixed_start(url).starts_with('/') {
        return wrong("`url` must begin with `/` beside `hosts`", "for example `url = \"/path/{field}\"`");
    }
    check_rest(url)
}

fn check_rest(url: &Template) -> Result<(), (String, &'static str)> {
    if let Some(letter) = plain(url).chars().find(|&letter| !may_stand(letter)) {
        if letter == '#' {
            return wrong(
                "`url` has a `#`, but the text after it is never sent",
                "write `%23` for a literal `#`",
            );
        }
        return wrong(
            "`url` has characters that are not allowed in a URL",
            "percent-encode them, like `%20` for a blank; values of fields are encoded automatically",
        );
    }
    let path = plain(url);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return wrong("the path of `url` has a part `.` or `..`", "write the full path");
    }
    Ok(())
}

fn check_authority(authority: &str) -> Result<(), (String, &'static str)> {
    if authority.contains('@') {
        return wrong(
            "`url` has a user in it",
            "write it as a header: `headers = { authorization = \"Basic …\" }`",
        );
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_host = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let is_address = |letter: char| letter.is_ascii_hexdigit() || ":.".contains(letter);
    let good = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => !address.is_empty() && address.chars().all(is_address),
        None => !host.is_empty() && host.chars().all(is_host),
    };
    if !good {
        return wrong("`url` has no host", "for example `https://host/path/{field}`");
    }
    match port.map(str::parse::<u16>) {
        Some(Err(_) | Ok(0)) => wrong("`url` has an invalid port", "use a port from 1 to 65535"),
        _ => Ok(()),
    }
}

/// The text before the first field.
fn fixed_start(url: &Template) -> String {
    let fixed = url.parts().iter().map_while(|part| match part {
        TemplatePart::Text(text) => Some(text.as_str()),
        TemplatePart::Secret(secret) => Some(secret.reveal()),
        TemplatePart::Field(_) | TemplatePart::Fact(_) => None,
    });
    fixed.collect()
}

/// The URL with a letter for each field.
fn plain(url: &Template) -> String {
    let parts = url.parts().iter().map(|part| match part {
        TemplatePart::Text(text) => text.as_str(),
        TemplatePart::Secret(secret) => secret.reveal(),
        TemplatePart::Field(_) | TemplatePart::Fact(_) => "x",
    });
    parts.collect()
}

fn may_stand(letter: char) -> bool {
    letter.is_ascii_graphic() && !"#\"<>\\^`{|}".contains(letter)
}

fn wrong<T>(message: &str, help: &'static str) -> Result<T, (String, &'static str)> {
    Err((message.to_owned(), help))
}
