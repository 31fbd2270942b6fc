//! `Columns`: the details of the jobs of a section, stored once for all of them if they are equal.
//!
//! ```text
//! column   length varint | content
//! origins  step, as text | inputs varint | name of each input, as text
//!          | for each job and input the zigzag varint of the index, less the one of the job before
//! carried  the length of each job's text as varint … | the texts back to back
//! ```
//!
//! A text is its length as varint and its bytes. The indices of the first job are written as differences from
//! 0.

use tidegate_plugin::Payloads;

use super::bytes::{Bytes, Wrong, add_zigzag, put_bytes, put_varint, zigzag};
use tidegate_model::{Address, Origin, Origins};

pub(crate) const FLAG_ORIGINS: u8 = 2;
pub(crate) const FLAG_CARRIED: u8 = 4;

/// Maximum bytes of a varint.
const VARINT_BYTES_MAX: usize = 10;
/// Maximum bytes of the lengths of both columns.
pub(crate) const COLUMN_LENGTHS_MAX: usize = 2 * VARINT_BYTES_MAX;

/// The details of jobs; each column has one entry per payload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Details<'a> {
    pub origins: Option<&'a Origins>,
    /// The provenance of each job, as JSON text; empty if it carries none.
    pub carried: Option<&'a Payloads>,
}

/// The columns of a section that is being built.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    origins: Vec<u8>,
    /// The position of the last job in `origins`.
    last: Option<usize>,
    lengths: Vec<u8>,
    texts: Vec<u8>,
}

/// The origins of a section.
#[derive(Debug)]
pub(crate) struct OriginColumn<'a> {
    step: Address,
    inputs: Vec<&'a str>,
    /// The indices of the previous job.
    row: Vec<u64>,
    rest: Bytes<'a>,
}

/// The carried texts of a section.
#[derive(Debug)]
pub(crate) struct CarriedColumn<'a> {
    lengths: Bytes<'a>,
    texts: Bytes<'a>,
}

impl Details<'_> {
    /// Without columns that are empty.
    pub(crate) fn worth_storing(self) -> Self {
        Self {
            origins: self.origins.filter(|origins| !origins.is_empty()),
            carried: self.carried.filter(|carried| carried.byte_len() > 0),
        }
    }

    /// Maximum bytes that the job at `position` adds to the columns, lengths included.
    pub(crate) fn len_max(self, position: usize) -> usize {
        let origins = self.origins.map_or(0, |origins| origins.inputs.len() * VARINT_BYTES_MAX);
        let carried = self.carried.and_then(|carried| carried.get(position));
        origins + carried.map_or(0, |text| text.len() + VARINT_BYTES_MAX) + COLUMN_LENGTHS_MAX
    }
}

impl Columns {
    /// Adds the details of the job at `position`, which follows the last added one.
    pub(crate) fn push(&mut self, details: Details<'_>, position: usize) {
        if let Some(origins) = details.origins {
            if self.last.is_none() {
                put_bytes(&mut self.origins, origins.step.to_string().as_bytes());
                put_varint(&mut self.origins, origins.inputs.len() as u64);
                for input in &origins.inputs {
                    put_bytes(&mut self.origins, input.as_bytes());
                }
            }
            let before = self.last.map(|last| origins.row(last)).unwrap_or_default();
            let row = origins.row(position);
            for input in 0..origins.inputs.len() {
                let index = |row: &[u64]| row.get(input).copied().unwrap_or(0);
                put_varint(&mut self.origins, zigzag(index(before), index(row)));
            }
            self.last = Some(position);
        }
        if let Some(carried) = details.carried {
            let text = carried.get(position).unwrap_or_default();
            put_varint(&mut self.lengths, text.len() as u64);
            self.texts.extend_from_slice(text);
        }
    }

    pub(crate) fn byte_len(&self) -> usize {
        self.origins.len() + self.lengths.len() + self.texts.len()
    }

    /// Appends the columns to the jobs of a section. Returns the flags of the written columns.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> u8 {
        let mut flags = 0;
        if !self.origins.is_empty() {
            flags |= FLAG_ORIGINS;
            put_bytes(out, &self.origins);
        }
        // If one text is carried, each job has a length.
        if !self.lengths.is_empty() {
            flags |= FLAG_CARRIED;
            put_varint(out, (self.lengths.len() + self.texts.len()) as u64);
            out.extend_from_slice(&self.lengths);
            out.extend_from_slice(&self.texts);
        }
        flags
    }
}

impl<'a> OriginColumn<'a> {
    pub(crate) fn parse(column: &'a [u8]) -> Result<Self, Wrong> {
        let mut rest = Bytes(column);
        let step = Address::parse(rest.text()?).ok_or("a step in it has no name")?;
        let mut inputs = Vec::new();
        for _ in 0..rest.varint()? {
            inputs.push(rest.text()?);
        }
        let row = vec![0; inputs.len()];
        Ok(Self { step, inputs, row, rest })
    }

    /// Moves to the next job.
    pub(crate) fn advance(&mut self) -> Result<(), Wrong> {
        for index in &mut self.row {
            *index = add_zigzag(*index, self.rest.varint()?);
        }
        Ok(())
    }

    /// The position of an input, if the step has made the jobs from it.
    pub(crate) fn input(&self, step: &Address, input: &str) -> Option<usize> {
        let position = || self.inputs.iter().position(|&name| name == input);
        (self.step == *step).then(position).flatten()
    }

    /// The index of the current job in the input at this position.
    pub(crate) fn index(&self, input: usize) -> Option<u64> {
        self.row.get(input).copied()
    }

    /// The origin of the current job.
    pub(crate) fn origin(&self) -> Origin {
        let inputs = self.inputs.iter().zip(&self.row).map(|(name, &index)| ((*name).to_owned(), index));
        Origin::new(self.step.clone(), inputs.collect())
    }
}

impl<'a> CarriedColumn<'a> {
    pub(crate) fn parse(column: &'a [u8], jobs: usize) -> Result<Self, Wrong> {
        let lengths = Bytes(column);
        let mut texts = lengths;
        for _ in 0..jobs {
            texts.varint()?;
        }
        Ok(Self { lengths, texts })
    }

    /// The text of the next job.
    pub(crate) fn next(&mut self) -> Result<&'a [u8], Wrong> {
        let len = self.lengths.length()?;
        self.texts.take(len)
    }
}
