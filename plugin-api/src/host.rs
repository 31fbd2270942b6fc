//! Host side of the boundary: validates a description, and gives the runner safe functions.
//!
//! [`Plugin::attach`] is the one function that must trust a pointer. All its results keep the library loaded.

mod answer;
mod description;
mod instance;
mod line;
mod output;

pub use answer::ended_late;
pub use description::{Offer, Plugin, Unusable};
pub use instance::{Instance, Spec};
pub use line::{Ended, Host, Keep, KeepsLoaded};
pub use output::fault_of_handle;

#[cfg(test)]
mod tests;
