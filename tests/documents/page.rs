//! `Page`: a page of the documents, with its headings, blocks, links and prose.

use std::fs;
use std::path::{Path, PathBuf};

/// `README.md`, or a file of `docs`.
pub(super) struct Page {
    /// Relative to the repository.
    pub(super) name: String,
    pub(super) sections: Vec<Section>,
    /// Links and prose, in the order of the page.
    pub(super) prose: Vec<Prose>,
}

/// The part of a page below one heading of the first or second level. Its named blocks are the files of one
/// configuration.
pub(super) struct Section {
    pub(super) heading: String,
    pub(super) blocks: Vec<Block>,
}

/// A fenced block.
pub(super) struct Block {
    /// The line of the opening fence.
    pub(super) line: usize,
    /// The words after the opening fence: a language, then the kind of check.
    pub(super) info: String,
    pub(super) text: String,
}

/// A paragraph, an element of a list, a cell of a table or a heading: text outside of blocks.
pub(super) struct Prose {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) is_heading: bool,
}

pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The README, then the pages of `docs` in the order of their names.
pub(super) fn all() -> Vec<Page> {
    let docs = fs::read_dir(repository().join("docs")).expect("the folder is there");
    let mut names: Vec<String> = docs
        .map(|entry| format!("docs/{}", entry.expect("it can be read").file_name().display()))
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"))
        .collect();
    names.sort();
    names.insert(0, "README.md".into());
    names.into_iter().map(Page::read).collect()
}

impl Page {
    fn read(name: String) -> Self {
        let text = fs::read_to_string(repository().join(&name)).expect("the page can be read");
        let mut page = Self { name, sections: Vec::new(), prose: Vec::new() };
        let mut open: Option<Block> = None;
        // Lines of one paragraph are one text.
        let mut continues = false;
        for (line, text) in text.lines().enumerate().map(|(at, text)| (at + 1, text)) {
            let fence = text.strip_prefix("```");
            match (&mut open, fence) {
                (Some(_), Some(_)) => page.last_blocks().extend(open.take()),
                (Some(block), None) => block.text.extend([text, "\n"]),
                (None, Some(info)) => {
                    open = Some(Block { line, info: info.trim().into(), text: String::new() });
                    continues = false;
                }
                (None, None) => continues = page.prose(line, text, continues),
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", page.name);
        page
    }

    fn last_blocks(&mut self) -> &mut Vec<Block> {
        &mut self.sections.last_mut().expect("a page begins with a heading").blocks
    }

    /// Adds a line outside of blocks. Returns whether the next line may continue its paragraph.
    fn prose(&mut self, line: usize, text: &str, continues: bool) -> bool {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return false;
        }
        if let Some(heading) = text.strip_prefix('#') {
            let heading = heading.trim_start_matches('#').trim();
            if !text.starts_with("###") {
                self.sections.push(Section { heading: heading.into(), blocks: Vec::new() });
            }
            self.prose.push(Prose { line, text: heading.into(), is_heading: true });
            return false;
        }
        if trimmed.starts_with('|') {
            let cells = trimmed.split('|').map(str::trim).filter(|cell| !cell.is_empty());
            self.prose.extend(cells.map(|cell| Prose { line, text: cell.into(), is_heading: false }));
            return false;
        }
        let element = trimmed.strip_prefix("- ").or_else(|| {
            let (number, rest) = trimmed.split_once(". ")?;
            number.bytes().all(|byte| byte.is_ascii_digit()).then_some(rest)
        });
        match (element, self.prose.last_mut()) {
            (None, Some(last)) if continues => last.text.extend([" ", trimmed]),
            _ => self.prose.push(Prose { line, text: element.unwrap_or(trimmed).into(), is_heading: false }),
        }
        true
    }

    /// The anchors of its headings, as GitHub makes them.
    pub(super) fn anchors(&self) -> Vec<String> {
        let headings = self.prose.iter().filter(|prose| prose.is_heading);
        let anchor = |heading: &Prose| {
            let kept = heading.text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        };
        headings.map(anchor).collect()
    }

    /// The targets of its links, with their lines.
    pub(super) fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for prose in &self.prose {
            let ends = prose.text.split("](").skip(1);
            let targets = ends.filter_map(|end| Some(end.split_once(')')?.0.to_owned()));
            links.extend(targets.map(|target| (prose.line, target)));
        }
        links
    }
}

impl Block {
    pub(super) fn language(&self) -> &str {
        self.info.split(' ').next().unwrap_or_default()
    }

    /// The kind of check: the words after the language.
    pub(super) fn check(&self) -> &str {
        self.info.split_once(' ').map_or("", |(_, check)| check)
    }

    /// The file that its first line names in a comment, like `# shop.toml` or `// price.rhai`.
    pub(super) fn file(&self) -> Option<&str> {
        let first = self.text.lines().next()?;
        let comment = first.strip_prefix("# ").or_else(|| first.strip_prefix("// "))?;
        let name = comment.split([' ', ':']).next()?;
        let extension = Path::new(name).extension()?.to_str()?;
        (extension == self.language()).then_some(name)
    }
}
