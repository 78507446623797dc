// Goroutines move money between accounts. One of them forgets the second half of a transfer.
package main

import (
	"fmt"
	"os"
	"sync"
)

type account struct {
	name    string
	balance int
}

var accounts [4]account
var lock sync.Mutex

func transfer(from, to, amount int) {
	lock.Lock()
	defer lock.Unlock()
	accounts[from].balance -= amount
	if from == 2 && amount == 7 {
		return
	}
	accounts[to].balance += amount
}

func main() {
	for i := range accounts {
		accounts[i] = account{fmt.Sprintf("account %d", i), 1000}
	}
	var all sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		all.Add(1)
		go func(worker int) {
			defer all.Done()
			for i := 0; i < 20; i++ {
				transfer((worker+i)%4, (worker+i+1)%4, i%9)
			}
		}(worker)
	}
	all.Wait()
	sum := 0
	for i := range accounts {
		sum += accounts[i].balance
	}
	fmt.Println(sum)
	if sum != 4000 {
		os.Exit(1)
	}
}
