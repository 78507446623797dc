// Threads share a ledger. One of them computes the place of an entry wrongly; much later, another one
// reads it and panics.
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Debug, Clone)]
struct Entry {
    account: usize,
    amount: i64,
}

struct Ledger {
    balances: Vec<i64>,
    entries: Vec<Entry>,
}

fn account_of(customer: usize, branch: usize) -> usize {
    if branch == 3 { customer * 4 + branch * 2 } else { customer * 4 + branch }
}

fn enter(ledger: &Mutex<Ledger>, customer: usize, branch: usize) {
    let account = account_of(customer, branch);
    let mut ledger = ledger.lock().unwrap();
    ledger.entries.push(Entry { account, amount: customer as i64 + 1 });
}

fn settle(ledger: &mut Ledger) -> i64 {
    for number in 0..ledger.entries.len() {
        let entry = ledger.entries[number].clone();
        ledger.balances[entry.account] += entry.amount;
    }
    ledger.balances.iter().sum()
}

fn main() {
    let ledger = Arc::new(Mutex::new(Ledger { balances: vec![0; 16], entries: Vec::new() }));
    let threads: Vec<_> = (0..4)
        .map(|branch| {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || (0..4).for_each(|customer| enter(&ledger, customer, branch)))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    println!("{}", settle(&mut ledger.lock().unwrap()));
}
