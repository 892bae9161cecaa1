// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

// The list is what the rendered workloads and static Pods name.
func TestListIsWhatIsRendered(t *testing.T) {
	for name, config := range map[string]string{
		"default":        "",
		"own images":     "scheduler: {image: 'r.example.com/s:1'}\nkonnectivity: {server: {image: 'r.example.com/k:1', form: DaemonSet}, agent: {image: 'r.example.com/k:1'}}\n",
		"scheduler only": "konnectivity: {enabled: false}\n",
	} {
		t.Run(name, func(t *testing.T) {
			b, err := bundle.Load([]byte(bundletest.File(config)))
			if err != nil {
				t.Fatal(err)
			}
			out, err := bundle.Render(b)
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			for _, object := range out.Objects {
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
				if err != nil {
					t.Fatal(err)
				}
				collect(&text, content)
			}
			for _, f := range append(out.HostFiles, out.SchedulerFiles...) {
				if strings.Contains(string(f.Data), "kind: Pod") {
					text.Write(f.Data)
				}
			}
			var want []string
			for _, m := range regexp.MustCompile(`(?m)^\s*image: (\S+)$`).FindAllStringSubmatch(text.String(), -1) {
				want = append(want, m[1])
			}
			slices.Sort(want)
			want = slices.Compact(want)
			if got := bundle.Images(b); !slices.Equal(got, want) {
				t.Errorf("List = %v, rendered are %v", got, want)
			}
		})
	}
}

// collect writes "image: X" for every container image in an object.
func collect(out *bytes.Buffer, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if image, ok := value.(string); ok && key == "image" {
				out.WriteString("image: " + image + "\n")
			}
			collect(out, value)
		}
	case []any:
		for _, item := range v {
			collect(out, item)
		}
	}
}

func TestCommand(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := NewCommand(streams)
	cmd.SetArgs(nil)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.String()); len(got) != 3 {
		t.Errorf("images = %v, want three", got)
	}
	missing := filepath.Join(t.TempDir(), "none.yaml")
	cmd.SetArgs([]string{"-f", missing})
	cmd.SetErr(&bytes.Buffer{})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Error("the file was made")
	}
}
