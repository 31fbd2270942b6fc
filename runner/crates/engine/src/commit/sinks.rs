//! Sinks: write the outputs of a run, and reject deliveries to broken sinks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::request::{Delivery, StepChange};
use tidegate_components::sink::{SinkError, SinkWriter};
use tidegate_config::{Configuration, SinkRef, Target};
use tidegate_model::SinkPosition;

/// Positions of sinks by their place in the configuration.
pub(crate) type Positions = Vec<(usize, SinkPosition)>;

/// Failed sink by its place in the configuration, with the error.
pub(crate) type FailedSink = (usize, SinkError);

#[derive(Debug)]
pub(crate) struct Sinks {
    configuration: Arc<Configuration>,
    /// Sinks in the order of the configuration.
    sinks: Vec<SinkWriter>,
    /// Sinks with writes since the last commit.
    dirty: BTreeSet<usize>,
    /// Sinks that accept no more writes in this run, with the errors.
    broken: BTreeMap<usize, Arc<SinkError>>,
}

impl Sinks {
    pub(crate) fn new(configuration: Arc<Configuration>, sinks: Vec<SinkWriter>) -> Self {
        Self { configuration, sinks, dirty: BTreeSet::new(), broken: BTreeMap::new() }
    }

    /// Error that keeps a step from delivering, if one of its sinks is broken.
    pub(crate) fn refuses(&self, step: usize) -> Option<&Arc<SinkError>> {
        let outputs = &self.configuration.steps[step].outputs;
        outputs.iter().find_map(|output| match output.target {
            Target::Sink(SinkRef(sink)) => self.broken.get(&sink),
            Target::Queue(_) => None,
        })
    }

    /// Marks a sink as broken for this run.
    pub(crate) fn give_up(&mut self, sink: usize, error: SinkError) {
        self.broken.entry(sink).or_insert_with(|| Arc::new(error));
    }

    /// Positions to commit before `group` is written. They mark later bytes as written by this runner in case
    /// of a crash.
    pub(crate) fn open(&mut self, group: &[StepChange]) -> Result<Positions, FailedSink> {
        let wanted: BTreeSet<usize> =
            deliveries(group).flat_map(|delivery| self.parts(delivery)).map(|(sink, _)| sink).collect();
        let mut positions = Positions::new();
        for sink in wanted {
            let position = self.sinks[sink].needs_opening().map_err(|error| (sink, error))?;
            positions.extend(position.map(|position| (sink, position)));
        }
        Ok(positions)
    }

    /// Writes the outputs for sinks and makes them durable. External readers can see them now. If the commit
    /// fails, [`Self::roll_back`] removes them.
    pub(crate) fn write(&mut self, group: &[StepChange]) -> Result<Positions, FailedSink> {
        for delivery in deliveries(group) {
            for (sink, output) in self.parts(delivery) {
                self.dirty.insert(sink);
                let payloads = &delivery.outputs[output].payloads;
                self.sinks[sink].write(payloads).map_err(|error| (sink, error))?;
            }
        }
        let mut positions = Positions::new();
        for &sink in &self.dirty {
            let position = self.sinks[sink].sync().map_err(|error| (sink, error))?;
            positions.extend(position.map(|position| (sink, position)));
        }
        Ok(positions)
    }

    /// Records that the store has `positions`.
    pub(crate) fn committed(&mut self, positions: &Positions) {
        for (sink, position) in positions {
            self.sinks[*sink].committed(position);
        }
        self.dirty.clear();
    }

    /// Removes the writes since the last commit. If that fails, the sink is broken. The next run cuts the
    /// surplus off, or refuses the file.
    pub(crate) fn roll_back(&mut self) {
        for sink in std::mem::take(&mut self.dirty) {
            if let Err(error) = self.sinks[sink].roll_back() {
                self.give_up(sink, error);
            }
        }
    }

    /// Positions that mark the sinks as complete; empty if nothing changed.
    pub(crate) fn closing(&self) -> Positions {
        let sinks = self.sinks.iter().enumerate();
        sinks.filter_map(|(place, sink)| sink.closing().map(|position| (place, position))).collect()
    }

    /// Sinks with an output of `delivery`, each with the position of the output.
    fn parts(&self, delivery: &Delivery) -> Vec<(usize, usize)> {
        let outputs = self.configuration.steps[delivery.step].outputs.iter().zip(&delivery.outputs);
        let parts = outputs.enumerate().filter_map(|(place, (output, made))| match output.target {
            Target::Sink(SinkRef(sink)) if !made.payloads.is_empty() => Some((sink, place)),
            _ => None,
        });
        parts.collect()
    }
}

fn deliveries(group: &[StepChange]) -> impl Iterator<Item = &Delivery> {
    group.iter().filter_map(StepChange::as_delivery)
}
