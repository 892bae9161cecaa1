// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kubeadmscheme "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/scheme"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/config/strict"
	"k8s.io/utils/ptr"
	kindv1alpha4 "sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// newTestPlan returns the plan of a cluster of three control plane nodes and two workers
// on a machine that lacks everything that fairlead can compensate for.
func newTestPlan(t *testing.T, config string) *plan {
	t.Helper()
	given, err := bundle.Load([]byte(bundletest.File(config)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := completeBundle(given, 3)
	if err != nil {
		t.Fatal(err)
	}
	home, err := cluster.NewHome(t.TempDir(), "dev")
	if err != nil {
		t.Fatal(err)
	}
	return &plan{
		Home: home, bundle: b, facts: facts{version: "v1.36.3", cgroupV1: true},
		state: State{
			Record: cluster.Record{Name: "dev", Nodes: 5}, ControlPlanes: 3, Workers: 2, Image: "node:v1", Port: 20000, OwnPodNetwork: true,
		},
	}
}

// fakeRuntime replaces PATH by a directory with nothing but a docker command, which is
// this shell script.
func fakeRuntime(t *testing.T, script string) { fakeCommand(t, "docker", script) }

// fakeCommand replaces PATH by a directory with nothing but this container runtime
// command, which is this shell script.
func fakeCommand(t *testing.T, command, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, command), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	t.Setenv(runtimeVariable, "")
}

// everyRuntime runs a test with each container runtime that kind supports.
func everyRuntime(t *testing.T, test func(t *testing.T, command string)) {
	t.Helper()
	for _, command := range []string{"docker", "podman", "nerdctl"} {
		t.Run(command, func(t *testing.T) { test(t, command) })
	}
}

// kind's own strict loader reads the configuration, and its own validation accepts it.
// kind creates its network only after both, so this docker stops there.
// It observes KON-86 of docs/requirements.md.
func TestKindReadsTheConfiguration(t *testing.T) {
	fakeRuntime(t, `case "$1" in
info) echo '{"CgroupVersion": "2", "MemoryLimit": true, "PidsLimit": true, "CPUShares": true}' ;;
ps | inspect) ;;
*) exit 1 ;;
esac
`)
	for name, config := range map[string]string{"default": "", "no tunnel": "konnectivity: {enabled: false}"} {
		t.Run(name, func(t *testing.T) {
			p := newTestPlan(t, config)
			data, err := p.configYAML()
			if err != nil {
				t.Fatal(err)
			}
			library := kindcluster.NewProvider(kindcluster.ProviderWithDocker())
			create := func(data []byte) error {
				return library.Create("x", kindcluster.CreateWithRawConfig(data), kindcluster.CreateWithRetain(true))
			}
			if err := create(append(data, "surprise: true\n"...)); err == nil || !strings.Contains(err.Error(), "surprise") {
				t.Fatalf("kind's loader is not strict: %v", err)
			}
			if err := create(data); err == nil || !strings.Contains(err.Error(), "failed to ensure docker network") {
				t.Errorf("kind refuses the configuration: %v\n%s", err, data)
			}
		})
	}
}

// Everything that the nodes mount exists once the material is written, and other users of
// this machine can read none of it.
// It observes KON-86 of docs/requirements.md.
func TestMountsExistAndArePrivate(t *testing.T) {
	p := newTestPlan(t, "")
	if err := p.Claim(cluster.Kind); err != nil {
		t.Fatal(err)
	}
	if _, err := p.writeMaterial(time.Now()); err != nil {
		t.Fatal(err)
	}
	c, err := p.config()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Nodes) != 5 {
		t.Fatalf("%d nodes", len(c.Nodes))
	}
	for i, n := range c.Nodes {
		hasCA := false
		for _, m := range n.ExtraMounts {
			if _, err := os.Stat(m.HostPath); err != nil {
				t.Errorf("node %d mounts %v", i, err)
			}
			if !m.Readonly || !filepath.IsAbs(m.HostPath) || !strings.HasPrefix(m.HostPath, p.Dir+"/") {
				t.Errorf("node %d: mount %+v is not read-only or not of the cluster's directory", i, m)
			}
			hasCA = hasCA || strings.HasSuffix(m.ContainerPath, "/ca.key")
		}
		if hasCA != (i == 0) {
			t.Errorf("node %d has the CA's key: %v; only the first control plane node may, kind copies it to the others", i, hasCA)
		}
	}
	if info, err := os.Stat(p.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v of the state directory (%v)", info.Mode(), err)
	}
}

