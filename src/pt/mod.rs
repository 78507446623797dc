//! Intel PT packets: decoding, encoding, synchronisation, time, and a model of the PT unit.
//! Knows nothing of ELF or processes.
