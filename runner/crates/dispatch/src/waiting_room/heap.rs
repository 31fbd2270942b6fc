//! Indexed heap: orders numbered items that know their position, so that any of them can be removed.

/// Compares items and stores their positions.
pub(crate) trait Ranking {
    /// Part of the ranking that is kept beside an item's number, so that most comparisons need no access to
    /// it.
    type Hint: Copy + Ord;

    fn hint(&self, item: u32) -> Self::Hint;
    /// Whether `a` goes before `b`; both have the same hint.
    fn before(&self, a: u32, b: u32) -> bool;
    fn placed(&mut self, item: u32, at: u32);
}

#[derive(Clone, Debug)]
pub(crate) struct Heap<Hint>(Vec<(Hint, u32)>);

impl<Hint> Default for Heap<Hint> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<Hint: Copy + Ord> Heap<Hint> {
    pub(crate) fn first(&self) -> Option<u32> {
        self.0.first().map(|&(_, item)| item)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, item: u32, ranking: &mut impl Ranking<Hint = Hint>) {
        self.0.push((ranking.hint(item), item));
        self.up(self.0.len() - 1, ranking);
    }

    /// Removes the item at position `at`.
    pub(crate) fn remove(&mut self, at: u32, ranking: &mut impl Ranking<Hint = Hint>) {
        let at = at as usize;
        self.0.swap_remove(at);
        if at < self.0.len() {
            self.down(at, ranking);
        }
        if self.0.len() * 4 < self.0.capacity() {
            self.0.shrink_to(self.0.len() * 2);
        }
    }

    /// Moves the item at position `at`, whose rank may have changed.
    pub(crate) fn moved(&mut self, at: u32, ranking: &mut impl Ranking<Hint = Hint>) {
        let (hint, item) = &mut self.0[at as usize];
        *hint = ranking.hint(*item);
        self.down(at as usize, ranking);
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(Hint, u32)>()
    }

    fn up(&mut self, mut at: usize, ranking: &mut impl Ranking<Hint = Hint>) {
        while at > 0 && self.is_before(at, (at - 1) / 2, ranking) {
            self.0.swap(at, (at - 1) / 2);
            self.report_place(at, ranking);
            at = (at - 1) / 2;
        }
        self.report_place(at, ranking);
    }

    /// Moves an item down, or else up, until the order is right.
    fn down(&mut self, mut at: usize, ranking: &mut impl Ranking<Hint = Hint>) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.0.len() && self.is_before(child, least, ranking) {
                    least = child;
                }
            }
            if least == at {
                return self.up(at, ranking);
            }
            self.0.swap(at, least);
            self.report_place(at, ranking);
            at = least;
        }
    }

    fn is_before(&self, a: usize, b: usize, ranking: &impl Ranking<Hint = Hint>) -> bool {
        let ((hint_a, a), (hint_b, b)) = (self.0[a], self.0[b]);
        hint_a < hint_b || hint_a == hint_b && ranking.before(a, b)
    }

    fn report_place(&self, at: usize, ranking: &mut impl Ranking<Hint = Hint>) {
        // Slots are `u32`, so there are no more positions than that.
        ranking.placed(self.0[at].1, u32::try_from(at).unwrap_or(u32::MAX));
    }
}
