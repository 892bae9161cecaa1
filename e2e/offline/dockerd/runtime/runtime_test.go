// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What dockerd hands to runc for a privileged container, cut down to one of each kind.
const bundle = `{
 "ociVersion": "1.0.2", "hostname": "x", "unknown": {"large": 9007199254740993},
 "process": {
  "args": ["/bin/sh"], "oomScoreAdj": -999, "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 2097152, "soft": 1048576}],
  "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "effective": ["CAP_SYS_RESOURCE"], "inheritable": null}
 }}`

func TestStripBundle(t *testing.T) {
	got, err := StripBundle([]byte(bundle))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"ociVersion":"1.0.2","hostname":"x","unknown":{"large": 9007199254740993},
		"process":{"args":["/bin/sh"],"capabilities":{"bounding":["CAP_CHOWN"],"effective":[],"inheritable":[]}}}`
	if diff := cmp.Diff(generic(t, want), generic(t, string(got))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !strings.Contains(string(got), "9007199254740993") {
		t.Errorf("a large number was rounded: %s", got)
	}
}

func generic(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestStripProcess(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"nothing to do":       {`{"args":["a"]}`, `{"args":["a"]}`},
		"positive score":      {`{"oomScoreAdj":1000}`, `{"oomScoreAdj":1000}`},
		"negative score":      {`{"oomScoreAdj":-1}`, `{}`},
		"no capabilities":     {`{"capabilities":null}`, `{"capabilities":null}`},
		"others are kept":     {`{"capabilities":{"ambient":["CAP_SYS_ADMIN"]}}`, `{"capabilities":{"ambient":["CAP_SYS_ADMIN"]}}`},
		"rlimits of any kind": {`{"rlimits":[{"type":"RLIMIT_CORE","hard":1,"soft":1}]}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := StripProcess([]byte(tc.in))
			if err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}

func TestNoSpec(t *testing.T) {
	for _, in := range []string{"", "null", "[]", `"x"`, "{"} {
		if got, err := StripBundle([]byte(in)); err == nil {
			t.Errorf("%q was taken for a config.json: %s", in, got)
		}
	}
	for _, in := range []string{`{"process":7}`, `{"process":{"oomScoreAdj":"low"}}`, `{"process":{"capabilities":["CAP_CHOWN"]}}`} {
		if got, err := StripBundle([]byte(in)); err == nil {
			t.Errorf("%s was taken for a config.json: %s", in, got)
		}
	}
}

func TestLacks(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nCapBnd:\t000001fffeffffff\n": true,
		"Name:\tx\nCapBnd:\t000001ffffffffff\n": false,
		"CapBnd:\t00000000a80425fb\n":           true, // of an ordinary container
	} {
		if got, err := lacks(status); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", status, got, err, want)
		}
	}
	if _, err := lacks("Name:\tx\n"); err == nil {
		t.Error("a status without CapBnd: no error")
	}
}

// The wrapper runs as dockerd and containerd's shim run it: the test program under its name, with a runc in PATH.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == Name {
		fmt.Fprintln(os.Stderr, Main(os.Args))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func TestBecomesRunc(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		file string
		kept bool // the file is left alone
	}{
		"create":           {args: []string{"--root", "/r", "--log=/l", "create", "--bundle", "DIR", "--pid-file", "p", "id"}, file: "config.json"},
		"create, equals":   {args: []string{"create", "--bundle=DIR", "id"}, file: "config.json"},
		"run, short":       {args: []string{"run", "-b", "DIR", "id"}, file: "config.json"},
		"exec":             {args: []string{"--root", "/r", "exec", "--process", "DIR/process.json", "id"}, file: "process.json"},
		"start":            {args: []string{"start", "id"}, file: "config.json", kept: true},
		"exec without":     {args: []string{"exec", "id", "ls"}, file: "process.json", kept: true},
		"a name like exec": {args: []string{"delete", "run"}, file: "config.json", kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			content := bundle
			if tc.file == "process.json" {
				content = `{"oomScoreAdj":-999}`
			}
			write(t, filepath.Join(dir, tc.file), content, 0o600)
			for i := range tc.args {
				tc.args[i] = strings.ReplaceAll(tc.args[i], "DIR", dir)
			}
			out := call(t, tc.args...)
			if want := strings.Join(tc.args, "\n") + "\n"; out != want {
				t.Errorf("runc was called with\n%swant\n%s", out, want)
			}
			data, err := os.ReadFile(filepath.Join(dir, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			if stripped := !strings.Contains(string(data), "oomScoreAdj"); stripped == tc.kept {
				t.Errorf("%s is now %s", tc.file, data)
			}
		})
	}
}

// call runs the wrapper with a runc that prints its arguments.
func call(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "runc"), "#!/bin/sh\nprintf '%s\\n' \"$@\"\n", 0o755)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "/some/where/" + Name
	cmd.Env = append(os.Environ(), "PATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// Podman calls its runtime with next to no environment.
func TestNoPath(t *testing.T) {
	t.Setenv("PATH", usualPath)
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("runc is not installed")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "--version")
	cmd.Args[0], cmd.Env = Name, []string{"XDG_RUNTIME_DIR=/run/user/0"}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "runc version") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestUnreadableBundle(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "create", "--bundle", "/nowhere", "id")
	cmd.Args[0] = Name
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/nowhere/config.json") {
		t.Errorf("%v: %s", err, out)
	}
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}
