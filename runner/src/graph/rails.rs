//! `Rails`: draws lines beside a list, one column per open connection, as in the log of a version control
//! system. It does not depend on the content of the list.

/// The lines beside one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rails {
    /// Lines above the node: a gap above a node without drawn inputs, or lines that join.
    pub(crate) above: Option<String>,
    /// Beside the node.
    pub(crate) beside: String,
    /// Beside further lines of the node.
    pub(crate) below: String,
}

/// Whether lines join or fork.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Join,
    Branch,
}

/// Draws each node of a list. `next` holds the later positions that each node is connected with; `marks`
/// holds the sign of each node.
pub(crate) fn rails(marks: &[char], next: &[Vec<usize>]) -> Vec<Rails> {
    let mut lanes: Vec<Option<usize>> = Vec::new();
    let mut drawn = Vec::new();
    for (node, &mark) in marks.iter().enumerate() {
        let arriving: Vec<usize> = (0..lanes.len()).filter(|&lane| lanes[lane] == Some(node)).collect();
        let column = arriving.first().copied().unwrap_or_else(|| free(&lanes, 0));
        let mut leaving = next[node].clone();
        // The nearest node gets the rightmost column: its line is short and crosses no other.
        leaving.sort_unstable_by(|a, b| b.cmp(a));
        leaving.dedup();
        let above = match (arriving.len(), leaving.len()) {
            (0, _) if node > 0 => Some(line(&lanes, None, &[], Reach::Join)),
            (2.., 2..) => Some(line(&lanes, Some((column, '├')), &arriving, Reach::Join)),
            _ => None,
        };
        let joining = line(&lanes, Some((column, mark)), &arriving, Reach::Join);
        for &lane in &arriving {
            lanes[lane] = None;
        }
        let passing = lanes.clone();
        let mut branches = Vec::new();
        for (position, &target) in leaving.iter().enumerate() {
            let lane = if position == 0 { column } else { free(&lanes, column + 1) };
            lanes.resize(lanes.len().max(lane + 1), None);
            lanes[lane] = Some(target);
            branches.push(lane);
        }
        let beside = if arriving.len() > 1 && leaving.len() < 2 {
            joining
        } else {
            line(&passing, Some((column, mark)), &branches, Reach::Branch)
        };
        while lanes.last() == Some(&None) {
            lanes.pop();
        }
        drawn.push(Rails { above, beside, below: line(&lanes, None, &[], Reach::Join) });
    }
    drawn
}

/// The first column from `start` on without a line.
fn free(lanes: &[Option<usize>], start: usize) -> usize {
    (start..lanes.len()).find(|&lane| lanes[lane].is_none()).unwrap_or(lanes.len().max(start))
}

/// One line: the passing lines, and those connected with a mark. `ends` are the columns of the mark's lines,
/// in order.
fn line(passing: &[Option<usize>], mark: Option<(usize, char)>, ends: &[usize], reach: Reach) -> String {
    let last = ends.last().copied().unwrap_or(0);
    let first = mark.map_or(last, |(column, _)| column);
    let columns = passing.len().max(last + 1).max(first + 1);
    let mut text = String::new();
    for column in 0..columns {
        let crossing = first < column && column < last;
        text.push(match mark {
            Some((at, mark)) if at == column => mark,
            _ if ends.contains(&column) && column > first => match (column == last, reach) {
                (true, Reach::Join) => '╯',
                (true, Reach::Branch) => '╮',
                (false, Reach::Join) => '┴',
                (false, Reach::Branch) => '┬',
            },
            _ if passing.get(column).is_some_and(Option::is_some) => '│',
            _ if crossing => '─',
            _ => ' ',
        });
        text.push(if first <= column && column < last { '─' } else { ' ' });
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawn(next: &[&[usize]]) -> String {
        let marks: Vec<char> = ('a'..).take(next.len()).collect();
        let next: Vec<Vec<usize>> = next.iter().map(|targets| targets.to_vec()).collect();
        let lines =
            rails(&marks, &next).into_iter().flat_map(|rails| rails.above.into_iter().chain([rails.beside]));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_chain_is_a_column() {
        assert_eq!(drawn(&[&[1], &[2], &[]]), "a\nb\nc");
    }

    #[test]
    fn what_is_not_connected_has_a_gap() {
        assert_eq!(drawn(&[&[1], &[], &[3], &[]]), "a\nb\n\nc\nd");
    }

    #[test]
    fn what_branches_comes_together() {
        insta::assert_snapshot!(drawn(&[&[1, 2, 3], &[3], &[3], &[4, 5], &[], &[]]), @r"
        a─┬─╮
        │ │ b
        │ c │
        ├─┴─╯
        d─╮
        │ e
        f
        ");
    }

    #[test]
    fn lines_cross_as_bridges() {
        insta::assert_snapshot!(drawn(&[&[4, 5], &[2, 3], &[4], &[5], &[], &[]]), @r"
        a─╮
        │ │
        │ │ b─╮
        │ │ │ c
        │ │ d │
        │ e─│─╯
        f───╯
        ");
    }

    proptest! {
        #[test]
        fn every_line_that_begins_ends(edges in prop::collection::vec((0..12_usize, 0..12_usize), 0..40)) {
            let mut next = vec![Vec::new(); 12];
            for (from, to) in edges.into_iter().filter(|(from, to)| from < to) {
                next[from].push(to);
            }
            let drawn = rails(&['x'; 12], &next);
            prop_assert_eq!(drawn.last().map(|rails| rails.below.as_str()), Some(""));
            for rails in drawn {
                prop_assert_eq!(rails.beside.matches('x').count(), 1, "{}", rails.beside);
            }
        }
    }
}
