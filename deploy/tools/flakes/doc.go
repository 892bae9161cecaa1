// SPDX-License-Identifier: Apache-2.0

// Command flakes finds tests that fail by chance. It runs the tests of packages many times, each time under other
// conditions, and lists what failed:
//
//	go run ./flakes -dir ../.. -n 20 -out ../../_output/flakes.txt
//
// Every round shuffles the tests with a seed of its own. Every second round uses the race detector, if there is a C
// compiler. Two of four rounds run beside busy loops, and every third round runs the tests with GOMAXPROCS=1. For each
// failure the report has the test, the round with its seed and conditions, the command that repeats them, and the output.
//
// gotestsum's --rerun-fails finds less: it repeats what failed, so a test that fails in one of twenty runs is found in
// one of twenty runs. The stress program of golang.org/x/tools repeats one compiled test binary, but knows neither
// packages nor the names of tests.
package main
