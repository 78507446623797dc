//! A process under ptrace: launch, stops, registers, memory. Holds no policy.
