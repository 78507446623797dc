// Does in Rust what tour.c does in C, with an enumeration and a panic that is caught.

use std::env;
use std::hint::black_box;
use std::panic;
use std::thread;

struct Node {
    value: i32,
    next: Option<Box<Node>>,
}

struct Point {
    x: i32,
    y: i32,
}

static mut TOTAL: i32 = 0;
static mut ANSWER: i32 = 0;
static mut SPINS: i64 = 0;

fn add(a: i32, b: i32) -> i32 { // add
    let sum = a + b; // begin of add
    unsafe { TOTAL += sum }; // total grows
    sum
} // end of add

fn push(list: Option<Box<Node>>, value: i32) -> Option<Box<Node>> {
    let made = Node { value, next: list };
    let boxed = Box::new(made); // end of push
    Some(boxed)
}

fn depth(n: i32) -> i32 {
    if n == 0 {
        return 0; // deepest
    }
    1 + depth(n - 1)
}

fn work() {
    unsafe { ANSWER = 42 }; // in the thread
}

fn refuse() {
    panic!("refused"); // throws
}

fn main() {
    let p = Point { x: 1, y: 2 };
    let mut list = None;
    let mut numbers = [0; 5];
    for i in 0..5 {
        let number = add(i, p.x); // calls add
        numbers[i as usize] = number; // after add
        list = push(list, number);
    }
    let deep = depth(60);
    thread::spawn(work).join().unwrap();
    let caught = panic::catch_unwind(refuse).is_err();
    println!("numbers up to {}, depth {}", numbers[4], deep);
    let mode = env::args().nth(1).unwrap_or_default();
    while mode == "spin" {
        spin();
    }
    let nowhere = black_box(std::ptr::null_mut::<i32>());
    if mode == "crash" {
        unsafe { *nowhere = list.as_ref().unwrap().value }; // crash
    }
    black_box((&p.y, caught, list.map(|node| node.next.is_some()))); // the end
}

fn spin() {
    for _ in 0..1_000_000 {
        unsafe { SPINS += 1 }; // spins
    }
}