// kubeadmDocs returns the kubeadm patches by kind.
func kubeadmDocs(t *testing.T, p *plan) map[string]string {
	t.Helper()
	patches, err := p.kubeadmPatches()
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	for _, patch := range patches {
		var meta kindv1alpha4.TypeMeta
		if err := yaml.Unmarshal([]byte(patch), &meta); err != nil || meta.Kind == "" {
			t.Fatalf("%v in %s", err, patch)
		}
		docs[meta.Kind] += patch + "---\n"
	}
	return docs
}

// A patch contains what it changes and nothing else: kind merges it over its own
// configuration, including empty values. The patches add the --egress-selector-config-file
// flag among others.
func TestKubeadmPatchesSayNoMore(t *testing.T) {
	p := newTestPlan(t, "")
	docs := kubeadmDocs(t, p)
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\n"
	if got := docs["KubeletConfiguration"]; got != header+"kind: KubeletConfiguration\nserverTLSBootstrap: true\n---\n"+header+"failCgroupV1: false\nkind: KubeletConfiguration\n---\n" {
		t.Errorf("the kubelet's patches:\n%s", got)
	}
	var kubelet kubeletv1beta1.KubeletConfiguration
	for doc := range strings.SplitSeq(docs["KubeletConfiguration"], "---\n") {
		if err := yaml.UnmarshalStrict([]byte(doc), &kubelet); err != nil {
			t.Errorf("the kubelet cannot read %q: %v", doc, err)
		}
	}
	if ptr.Deref(kubelet.FailCgroupV1, true) || !kubelet.ServerTLSBootstrap {
		t.Errorf("the kubelet reads failCgroupV1 %v, serverTLSBootstrap %v", kubelet.FailCgroupV1, kubelet.ServerTLSBootstrap)
	}
	for _, want := range []string{"egress-selector-config-file", "konnectivity-server.kube-system.svc", "allocate-node-cidrs", "kube-api-qps"} {
		if !strings.Contains(docs["ClusterConfiguration"], want) {
			t.Errorf("the patches lack %s:\n%s", want, docs["ClusterConfiguration"])
		}
	}
	for _, never := range []string{"null", "{}", `""`, "0s"} {
		for kind, doc := range docs {
			if kind != "JoinConfiguration" && strings.Contains(doc, never) { // that one removes something
				t.Errorf("the patch of %s says %s:\n%s", kind, never, doc)
			}
		}
	}
	p.facts.cgroupV1, p.state.OwnPodNetwork = false, false
	p.bundle.Konnectivity.Enabled = new(bool)
	docs = kubeadmDocs(t, p)
	if args := docs["ClusterConfiguration"]; strings.Contains(args, "allocate-node-cidrs") || strings.Contains(args, "egress-selector") {
		t.Errorf("neither Pod network nor tunnel are ours, and still:\n%s", args)
	}
	if len(docs) != 3 || docs["JoinConfiguration"] == "" || strings.Contains(docs["KubeletConfiguration"], "failCgroupV1") {
		t.Errorf("nothing else to patch but how nodes join and how kubelets are verified, and still: %v", docs)
	}
}

