//! Names of functions: demangles them, and matches them with a user's query.

use std::borrow::Cow;

/// Returns the name as in the source, with parameters for C++. Names that are not mangled, as those
/// of C, are unchanged.
pub(super) fn demangle(name: &str) -> String {
    if !is_mangled(name) {
        return name.to_owned();
    }
    addr2line::demangle_auto(Cow::Borrowed(name), None).into_owned()
}

/// Returns true if a name is mangled. Without this check, a demangler would take single letters for
/// types: C's `i` would become `int`.
fn is_mangled(name: &str) -> bool {
    ["_Z", "__Z", "_R", "__R"].iter().any(|prefix| name.starts_with(prefix))
}

/// A user's name for a function: mangled or demangled, with or without parameters, with or without
/// the enclosing namespaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a> {
    text: &'a str,
    /// The last component of `text`, which every mangled form of the name contains verbatim; empty
    /// for operators.
    last: &'a str,
}

impl<'a> Query<'a> {
    /// Creates the query of `text`, as a user writes it.
    pub(super) fn new(text: &'a str) -> Self {
        let plain = text.split(['(', '<']).next().unwrap_or_default();
        let last = plain.rsplit("::").next().unwrap_or_default();
        // Operators are encoded differently.
        let last = if last.starts_with("operator") { "" } else { last };
        Self { text, last }
    }

    /// Returns true if the query matches the function with the linkage name `name`: equal to it or,
    /// if it is mangled, to its demangled form, which may lack the parameters, outer namespaces, or
    /// both.
    pub(super) fn matches(&self, name: &str) -> bool {
        if self.text == name {
            return true;
        }
        if !is_mangled(name) || !name.contains(self.last) {
            return false;
        }
        let full = demangle(name);
        [&*full, without_parameters(&full)].iter().any(|form| {
            let before = form.strip_suffix(self.text);
            before.is_some_and(|before| before.is_empty() || before.ends_with("::"))
        })
    }
}

/// Returns a demangled name without its parameters and without a template's return type.
pub fn without_parameters(name: &str) -> &str {
    let (mut depth, mut start, mut end) = (0_u32, 0, name.len());
    for (at, byte) in name.bytes().enumerate() {
        let before = name.get(start..at).unwrap_or_default();
        match byte {
            // Template arguments, but not `operator<` or `operator<<`.
            b'<' if !before.ends_with("operator") && !before.ends_with("operator<") => depth += 1,
            // As in `{lambda(int)#1}`.
            b'{' => depth += 1,
            // Parentheses of template arguments, or of the name itself.
            b'(' if depth > 0 || opens_name(name, before, at) => depth += 1,
            b'>' | b'}' | b')' => depth = depth.saturating_sub(1),
            // The return type ends here, unless this is in `operator new`.
            b' ' if depth == 0 && !before.ends_with("operator") => start = at + 1,
            // The parameters begin here.
            b'(' => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    name.get(start..end).unwrap_or(name)
}

/// Returns true if the parenthesis at `at` belongs to the name.
fn opens_name(name: &str, before: &str, at: usize) -> bool {
    // A method of Go has the type of its receiver in parentheses.
    before.ends_with("operator")
        || before.ends_with('.')
        || name.get(at..).is_some_and(|rest| rest.starts_with("(anonymous namespace)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_return_types_are_cut_off() {
        for (full, plain) in [
            ("main", "main"),
            ("main.(*account).deposit", "main.(*account).deposit"),
            ("foo(int)", "foo"),
            ("void ns::foo<int (*)(char)>(int)", "ns::foo<int (*)(char)>"),
            ("(anonymous namespace)::foo()", "(anonymous namespace)::foo"),
            ("a::operator()(int) const", "a::operator()"),
            ("a::operator<(a const&)", "a::operator<"),
            ("a::operator<<(a const&)", "a::operator<<"),
            ("a::operator new(unsigned long)", "a::operator new"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"),
        ] {
            assert_eq!(without_parameters(full), plain);
        }
    }

    #[test]
    fn a_name_is_meant_in_all_its_forms() {
        let mangled = "_ZN2ns5Thing3fooEi";
        for query in ["ns::Thing::foo(int)", "ns::Thing::foo", "Thing::foo", "foo", "foo(int)"] {
            assert!(Query::new(query).matches(mangled), "{query}");
        }
        for query in ["operator delete", "operator delete(void*)"] {
            assert!(Query::new(query).matches("_ZdlPv") && !Query::new(query).matches("_Znwm"));
        }
        for query in ["oo", "ns::Thing", "Thing::fo", "foo(char)", "ns", ""] {
            assert!(!Query::new(query).matches(mangled), "{query}");
        }
        assert!(Query::new("foo").matches("foo") && !Query::new("foo").matches("xfoo"));
        assert_eq!(demangle("i"), "i");
    }
}
