//! Which resource does a URL belong to: one pattern out of very many.
//!
//! A trie over path segments, one per origin. A node keeps its literal children by name, one child for any wildcard,
//! and the pattern that ends there. Patterns that overlap are refused, so at most one of them matches a URL.
//!
//! A lookup may have to try both the literal and the wildcard child of a node (`/{*}/x` beside `/a/y`). It visits
//! every node at most once, and only as many levels branch as have both; with ordinary patterns it costs one hash
//! lookup per segment. Most nodes have a single literal child, which is kept without a table.

use std::collections::HashMap;

use crate::{
    pattern::{Pattern, Segment},
    url::DocumentUrl,
};

/// Values by pattern, found by URL.
#[derive(Clone, Debug)]
pub struct PatternIndex<T> {
    origins: HashMap<Box<str>, Node<T>>,
    len: usize,
}

/// The pattern could not be added: a pattern that is already there matches some of the same URLs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pattern overlaps with {existing}, which is already there: no URL may match both")]
pub struct Overlap {
    pub existing: String,
}

#[derive(Clone, Debug)]
struct Node<T> {
    literals: Literals<T>,
    wildcard: Option<Box<Node<T>>>,
    leaf: Option<Box<Leaf<T>>>,
}

#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "a table is rare, and in a box it does not widen all other nodes")]
enum Literals<T> {
    None,
    One(Box<str>, Box<Node<T>>),
    Many(Box<HashMap<Box<str>, Node<T>>>),
}

#[derive(Clone, Debug)]
struct Leaf<T> {
    pattern: Pattern,
    value: T,
}

impl<T> PatternIndex<T> {
    pub fn new() -> Self {
        Self { origins: HashMap::new(), len: 0 }
    }

    /// Adds a pattern, unless it overlaps with one that is there (also with itself, whatever its wildcards are called).
    ///
    /// Under a wildcard of the new pattern all literals that stand at its place are visited.
    pub fn insert(&mut self, pattern: &Pattern, value: T) -> Result<(), Overlap> {
        let root = self.origins.get(pattern.origin());
        if let Some(leaf) = root.and_then(|root| root.overlapping(pattern.segments())) {
            return Err(Overlap { existing: leaf.pattern.as_str().to_owned() });
        }
        let mut node = self.origins.entry(pattern.origin().into()).or_default();
        for segment in pattern.segments() {
            node = match segment {
                Segment::Literal(literal) => node.literals.get_or_insert(literal),
                Segment::Wildcard => node.wildcard.get_or_insert_default(),
            };
        }
        node.leaf = Some(Box::new(Leaf { pattern: pattern.clone(), value }));
        self.len += 1;
        Ok(())
    }

    /// The value of the pattern that matches the URL.
    pub fn find(&self, url: &DocumentUrl) -> Option<&T> {
        let path = url.path().strip_prefix('/')?;
        self.origins.get(url.origin())?.find(Some(path)).map(|leaf| &leaf.value)
    }

    /// Takes out the pattern and gives back its value, if this very pattern is there.
    pub fn remove(&mut self, pattern: &Pattern) -> Option<T> {
        let root = self.origins.get_mut(pattern.origin())?;
        let leaf = root.remove(pattern, pattern.segments())?;
        if root.is_empty() {
            self.origins.remove(pattern.origin());
        }
        self.len -= 1;
        Some(leaf.value)
    }

