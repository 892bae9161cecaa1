// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"os"
	"regexp"
	"testing"
)

// TestFindProgram: a program that is missing skips a test on a machine, but fails it in CI, as
// one that CI does not install.
func TestFindProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := os.Stat("/usr/sbin/nc"); err == nil {
		t.Fatal("nc is where the test expects none")
	}
	for _, c := range []struct {
		name      string
		ci, fatal bool
	}{{"nc", false, false}, {"nc", true, true}, {"unknown", false, true}} {
		path, missing := findProgram(c.name, c.ci)
		if path != "" || missing.text == "" || missing.fatal != c.fatal {
			t.Errorf("%s, in CI %v: %q, %+v", c.name, c.ci, path, missing)
		}
	}
}

// TestCIInstallsPrograms: .ci/run installs the package of each program that tests use.
func TestCIInstallsPrograms(t *testing.T) {
	text, err := os.ReadFile("../../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	installed := map[string]string{}
	for _, m := range regexp.MustCompile(`\b([a-z]+):([a-z-]+)\b`).FindAllStringSubmatch(regexp.MustCompile(`(?m)^for program in (.*); do$`).FindString(string(text)), -1) {
		installed[m[1]] = m[2]
	}
	for program, pkg := range Packages {
		if installed[program] != pkg {
			t.Errorf(".ci/run installs %q for %s, want %s", installed[program], program, pkg)
		}
	}
}
