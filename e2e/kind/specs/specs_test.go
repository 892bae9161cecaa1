// SPDX-License-Identifier: Apache-2.0

// Package specs_test runs specs of Kubernetes' own e2e suite on a kind cluster whose control plane reaches nodes, Pods and Services
// through the tunnel alone. "kubectl proxy" of the specs is "fairlead proxy". "make e2e-kubernetes" builds the programs and runs it.
package specs_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
)

// programs is the directory with e2e.test, agnhost and its files, and sample-apiserver.
var programs = os.Getenv("FAIRLEAD_E2E_KUBERNETES")

var suite = harness.New(harness.Options{Name: harness.ClusterName("specs"), Only: harness.Kind, Workers: 2, Bundle: "tunnelAPI: {enabled: true}"}, prepare)

func TestMain(m *testing.M) {
	if programs == "" {
		fmt.Fprintln(os.Stderr, "specs of Kubernetes are not run: make e2e-kubernetes does that")
		return
	}
	os.Exit(suite.Main(m))
}

// areas are the specs by what they prove about Fairlead, with the number that must run: a renamed spec fails the test.
var areas = []struct {
	name, focus string
	specs       int
}{
	{"webhooks", `AdmissionWebhook \[Privileged:ClusterAdmin\]`, 22},
	{"conversion webhooks", `CustomResourceConversionWebhook`, 2},
	{"custom resources", `CustomResourceDefinition resources|CustomResourcePublishOpenAPI|CustomResourceDefinition Watch|CustomResourceFieldSelectors|CustomResourceValidationRules|FieldValidation`, 30},
	{"aggregation", `Aggregator Should be able to support|AggregatedDiscovery`, 5},
	{"kubectl proxy", `Kubectl client Proxy server`, 2},
	{"kubectl", `Kubectl client (Simple pod should|Kubectl copy)`, 11}, // "exec through an HTTP proxy" skips itself: the API server is on loopback
	{"port-forward", `Kubectl Port forwarding`, 10},
	{"proxy", `Proxy version v1`, 5},
}

// images are what the specs run. The specs name them with upstream's registry.
func images(ctx context.Context, busybox, printenv string) ([]harness.ToolImage, error) {
	etcd, err := binaries.Components(ctx, binaries.Options{}, []string{"etcd"}, nil)
	if err != nil {
		return nil, err
	}
	const specs = "registry.k8s.io/e2e-test-images/"
	list := []harness.ToolImage{
		{Name: specs + "agnhost:2.63.0", Program: filepath.Join(programs, "agnhost"), Path: "/agnhost", Cmd: []string{"pause"}, Busybox: busybox,
			Files: map[string]string{"/localhost.crt": filepath.Join(programs, "localhost.crt"), "/localhost.key": filepath.Join(programs, "localhost.key"),
				"/bin/printenv": printenv}},
		{Name: specs + "sample-apiserver:1.29.2", Program: filepath.Join(programs, "sample-apiserver"), Path: "/kube-sample-apiserver"},
		{Name: specs + "busybox:1.37.0-1", Busybox: busybox},
		{Name: "registry.k8s.io/etcd:3.6.8-0", Program: etcd["etcd"], Path: "/usr/local/bin/etcd", Busybox: busybox},
	}
	wanted, err := exec.CommandContext(ctx, filepath.Join(programs, "e2e.test"), "--list-images").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the images of the specs: %w", err)
	}
	for _, image := range list {
		if !strings.Contains(string(wanted), image.Name+"\n") {
			return nil, fmt.Errorf("the specs do not use image %s: change its tag here to that of e2e.test --list-images", image.Name)
		}
	}
	return list, nil
}

// prepare gives the nodes the images of the specs.
func prepare(ctx context.Context, c *harness.Cluster) error {
	busybox := filepath.Join(c.Dir, "busybox")
	var data bytes.Buffer
	if err := c.Nodes.ControlPlanes[0].CommandContext(ctx, "sh", "-c", "cat $(command -v busybox)").SetStdout(&data).Run(); err != nil {
		return fmt.Errorf("reading busybox of the node image: %w", err)
	}
	if err := os.WriteFile(busybox, data.Bytes(), 0o755); err != nil { //nolint:gosec // a program
		return err
	}
	// Upstream's image has this command, and Debian's busybox does not.
	printenv := filepath.Join(c.Dir, "printenv")
	if err := os.WriteFile(printenv, []byte("#!/bin/sh\n"+`for name; do eval "echo \"\$$name\""; done`+"\n"), 0o755); err != nil { //nolint:gosec // a program
		return err
	}
	list, err := images(ctx, busybox, printenv)
	if err != nil {
		return err
	}
	for _, image := range list {
		if err := c.LoadTool(ctx, image); err != nil {
			return err
		}
	}
	_, err = c.StartServer(ctx) // for the firewall, which proves itself with it
	return err
}

