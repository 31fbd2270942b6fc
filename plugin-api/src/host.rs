//! The other side of the boundary, for whoever runs plugins: a description made safe.
//!
//! [`Plugin::attach`] is the one function that has to trust a pointer. Everything that it gives out
//! keeps the library loaded.

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
