// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"os"
	"os/exec"
	"testing"
)

// Packages are the Debian packages of the programs that [Program] finds. CI installs them.
var Packages = map[string]string{
	"curl":    "curl",
	"nc":      "netcat-openbsd",
	"openssl": "openssl",
	"ssh":     "openssh-client",
	"jq":      "jq",
	"sshd":    "openssh-server",
}

// Program returns the path of a program of this machine that is the client or server of a test.
// Where it is missing, the test is skipped, but in CI, where the variable CI is set, it fails:
// a skipped test proves nothing.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, missing := findProgram(name, os.Getenv("CI") != "")
	if path != "" {
		return path
	}
	if missing.fatal {
		t.Fatal(missing.text)
	}
	t.Skip(missing.text)
	return ""
}

// missing is what a test does without a program.
type missing struct {
	text  string
	fatal bool
}

func findProgram(name string, ci bool) (string, missing) {
	pkg, known := Packages[name]
	if !known {
		return "", missing{name + " is not in daemontest.Packages: add it there and to .ci/run", true}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, missing{}
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} { // not in the PATH of ordinary users
		if path, err := exec.LookPath(dir + name); err == nil {
			return path, missing{}
		}
	}
	text := name + " is not installed: install the Debian package " + pkg
	if ci {
		return "", missing{text, true}
	}
	return "", missing{"SKIPPED: " + text + ": nothing is proven about it", false}
}
