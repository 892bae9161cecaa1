// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/e2e/harness/promtest"
	"github.com/fairlead-dev/fairlead/pkg/monitoring"
	"github.com/fairlead-dev/fairlead/pkg/observe/overview"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// TestUpstream checks that what observes a cluster works with upstream's konnectivity-server and agents, which were set up
// by the steps of the Kubernetes documentation, and with nothing of Fairlead: check, status, sysdump, alerts and dashboards.
func TestUpstream(t *testing.T) {
	t.Parallel() // after all others, which are not parallel, in any order: upstream's programs stay
	suite.Steps(t, "upstream's programs",
		harness.Step{Name: "calls pass the tunnel", Do: func(ctx context.Context, t *testing.T) {
			wantNoServer(ctx, t)
			installUpstream(ctx, t)
			dials(ctx, t)
			wantCalls(ctx, t)
			shown(ctx, t)
		}},
		harness.Step{Name: "check", Do: checkUpstream},
		harness.Step{Name: "status", Do: func(ctx context.Context, t *testing.T) {
			o := statusNow(ctx, t, 0)
			if want := (overview.Ratio{Ready: 1, All: 1}); o.Tunnel.Servers != want || o.Tunnel.Agents != (overview.Ratio{Ready: 2, All: 2}) {
				t.Errorf("servers %v, agents %v, want 1 of 1 and 2 of 2", o.Tunnel.Servers, o.Tunnel.Agents)
			}
			if len(o.Tunnel.Each) != 1 || o.Tunnel.Each[0].Agents == nil || *o.Tunnel.Each[0].Agents != 2 || o.Tunnel.Each[0].Dials == nil || o.Tunnel.Each[0].Dials.All == 0 {
				t.Errorf("the servers are %+v, want one with 2 agents and with dials", o.Tunnel.Each)
			}
		}},
		harness.Step{Name: "sysdump", Do: sysdumpUpstream},
		harness.Step{Name: "Prometheus", Do: scrapeUpstream},
		harness.Step{Name: "without agents", Do: func(ctx context.Context, t *testing.T) {
			const nowhere = `{"spec":{"template":{"spec":{"nodeSelector":{"e2e.fairlead.dev/nowhere":""}}}}}`
			if _, err := suite.Client.AppsV1().DaemonSets(metav1.NamespaceSystem).Patch(ctx, "konnectivity-agent", types.StrategicMergePatchType, []byte(nowhere), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			err := harness.Wait(ctx, time.Minute, "the agents to be gone", func(ctx context.Context) error {
				pods, err := suite.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-agent"})
				if err == nil && len(pods.Items) > 0 {
					err = fmt.Errorf("there are %d", len(pods.Items))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if o := statusNow(ctx, t, 1); o.Healthy || len(o.Problems) == 0 {
				t.Errorf("status finds nothing wrong: %+v", o)
			}
			if failed := checks(ctx, t, 1)[rules.Failed]; !slices.ContainsFunc(failed, func(id string) bool { return strings.HasPrefix(id, "FL-KON-") }) {
				t.Errorf("%v failed, want one of the tunnel's", failed)
			}
		}},
	)
}

// installUpstream builds upstream's programs, makes images of them, and installs them.
func installUpstream(ctx context.Context, t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"server", "agent"} {
		program := filepath.Join(dir, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "sigs.k8s.io/apiserver-network-proxy/cmd/"+name)
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building upstream's %s: %v\n%s", name, err, out)
		}
		image := harness.ToolImage{Name: "registry.k8s.io/kas-network-proxy/proxy-" + name + ":" + upstreamTag, Program: program, Path: "/proxy-" + name}
		if err := suite.LoadTool(ctx, image); err != nil {
			t.Fatal(err)
		}
	}
	address, err := harness.Address(node())
	if err != nil {
		t.Fatal(err)
	}
	const kubeconfig = "kubeadm kubeconfig user --client-name=system:konnectivity-server --config=/kind/kubeadm.conf >" + serverKubeconfig
	shell(ctx, t, "mkdir -p /etc/kubernetes/konnectivity-server && umask 077 && cat >/etc/kubernetes/konnectivity-server/egress.yaml && "+kubeconfig, upstreamFile(t, "egress.yaml"))
	shell(ctx, t, "kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f -", strings.ReplaceAll(upstreamFile(t, "agents.yaml"), "SERVER", address))
	shell(ctx, t, "cat >/root/server.yaml && mv /root/server.yaml /etc/kubernetes/manifests/konnectivity-server.yaml", upstreamFile(t, "server.yaml"))
	manifest := shell(ctx, t, "cat /etc/kubernetes/manifests/kube-apiserver.yaml", "")
	shell(ctx, t, "cat >/root/apiserver.yaml && chmod 0600 /root/apiserver.yaml && mv /root/apiserver.yaml /etc/kubernetes/manifests/kube-apiserver.yaml", withEgress(t, manifest))
}

// upstreamTag is that of the images, which are made of the programs in go.mod.
const upstreamTag = "v0.36.0"

func upstreamFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/upstream", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "TAG", upstreamTag)
}

// shell runs a script on the control plane node.
func shell(ctx context.Context, t *testing.T, script, stdin string) string {
	t.Helper()
	var out, errs strings.Builder
	if err := node().CommandContext(ctx, "sh", "-ec", script).SetStdin(strings.NewReader(stdin)).SetStdout(&out).SetStderr(&errs).Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", script, err, out.String(), errs.String())
	}
	return out.String()
}

