// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/cli/render"
)

// run executes the command line and returns its standard output.
func run(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := render.NewCommand(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut})
	cmd.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the test
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	return out.String(), err
}

// tree reads all files below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

var update = flag.Bool("update", false, "rewrite manifests/")

// TestManifests fails when manifests/ is not what the default bundle renders.
func TestManifests(t *testing.T) {
	const manifests = "../../../manifests"
	if *update {
		if _, err := run(t, "", "--output-dir", manifests); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "manifests")
	if _, err := run(t, "", "-o", "dir", "--output-dir", dir); err != nil {
		t.Fatal(err)
	}
	want := tree(t, dir)
	if len(want) < 10 {
		t.Fatalf("only %d files rendered", len(want))
	}
	if diff := cmp.Diff(want, tree(t, manifests)); diff != "" {
		t.Errorf("manifests/ has drifted (-rendered +manifests): run make manifests\n%s", diff)
	}
}

// TestExampleIsDefault keeps the commented example true: it states the defaults.
func TestExampleIsDefault(t *testing.T) {
	byExample, err := run(t, "", "-f", "../../../deploy/bundle.yaml")
	if err != nil {
		t.Fatal(err)
	}
	byDefault, err := run(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byDefault, byExample); diff != "" {
		t.Errorf("deploy/bundle.yaml is not the default bundle (-default +example):\n%s", diff)
	}
}

func TestStandardInputAndFile(t *testing.T) {
	config := bundletest.Old("scheduler: {name: batch}")
	file := write(t, filepath.Join(t.TempDir(), "bundle.yaml"), config)
	fromFile, err := run(t, "", "-f", file)
	if err != nil {
		t.Fatal(err)
	}
	fromStdin, err := run(t, config, "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	if fromFile != fromStdin || !strings.Contains(fromFile, "name: batch-config") {
		t.Errorf("the configuration was not used:\n%s", fromFile)
	}
}

// TestJSON: the list holds what the YAML stream holds, in the same order, and
// leaves out fields that only serialization adds, such as creationTimestamp and
// status.
func TestJSON(t *testing.T) {
	asJSON, err := run(t, "", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		APIVersion, Kind string
		Items            []map[string]any
	}
	if err := json.Unmarshal([]byte(asJSON), &list); err != nil {
		t.Fatal(err)
	}
	if list.APIVersion != "v1" || list.Kind != "List" {
		t.Errorf("%s %s, want a v1 List", list.APIVersion, list.Kind)
	}
	asYAML, err := run(t, "", "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	var documents []map[string]any
	for _, document := range strings.Split(asYAML, "---\n")[1:] {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		documents = append(documents, object)
	}
	if diff := cmp.Diff(documents, list.Items); diff != "" {
		t.Errorf("-yaml +json:\n%s", diff)
	}
	for _, noise := range []string{"creationTimestamp", "status:"} {
		if strings.Contains(asYAML, noise) {
			t.Errorf("the output has %s", noise)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestPrintFails: a closed pipe or a full disk behind standard output is an error.
func TestPrintFails(t *testing.T) {
	for _, format := range []string{"yaml", "json"} {
		cmd := render.NewCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: brokenPipe{}, ErrOut: io.Discard})
		cmd.SetArgs([]string{"-o", format})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.Execute(); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("-o %s: error %v", format, err)
		}
	}
}

func TestFlagErrors(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"format":          {[]string{"-o", "xml"}, `--output "xml": choose yaml, json or dir`},
		"not a directory": {[]string{"-o", "dir"}, "-o dir needs --output-dir"},
		"directory":       {[]string{"-o", "json", "--output-dir", dir}, "--output-dir needs -o dir"},
		"CA with yaml":    {[]string{"--ca-cert", "x"}, "use them with -o dir"},
		"CA alone":        {[]string{"--output-dir", dir, "--ca-cert", "x"}, "set all three or none"},
		"server":          {[]string{"--output-dir", dir, "--ca-cert", "x", "--ca-key", "y", "--server", "http://a"}, "must be an https:// URL"},
		"no CA file":      {[]string{"--output-dir", dir, "--ca-cert", dir + "/x", "--ca-key", "y", "--server", "https://a"}, "--ca-cert: open "},
		"no config file":  {[]string{"-f", dir + "/none.yaml"}, "--filename: open "},
		"arguments":       {[]string{"extra"}, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, "", tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if out != "" {
				t.Errorf("printed %q", out)
			}
			if left := tree(t, dir); len(left) > 0 {
				t.Errorf("left files: %v", left)
			}
		})
	}
}

func TestInvalidConfigurationLeavesEarlierState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	if _, err := run(t, "", "--output-dir", dir); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	bad := write(t, filepath.Join(t.TempDir(), "bad.yaml"), bundletest.Old("konnectivity: {agentPort: 80}"))
	_, err := run(t, "", "--output-dir", dir, "-f", bad)
	if err == nil || !strings.HasPrefix(err.Error(), "--filename "+bad+": ") || !strings.Contains(err.Error(), "konnectivity.agentPort") {
		t.Errorf("error %v, want the file and the field", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error is not one line: %v", err)
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Errorf("earlier state changed:\n%s", diff)
	}
}

// TestHelpNamesEveryKubeadmFile: who reads only the help must not miss a file.
func TestHelpNamesEveryKubeadmFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := run(t, "", "--output-dir", dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "kubeadm"))
	if err != nil || len(entries) < 3 {
		t.Fatalf("%d entries, error %v", len(entries), err)
	}
	help := render.NewCommand(genericiooptions.NewTestIOStreamsDiscard()).Long
	for _, e := range entries {
		if !strings.Contains(help, e.Name()) {
			t.Errorf("the help says nothing of kubeadm/%s", e.Name())
		}
	}
}
