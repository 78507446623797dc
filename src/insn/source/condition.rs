//! The conditions of conditional instructions.

use iced_x86::ConditionCode;

/// Returns true if a condition holds with these flags (SDM volume 1, "Condition Codes"); `None` for
/// [`ConditionCode::None`].
pub(super) fn holds(condition: ConditionCode, eflags: u64) -> Option<bool> {
    use ConditionCode as C;
    let flag = |bit: u32| eflags >> bit & 1 != 0;
    let (carry, parity, zero, sign, overflow) = (flag(0), flag(2), flag(6), flag(7), flag(11));
    Some(match condition {
        C::o => overflow,
        C::no => !overflow,
        C::b => carry,
        C::ae => !carry,
        C::e => zero,
        C::ne => !zero,
        C::be => carry || zero,
        C::a => !carry && !zero,
        C::s => sign,
        C::ns => !sign,
        C::p => parity,
        C::np => !parity,
        C::l => sign != overflow,
        C::ge => sign == overflow,
        C::le => zero || sign != overflow,
        C::g => !zero && sign == overflow,
        C::None => return None,
    })
}
