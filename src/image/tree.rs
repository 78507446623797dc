//! A persistent balanced tree of non-overlapping sections, ordered by address: a changed copy
//! shares all but O(log n) nodes with the original. Knows nothing of time or the meaning of
//! mappings.
//!
//! An AVL tree (the heights of two sibling subtrees differ by at most one) whose operations are all
//! built from `join` and `split`, so that a change costs the same anywhere in the tree.

use crate::common::{Addr, AddrRange};
use crate::image::Section;
use std::sync::Arc;

/// A subtree, which may be empty.
pub(super) type Link = Option<Arc<Node>>;

/// One section, with all lower ones in its left subtree and all higher ones in its right.
#[derive(Debug)]
pub(super) struct Node {
    range: AddrRange,
    section: Arc<Section>,
    left: Link,
    right: Link,
    /// The number of levels of this subtree; 1 without children.
    height: u8,
}

/// Creates a tree of one section; empty if the section's range is empty.
pub(super) fn single(section: Section) -> Link {
    if section.range.is_empty() { None } else { node(None, Arc::new(section), None) }
}

/// Returns the section that contains `addr`; `None` if there is none.
pub(super) fn find(mut tree: &Link, addr: Addr) -> Option<&Section> {
    while let Some(node) = tree {
        if addr < node.range.start {
            tree = &node.left;
        } else if addr >= node.range.end {
            tree = &node.right;
        } else {
            return Some(&node.section);
        }
    }
    None
}

/// Splits the tree into the parts below `at` and from `at` on. Cuts a section that crosses `at`.
pub(super) fn split(tree: &Link, at: Addr) -> (Link, Link) {
    let Some(node) = tree else { return (None, None) };
    let Node { range, section, left, right, .. } = &**node;
    if at <= range.start {
        let (low, high) = split(left, at);
        (low, join(high, section.clone(), right.clone()))
    } else if at >= range.end {
        let (low, high) = split(right, at);
        (join(left.clone(), section.clone(), low), high)
    } else {
        let low = section.cut(AddrRange::new(range.start, at)).and_then(single);
        let high = section.cut(AddrRange::new(at, range.end)).and_then(single);
        (concat(left.clone(), low), concat(high, right.clone()))
    }
}

/// Concatenates two trees; all of `low` lies below all of `high`.
pub(super) fn concat(low: Link, high: Link) -> Link {
    match low {
        None => high,
        Some(low) => {
            let (rest, last) = pop_last(&low);
            join(rest, last, high)
        }
    }
}

/// Returns a copy of the tree with `change` applied to every section. `change` keeps the range.
pub(super) fn map(tree: &Link, change: &impl Fn(&Section) -> Section) -> Link {
    let node = tree.as_ref()?;
    Some(Arc::new(Node {
        range: node.range,
        section: Arc::new(change(&node.section)),
        left: map(&node.left, change),
        right: map(&node.right, change),
        height: node.height,
    }))
}

/// Returns the sections in order of address.
pub(super) fn iter(tree: &Link) -> impl Iterator<Item = &Section> {
    let mut below = Vec::new();
    push_left(&mut below, tree);
    std::iter::from_fn(move || {
        let node = below.pop()?;
        push_left(&mut below, &node.right);
        Some(&*node.section)
    })
}

/// Pushes the root and its chain of left children: the last one is first in order of address.
fn push_left<'a>(below: &mut Vec<&'a Node>, mut tree: &'a Link) {
    while let Some(node) = tree {
        below.push(node);
        tree = &node.left;
    }
}

/// Returns the tree without its last section, and that section.
fn pop_last(node: &Node) -> (Link, Arc<Section>) {
    match &node.right {
        None => (node.left.clone(), node.section.clone()),
        Some(right) => {
            let (rest, last) = pop_last(right);
            (join(node.left.clone(), node.section.clone(), rest), last)
        }
    }
}

fn height(tree: &Link) -> u8 {
    tree.as_ref().map_or(0, |node| node.height)
}

/// Creates a node of subtrees whose heights differ by at most one.
#[allow(clippy::unnecessary_wraps, reason = "all that is built from it is a link")]
fn node(left: Link, section: Arc<Section>, right: Link) -> Link {
    let height = height(&left).max(height(&right)) + 1;
    Some(Arc::new(Node { range: section.range, section, left, right, height }))
}

/// Joins `low`, `section` and `high`, which are in order of address, to one tree, for any heights.
fn join(low: Link, section: Arc<Section>, high: Link) -> Link {
    match (&low, &high) {
        (Some(tall), _) if tall.height > height(&high) + 1 => {
            let right = join(tall.right.clone(), section, high);
            balance(tall.left.clone(), tall.section.clone(), right)
        }
        (_, Some(tall)) if tall.height > height(&low) + 1 => {
            let left = join(low, section, tall.left.clone());
            balance(left, tall.section.clone(), tall.right.clone())
        }
        _ => node(low, section, high),
    }
}

/// Creates a node of subtrees whose heights differ by at most two, rotated to differ by at most
/// one.
fn balance(low: Link, section: Arc<Section>, high: Link) -> Link {
    match (&low, &high) {
        (Some(tall), _) if tall.height > height(&high) + 1 => rotate_right(tall, section, high),
        (_, Some(tall)) if tall.height > height(&low) + 1 => rotate_left(low, section, tall),
        _ => node(low, section, high),
    }
}

/// Creates a balanced tree of these parts. `low` is two levels higher than `high`.
fn rotate_right(low: &Node, section: Arc<Section>, high: Link) -> Link {
    match &low.right {
        Some(inner) if inner.height > height(&low.left) => node(
            node(low.left.clone(), low.section.clone(), inner.left.clone()),
            inner.section.clone(),
            node(inner.right.clone(), section, high),
        ),
        inner => node(low.left.clone(), low.section.clone(), node(inner.clone(), section, high)),
    }
}

/// Creates a balanced tree of these parts. `high` is two levels higher than `low`.
fn rotate_left(low: Link, section: Arc<Section>, high: &Node) -> Link {
    match &high.left {
        Some(inner) if inner.height > height(&high.right) => node(
            node(low, section, inner.left.clone()),
            inner.section.clone(),
            node(inner.right.clone(), high.section.clone(), high.right.clone()),
        ),
        inner => node(node(low, section, inner.clone()), high.section.clone(), high.right.clone()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Adds all nodes of the tree to `seen`.
    pub(in crate::image) fn collect(tree: &Link, seen: &mut HashSet<*const Node>) {
        if let Some(node) = tree.as_ref().filter(|node| seen.insert(Arc::as_ptr(node))) {
            collect(&node.left, seen);
            collect(&node.right, seen);
        }
    }

    /// Asserts order, balance and heights of the whole tree. Returns its height.
    pub(in crate::image) fn check(tree: &Link) -> u8 {
        let Some(node) = tree else { return 0 };
        let (left, right) = (check(&node.left), check(&node.right));
        assert!(left.abs_diff(right) <= 1, "unbalanced");
        assert_eq!(node.height, left.max(right) + 1);
        assert_eq!(node.range, node.section.range);
        assert!(!node.range.is_empty());
        let sections: Vec<_> = iter(tree).collect();
        assert!(sections.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
        node.height
    }
}
