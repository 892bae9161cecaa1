// SPDX-License-Identifier: Apache-2.0

package imagetar

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// The Dockerfile stays for those who build with Docker; both ways make the same images.
func TestDockerfileSaysTheSame(t *testing.T) {
	data, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	type image struct {
		From, Copy, User string
		Entrypoint       []string
	}
	got := map[string]image{}
	name, current := "", image{}
	for line := range strings.Lines(string(data)) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "", "#":
			continue
		case "FROM":
			current.From, name, _ = strings.Cut(rest, " AS ")
		case "COPY":
			current.Copy = rest
		case "USER":
			current.User = rest
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &current.Entrypoint); err != nil {
				t.Fatal(err)
			}
			got[name], current = current, image{} // it is the last line of each
		default:
			t.Errorf("the Dockerfile says %s, of which this package knows nothing", instruction)
		}
	}
	want := map[string]image{}
	for _, p := range programs {
		want[p.name] = image{From: "scratch", Copy: "bin/" + p.name + " " + p.path, User: p.user, Entrypoint: []string{p.path}}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("this package (-) and the Dockerfile (+):\n%s", diff)
	}
}

// The names are those that the default bundle and the operator ask for.
func TestNamesOfTheBundle(t *testing.T) {
	names := map[string]bool{}
	for _, p := range programs {
		names[repository+p.name+":"+v1alpha1.ImageTag] = true
	}
	for _, want := range []string{v1alpha1.DefaultSchedulerImage, v1alpha1.DefaultServerImage, v1alpha1.DefaultAgentImage, v1alpha1.DefaultOperatorImage} {
		if !names[want] {
			t.Errorf("no image is called %s", want)
		}
	}
}
