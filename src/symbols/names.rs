//! Names of functions: demangles them, and matches them with a user's query.

use std::borrow::Cow;
use std::ops::Range;

/// Returns the name as in the source, with parameters for C++. Names that are not mangled, as those
/// of C, or that cannot be demangled, are unchanged.
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

/// A user's name for a function: mangled or demangled, with or without parameters, template
/// arguments and the enclosing namespaces.
#[derive(Clone, Debug)]
pub(super) struct Query<'a> {
    text: &'a str,
    /// `text` without the spaces and the `::` in front that do not matter.
    compact: String,
    /// A part of the name that every mangled form of it contains verbatim; empty for operators.
    part: &'a str,
    /// True if the template arguments of functions are part of the query.
    has_arguments: bool,
}

impl<'a> Query<'a> {
    /// Creates the query of `text`, as a user writes it.
    pub(super) fn new(text: &'a str) -> Self {
        let plain = text.split(['(', '<']).next().unwrap_or_default().trim_end();
        let last = plain.rsplit("::").next().unwrap_or_default();
        // With a return type in front, the name is after the last space.
        let last = last.rsplit(' ').next().unwrap_or_default();
        // Operators and destructors are encoded differently.
        let part = if text.contains("operator") { "" } else { last.trim_start_matches('~') };
        let compact = compact(text);
        let compact = compact.strip_prefix("::").unwrap_or(&compact).to_owned();
        let has_arguments = without_arguments(&compact) != compact;
        Self { text, compact, part, has_arguments }
    }

    /// Returns true if the query matches the function with the linkage name `name`: equal to it or,
    /// if it is mangled, to its demangled form, which may lack the return type, parameters,
    /// template arguments and outer namespaces.
    pub(super) fn matches(&self, name: &str) -> bool {
        if self.text == name {
            return true;
        }
        if !is_mangled(name) {
            // The parameters of C functions are unknown, but `main()` also is such a name in C++.
            return self.compact.strip_suffix("()").is_some_and(|plain| plain == name);
        }
        if self.compact.is_empty() || !name.contains(self.part) {
            return false;
        }
        let full = demangle(name);
        let parts = name_parts(&full);
        let with_parameters = full.get(parts.start..).unwrap_or_default();
        let plain = full.get(parts).unwrap_or_default();
        [&*full, with_parameters, plain].into_iter().any(|form| {
            let form = compact(form);
            self.is_end_of(&form)
                || !self.has_arguments && self.is_end_of(&without_arguments(&form))
        })
    }

    /// Returns true if the last components of `form`, a name as `compact` returns it, are the
    /// query.
    fn is_end_of(&self, form: &str) -> bool {
        let before = form.strip_suffix(&*self.compact);
        before.is_some_and(|before| before.is_empty() || before.ends_with("::"))
    }
}

/// Returns a name without the spaces that do not separate words.
fn compact(name: &str) -> String {
    let is_word = |c: Option<char>| c.is_some_and(is_word_char);
    let mut compact = String::with_capacity(name.len());
    let mut rest = name.trim().chars().peekable();
    while let Some(c) = rest.next() {
        let next = rest.peek().copied();
        // The arguments of a template `operator<` follow a space.
        let is_sign = next == Some('<')
            && compact.ends_with('<')
            && is_operator_sign(compact.trim_end_matches('<'));
        let divides = is_sign || is_word(compact.chars().next_back()) && is_word(next);
        if c != ' ' || divides {
            compact.push(c);
        }
    }
    compact
}

