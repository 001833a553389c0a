//! A complete binary tree of sums, to draw leaves in proportion to their weights.

/// Weights of a fixed number of leaves; every inner node is exactly the floating-point sum of its two children.
///
/// Parents are recomputed, never adjusted by differences, so the tree is a function of its leaves and rounding does not build up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SumTree {
    /// Number of leaves rounded up to a power of two.
    width: usize,
    /// Root at 1, children of `i` at `2i` and `2i + 1`, leaves from `width`.
    nodes: Vec<f64>,
}

impl SumTree {
    pub(crate) fn new(leaves: usize) -> Self {
        let width = leaves.next_power_of_two();
        Self {
            width,
            nodes: vec![0.0; 2 * width],
        }
    }

    pub(crate) fn bytes(leaves: u128) -> u128 {
        let mut width = 1;
        while width < leaves {
            width *= 2;
        }
        2 * width * size_of::<f64>() as u128
    }

    pub(crate) fn total(&self) -> f64 {
        self.nodes[1]
    }

    pub(crate) fn get(&self, leaf: usize) -> f64 {
        self.nodes[self.width + leaf]
    }

    pub(crate) fn set(&mut self, leaf: usize, weight: f64) {
        let mut node = self.width + leaf;
        self.nodes[node] = weight;
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1];
        }
    }

    /// Sets the leaves from `first` on without updating the sums; [`SumTree::rebuild`] must follow.
    pub(crate) fn set_leaves(&mut self, first: usize, weights: &[f64]) {
        let first = self.width + first;
        self.nodes[first..first + weights.len()].copy_from_slice(weights);
    }

    pub(crate) fn leaves(&self, first: usize, count: usize) -> &[f64] {
        &self.nodes[self.width + first..self.width + first + count]
    }

    pub(crate) fn rebuild(&mut self) {
        for node in (1..self.width).rev() {
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1];
        }
    }

    /// The leaf whose interval of the running sum of weights holds `position`, 0 <= position <= total; never one of weight 0.
    pub(crate) fn find(&self, mut position: f64) -> usize {
        let mut node = 1;
        while node < self.width {
            let left = self.nodes[2 * node];
            // Rounding can leave `position` at or beyond the end of a subtree: an empty right side is never entered.
            if position < left || self.nodes[2 * node + 1] == 0.0 {
                node *= 2;
            } else {
                position -= left;
                node = 2 * node + 1;
            }
        }
        node - self.width
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn leaves_are_found_by_hand() {
        let mut tree = SumTree::new(5);
        for (leaf, weight) in [2.0, 0.0, 3.0, 1.0, 4.0].into_iter().enumerate() {
            tree.set(leaf, weight);
        }
        // Running sums 2, 2, 5, 6, 10: leaf 0 holds [0, 2), leaf 2 [2, 5), leaf 3 [5, 6), leaf 4 [6, 10].
        assert_eq!(tree.total(), 10.0);
        for (position, leaf) in [(0.0, 0), (1.9, 0), (2.0, 2), (4.9, 2), (5.0, 3), (6.0, 4)] {
            assert_eq!(tree.find(position), leaf, "position {position}");
        }
        assert_eq!(tree.find(10.0), 4);
    }

    proptest! {
        #[test]
        fn the_sums_hold_and_no_empty_leaf_is_found(
            writes in prop::collection::vec((0usize..13, prop_oneof![Just(0.0), 1e-9..1e9f64]), 1..60),
            position in 0.0..=1.0f64,
        ) {
            let mut tree = SumTree::new(13);
            let mut plain = [0.0; 13];
            for (leaf, weight) in writes {
                tree.set(leaf, weight);
                plain[leaf] = weight;
            }
            let total: f64 = plain.iter().sum();
            prop_assert!((tree.total() - total).abs() <= 1e-12 * total);
            for node in 1..tree.width {
                prop_assert_eq!(tree.nodes[node], tree.nodes[2 * node] + tree.nodes[2 * node + 1]);
            }
            let mut rebuilt = SumTree::new(13);
            rebuilt.set_leaves(0, &plain);
            rebuilt.rebuild();
            prop_assert_eq!(&rebuilt, &tree);
            if total > 0.0 {
                let leaf = tree.find(position * tree.total());
                prop_assert!(plain[leaf] > 0.0);
                let before: f64 = plain[..leaf].iter().sum();
                let slack = 1e-12 * total;
                prop_assert!(before <= position * total + slack);
                prop_assert!(position * total <= before + plain[leaf] + slack);
            }
        }
    }
}
