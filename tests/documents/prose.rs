//! Prose: every page of the documents follows the rules of sentences.

use super::page::Page;
use crate::wording::pieces::{Kind, comments_after, without_code};
use crate::wording::sentences;

/// Every fault of a page, one per line.
pub(super) fn faults(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for prose in &page.prose {
        let kind = if prose.is_heading { Kind::Title } else { Kind::Comment };
        let found = sentences::faults(&without_code(&prose.text), kind);
        faults.extend(found.into_iter().map(|(_, fault)| format!("{}:{}: {fault}", page.name, prose.line)));
    }
    for block in page.sections.iter().flat_map(|section| &section.blocks) {
        let mark = match block.language() {
            "toml" | "sh" => "#",
            "rhai" => "//",
            _ => continue,
        };
        for piece in comments_after(mark, &block.text) {
            let found = sentences::faults(&piece.text, piece.kind);
            let line = block.line + piece.line;
            faults.extend(found.into_iter().map(|(_, fault)| format!("{}:{line}: {fault}", page.name)));
        }
    }
    faults
}
