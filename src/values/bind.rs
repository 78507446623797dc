//! Lists of expressions, and the meaning of their names at an address.

use super::error::Error;
use super::evaluate::Evaluator;
use super::parse::{Expr, Item, items};
use crate::common::Addr;
use crate::symbols::{TypeId, Variable, VariableLocation};
use std::collections::{HashMap, HashSet};

/// A list of expressions. An item can also be `bt N`, which asks for up to N frames of the call
/// stack.
#[derive(Clone, Debug)]
pub struct Question {
    /// The items, each with its text.
    pub(super) items: Vec<(String, Item)>,
}

impl Question {
    /// Parses expressions with commas between them. A blank text is an empty list. Fails at the
    /// first fault of syntax; names and types are not checked yet.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(Self { items: items(text)? })
    }

    /// Returns the text of each expression, as the user wrote it.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.items.iter().map(|(text, _)| text.as_str())
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// The meaning of a name at an address.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    /// A variable: the description of where it is (`None` if its module is unknown), and its type
    /// (`None` for void).
    Variable(Option<VariableLocation>, Option<TypeId>),
    /// A member of `this`, the object whose method executes.
    MemberOfThis,
    /// No variable or member has the name.
    Nothing,
}

/// A question whose names are resolved at an address.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The items of the question, each with its text.
    pub(super) items: Vec<(String, Item)>,
    /// The meaning of each name in the expressions.
    pub(super) names: HashMap<String, Meaning>,
}

impl Evaluator<'_> {
    /// Resolves a question's names at an address. Fails if a name has no meaning there, or a
    /// register does not exist.
    pub fn bind(&self, question: &Question, addr: Addr) -> Result<Bound, Error> {
        self.bind_names(question, addr, false)
    }

    /// Resolves a question's names at several addresses. Fails if a name has no meaning at any of
    /// them. It need not have one at all of them, and is missing at the others: the compiler may
    /// have moved code of a line out of the block that declares its variables.
    pub fn bind_all(
        &self,
        question: &Question,
        addrs: impl Iterator<Item = Addr>,
    ) -> Result<HashMap<Addr, Bound>, Error> {
        let (mut all, mut unknown, mut known) = (HashMap::new(), HashMap::new(), HashSet::new());
        for addr in addrs {
            let bound = self.bind_names(question, addr, true)?;
            for (name, meaning) in &bound.names {
                if matches!(meaning, Meaning::Nothing) {
                    unknown.entry(name.clone()).or_insert(addr);
                } else {
                    known.insert(name.clone());
                }
            }
            all.insert(addr, bound);
        }
        let nowhere = unknown.into_iter().filter(|(name, _)| !known.contains(name)).min();
        match nowhere {
            Some((name, addr)) => Err(self.no_variable(&name, addr)),
            None => Ok(all),
        }
    }

    /// Returns the error for a name without a meaning at an address.
    fn no_variable(&self, name: &str, addr: Addr) -> Error {
        if !self.symbols.has_debug_info(addr) {
            return Error::NoDebugInfo(addr);
        }
        let function = self.symbols.function_at(addr);
        let function =
            function.map_or_else(String::new, |function| format!(", in {}", function.name));
        Error::NoVariable { name: name.to_owned(), addr, function }
    }

    /// Resolves a question's names at an address. If `is_lenient`, a name without a meaning becomes
    /// [`Meaning::Nothing`] and is no error.
    fn bind_names(
        &self,
        question: &Question,
        addr: Addr,
        is_lenient: bool,
    ) -> Result<Bound, Error> {
        let found = HashMap::new();
        let mut names = Names { evaluator: self, addr, locals: None, found, is_lenient };
        for (_, item) in &question.items {
            if let Item::Value(expr) = item {
                names.resolve_in(expr)?;
            }
        }
        Ok(Bound { items: question.items.clone(), names: names.found })
    }

    /// Returns a bound question with an expression for each argument of the function at an address;
    /// `None` if they are unknown.
    pub fn bind_arguments(&self, addr: Addr) -> Option<Bound> {
        let signature = self.symbols.signature_at(addr)?;
        let found = HashMap::new();
        let mut names = Names { evaluator: self, addr, locals: None, found, is_lenient: false };
        let mut items = Vec::new();
        for argument in &signature.arguments {
            let meaning = names.meaning_of_variable(argument);
            names.found.insert(argument.name.clone(), meaning);
            items.push((argument.name.clone(), Item::Value(Expr::Name(argument.name.clone()))));
        }
        Some(Bound { items, names: names.found })
    }
}

impl Bound {
    /// Returns the text of each expression, as the user wrote it.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.items.iter().map(|(text, _)| text.as_str())
    }
}

/// The names of a question, while they are resolved at an address.
struct Names<'a, 's> {
    evaluator: &'a Evaluator<'s>,
    addr: Addr,
    /// The variables visible at the address; `None` before the first name.
    locals: Option<Vec<Variable>>,
    /// The names that are resolved already.
    found: HashMap<String, Meaning>,
    /// True if an unknown name is no error but becomes [`Meaning::Nothing`].
    is_lenient: bool,
}

impl Names<'_, '_> {
    /// Resolves all names in an expression, and adds them to `found`. Also checks the names of
    /// registers.
    fn resolve_in(&mut self, expr: &Expr) -> Result<(), Error> {
        match expr {
            Expr::Name(name) => {
                if !self.found.contains_key(name) {
                    let meaning = self.meaning(name)?;
                    self.found.insert(name.clone(), meaning);
                }
                Ok(())
            }
            Expr::Register(name) => match super::evaluate::register(name) {
                Some(_) => Ok(()),
                None => Err(Error::NoRegister(name.clone())),
            },
            Expr::Integer(_) | Expr::Real(_) => Ok(()),
            Expr::Member(of, _)
            | Expr::Target(of)
            | Expr::Address(of)
            | Expr::Unary(_, of)
            | Expr::Cast(_, _, of) => self.resolve_in(of),
            Expr::Index(left, right) | Expr::Binary(_, left, right) => {
                self.resolve_in(left)?;
                self.resolve_in(right)
            }
        }
    }

    /// Returns the meaning of a name: a local variable, else a member of `this`, else a global
    /// variable. For a member, adds `this` to `found`. Fails for another name, unless `is_lenient`:
    /// it means [`Meaning::Nothing`] then.
    fn meaning(&mut self, name: &str) -> Result<Meaning, Error> {
        let (symbols, addr) = (self.evaluator.symbols, self.addr);
        let locals = self.locals.get_or_insert_with(|| symbols.variables_at(addr));
        if let Some(local) = locals.iter().find(|local| local.name == name).cloned() {
            return Ok(self.meaning_of_variable(&local));
        }
        if let Some(this) = locals.iter().find(|local| local.name == "this").cloned()
            && self.evaluator.has_member(this.type_id, name)
        {
            let meaning = self.meaning_of_variable(&this);
            self.found.insert("this".to_owned(), meaning);
            return Ok(Meaning::MemberOfThis);
        }
        if let Some(global) = symbols.global_at(addr, name) {
            return Ok(self.meaning_of_variable(&global));
        }
        if self.is_lenient {
            return Ok(Meaning::Nothing);
        }
        Err(self.evaluator.no_variable(name, addr))
    }

    /// Returns the meaning of a variable's name.
    fn meaning_of_variable(&self, variable: &Variable) -> Meaning {
        let location = self.evaluator.symbols.variable_location(variable, self.addr);
        Meaning::Variable(location, variable.type_id)
    }
}
