//! Whether a template is a URL whose structure no job can change.

use tidegate_model::template::{Part, Template};

/// What is wrong with it, and what to do about it. Quotes nothing that may be a secret.
pub(crate) fn check(url: &Template) -> Result<(), (String, &'static str)> {
    let fixed: String = fixed_start(url);
    let rest = fixed.strip_prefix("https://").or_else(|| fixed.strip_prefix("http://"));
    let Some(rest) = rest else {
        return wrong(
            "`url` should begin with `https://` or `http://`",
            "for example `https://host/path/{field}`",
        );
    };
    let end = rest.find(['/', '?', '#']);
    let Some(authority) = end.map(|end| &rest[..end]).or_else(|| url.is_fixed().then_some(rest)) else {
        return wrong(
            "a field cannot stand in the host of `url`: a job would choose who is asked",
            "write the host, then `/`, and fill in what comes after it",
        );
    };
    check_authority(authority)?;
    if let Some(letter) = plain(url).chars().find(|&letter| !may_stand(letter)) {
        if letter == '#' {
            return wrong(
                "`url` has a `#`, and what follows it is never sent",
                "write `%23` for a literal `#`",
            );
        }
        return wrong(
            "`url` has characters that cannot stand in a URL",
            "write blanks as `%20`, and others by their number too; what fields put in is written so by itself",
        );
    }
    let path = plain(url);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return wrong("`url` has `.` or `..` for a part of its path", "write the path out");
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
        Some(Err(_) | Ok(0)) => wrong("`url` has no good port", "a port is a number up to 65535"),
        _ => Ok(()),
    }
}

/// What stands before the first field.
fn fixed_start(url: &Template) -> String {
    let fixed = url.parts().iter().map_while(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Secret(secret) => Some(secret.reveal()),
        Part::Field(_) | Part::Fact(_) => None,
    });
    fixed.collect()
}

/// With a letter for each field.
fn plain(url: &Template) -> String {
    let parts = url.parts().iter().map(|part| match part {
        Part::Text(text) => text.as_str(),
        Part::Secret(secret) => secret.reveal(),
        Part::Field(_) | Part::Fact(_) => "x",
    });
    parts.collect()
}

fn may_stand(letter: char) -> bool {
    letter.is_ascii_graphic() && !"#\"<>\\^`{|}".contains(letter)
}

fn wrong<T>(message: &str, help: &'static str) -> Result<T, (String, &'static str)> {
    Err((message.to_owned(), help))
}
