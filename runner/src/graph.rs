//! Graph of a configuration: drawn as text, Mermaid or Graphviz, or listed as JSON.

pub(crate) mod dot;
pub(crate) mod json;
pub(crate) mod mermaid;
pub(crate) mod order;
pub(crate) mod rails;
pub(crate) mod text;
pub(crate) mod topology;

#[cfg(test)]
mod tests;
