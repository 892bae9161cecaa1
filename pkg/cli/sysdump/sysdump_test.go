// SPDX-License-Identifier: Apache-2.0

package sysdump

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/checkcmd"
)

// TestWrongUsage proves that wrong flags and an existing file end with exit code 2 and name the flag, before anything is read.
func TestWrongUsage(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"users":[{"name":"u","user":{}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--timeout":                         {"--timeout", "0s"},
		"--max-size":                        {"--max-size", "0"},
		"--log-size":                        {"--log-size", "much"},
		"--agents":                          {"--agents", "-1"},
		"--output " + config:                {"-o", config},
		"kubeconfig " + config + ".missing": {"--kubeconfig", config + ".missing"},
	} {
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		cmd := NewCommand(streams, nil)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"--kubeconfig", config}, args...))
		begin := time.Now()
		err := cmd.ExecuteContext(t.Context())
		var code *checkcmd.Error
		if !errors.As(err, &code) || code.Code != 2 || !strings.Contains(err.Error(), strings.Fields(want)[0]) {
			t.Errorf("%v: %v", args, err)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%v took %s", args, took)
		}
	}
	if data, err := os.ReadFile(config); err != nil || string(data) != text {
		t.Errorf("the existing file has changed: %v", err)
	}
}

// TestToFile proves that a file is there whole and for its owner alone, or not at all, and that nothing else is left.
func TestToFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x.tar.gz")
	broken := errors.New("broken")
	if err := toFile(name, func(w io.Writer) error { _, _ = w.Write([]byte("half")); return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := toFile(name, func(w io.Writer) error { _, err := w.Write([]byte("whole")); return err }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 5 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := toFile(name, func(io.Writer) error { t.Error("it is written again"); return nil }); err == nil {
		t.Error("an existing file is replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestPlace proves that an archive gets its name on a file system without hard links, that it replaces no file on any, and that it is not lost if it
// cannot have the name.
func TestPlace(t *testing.T) {
	linkless := func(from, to string) error { return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EPERM} }
	for what, link := range map[string]func(string, string) error{"links": os.Link, "no links": linkless} {
		dir := t.TempDir()
		part, name := filepath.Join(dir, "part"), filepath.Join(dir, "x.tar.gz")
		if err := os.WriteFile(part, []byte("whole"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := place(part, name, link); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 5 {
			t.Errorf("%s: %v, %v", what, info, err)
		}
		if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte("another"), 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := place(part, name, link); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", what, err)
		}
		if data, err := os.ReadFile(name); err != nil || string(data) != "another" {
			t.Errorf("%s: an existing file has %q, %v", what, data, err)
		}
	}
	name := filepath.Join(t.TempDir(), "x.tar.gz")
	err := toFile(name, func(w io.Writer) error {
		_, err := w.Write([]byte("whole"))
		return errors.Join(err, os.WriteFile(name, []byte("another"), 0o600))
	})
	if err == nil || !strings.Contains(err.Error(), "the archive is in ") {
		t.Fatalf("a file of the name appears meanwhile: %v", err)
	}
	_, part, _ := strings.Cut(err.Error(), "the archive is in ")
	if data, err := os.ReadFile(part); err != nil || string(data) != "whole" {
		t.Errorf("the archive has %q, %v", data, err)
	}
	if data, err := os.ReadFile(name); err != nil || string(data) != "another" {
		t.Errorf("the other file has %q, %v", data, err)
	}
}
