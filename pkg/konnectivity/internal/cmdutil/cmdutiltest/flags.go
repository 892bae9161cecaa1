// SPDX-License-Identifier: Apache-2.0

// Package cmdutiltest checks the flags of the two commands.
package cmdutiltest

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Parse gives flags their values.
func Parse(t *testing.T, add func(*pflag.FlagSet), args ...string) {
	t.Helper()
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	add(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
}

// Check checks what validate says of each argument: what it is refused with, or
// nothing if it is accepted.
func Check(t *testing.T, validate func(arg string) error, wants map[string]string) {
	t.Helper()
	for arg, want := range wants {
		err := validate(arg)
		switch {
		case err == nil && want != "":
			t.Errorf("%s is accepted", arg)
		case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}
