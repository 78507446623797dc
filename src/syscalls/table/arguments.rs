//! The number of arguments of each call.

/// A digit for each call, by its number; `-` if there is no such call. After the prototypes in
/// include/linux/syscalls.h.
static ARGUMENTS: &[u8; super::NUMBERS] = b"\
    33312223363214403443321505333333120221304333663323\
    23345550031421334124533211223211221221232233312221\
    14030110020002222333311112224322231122232322311122\
    21003215212101252214221323215435553303555444333222\
    21633121533131445310443421122241443256354155234554\
    53203244345343453433651236444646321442442132155455\
    2545321423665334533253513366642156400-------------\
    --------------------------------------------------\
    ------------------------42643525332234345654342125\
    4443464444433665455540";

/// Returns the number of arguments of a call; `None` if there is no such call.
pub(in crate::syscalls) fn argument_count(number: u64) -> Option<usize> {
    let digit = ARGUMENTS.get(usize::try_from(number).ok()?)?;
    char::from(*digit).to_digit(10).map(|count| count as usize)
}
