//! What the operating system did while the program ran: mappings, exec, fork, threads, signals, system calls. Does not decode PT.
