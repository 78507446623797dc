//! The instructions of each function and line, exactly: no sampling.

use super::error::Error;
use super::executed::ExecutionCounts;
use super::functions::Functions;
use super::opened::Asked;
use super::stacks::Callee;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The name under which a profile counts all calls beyond the limits of [`super::stacks`].
const MORE: &str = "[more calls]";

/// The instructions of a run, by function, line and stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The number of all instructions.
    pub instructions: u64,
    /// The number of gaps in the path, whose instructions are not counted.
    pub gaps: u64,
    /// The functions, in descending order of their own instructions.
    pub functions: Vec<FunctionCost>,
    /// The lines, in descending order of their instructions.
    pub lines: Vec<LineCost>,
    /// The call stacks, as function names from the outermost on, each with the number of
    /// instructions that the innermost function executed itself. Where calls are very deep or
    /// stacks very many, the innermost name is `[more calls]` for all calls beyond the limit.
    pub stacks: Vec<(Vec<String>, u64)>,
}

/// The instructions of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCost {
    /// The name of the function, or the address of a page of code without symbols, in brackets.
    pub name: String,
    /// The number of instructions that the function executed itself.
    pub own: u64,
    /// The number of instructions that the function and all functions called by it executed. Calls
    /// without a stack of their own count for the functions around them only.
    pub total: u64,
    /// The number of calls of the function.
    pub calls: u64,
}

/// The instructions of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineCost {
    /// The name of the file, without its directory.
    pub file: Arc<str>,
    /// The number of the line.
    pub line: u32,
    /// The name of the function; empty if it is unknown.
    pub function: Arc<str>,
    /// The number of instructions that were executed for this line in this function.
    pub own: u64,
}

impl Asked {
    /// Counts the instructions of the whole run. `None`: `interrupted` returned true. At present
    /// there is no error.
    pub fn profile(
        &self,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Profile>, Error> {
        let Some(counts) = self.execution_counts(interrupted) else { return Ok(None) };
        let names = Names::new(&counts, &self.functions());
        let functions = function_costs(&counts, &names);
        let lines = self.line_costs(&counts);
        let stacks = named_stacks(&counts, &names);
        let (instructions, gaps) = (counts.instructions, counts.gaps);
        Ok(Some(Profile { instructions, gaps, functions, lines, stacks }))
    }

    /// Returns the lines that were executed, in descending order of their instructions. Leaves out
    /// instructions without a line.
    fn line_costs(&self, counts: &ExecutionCounts) -> Vec<LineCost> {
        let mut lines: HashMap<(Arc<str>, u32, Arc<str>), u64> = HashMap::new();
        let functions = self.functions();
        for (addr, count) in counts.by_instruction() {
            let place = functions.place(addr);
            if let Some((file, line)) = place.line.clone() {
                let function = place.function.clone().unwrap_or_default();
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

/// The functions of a profile, numbered: functions with the same name have the same number, and
/// count as one.
struct Names {
    /// The names, by number.
    names: Vec<String>,
    numbers: HashMap<Callee, usize>,
}

impl Names {
    fn new(counts: &ExecutionCounts, functions: &Functions<'_>) -> Self {
        let (mut names, mut by_name) = (Vec::new(), HashMap::new());
        let mut number = |callee| {
            let name = match callee {
                Callee::Function(start) => functions.name_at(start).map(|name| name.to_string()),
                Callee::Page(page) => Some(format!("[{:#x}]", page.0)),
                Callee::BeyondLimits => None,
            };
            let name = name.unwrap_or_else(|| MORE.to_owned());
            let next = names.len();
            *by_name.entry(name.clone()).or_insert_with(|| {
                names.push(name);
                next
            })
        };
        let callees = counts.functions.keys().copied().chain([Callee::BeyondLimits]);
        let numbers = callees.map(|callee| (callee, number(callee))).collect();
        Self { names, numbers }
    }

    /// Returns the number of a callee; `usize::MAX`, which no name has, if it was not counted.
    fn number(&self, callee: Callee) -> usize {
        self.numbers.get(&callee).copied().unwrap_or(usize::MAX)
    }

    /// Returns the name of a callee; empty if it was not counted.
    fn name(&self, callee: Callee) -> String {
        self.names.get(self.number(callee)).cloned().unwrap_or_default()
    }
}

/// Returns the functions that were executed, in descending order of their own instructions.
fn function_costs(counts: &ExecutionCounts, names: &Names) -> Vec<FunctionCost> {
    let totals = counts.stacks.totals(|callee| names.number(callee));
    let mut functions: HashMap<usize, FunctionCost> = HashMap::new();
    for (callee, cost) in &counts.functions {
        let number = names.number(*callee);
        let new = || FunctionCost { name: names.name(*callee), own: 0, total: 0, calls: 0 };
        let function = functions.entry(number).or_insert_with(new);
        function.own += cost.own;
        function.calls += cost.calls;
        // Calls without a stack count for the functions around them only.
        function.total = totals.get(&number).copied().unwrap_or(0).max(function.own);
    }
    let mut functions: Vec<FunctionCost> = functions.into_values().collect();
    functions.sort_by(|a, b| b.own.cmp(&a.own).then_with(|| a.name.cmp(&b.name)));
    functions
}

/// Returns the stacks by function names, each with the instructions that its innermost function
/// executed itself. Stacks with the same names are one.
fn named_stacks(counts: &ExecutionCounts, names: &Names) -> Vec<(Vec<String>, u64)> {
    let mut by_names: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for (chain, own) in counts.stacks.executed_stacks() {
        let chain = chain.into_iter().map(|callee| names.name(callee)).collect();
        *by_names.entry(chain).or_default() += own;
    }
    by_names.into_iter().collect()
}
