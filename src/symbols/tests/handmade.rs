//! A program with handmade debug information: what gcc seldom emits for C.

use super::*;

/// The state of the program at its start. All of its memory is 1.5, as its only variable is.
struct State;

impl Machine for State {
    fn register(&self, number: u16) -> Option<u64> {
        (number == 3).then(|| 1.5_f32.to_bits().into())
    }

    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        let low = u128::from(1.5_f64.to_bits());
        (number == XMM0).then(|| (low | 77 << 64).to_le_bytes())
    }

    fn read(&self, _: Addr, buf: &mut [u8]) -> bool {
        buf.copy_from_slice(&1.5_f64.to_le_bytes()[..buf.len()]);
        true
    }
}

/// Returns the symbols of the program, and its variable of this name.
fn program_and_variable(name: &str) -> Option<(Symbols, Addr, Variable)> {
    let program = compile("gcc", "handmade.S", &[])?;
    let symbols = symbols(&program.path);
    let main = symbols.addresses_of_function("main")[0];
    let mut variables = symbols.variables_at(main).into_iter();
    let variable = variables.find(|variable| variable.name == name).unwrap();
    Some((symbols, main, variable))
}

#[test]
fn a_typed_value_is_what_memory_or_a_register_holds() {
    let bytes = [
        ("in_memory", 1.5_f64.to_le_bytes().to_vec()),
        ("in_register", 1.5_f32.to_le_bytes().to_vec()),
        ("in_vector", 1.5_f64.to_le_bytes().to_vec()),
    ];
    for (name, bytes) in bytes {
        let Some((symbols, main, variable)) = program_and_variable(name) else { return };
        let location = symbols.variable_location(&variable, main).unwrap();
        let home = symbols.home_of(&location, &FrameRegisters::innermost(&State), &State);
        assert_eq!(home, Some(Home::of(Piece::Bytes(bytes))), "{name}");
    }
}

#[test]
fn an_array_has_the_elements_between_its_bounds() {
    let Some((symbols, _, variable)) = program_and_variable("array") else { return };
    let array = symbols.read_type(variable.type_id.unwrap()).unwrap();
    let Kind::Array { counts, .. } = array.kind else { panic!("{array:?}") };
    assert_eq!(counts, [Some(5), Some(0), Some(0), Some(10), Some(0), None]);
}

#[test]
fn numbers_of_16_bytes_have_the_format_that_their_name_determines() {
    for (name, format) in [("extended", Some(FloatFormat::Extended)), ("quad", None)] {
        let Some((symbols, _, variable)) = program_and_variable(name) else { return };
        let number = symbols.read_type(variable.type_id.unwrap()).unwrap();
        assert_eq!(number.kind, Kind::Float { format }, "{name}");
    }
}

#[test]
fn a_global_has_the_name_that_another_unit_declares() {
    let Some((symbols, main, _)) = program_and_variable("array") else { return };
    for name in ["ns::counter", "counter"] {
        let variable = symbols.global_at(main, name).expect(name);
        let location = symbols.variable_location(&variable, main).unwrap();
        let home = symbols.home_of(&location, &FrameRegisters::innermost(&State), &State);
        assert!(matches!(home.unwrap().pieces[..], [(None, Piece::Memory(_))]), "{name}");
    }
}
