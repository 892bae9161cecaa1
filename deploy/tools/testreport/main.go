// SPDX-License-Identifier: Apache-2.0

// Command testreport sums up what `go test -json` wrote:
//
//	go run ./testreport [-flakes FILE] FILE.json ...
//
// It prints one line with the packages and tests that ran, and the reasons of tests that were skipped. A test that failed and passed
// when it ran again is named in the file of -flakes and on the standard error: it fails by chance, which is a fault to mend.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	flakes := flag.String("flakes", "", "where to write the tests that failed and then passed, one on each line")
	flag.Parse()
	if err := run(*flakes, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(flakes string, files []string) error {
	if len(files) == 0 {
		return errors.New("give the files that go test -json wrote")
	}
	r := newReport()
	for _, name := range files {
		if err := r.readFile(name); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	text := ""
	for _, name := range r.flaky() {
		fmt.Fprintf(os.Stderr, "failed, and passed when it ran again: %s\n", name)
		text += name + "\n"
	}
	if flakes != "" {
		if err := os.WriteFile(flakes, []byte(text), 0o644); err != nil { //nolint:gosec // a report
			return err
		}
	}
	fmt.Println(r.String())
	return nil
}
