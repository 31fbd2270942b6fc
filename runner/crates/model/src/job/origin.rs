//! `Origins`: the deliveries that made the jobs of a batch.

use super::delivery_hash::{DeliveryHash, delivery_hash};
use crate::name::Address;

/// The origin of a run of jobs: the step that made them, and for each job the indices of its inputs. The
/// delivery hash of every stored output is computed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins {
    pub step: Address,
    /// Names as in the delivery hash: a binding, or for `from` the address as text.
    pub inputs: Vec<String>,
    /// One row per job, with one index per input; 0 = this input had no job (alts).
    pub indices: Vec<u64>,
}

/// The origin of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub step: Address,
    /// The inputs with a job, and its index.
    pub inputs: Vec<(String, u64)>,
    /// The hash of the delivery that made the job.
    pub hash: DeliveryHash,
}

impl Origins {
    /// Without any jobs.
    #[must_use]
    pub fn new(step: Address, inputs: Vec<String>) -> Self {
        Self { step, inputs, indices: Vec::new() }
    }

    /// Number of jobs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.indices.len().checked_div(self.inputs.len()).unwrap_or(0)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The indices that the job at `position` was made from, input by input; empty past the last job.
    #[must_use]
    pub fn row(&self, position: usize) -> &[u64] {
        let width = self.inputs.len();
        self.indices.get(position * width..(position + 1) * width).unwrap_or_default()
    }

    /// The hash of the delivery that made the job at `position`.
    #[must_use]
    pub fn hash(&self, position: usize) -> DeliveryHash {
        hash_of(&self.step, self.inputs.iter().map(String::as_str).zip(self.row(position)))
    }

    /// Adds a job; `row` has an index for each input.
    pub fn push(&mut self, row: &[u64]) {
        debug_assert_eq!(row.len(), self.inputs.len());
        self.indices.extend_from_slice(row);
    }

    /// Adds the jobs of `other`, which have the same step and inputs.
    pub fn append(&mut self, other: &Self) {
        debug_assert_eq!((&self.step, &self.inputs), (&other.step, &other.inputs));
        self.indices.extend_from_slice(&other.indices);
    }

    /// Keeps the first `jobs` jobs and drops the others.
    pub fn truncate(&mut self, jobs: usize) {
        self.indices.truncate(jobs.saturating_mul(self.inputs.len()));
    }
}

impl Origin {
    /// The origin of a job that `step` made from these indices.
    #[must_use]
    pub fn new(step: Address, mut inputs: Vec<(String, u64)>) -> Self {
        inputs.retain(|(_, index)| *index > 0);
        let hash = hash_of(&step, inputs.iter().map(|(name, index)| (name.as_str(), index)));
        Self { step, inputs, hash }
    }
}

fn hash_of<'a>(step: &Address, inputs: impl Iterator<Item = (&'a str, &'a u64)>) -> DeliveryHash {
    let given = inputs.filter(|(_, index)| **index > 0);
    let given = given.map(|(name, index)| (name, std::slice::from_ref(index)));
    delivery_hash(step.pipeline.as_str(), step.name.as_str(), given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HashPrefix;

    fn origins(inputs: &[&str], rows: &[&[u64]]) -> Origins {
        let step = Address::parse("shop/match").unwrap();
        let mut origins = Origins::new(step, inputs.iter().map(ToString::to_string).collect());
        for row in rows {
            origins.push(row);
        }
        origins
    }

    #[test]
    fn a_job_of_one_input_has_the_hash_of_its_delivery() {
        let origins = origins(&["shop/orders"], &[&[7], &[9]]);
        let mut prefix = HashPrefix::new("shop", "match", "shop/orders");
        assert_eq!([origins.hash(0), origins.hash(1)], [7, 9].map(|index| prefix.hash(index)));
    }

    #[test]
    fn rows_follow_each_other() {
        let mut all = origins(&["a", "b"], &[&[1, 2], &[3, 0]]);
        all.append(&origins(&["a", "b"], &[&[5, 6]]));
        assert_eq!((all.len(), all.row(1), all.row(2), all.row(3)), (3, &[3, 0][..], &[5, 6][..], &[][..]));
        all.truncate(1);
        assert_eq!((all.len(), all.row(0), all.row(1)), (1, &[1, 2][..], &[][..]));
        assert!(origins(&["a"], &[]).is_empty());
    }

    #[test]
    fn one_origin_is_as_a_row_of_many() {
        let all = origins(&["old", "new"], &[&[0, 4], &[3, 8]]);
        for (position, inputs) in [vec![("new", 4)], vec![("old", 3), ("new", 8)]].into_iter().enumerate() {
            let inputs = inputs.into_iter().map(|(name, index)| (name.to_owned(), index)).collect();
            assert_eq!(Origin::new(all.step.clone(), inputs).hash, all.hash(position));
        }
    }
}
