// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
)

const (
	// earlierTag is that of the images with those programs.
	earlierTag = "earlier"
	// earlierProgram is the earlier fairlead on the control plane node, where it reads earlierBundle.
	earlierProgram = "/usr/local/bin/fairlead-earlier"
	earlierBundle  = "/root/earlier.yaml"

	earlierConfig = `apiVersion: fairlead.dev/v1beta1
kind: Bundle
metadata: {name: default}
spec:
  scheduler: {image: "fairlead-dev/fairlead-scheduler:` + earlierTag + `"}
  konnectivity:
    server: {image: "fairlead-dev/konnectivity-server:` + earlierTag + `"}
    agent: {image: "fairlead-dev/konnectivity-agent:` + earlierTag + `"}
`
	// newBundle on the control plane node is the default one: its images are those of this version.
	newBundle = "/root/new.yaml"
	newConfig = "apiVersion: fairlead.dev/v1beta1\nkind: Bundle\nmetadata: {name: default}\n"
)

// TestUpgrade installs an earlier version, upgrades the installation to this one as docs/upgrade.md describes, and uninstalls it,
// while calls pass the tunnel. On one control plane node, the server's static Pod is replaced: calls that meet this are tried again.
func TestUpgrade(t *testing.T) {
	dir := os.Getenv(harness.EarlierPrograms)
	if dir == "" {
		t.Skipf("%s does not name a directory with the programs of an earlier version: use make e2e-upgrade PROVIDER=kind", harness.EarlierPrograms)
	}
	var before state
	suite.Steps(t, "upgrade",
		harness.Step{Name: "the earlier version is installed", Do: func(ctx context.Context, t *testing.T) {
			before = look(ctx, t, node())
			loadEarlier(ctx, t, dir)
			bundle := filepath.Join(t.TempDir(), "earlier.yaml")
			if err := os.WriteFile(bundle, []byte(earlierConfig), 0o600); err != nil {
				t.Fatal(err)
			}
			shell(ctx, t, earlierProgram+" controlplane install --server-only -f "+earlierBundle, "")
			cmd, stdout, stderr := suite.Program(ctx, filepath.Join(dir, "fairlead"), "install", "-f", bundle, "--context", suite.Context())
			if err := cmd.Run(); err != nil {
				t.Fatalf("install of the earlier version: %v\n%s%s", err, stdout, stderr)
			}
			shell(ctx, t, earlierProgram+" controlplane install -f "+earlierBundle, "")
			wantCalls(ctx, t)
			if tags := imagesInUse(ctx, t); tags[earlierTag] != 5 || len(tags) != 1 {
				t.Errorf("images by tag: %v, want those of a server, two agents and two schedulers with the tag %q", tags, earlierTag)
			}
		}},
		harness.Step{Name: "it is upgraded under load", Do: func(ctx context.Context, t *testing.T) {
			loads, failed := map[string]*harness.Load{}, map[string]*atomic.Int64{}
			for name, call := range suite.Calls() {
				failed[name] = &atomic.Int64{}
				loads[name] = harness.StartLoad(ctx, 2, harness.UntilItWorks(failed[name], call))
			}
			time.Sleep(2 * time.Second) // the load before anything happens
			inNode(ctx, t, "controlplane", "install", "-f", newBundle)
			here(ctx, t, "install")
			time.Sleep(5 * time.Second) // the load after it
			worst := time.Duration(0)
			for name, load := range loads {
				d := load.Stop()
				worst = max(worst, d.Max)
				t.Logf("%s: %s; %d attempts failed", name, d, failed[name].Load())
				if d.Failed > 0 || d.Made < 20 {
					t.Errorf("%s: want that each of at least 20 calls succeeds at last: %s", name, d)
				}
			}
			tunneltest.Unavailable(t, worst)
			onlyThisVersion(ctx, t)
		}},
		harness.Step{Name: "all checks pass", Do: func(ctx context.Context, t *testing.T) {
			here(ctx, t, "verify", "--image", nodeimage.PodImage)
			wantNoNamespaces(ctx, t)
		}},
		harness.Step{Name: "it goes without a trace", Do: func(ctx context.Context, t *testing.T) {
			inNode(ctx, t, "controlplane", "uninstall")
			here(ctx, t, "uninstall", "--yes")
			wantNoServer(ctx, t)
			before.wantEqual(t, look(ctx, t, node()))
			wantCalls(ctx, t)
		}},
	)
}

// loadEarlier gives the earlier programs to the nodes, as images with a tag of their own, and the earlier fairlead to the control plane node.
func loadEarlier(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	earlier := &harness.Cluster{Home: &harness.Home{Bin: dir}, Nodes: suite.Nodes}
	if err := earlier.LoadProject(); err != nil { // under the tag of this version
		t.Fatal(err)
	}
	for _, n := range suite.Nodes.All() {
		for _, name := range imagetar.ProjectNames() {
			repository := name[:strings.LastIndex(name, ":")]
			if out, err := harness.Run(ctx, n, "ctr", "--namespace=k8s.io", "images", "tag", "--force", name, repository+":"+earlierTag); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	}
	if err := suite.LoadProject(); err != nil {
		t.Fatal(err)
	}
	program, err := os.Open(filepath.Join(dir, "fairlead"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if err := node().CommandContext(ctx, "sh", "-c", "cat >"+earlierProgram+" && chmod 0755 "+earlierProgram).SetStdin(program).Run(); err != nil {
		t.Fatal(err)
	}
	shell(ctx, t, "cat >"+earlierBundle, earlierConfig)
	shell(ctx, t, "cat >"+newBundle, newConfig)
}

// imagesInUse counts the containers of the bundle's Pods by the tag of their image.
func imagesInUse(ctx context.Context, t *testing.T) map[string]int {
	t.Helper()
	pods, err := suite.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tags, of := map[string]int{}, map[string]bool{}
	for _, name := range imagetar.ProjectNames() {
		repository, _, _ := strings.Cut(strings.TrimPrefix(name, "docker.io/"), ":")
		of[repository] = true
	}
	for _, pod := range pods.Items {
		for _, c := range pod.Spec.Containers {
			repository, tag, _ := strings.Cut(c.Image, ":")
			if of[repository] && pod.DeletionTimestamp == nil {
				tags[tag]++
			}
		}
	}
	return tags
}

// onlyThisVersion waits until the API shows no Pod with an image of the earlier version.
func onlyThisVersion(ctx context.Context, t *testing.T) {
	t.Helper()
	err := harness.Wait(ctx, time.Minute, "all Pods to have images of this version", func(ctx context.Context) error {
		if tags := imagesInUse(ctx, t); tags[earlierTag] > 0 || len(tags) != 1 {
			return fmt.Errorf("images by tag: %v", tags)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// wantNoNamespaces waits until the namespaces of verify are gone, which the namespace controller deletes later.
func wantNoNamespaces(ctx context.Context, t *testing.T) {
	t.Helper()
	err := harness.Wait(ctx, 2*time.Minute, "the namespaces of verify to be gone", func(ctx context.Context) error {
		list, err := suite.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range list.Items {
			if strings.HasPrefix(n.Name, "fairlead-verify-") {
				return fmt.Errorf("%s is %s", n.Name, n.Status.Phase)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
