// SPDX-License-Identifier: Apache-2.0

package bundleflag

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

var two = bundletest.File("scheduler: {replicas: 5}")

// The same text is read from a file and from standard input; errors name the source.
func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.yaml")
	if err := os.WriteFile(file, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, "-"} {
		b, err := Load(name, strings.NewReader(two), io.Discard)
		if err != nil || b.Scheduler.Replicas == nil || *b.Scheduler.Replicas != 5 {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
	if b, err := Load("", strings.NewReader(two), io.Discard); err != nil || *b.Scheduler.Replicas == 5 {
		t.Errorf("without a name standard input is read: %v", err)
	}
	for name, want := range map[string]string{"-": "--filename -: ", file + ".missing": "--filename: open " + file} {
		if _, err := Load(name, strings.NewReader("kind: ["), io.Discard); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// A file of the deprecated version is read as before, with a warning that names the file
// and the version to use; a current one has none.
func TestWarning(t *testing.T) {
	for text, want := range map[string]string{
		bundletest.Old("konnectivity: {agentPort: 9132}"):                  "Warning: --filename -: fairlead.dev/v1alpha1 Bundle is deprecated; use fairlead.dev/v1beta1 Bundle\n",
		bundletest.File("konnectivity: {serverAddresses: [{port: 9132}]}"): "",
	} {
		var errOut strings.Builder
		b, err := Load("-", strings.NewReader(text), &errOut)
		if err != nil || b.Konnectivity.AgentPort != 9132 || errOut.String() != want {
			t.Errorf("%s: %+v, %v, %q, want %q", text, b, err, errOut.String(), want)
		}
	}
}

// A value that is there before is the default, and the help says what no value means.
func TestAdd(t *testing.T) {
	file := "before"
	f := pflag.NewFlagSet("x", pflag.ContinueOnError)
	Add(f, &file, "what is there")
	if usage := f.Lookup("filename").Usage; file != "before" || !strings.Contains(usage, "default: what is there") || !strings.Contains(usage, `"-"`) {
		t.Errorf("%q, %q", file, usage)
	}
	if err := f.Parse([]string{"-f", "-"}); err != nil || file != "-" {
		t.Errorf("%q, %v", file, err)
	}
}
