//! Scanner: finds comments and texts of a script without compiling it.

/// The length of the comment or text at the start of `rest`.
pub(crate) fn skipped(rest: &str) -> Option<usize> {
    let past = |from: usize, end: &str| {
        rest.get(from..)?.find(end).map_or(Some(rest.len()), |found| Some(from + found + end.len()))
    };
    if rest.starts_with("//") {
        return past(2, "\n");
    }
    if rest.starts_with("/*") {
        return past(2, "*/");
    }
    let quote = rest.chars().next().filter(|char| ['"', '`', '\''].contains(char))?;
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, char)) = characters.next() {
        match char {
            '\\' if quote != '`' => drop(characters.next()),
            _ if char == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}
