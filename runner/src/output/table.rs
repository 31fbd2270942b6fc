//! `Column`: aligned tables and numbers for terminals.

use std::time::Duration;

use super::terminal::{self, cut, cut_front};
pub(crate) use tidegate_model::grouped;
pub(crate) use tidegate_model::plain::on_one_line;

/// Aligns `rows` under `head`; columns whose position is in `right` are right-aligned. Columns are separated
/// by two spaces, without lines or trailing spaces.
pub(crate) fn table(head: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|name| terminal::columns(name)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(terminal::columns(cell));
        }
    }
    let mut text = String::new();
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (position, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width - terminal::columns(cell));
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

/// The name, without the pipeline if it is also the pipeline of `beside`.
pub(crate) fn short<'a>(address: &'a str, beside: &str) -> &'a str {
    let pipeline = beside.split_once('/').map(|(pipeline, _)| pipeline);
    let own = address.split_once('/').filter(|(of, _)| Some(*of) == pipeline);
    own.map_or(address, |(_, name)| name)
}

/// One column of a table that fits its output.
#[derive(Debug)]
pub(crate) struct Column {
    head: &'static str,
    right: bool,
    cells: Vec<String>,
    /// If not all columns fit, the one with the smallest number is dropped first; 0 is never dropped.
    drops: u8,
    /// Its cells may be shortened to this many characters.
    least: Option<usize>,
    /// They are shortened at their beginning.
    front: bool,
}

impl Column {
    /// Control characters are escaped in the cells.
    #[expect(clippy::needless_pass_by_value, reason = "the cells are made for it")]
    pub(crate) fn left(head: &'static str, cells: Vec<String>) -> Self {
        let cells = cells.iter().map(|cell| on_one_line(cell)).collect();
        Self { head, right: false, cells, drops: 0, least: None, front: false }
    }

    pub(crate) fn right(head: &'static str, cells: Vec<String>) -> Self {
        Self { right: true, ..Self::left(head, cells) }
    }

    pub(crate) fn drops(self, drops: u8) -> Self {
        Self { drops, ..self }
    }

    /// If its cells do not fit, they are shortened, down to this many characters.
    pub(crate) fn cuts(self, least: usize) -> Self {
        Self { least: Some(least), ..self }
    }

    /// As [`Self::cuts`], for names of jobs and steps, which differ at their end.
    pub(crate) fn cuts_front(self, least: usize) -> Self {
        Self { least: Some(least), front: true, ..self }
    }

    /// Its minimum width.
    fn narrow(&self) -> usize {
        self.least.map_or(self.width(), |least| self.width().min(least.max(terminal::columns(self.head))))
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| terminal::columns(cell));
        cells.chain([terminal::columns(self.head)]).max().unwrap_or(0)
    }
}

/// The lines of a table: its head, and its rows. Columns are shortened, and dropped, until the rest fits into
/// `width`.
pub(crate) fn columns(columns: &[Column], width: Option<usize>) -> Vec<String> {
    let mut shown: Vec<&Column> = columns.iter().collect();
    while let Some(width) = width
        && shown.iter().map(|column| column.narrow() + 2).sum::<usize>() > width + 2
        && let Some(least) = shown.iter().map(|column| column.drops).filter(|&drops| drops > 0).min()
    {
        shown.retain(|column| column.drops != least);
    }
    let head: Vec<&str> = shown.iter().map(|column| column.head).collect();
    let right: Vec<usize> = (0..shown.len()).filter(|&at| shown[at].right).collect();
    let count = shown.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let widths = widths(&shown, width);
    let cell = |(column, width): (&&Column, &usize), at: usize| {
        let cut = if column.front { cut_front } else { cut };
        column.cells.get(at).map(|cell| cut(cell, *width)).unwrap_or_default()
    };
    let row = |at: usize| shown.iter().zip(&widths).map(|column| cell(column, at)).collect();
    let rows: Vec<Vec<String>> = (0..count).map(row).collect();
    table(&head, &right, &rows).lines().map(str::to_owned).collect()
}

/// The width of each column: the widest shortenable ones are reduced first.
fn widths(shown: &[&Column], room: Option<usize>) -> Vec<usize> {
    let mut widths: Vec<usize> = shown.iter().map(|column| column.width()).collect();
    let Some(room) = room else { return widths };
    while widths.iter().map(|width| width + 2).sum::<usize>() > room + 2 {
        let gives = (0..widths.len()).filter(|&at| widths[at] > shown[at].narrow());
        let Some(widest) = gives.max_by_key(|&at| widths[at]) else { break };
        widths[widest] -= 1;
    }
    widths
}

/// `1 job`, `1,234 jobs`.
pub(crate) fn jobs(number: u64) -> String {
    format!("{} {}", grouped(number), if number == 1 { "job" } else { "jobs" })
}

/// Jobs per second.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shown"
)]
pub(crate) fn rate(jobs: u64, elapsed: Duration) -> u64 {
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
    fn columns_line_up_beside_wide_characters_and_what_steers_a_terminal() {
        let all = [
            Column::left("lane", vec!["注文書".into(), "a\u{1b}[2J".into()]),
            Column::right("waiting", vec!["1".into(), "22".into()]),
        ];
        let lines = columns(&all, None);
        assert_eq!(lines, ["lane        waiting", "注文書            1", "a\\u{1b}[2J       22"]);
    }

    #[test]
    fn what_matters_least_gives_way_where_there_is_no_room() {
        let cells = |cell: &str| vec![cell.to_owned()];
        let all = [
            Column::left("step", cells("p/pay")),
            Column::right("in", cells("12")).drops(2),
            Column::right("out", cells("7")).drops(1),
        ];
        let lines = |width| columns(&all, width).join("|");
        assert_eq!(lines(None), "step   in  out|p/pay  12    7");
        assert_eq!(lines(Some(14)), "step   in  out|p/pay  12    7");
        assert_eq!(lines(Some(13)), "step   in|p/pay  12");
        assert_eq!(lines(Some(1)), "step|p/pay");
    }

    #[test]
    fn texts_are_cut_before_there_is_no_room_for_others() {
        let cells = |cell: &str| vec![cell.to_owned()];
        let all = [
            Column::left("job", cells("p/in/1")),
            Column::left("due", cells("2026-01-31")).drops(1),
            Column::left("error", cells("no such order")).cuts(7),
        ];
        let lines = |width| columns(&all, width).join("|");
        assert_eq!(lines(Some(33)), "job     due         error|p/in/1  2026-01-31  no such order");
        assert_eq!(lines(Some(28)), "job     due         error|p/in/1  2026-01-31  no such…");
        assert_eq!(lines(Some(27)), "job     due         error|p/in/1  2026-01-31  no suc…");
        assert_eq!(lines(Some(26)), "job     error|p/in/1  no such order");
        assert_eq!(lines(Some(10)), "job     error|p/in/1  no suc…");
    }
}
