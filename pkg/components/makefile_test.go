// SPDX-License-Identifier: Apache-2.0

package components_test

import (
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/pkg/components"
)

const repository = "../../"

// stage is one target of the Dockerfile.
type stage struct {
	From, User, Entrypoint string
	Copies                 map[string]string // from the build context to the image
}

// Every program has an image: static, from scratch, as non-root except for the server, which reads keys with mode 0600
// that belong to root, and with the binary at the path that the replaced image uses.
// It observes SCHED-02 of docs/requirements.md.
// It also observes KON-32, KON-47 and KON-62 of docs/requirements.md.
// It also observes OLD-07 and OLD-20 of docs/requirements.md.
func TestDockerfile(t *testing.T) {
	const nonRoot = "65532:65532"
	image := func(program, binary, user string) stage {
		return stage{
			From: "scratch", User: user, Entrypoint: `["` + binary + `"]`,
			Copies: map[string]string{path.Join("bin", program): binary},
		}
	}
	want := map[string]stage{
		"fairlead":            image("fairlead", "/fairlead", nonRoot),
		"fairlead-scheduler":  image("fairlead-scheduler", "/usr/local/bin/kube-scheduler", nonRoot),
		"konnectivity-server": image("konnectivity-server", "/proxy-server", "0:0"),
		"konnectivity-agent":  image("konnectivity-agent", "/proxy-agent", nonRoot),
		"fairlead-apiserver":  image("fairlead-apiserver", "/fairlead-apiserver", nonRoot),
		"fairlead-operator":   image("fairlead-operator", "/fairlead-operator", nonRoot),
	}
	got := stages(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Dockerfile's targets (-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(repository + "cmd")
	if err != nil {
		t.Fatal(err)
	}
	// What `make images` makes is compared with the Dockerfile in pkg/imagetar.
	for _, entry := range entries {
		if _, ok := got[entry.Name()]; !ok {
			t.Errorf("cmd/%s has no target in the Dockerfile", entry.Name())
		}
	}
}

// The Makefile and the components stamp Kubernetes' version in the same way.
func TestMakefileStampsVersions(t *testing.T) {
	tool, err := exec.LookPath("make")
	if err != nil {
		t.Skip("make is not installed")
	}
	cmd := exec.CommandContext(t.Context(), tool, "-n", "build", "VERSION=v1.2.3")
	cmd.Dir = repository
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make -n build: %v\n%s", err, out)
	}
	want := strings.Split(components.KubernetesLDFlags(components.KubernetesVersion()), "-X ")[1:]
	for _, flag := range append(want, "github.com/fairlead-dev/fairlead/pkg/internal/version.version=v1.2.3") {
		if flag := "-X " + strings.TrimSpace(flag); !strings.Contains(string(out), flag+" ") && !strings.Contains(string(out), flag+"'") {
			t.Errorf("make build does not pass %q:\n%s", flag, out)
		}
	}
}

// make help lists every target that has a description.
func TestMakeHelp(t *testing.T) {
	tool, err := exec.LookPath("make")
	if err != nil {
		t.Skip("make is not installed")
	}
	cmd := exec.CommandContext(t.Context(), tool, "help")
	cmd.Dir = repository
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make help: %v\n%s", err, out)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if target, description, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			listed[target] = strings.TrimSpace(description)
		}
	}
	described := 0
	for line := range strings.Lines(read(t, "Makefile")) {
		rule, description, ok := strings.Cut(strings.TrimSpace(line), " ## ")
		if !ok || strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "#") {
			continue
		}
		described++
		target, _, _ := strings.Cut(rule, ":")
		if listed[target] != description {
			t.Errorf("make help says of %s %q, want %q", target, listed[target], description)
		}
	}
	if described < 40 {
		t.Errorf("found only %d targets with a description", described)
	}
}

// Go's build cache is shared only between builds with equal flags.
func TestMakefileBuildsWithTheComponentsFlags(t *testing.T) {
	makefile := read(t, "Makefile")
	var shared []string
	for _, flag := range components.Flags() {
		if flag != "-mod=readonly" { // Go's default; it does not change what is compiled
			shared = append(shared, flag)
		}
	}
	for _, want := range []string{"export GOFLAGS := " + strings.Join(shared, " ") + "\n", "export CGO_ENABLED := 0\n"} {
		if !strings.Contains(makefile, want) {
			t.Errorf("the Makefile lacks %q", want)
		}
	}
}

func stages(t *testing.T) map[string]stage {
	t.Helper()
	found := map[string]stage{}
	name := ""
	for line := range strings.Lines(read(t, "Dockerfile")) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		s := found[name]
		switch keyword := fields[0]; {
		case keyword == "FROM" && len(fields) == 4 && fields[2] == "AS":
			name, s = fields[3], stage{From: fields[1], Copies: map[string]string{}}
		case keyword == "COPY" && len(fields) == 3:
			s.Copies[fields[1]] = fields[2]
		case keyword == "USER":
			s.User = fields[1]
		case keyword == "ENTRYPOINT":
			s.Entrypoint = strings.Join(fields[1:], " ")
		default:
			t.Fatalf("this test does not understand the line %q", line)
		}
		found[name] = s
	}
	return found
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(repository + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
