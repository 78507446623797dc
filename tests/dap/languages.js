// The names of the same things in each language of programs/.
'use strict';

/** Returns the names of the functions and variables of a program in C, C++ or Rust. */
function names(prefix, capitals) {
    const of = (name) => prefix + name;
    const variable = (name) => prefix + (capitals ? name.toUpperCase() : name);
    return {
        add: of('add'), push: of('push'), depth: of('depth'), work: of('work'),
        total: variable('total'), answer: variable('answer'), spins: variable('spins'),
    };
}

module.exports = {
    c: { ...names('', false), source: 'tour.c', main: 'main', pushed: 'made->value' },
    cpp: { ...names('tour::', false), source: 'tour.cpp', main: 'main', pushed: 'made->value' },
    rust: { ...names('tour::', true), source: 'tour.rs', main: 'tour::main', pushed: 'made.value' },
};
