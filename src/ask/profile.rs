//! The instructions of each function and line, exactly: no sampling.

use super::error::Error;
use super::executed::{Executed, Stack};
use super::opened::Asked;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The instructions of a run, by function, line and stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// All instructions.
    pub instructions: u64,
    /// Gaps in the path, whose instructions are not counted.
    pub gaps: u64,
    /// The functions, those with the most instructions of their own first.
    pub functions: Vec<FunctionCost>,
    /// The lines, those with the most instructions first.
    pub lines: Vec<LineCost>,
    /// The stacks, outermost function first, with the instructions of the innermost function itself.
    pub stacks: Vec<(Vec<String>, u64)>,
}

/// The instructions of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCost {
    /// The function.
    pub name: String,
    /// Its own instructions.
    pub own: u64,
    /// Those of the functions that it called, too.
    pub total: u64,
    /// The calls.
    pub calls: u64,
}

/// The instructions of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCost {
    /// The name of the file, without its directory.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The function.
    pub function: String,
    /// The instructions.
    pub own: u64,
}

impl Asked {
    /// Counts the instructions of the whole run. `None`: the user interrupted it.
    pub fn profile(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Option<Profile>, Error> {
        let Some(executed) = self.executed(is_over) else { return Ok(None) };
        let functions = functions_of(&executed.stacks);
        let lines = self.lines_of(&executed);
        let stacks = stacks_of(&executed.stacks);
        let (instructions, gaps) = (executed.instructions, executed.gaps);
        Ok(Some(Profile { instructions, gaps, functions, lines, stacks }))
    }

    fn lines_of(&self, executed: &Executed) -> Vec<LineCost> {
        let mut lines: HashMap<(String, u32, String), u64> = HashMap::new();
        let functions = self.functions();
        for (addr, count) in executed.counts() {
            let place = functions.place(addr);
            if let Some((file, line)) = place.line {
                let function = place.function.unwrap_or_default();
                *lines.entry((file, line, function)).or_default() += count;
            }
        }
        let cost = |((file, line, function), own)| LineCost { file, line, function, own };
        let mut lines: Vec<LineCost> = lines.into_iter().map(cost).collect();
        lines.sort_by(|a, b| {
            b.own.cmp(&a.own).then_with(|| (&a.file, a.line).cmp(&(&b.file, b.line)))
        });
        lines
    }
}

/// Returns the cost of each function. A function counts once on each stack.
fn functions_of(stacks: &[Stack]) -> Vec<FunctionCost> {
    let mut functions: HashMap<&str, FunctionCost> = HashMap::new();
    for (number, stack) in stacks.iter().enumerate() {
        let cost = |name: &str| FunctionCost { name: name.to_owned(), own: 0, total: 0, calls: 0 };
        let mut seen = BTreeSet::new();
        let mut next = Some(number);
        while let Some(of) = next.and_then(|number| stacks.get(number)) {
            let name = of.function.as_str();
            if seen.insert(name) {
                functions.entry(name).or_insert_with(|| cost(name)).total += stack.own;
            }
            next = of.around;
        }
        if let Some(function) = functions.get_mut(stack.function.as_str()) {
            function.own += stack.own;
            function.calls += stack.calls;
        }
    }
    let mut functions: Vec<FunctionCost> = functions.into_values().collect();
    functions.sort_by(|a, b| b.own.cmp(&a.own).then_with(|| a.name.cmp(&b.name)));
    functions
}

fn stacks_of(stacks: &[Stack]) -> Vec<(Vec<String>, u64)> {
    let mut by_names: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for (number, stack) in stacks.iter().enumerate().filter(|(_, stack)| stack.own > 0) {
        let mut names = Vec::new();
        let mut next = Some(number);
        while let Some(of) = next.and_then(|number| stacks.get(number)) {
            names.push(of.function.clone());
            next = of.around;
        }
        names.reverse();
        *by_names.entry(names).or_default() += stack.own;
    }
    by_names.into_iter().collect()
}