// kubectl makes a kubectl whose command proxy is that of fairlead.
func kubectl(ctx context.Context, t *testing.T) string {
	t.Helper()
	path, err := suite.BuildKubectl(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// One spec copies its kubectl into a Pod: that is the real one.
	const script = `#!/bin/sh
for a; do
  shift
  [ "$a" = "$0" ] && a=%[1]s
  [ "$a" = proxy ] && proxy=true
  set -- "$@" "$a"
done
[ -z "$proxy" ] && exec %[1]s "$@"
for a; do
  shift
  case "$a" in proxy | --namespace=*) ;; *) set -- "$@" "$a" ;; esac
done
exec %[2]s proxy "$@"
`
	file := filepath.Join(t.TempDir(), "kubectl")
	if err := os.WriteFile(file, fmt.Appendf(nil, script, path, filepath.Join(suite.Bin, "fairlead")), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return file
}

// TestSpecs runs Kubernetes' own specs on a kind cluster.
// It observes CRD-100, CRD-101, CRD-102, CRD-103, CRD-119, CRD-120, CRD-121, CRD-122, CRD-130, CRD-141, CRD-142, CRD-150, CRD-151, CRD-152,
// CRD-170, CRD-171 and VER-60 of docs/requirements.md.
func TestSpecs(t *testing.T) {
	ctx := t.Context()
	firewall, err := suite.RaiseFirewall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tool := kubectl(ctx, t)
	t.Run("the tunnel's API before the specs", available)
	for _, area := range areas {
		t.Run(area.name, func(t *testing.T) {
			passed := 0
			for _, spec := range run(ctx, t, tool, area.focus) {
				switch {
				case spec.Status == "passed":
					passed++
				case spec.Status == "skipped":
				default:
					t.Errorf("%s: %s: %s", spec.Name, spec.Status, spec.Failure)
				}
			}
			t.Logf("%d specs passed", passed)
			if passed < area.specs {
				t.Errorf("%d specs passed, want %d", passed, area.specs)
			}
		})
	}
	t.Run("the tunnel's API after the specs", available)
	if err := firewall.Tight(); err != nil {
		t.Error(err)
	}
	if err := firewall.Lower(ctx); err != nil {
		t.Error(err)
	}
}

// available fails the test unless the APIService of the tunnel's API is available, or becomes so soon: the specs run next to an
// extension API server, and do not harm it.
func available(t *testing.T) {
	client, err := aggregator.NewForConfig(suite.Config)
	if err != nil {
		t.Fatal(err)
	}
	err = harness.Wait(t.Context(), time.Minute, "the tunnel's API to be available", func(ctx context.Context) error {
		s, err := client.ApiregistrationV1().APIServices().Get(ctx, "v1alpha1.tunnel.fairlead.dev", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range s.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions: %v", s.Status.Conditions)
	})
	if err != nil {
		t.Error(err)
	}
}

// spec is what a JUnit report says of one.
type spec struct {
	Name    string `xml:"name,attr"`
	Status  string `xml:"status,attr"`
	Failure string `xml:"failure"`
}

// run runs the specs whose names match.
func run(ctx context.Context, t *testing.T, kubectl, focus string) []spec {
	t.Helper()
	report, logs := filepath.Join(t.TempDir(), "junit.xml"), filepath.Join(programs, strings.ReplaceAll(t.Name(), "/", "_")+".log")
	out, err := os.Create(logs)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd, _, _ := suite.Program(ctx, filepath.Join(programs, "e2e.test"), "--kubeconfig="+suite.Kubeconfig(), "--provider=skeleton", "--kubectl-path="+kubectl,
		"--ginkgo.focus="+focus, `--ginkgo.skip=\[Flaky\]`, "--ginkgo.no-color", "--ginkgo.timeout=40m", "--ginkgo.junit-report="+report, "--num-nodes=2", "--allowed-not-ready-nodes=0", "-test.timeout=0")
	cmd.Stdout, cmd.Stderr = out, out
	failed := cmd.Run()
	var exit *exec.ExitError
	if failed != nil && !errors.As(failed, &exit) {
		t.Fatal(failed)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("the specs made no report: %v: see %s\n%s", errors.Join(failed, err), logs, tail(out.Name()))
	}
	var parsed struct {
		Suites []struct {
			Specs []spec `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &parsed); err != nil {
		t.Fatal(err)
	}
	var specs []spec
	for _, s := range parsed.Suites {
		for _, c := range s.Specs {
			if strings.HasPrefix(c.Name, "[It]") || c.Status != "passed" && c.Status != "skipped" {
				specs = append(specs, c)
			}
		}
	}
	if failed != nil {
		t.Errorf("e2e.test: %v: see %s", failed, logs)
	}
	return specs
}

// tail is the end of a log.
func tail(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 4000
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-most), io.SeekStart)
	}
	data, _ := io.ReadAll(f)
	return string(data)
}
