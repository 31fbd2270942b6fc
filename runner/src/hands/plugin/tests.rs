//! Plugins as they come: right, wrong, and broken.
