//! All sinks of a run, and which of them still take something.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::delivery::{Delivery, Entry};
use tidegate_components::sink::{Sink, SinkError};
use tidegate_config::{Configuration, SinkRef, Target};
use tidegate_model::SinkPosition;

/// How far sinks are written; sinks by their place in the configuration.
pub(crate) type Positions = Vec<(usize, SinkPosition)>;

/// A sink, by its place in the configuration, and what it could not do.
pub(crate) type Trouble = (usize, SinkError);

#[derive(Debug)]
pub(crate) struct Sinks {
    configuration: Arc<Configuration>,
    /// In the order of the configuration.
    sinks: Vec<Sink>,
    /// Those that were written to since the last commit.
    dirty: BTreeSet<usize>,
    /// Those that take nothing more in this run, and why.
    broken: BTreeMap<usize, Arc<SinkError>>,
}

impl Sinks {
    pub(crate) fn new(configuration: Arc<Configuration>, sinks: Vec<Sink>) -> Self {
        Self { configuration, sinks, dirty: BTreeSet::new(), broken: BTreeMap::new() }
    }

    /// Why a step cannot deliver, if one of its sinks is broken.
    pub(crate) fn refuses(&self, step: usize) -> Option<&Arc<SinkError>> {
        let outputs = &self.configuration.steps[step].outputs;
        outputs.iter().find_map(|output| match output.target {
            Target::Sink(SinkRef(sink)) => self.broken.get(&sink),
            Target::Queue(_) => None,
        })
    }

    /// Gives a sink up for this run.
    pub(crate) fn give_up(&mut self, sink: usize, error: SinkError) {
        self.broken.entry(sink).or_insert_with(|| Arc::new(error));
    }

    /// Positions that have to be committed before `group` is written: they say that what stands
    /// behind them after a crash is ours.
    pub(crate) fn open(&mut self, group: &[Entry]) -> Result<Positions, Trouble> {
        let wanted: BTreeSet<usize> =
            deliveries(group).flat_map(|delivery| self.parts(delivery)).map(|(sink, _)| sink).collect();
        let mut positions = Positions::new();
        for sink in wanted {
            let position = self.sinks[sink].needs_opening().map_err(|error| (sink, error))?;
            positions.extend(position.map(|position| (sink, position)));
        }
        Ok(positions)
    }

    /// Writes what goes to sinks, and makes it durable. It can be seen outside from here on, and is
    /// taken back by [`Self::roll_back`] where the commit does not follow.
    pub(crate) fn write(&mut self, group: &[Entry]) -> Result<Positions, Trouble> {
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

    /// The store holds `positions`.
    pub(crate) fn committed(&mut self, positions: &Positions) {
        for (sink, position) in positions {
            self.sinks[*sink].committed(position);
        }
        self.dirty.clear();
    }

    /// Takes back what was written since the last commit. A sink that cannot takes nothing more; what
    /// stands there too much is cut off, or refused, when the next run opens it.
    pub(crate) fn roll_back(&mut self) {
        for sink in std::mem::take(&mut self.dirty) {
            if let Err(error) = self.sinks[sink].roll_back() {
                self.give_up(sink, error);
            }
        }
    }

    /// Positions that say that the sinks are as this run left them; none where nothing changed.
    pub(crate) fn closing(&self) -> Positions {
        let sinks = self.sinks.iter().enumerate();
        sinks.filter_map(|(place, sink)| sink.closing().map(|position| (place, position))).collect()
    }

    /// The sinks that `delivery` has something for, each with the place of the output.
    fn parts(&self, delivery: &Delivery) -> Vec<(usize, usize)> {
        let outputs = self.configuration.steps[delivery.step].outputs.iter().zip(&delivery.outputs);
        let parts = outputs.enumerate().filter_map(|(place, (output, made))| match output.target {
            Target::Sink(SinkRef(sink)) if !made.payloads.is_empty() => Some((sink, place)),
            _ => None,
        });
        parts.collect()
    }
}

fn deliveries(group: &[Entry]) -> impl Iterator<Item = &Delivery> {
    group.iter().filter_map(Entry::as_delivery)
}
