//! Plain tables and numbers for terminals.

use std::time::Duration;

/// Aligns `rows` under `head`; columns whose position is in `right` stand to the right. Two spaces
/// between columns, no lines, nothing behind the last one.
pub(super) fn table(head: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|name| name.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (position, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width - cell.chars().count());
            if position > 0 {
                line.push_str("  ");
            }
            if right.contains(&position) {
                line.push_str(&gap);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&gap);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// 1234567 as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 job`, `1,234 jobs`.
pub(super) fn jobs(number: u64) -> String {
    format!("{} {}", grouped(number), if number == 1 { "job" } else { "jobs" })
}

/// Jobs a second.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shown"
)]
pub(super) fn rate(jobs: u64, elapsed: Duration) -> u64 {
    (jobs as f64 / elapsed.as_secs_f64().max(0.001)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "1".into()], vec!["longer".into(), "22".into()]];
        insta::assert_snapshot!(table(&["step", "in"], &[1], &rows), @r"
        step    in
        a        1
        longer  22
        ");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let texts: Vec<String> = [0, 999, 1000, 1_234_567].map(grouped).into();
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
