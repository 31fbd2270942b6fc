//! Declared step: a step as one generation declares it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::generation::current::NumberedGeneration;
use tidegate_config::{Configuration, Step};

/// Step of a generation. Batches, deliveries and calls carry it, so that they belong to the generation that began
/// them.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredStep {
    pub(crate) generation: Arc<NumberedGeneration>,
    pub(crate) position: usize,
    /// Number of the generation that changed the step last. Instances for an older one are set up anew.
    pub(crate) version: u64,
    /// Whether this version was set up at least once.
    pub(crate) ever_set_up: Arc<AtomicBool>,
}

impl DeclaredStep {
    /// Step that is new in a generation.
    pub(crate) fn new(generation: &Arc<NumberedGeneration>, position: usize) -> Self {
        let version = generation.number;
        Self { generation: Arc::clone(generation), position, version, ever_set_up: Arc::default() }
    }

    /// The same step in a later generation, which did not change it.
    pub(crate) fn unchanged(&self, generation: &Arc<NumberedGeneration>) -> Self {
        Self { generation: Arc::clone(generation), ..self.clone() }
    }

    pub(crate) fn configuration(&self) -> &Configuration {
        &self.generation.configuration
    }
}

impl Deref for DeclaredStep {
    type Target = Step;

    fn deref(&self) -> &Step {
        // A generation never loses a step.
        &self.generation.configuration.steps[self.position]
    }
}
