// SPDX-License-Identifier: Apache-2.0

// Command mutants tests the tests of packages: it changes the code in one place at a time, and runs the package's tests on
// each of these mutants. A mutant that no test fails on survives.
//
//	go run ./mutants -dir ../.. ./pkg/gateway/rules
//
// It replaces comparisons, arithmetic, and boolean operators, drops one side of && and ||, removes !, negates conditions,
// empties the bodies of if and case, removes calls, assignments, defer, break, and continue, returns nil instead of an error,
// and changes numbers by one and true to false. Log calls stay as they are. No file is changed: Go's -overlay flag replaces files
// for the compiler. One test binary has all mutants of the functions of a package; an environment variable chooses one.
//
// A mutant is killed if a test fails, or if the tests take three times as long as without it, at least 10 seconds. A mutant
// that does not compile is not counted. Tests run with -short first. With --full, all tests run on what survives that.
// A mutant in code that these tests do not reach survives without a run.
//
// The command fails if less than --min percent of the mutants of a package are killed, or if a survivor is not in
// survivors.txt. That file has the mutants that mean the same as the code, each with the reason. The command prints
// survivors in the format of the file.
//
// # Why this is not a library
//
// The nearest one is github.com/go-gremlins/gremlins. Its version v0.6.0 removes no statement, drops no operand of && and ||, and
// returns no nil. So it does not make the mutant that a review found to survive in pkg/gateway/rules, a permission without
// one of its conditions. For that package it finds 197 mutants, this command more than twice as many. It copies the module
// for each worker, links a test binary for each mutant, and has no list of equivalent mutants. The modules
// github.com/zimmski/go-mutesting and github.com/avito-tech/go-mutesting have such operators, but the module proxy does not have them.
package main