// With and without the tunnel, kube-apiserver verifies kubelets with kubeadm's CA:
// kubeadm's own strict loader reads the patches, and exactly one sets the flag.
// It observes KON-86 of docs/requirements.md.
// It also observes OLD-29 of docs/requirements.md.
func TestKubeletsAreVerified(t *testing.T) {
	for name, config := range map[string]string{"tunnel": "", "no tunnel": "konnectivity: {enabled: false}"} {
		t.Run(name, func(t *testing.T) {
			patches, err := newTestPlan(t, config).kubeadmPatches()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			gvk := kubeadmv1beta4.SchemeGroupVersion.WithKind("ClusterConfiguration")
			for _, patch := range patches {
				var c kubeadmv1beta4.ClusterConfiguration
				if err := yaml.Unmarshal([]byte(patch), &c); err != nil {
					t.Fatal(err)
				}
				if c.Kind != gvk.Kind {
					continue
				}
				if err := strict.VerifyUnmarshalStrict([]*kuberuntime.Scheme{kubeadmscheme.Scheme}, gvk, []byte(patch)); err != nil {
					t.Errorf("kubeadm does not read the patch: %v\n%s", err, patch)
				}
				for _, arg := range c.APIServer.ExtraArgs {
					if arg.Name == apiserver.KubeletCAFlag {
						got = append(got, arg.Value)
					}
				}
			}
			if !slices.Equal(got, []string{"/etc/kubernetes/pki/ca.crt"}) {
				t.Errorf("--%s is %q", apiserver.KubeletCAFlag, got)
			}
		})
	}
}

// containerd gets the workaround only if containers lack CAP_SYS_RESOURCE.
func TestOOMScoreOnlyWhereNeeded(t *testing.T) {
	p := newTestPlan(t, "")
	c, err := p.config()
	if err != nil || len(c.ContainerdConfigPatches) == 0 {
		t.Errorf("without the capability: %v, %v", c.ContainerdConfigPatches, err)
	}
	p.facts.sysResource = true
	if c, err = p.config(); err != nil || len(c.ContainerdConfigPatches) != 0 {
		t.Errorf("with it: %v, %v", c.ContainerdConfigPatches, err)
	}
}

// Names, roles and Pod ranges are those of kind and do not overlap.
// It observes KON-09a of docs/requirements.md.
func TestNodes(t *testing.T) {
	p := newTestPlan(t, "")
	var names []string
	for i, n := range p.nodes() {
		names = append(names, n.name)
		for _, other := range p.nodes()[:i] {
			if other.podCIDR.Overlaps(n.podCIDR) {
				t.Errorf("%s and %s share %s", other.name, n.name, n.podCIDR)
			}
		}
	}
	want := []string{"fairlead-dev-control-plane", "fairlead-dev-control-plane2", "fairlead-dev-control-plane3", "fairlead-dev-worker", "fairlead-dev-worker2"}
	if !slices.Equal(names, want) {
		t.Errorf("nodes %v, want %v", names, want)
	}
}

// Agents must be connected to the server of each control plane node, so the server count
// is the number of these nodes, unless agents count the servers by Leases.
// It observes KON-50 of docs/requirements.md.
func TestServerCount(t *testing.T) {
	if n := *newTestPlan(t, "").bundle.Konnectivity.Server.Count; n != 3 {
		t.Errorf("server.count %d for three control plane nodes", n)
	}
	counting, err := bundle.Load([]byte(bundletest.File("konnectivity: {leaseCounting: true}")))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := completeBundle(counting, 3); err != nil || ptr.Deref(b.Konnectivity.Server.Count, 1) > 1 {
		t.Errorf("with leaseCounting server.count must stay away: %v, %v", b.Konnectivity.Server.Count, err)
	} else if _, err := bundle.Render(b); err != nil {
		t.Error(err)
	}
	given, err := bundle.Load([]byte(bundletest.File("konnectivity: {transport: {tcp: {url: 'https://127.0.0.1:8131', clientCert: /etc/kubernetes/pki/a.crt, clientKey: /etc/kubernetes/pki/a.key, clientCA: /etc/kubernetes/pki/ca.crt}}, proxyProtocol: HTTPConnect}")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := completeBundle(given, 1); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "transport.uds") {
		t.Errorf("TCP transport: %v", err)
	}
}