    /// How many patterns there are.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Default for PatternIndex<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Node<T> {
    /// `path` is what remains of the URL's path, or nothing after its last segment.
    fn find(&self, path: Option<&str>) -> Option<&Leaf<T>> {
        let Some(path) = path else { return self.leaf.as_deref() };
        let (segment, rest) = match path.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (path, None),
        };
        if let Some(leaf) = self.literals.get(segment).and_then(|node| node.find(rest)) {
            return Some(leaf);
        }
        if segment.is_empty() {
            return None;
        }
        self.wildcard.as_ref()?.find(rest)
    }

    /// Some pattern below this node that overlaps with the remaining segments.
    fn overlapping<'p>(&self, mut segments: impl Iterator<Item = Segment<'p>> + Clone) -> Option<&Leaf<T>> {
        let Some(segment) = segments.next() else { return self.leaf.as_deref() };
        let below_wildcard = || {
            let node = self.wildcard.as_ref().filter(|_| segment.overlaps(Segment::Wildcard))?;
            node.overlapping(segments.clone())
        };
        let below_literals = || match segment {
            Segment::Literal(literal) => self.literals.get(literal)?.overlapping(segments.clone()),
            Segment::Wildcard => self
                .literals
                .iter()
                .filter(|(literal, _)| segment.overlaps(Segment::Literal(literal)))
                .find_map(|(_, node)| node.overlapping(segments.clone())),
        };
        below_wildcard().or_else(below_literals)
    }

    /// Removes the leaf of the pattern and the nodes that then lead nowhere.
    fn remove<'p>(&mut self, pattern: &Pattern, mut segments: impl Iterator<Item = Segment<'p>>) -> Option<Leaf<T>> {
        match segments.next() {
            None => self.leaf.take_if(|leaf| leaf.pattern == *pattern).map(|leaf| *leaf),
            Some(Segment::Literal(literal)) => {
                let node = self.literals.get_mut(literal)?;
                let leaf = node.remove(pattern, segments)?;
                if node.is_empty() {
                    self.literals.remove(literal);
                }
                Some(leaf)
            }
            Some(Segment::Wildcard) => {
                let leaf = self.wildcard.as_mut()?.remove(pattern, segments)?;
                self.wildcard.take_if(|node| node.is_empty());
                Some(leaf)
            }
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self.literals, Literals::None) && self.wildcard.is_none() && self.leaf.is_none()
    }
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { literals: Literals::None, wildcard: None, leaf: None }
    }
}

impl<T> Literals<T> {
    fn get(&self, literal: &str) -> Option<&Node<T>> {
        match self {
            Literals::One(known, node) if **known == *literal => Some(node),
            Literals::Many(nodes) => nodes.get(literal),
            Literals::None | Literals::One(..) => None,
        }
    }

    fn get_mut(&mut self, literal: &str) -> Option<&mut Node<T>> {
        match self {
            Literals::One(known, node) if **known == *literal => Some(node),
            Literals::Many(nodes) => nodes.get_mut(literal),
            Literals::None | Literals::One(..) => None,
        }
    }

    fn get_or_insert(&mut self, literal: &str) -> &mut Node<T> {
        *self = match std::mem::replace(self, Literals::None) {
            Literals::None => Literals::One(literal.into(), Box::default()),
            Literals::One(known, node) if *known != *literal => {
                Literals::Many(Box::new(HashMap::from([(known, *node), (literal.into(), Node::default())])))
            }
            Literals::Many(mut nodes) => {
                if !nodes.contains_key(literal) {
                    nodes.insert(literal.into(), Node::default());
                }
                Literals::Many(nodes)
            }
            same @ Literals::One(..) => same,
        };
        self.get_mut(literal).expect("the literal was there or has just been added")
    }

    /// Forgets the literal; a table that becomes small is given back.
    fn remove(&mut self, literal: &str) {
        *self = match std::mem::replace(self, Literals::None) {
            Literals::Many(mut nodes) => {
                nodes.remove(literal);
                if nodes.len() > 1 {
                    Literals::Many(nodes)
                } else {
                    nodes.into_iter().next().map_or(Literals::None, |(last, node)| Literals::One(last, Box::new(node)))
                }
            }
            Literals::One(known, node) if *known != *literal => Literals::One(known, node),
            Literals::One(..) | Literals::None => Literals::None,
        };
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &Node<T>)> {
        let (one, many) = match self {
            Literals::None => (None, None),
            Literals::One(literal, node) => (Some((&**literal, &**node)), None),
            Literals::Many(nodes) => (None, Some(nodes)),
        };
        let many = many.into_iter().flat_map(|nodes| nodes.iter().map(|(literal, node)| (&**literal, node)));
        one.into_iter().chain(many)
    }
}

#[cfg(test)]
mod tests;