/// Returns a name without the arguments of templates, which a query may omit; those in parameters
/// too. `<T as Trait>::f` of Rust becomes `::f`.
fn without_arguments(name: &str) -> String {
    let (mut depth, mut plain) = (0_u32, String::with_capacity(name.len()));
    let mut previous = ' ';
    for c in name.chars() {
        match c {
            '<' if depth > 0 || !is_operator_sign(&plain) => {
                depth += 1;
                if depth == 1 {
                    // Rust has `f::<T>`, and C++ `operator< <T>`.
                    let end = plain.strip_suffix("::").unwrap_or(&plain).trim_end().len();
                    plain.truncate(end);
                }
            }
            // The result of a function type.
            '>' if depth > 0 && previous == '-' => {}
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
        previous = c;
    }
    plain
}

/// Returns true if a `<` after `before` belongs to the name of an operator: `before` ends in the
/// word `operator`, perhaps with one `<`.
fn is_operator_sign(before: &str) -> bool {
    ends_in_operator(before.strip_suffix('<').unwrap_or(before))
}

/// Returns true if `text` ends in the word `operator`, not in a longer one such as `my_operator`.
fn ends_in_operator(text: &str) -> bool {
    text.strip_suffix("operator").is_some_and(|outer| !outer.ends_with(is_word_char))
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns a demangled name without its parameters and without a template's return type.
pub fn without_parameters(name: &str) -> &str {
    name.get(name_parts(name)).unwrap_or(name)
}

/// Returns the range of a demangled name that is without its parameters and its return type. The
/// parameters of functions around it, as of a lambda, are part of the name.
fn name_parts(name: &str) -> Range<usize> {
    let (mut depth, mut start, mut end) = (0_u32, 0, name.len());
    for (at, byte) in name.bytes().enumerate() {
        // The name so far: what follows the last space that ended a return type.
        let before = name.get(start..at).unwrap_or_default();
        match byte {
            // Template arguments, but not `operator<` or `operator<<`.
            b'<' if !is_operator_sign(before) => depth += 1,
            // As in `{lambda(int)#1}`.
            b'{' => depth += 1,
            // Parentheses of template arguments, or of the name itself.
            b'(' if depth > 0 || opens_name(name, before, at) || is_of_outer(name, at) => {
                depth += 1;
            }
            // The result of a function type.
            b'>' if before.ends_with('-') => {}
            b'>' | b'}' | b')' => depth = depth.saturating_sub(1),
            // As in `f() const::{lambda()#1}`.
            b' ' if name.get(at..).is_some_and(begins_inner) => {}
            // The return type ends here, unless this is in `operator new` or `operator<< <int>`.
            b' ' if depth == 0 && !has_operator(before) => start = at + 1,
            // The parameters begin here.
            b'(' => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    start..end
}

/// Returns true if the parenthesis at `at` begins the parameters of a function in which the named
/// one is.
fn is_of_outer(name: &str, at: usize) -> bool {
    let mut depth = 0_u32;
    let closing = name.bytes().enumerate().skip(at).find(|(_, byte)| {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    closing.and_then(|(end, _)| name.get(end + 1..)).is_some_and(begins_inner)
}

/// Returns true if a name goes on with one in a function whose parameters end before `rest`.
fn begins_inner(mut rest: &str) -> bool {
    for qualifier in [" const", " volatile", " &&", " &"] {
        rest = rest.strip_prefix(qualifier).unwrap_or(rest);
    }
    rest.starts_with("::")
}

/// Returns true if the last component of `before` is an operator: `operator` and a sign, or a space
/// and `new`, `delete` or the type to which it converts, which may have `::`.
fn has_operator(before: &str) -> bool {
    before.rsplit_once("operator").is_some_and(|(outer, sign)| {
        let is_whole = sign.starts_with(' ') && !sign.contains('(') || !sign.contains("::");
        !outer.ends_with(is_word_char) && !sign.starts_with(is_word_char) && is_whole
    })
}

/// Returns true if the parenthesis at `at` belongs to the name.
fn opens_name(name: &str, before: &str, at: usize) -> bool {
    // A method of Go has the type of its receiver in parentheses, and `decltype(...)` is a return
    // type.
    before.is_empty()
        || ends_in_operator(before)
        || [".", "decltype"].iter().any(|end| before.ends_with(end))
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
            ("S::operator unsigned long() const", "S::operator unsigned long"),
            ("S::operator N::T const&() const", "S::operator N::T const&"),
            ("A& std::operator<< <char>(A&, char)", "std::operator<< <char>"),
            ("bool ns::operator< <int>(A<int> const&)", "ns::operator< <int>"),
            ("decltype ({parm#1}+1) f<int>(int)", "f<int>"),
            ("<fn(u8) -> u8 as r::Shape>::area", "<fn(u8) -> u8 as r::Shape>::area"),
            ("my_operator(int)", "my_operator"),
            ("ns::unary_operator<unsigned int>::run(int)", "ns::unary_operator<unsigned int>::run"),
            ("f(int)::{lambda()#1}::operator()() const", "f(int)::{lambda()#1}::operator()"),
            (
                "S::f(int (*)(char)) const::{lambda()#1}::operator()() const",
                "S::f(int (*)(char)) const::{lambda()#1}::operator()",
            ),
            ("void f<int>(int)::L::g(char)", "f<int>(int)::L::g"),
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
        for query in ["::foo", " ns :: Thing::foo( int )", "::ns::Thing::foo"] {
            assert!(Query::new(query).matches(mangled), "{query}");
        }
        assert!(Query::new("foo").matches("foo") && !Query::new("foo").matches("xfoo"));
        assert_eq!(demangle("i"), "i");
    }
    /// Compares with what `break` of gdb takes for these functions.
    #[test]
    fn destructors_templates_and_operators_are_meant() {
        for (mangled, queries, others) in [
            ("_ZN1SD1Ev", "~S; S::~S; S::~S()", "S; S::S; ~T"),
            ("_Z14apply_operatori", "apply_operator; apply_operator(int)", "operator; apply"),
            ("_ZZ1fiENKUlvE_clEv", "operator(); f(int)::{lambda()#1}::operator()", "f; f(int)"),
            ("_ZZ1fiEN1L1gEc", "g; L::g; f(int)::L::g(char)", "f; f(int)"),
            ("_ZN2ns3Foo3barEPc", "bar(char *); ns::Foo::bar(char*)", "bar(int)"),
            (
                "_Z1fIiET_S0_",
                "f; f<int>; f<int>(int); int f<int>(int); f(int)",
                "f<long>; int; f(long); f<>",
            ),
            (
                "_ZN2ns3Foo2tmIdEEiT_",
                "tm; Foo::tm; tm<double>; int ns::Foo::tm<double>(double)",
                "Foo",
            ),
            ("_Z1gILi3EEiv", "g; g<3>; g()", "g<7>"),
            (
                "_ZN1SlsEi",
                "operator<<; S::operator<<; operator<<(int); operator << (int)",
                "operator<",
            ),
            ("_ZNK1SltERKS_", "operator<; operator<(S const&) const", "operator<<"),
            ("_ZltI1AEbRKT_S3_", "operator<; operator< <A>", "operator<<; operator< <B>"),
            ("_ZNK1ScvmEv", "operator unsigned long; S::operator unsigned long", "long"),
            ("_ZNK1SclEi", "operator(); S::operator()(int) const", "S"),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", "push_back; std::vector::push_back", "vector"),
            (
                "_ZN34_$LT$r..Sq$u20$as$u20$r..Shape$GT$4area17h0123456789abcdefE",
                "area; <r::Sq as r::Shape>::area",
                "<r::Rect as r::Shape>::area; Shape",
            ),
            ("_RINvCs6GmmlP4bgsG_1r3genhEB2_", "gen; r::gen; r::gen::<u8>", "r::gen::<u32>"),
        ] {
            let meant = |query: &&str| Query::new(query).matches(mangled);
            let full = demangle(mangled);
            assert_eq!(queries.split("; ").find(|query| !meant(query)), None, "{full}");
            assert_eq!(others.split("; ").find(meant), None, "{full}");
        }
        assert!(Query::new("main()").matches("main") && !Query::new("main(int)").matches("main"));
        let method = "main.(*T).Method";
        assert!(Query::new(method).matches(method) && !Query::new("T").matches(method));
    }
}
