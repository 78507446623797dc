//! The model of a debugging session, with no protocol in it.