// withEgress returns kube-apiserver's manifest with the egress selector.
func withEgress(t *testing.T, manifest string) string {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.Unmarshal([]byte(manifest), &pod); err != nil {
		t.Fatal(err)
	}
	const directory = "/etc/kubernetes/konnectivity-server"
	container := &pod.Spec.Containers[0]
	container.Command = append(container.Command, "--egress-selector-config-file="+directory+"/egress.yaml")
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "konnectivity", MountPath: directory})
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "konnectivity", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory}}})
	text, err := yaml.Marshal(&pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// dials waits until kube-apiserver dials through the server.
func dials(ctx context.Context, t *testing.T) {
	t.Helper()
	err := harness.Wait(ctx, 3*time.Minute, "kube-apiserver to dial through upstream's server", func(ctx context.Context) error {
		if err := suite.NodeHealthz(ctx, suite.Nodes.Workers[0].String()); err != nil {
			return err
		}
		text, err := harness.Run(ctx, node(), "curl", "-sSf", "http://127.0.0.1:8134/metrics")
		if err == nil && !strings.Contains(text, "\nkonnectivity_network_proxy_server_dial_duration_seconds_count ") {
			err = errors.New("the server has dialed nothing")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// shown waits until the API shows what runs: the kubelet tells it later.
func shown(ctx context.Context, t *testing.T) {
	t.Helper()
	err := harness.Wait(ctx, 3*time.Minute, "the API to show all programs as ready", func(ctx context.Context) error {
		pods, err := suite.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := map[string]int{}
		for _, pod := range pods.Items {
			is := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			old := pod.Labels["component"] == "kube-apiserver" && !strings.Contains(strings.Join(pod.Spec.Containers[0].Command, " "), "--egress-selector-config-file=")
			if is && !old {
				ready[pod.Labels["component"]+pod.Labels["k8s-app"]]++
			}
		}
		if ready["kube-apiserver"] != 1 || ready["konnectivity-server"] != 1 || ready["konnectivity-agent"] != 2 {
			return fmt.Errorf("ready are %v", ready)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checks runs "fairlead check", which ends with a code, and returns the ids by result.
func checks(ctx context.Context, t *testing.T, code int) map[rules.Status][]string {
	t.Helper()
	r, err := suite.Try(ctx, "check", "--context", suite.Context(), "-o", "json")
	var report rules.Report
	if err := errors.Join(err, json.Unmarshal([]byte(r.Stdout), &report)); err != nil || r.Code != code {
		t.Fatalf("exit code %d, want %d: %v\n%s%s", r.Code, code, err, r.Stdout, r.Stderr)
	}
	results := map[rules.Status][]string{}
	for _, c := range report.Checks {
		results[c.Status] = append(results[c.Status], c.ID)
		if c.Status != rules.OK && c.Status != rules.Skipped {
			t.Logf("%s: %s %s %+v", c.ID, c.Status, c.Reason, c.Findings)
		}
	}
	return results
}

// checkUpstream wants that nothing fails, from outside and on the node, and a warning of the keepalives that upstream sends once an hour.
func checkUpstream(ctx context.Context, t *testing.T) {
	results := checks(ctx, t, 0)
	if len(results[rules.Failed]) > 0 || !slices.Contains(results[rules.Warning], "FL-KON-031") {
		t.Errorf("failed: %v, warnings: %v; want a warning of FL-KON-031 and nothing that failed", results[rules.Failed], results[rules.Warning])
	}
	for _, id := range []string{"FL-KON-001", "FL-KON-002", "FL-KON-003", "FL-KON-005"} {
		if !slices.Contains(results[rules.OK], id) {
			t.Errorf("%s is not ok", id)
		}
	}
	out := inNode(ctx, t, "check", "--kubeconfig", "/etc/kubernetes/admin.conf")
	wantTexts(t, out, "✓ FL-HST-", "! FL-KON-031")
}

// statusNow runs "fairlead status", which ends with a code.
func statusNow(ctx context.Context, t *testing.T, code int) overview.Overview {
	t.Helper()
	var shown struct{ Overview overview.Overview }
	r, err := suite.Try(ctx, "status", "--context", suite.Context(), "-o", "json")
	if err := errors.Join(err, json.Unmarshal([]byte(r.Stdout), &shown)); err != nil || r.Code != code {
		t.Fatalf("exit code %d, want %d: %v\n%s%s", r.Code, code, err, r.Stdout, r.Stderr)
	}
	return shown.Overview
}

// sysdumpUpstream wants the logs and metrics of upstream's programs.
func sysdumpUpstream(ctx context.Context, t *testing.T) {
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	here(ctx, t, "sysdump", "-o", file)
	out, err := exec.CommandContext(ctx, "tar", "-tzf", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"konnectivity-server", "konnectivity-agent"} {
		for _, kind := range []string{"logs", "metrics"} {
			if !slices.ContainsFunc(strings.Split(string(out), "\n"), func(name string) bool {
				return strings.Contains(name, "/"+kind+"/") && strings.Contains(name, part)
			}) {
				t.Errorf("there are no %s of %s:\n%s", kind, part, out)
			}
		}
	}
}

// scrapeUpstream has Prometheus scrape upstream's programs, and wants the series of upstream's that alerts and dashboards use.
func scrapeUpstream(ctx context.Context, t *testing.T) {
	promtest.Require(t)
	// Upstream's counters of failures have no series before the first failure: agents lose a server that does not say goodbye, and a dial fails.
	shell(ctx, t, `for p in /proc/[0-9]*; do if [ "$(readlink $p/exe)" = /proxy-server ]; then kill -KILL ${p#/proc/}; killed=true; fi; done; $killed`, "")
	dials(ctx, t)
	if err := suite.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces", harness.Namespace, "pods", harness.ServerName+":9", "proxy").Do(ctx).Error(); err == nil {
		t.Fatal("something listens on port 9 of the test server")
	}
	p := promtest.Start(t, promtest.RulesFile(t), upstreamJobs(t))
	if err := harness.Wait(ctx, time.Minute, "all targets to be up", func(ctx context.Context) error { return p.TargetsUp(ctx, 3) }); err != nil {
		t.Fatal(err)
	}
	none := func(string) bool { return false }
	upstreams := func(metric string) bool {
		const slowClient = "konnectivity_network_proxy_server_full_receive_channels" // absent until a client reads too slowly
		return strings.HasPrefix(metric, "konnectivity_network_proxy_") && metric != slowClient
	}
	for _, expr := range monitoring.Expressions("1m") {
		err := harness.Wait(ctx, 20*time.Second, "series", func(ctx context.Context) error { return p.CheckSelectors(ctx, expr, none, upstreams) })
		if err != nil {
			t.Errorf("%s\n\t%v", expr, err)
		}
	}
}

// upstreamJobs are the targets that Prometheus scrapes.
func upstreamJobs(t *testing.T) []promtest.Object {
	t.Helper()
	job := func(name string, targets ...string) promtest.Object {
		return promtest.Object{"job_name": name, "static_configs": []promtest.Object{{"targets": targets, "labels": promtest.Object{"cluster": "one"}}}}
	}
	var agents []string
	for _, worker := range suite.Nodes.Workers {
		address, err := harness.Address(worker)
		if err != nil {
			t.Fatal(err)
		}
		agents = append(agents, address+":8134")
	}
	server, err := harness.Address(node())
	if err != nil {
		t.Fatal(err)
	}
	return []promtest.Object{job("konnectivity-server", server+":8134"), job("konnectivity-agent", agents...)}
}
