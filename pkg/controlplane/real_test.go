// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/kubeconfig"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/uploadconfig"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests/manifeststest"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

const bound = 2 * time.Minute

// realNode is a control plane node with real programs: etcd, kube-apiserver from
// kubeadm's manifest, and any other static Pods.
type realNode struct {
	root    string
	config  *kubeadmapi.InitConfiguration
	bundle  *v1alpha1.Bundle
	kubelet *fakeKubelet
	node    *node
}

// startRealNode skips the test with -short: it needs programs that are built once.
func startRealNode(t *testing.T) *realNode {
	t.Helper()
	programs := daemontest.Components(t, "etcd", "kube-apiserver")
	ports := daemontest.Ports(t, 6)
	etcd := "http://127.0.0.1:" + ports[0]
	daemontest.Start(t, nil, programs["etcd"], "--data-dir="+t.TempDir(), "--unsafe-no-fsync",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls=http://127.0.0.1:"+ports[1])

	r := &realNode{root: filepath.Join(t.TempDir(), "n"), bundle: v1alpha1.New()}
	r.bundle.Konnectivity.AgentPort = port(t, ports[3])
	r.bundle.Konnectivity.Server.AdminPort = port(t, ports[4])
	r.bundle.Konnectivity.Server.HealthPort = port(t, ports[5])
	err := kubeadmNode(r.root, func(c *kubeadmapi.InitConfiguration) {
		c.LocalAPIEndpoint = kubeadmapi.APIEndpoint{AdvertiseAddress: "127.0.0.1", BindPort: port(t, ports[2])}
		c.Etcd = kubeadmapi.Etcd{External: &kubeadmapi.ExternalEtcd{Endpoints: []string{etcd}}}
		c.APIServer.ExtraArgs = []kubeadmapi.Arg{{Name: "endpoint-reconciler-type", Value: "none"}}
		r.config = c
	})
	if err != nil {
		t.Fatal(err)
	}
	r.kubelet = startKubelet(t, r.root, map[string]string{
		apiServer: programs["kube-apiserver"], "konnectivity-server-container": ownServer(t)})
	r.node = newNode(r.options().defaulted())
	if err := r.node.readManifest(); err != nil {
		t.Fatal(err)
	}
	r.node.connect()
	daemontest.Eventually(t, bound, func() error { return r.node.healthy(t.Context(), "https://"+r.node.address+"/readyz") })
	r.becomeAdmin(t)
	return r
}

// ownServer builds this project's server.
func ownServer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := daemontest.Build(t.Context(), dir, []string{"github.com/fairlead-dev/fairlead/cmd/konnectivity-server"}); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "konnectivity-server")
}

// becomeAdmin does what "kubeadm init" does once the API server is up: it binds the
// administrators' role and stores the configuration.
func (r *realNode) becomeAdmin(t *testing.T) {
	t.Helper()
	dir := nodefs.Host{Root: r.root}.Path("/etc/kubernetes")
	r.config.CertificatesDir = dir + "/pki"
	if err := kubeconfig.CreateKubeConfigFile("super-admin.conf", dir, r.config); err != nil {
		t.Fatal(err)
	}
	r.config.CertificatesDir = "/etc/kubernetes/pki"
	client, err := kubeconfig.EnsureAdminClusterRoleBinding(dir, &r.config.LocalAPIEndpoint, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := uploadconfig.UploadConfiguration(r.config, client); err != nil {
		t.Fatal(err)
	}
}

func port(t *testing.T, s string) int32 {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

func (r *realNode) options() Options {
	return Options{Bundle: r.bundle, Root: r.root, Timeout: bound, user: func() int { return 0 }}
}

// files returns the files below /etc/kubernetes, without the server's socket.
func (r *realNode) files(t *testing.T) map[string]string {
	t.Helper()
	return snapshot(t, nodefs.Host{Root: r.root}.Path("/etc/kubernetes"))
}

// TestRealAPIServer changes a real kube-apiserver that runs from kubeadm's manifest.
// Both parts leave the node as it was.
// It observes KON-07 and KON-83 of docs/requirements.md.
func TestRealAPIServer(t *testing.T) {
	testutil.Limit(t, 5*time.Minute) // builds a program and starts kube-apiserver several times
	r := startRealNode(t)
	t.Run("new flags keep it from starting", r.fails)
	t.Run("there and back", r.thereAndBack)
}

// thereAndBack installs the tunnel with a real Konnectivity server and a real
// kube-apiserver, and uninstalls it again.
func (r *realNode) thereAndBack(t *testing.T) {
	before := r.files(t)
	config, err := r.node.api().KubeadmConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.dialNode(t); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("before: %v, want a direct connection that is refused", err)
	}
	result, err := Install(t.Context(), r.options())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(result.Files)
	if err := r.dialNode(t); err == nil || !strings.Contains(err.Error(), "No agent available") {
		t.Errorf("installed: %v, want that the tunnel has no agent yet", err)
	}
	r.checkStatus(t)
	r.upgradeKeepsTunnel(t)
	if again, err := Install(t.Context(), r.options()); err != nil || again.Changed {
		t.Errorf("the second run: %+v, %v; want nothing to do", again, err)
	}
	r.otherSocket(t)
	removed, err := Uninstall(t.Context(), r.options())
	if err != nil || len(removed.Left) > 0 {
		t.Fatalf("uninstall: %+v, %v", removed, err)
	}
	sameTrees(t, before, r.files(t))
	after, err := r.node.api().KubeadmConfig(t.Context())
	if err != nil || after != config {
		t.Errorf("ConfigMap kubeadm-config is not what it was (%v):\n%s", err, after)
	}
	if err := r.dialNode(t); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("after: %v, want a direct connection that is refused", err)
	}
}

// otherSocket installs a bundle for which only the content of the egress selector
// configuration changes, which kube-apiserver reads when it starts.
func (r *realNode) otherSocket(t *testing.T) {
	t.Helper()
	o := r.options()
	o.Bundle = r.bundle.DeepCopy()
	o.Bundle.Konnectivity.Transport.UDS.Path = "/etc/kubernetes/konnectivity-server/other.socket"
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := r.dialNode(t); err == nil || !strings.Contains(err.Error(), "No agent available") {
		t.Errorf("with another socket: %v, want that the tunnel has no agent yet", err)
	}
}

// dialNode makes kube-apiserver dial a node on which nothing listens.
func (r *realNode) dialNode(t *testing.T) error {
	t.Helper()
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}}
	if _, err := r.node.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err == nil {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ownAddress(t)}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = freePort(t)
		patched, err := r.node.client.CoreV1().Nodes().Get(ctx, "far", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		patched.Status = node.Status
		if _, err := r.node.client.CoreV1().Nodes().UpdateStatus(ctx, patched, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	body, err := r.node.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/far/proxy/healthz").DoRaw(ctx)
	if err != nil {
		return errors.New(err.Error() + ": " + string(body))
	}
	return nil
}

// ownAddress returns one of this machine's addresses that is not loopback, because
// kube-apiserver refuses to proxy to loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Fatal("this machine has no address but loopback")
	return ""
}

func freePort(t *testing.T) int32 {
	t.Helper()
	port, err := strconv.ParseInt(daemontest.Ports(t, 1)[0], 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

func (r *realNode) checkStatus(t *testing.T) {
	t.Helper()
	s, err := Inspect(t.Context(), r.options())
	if err != nil {
		t.Fatal(err)
	}
	if !s.Installed || !s.APIServer.Tunnel || s.APIServer.Health != ok || s.APIServer.Process == 0 || s.Server.Health != ok || s.Server.Process == 0 {
		t.Errorf("status %+v", s)
	}
	if !strings.Contains(s.Server.Ready, "no connection to any proxy agent") {
		t.Errorf("the server is %q, without an agent", s.Server.Ready)
	}
	for _, f := range s.Files {
		if f.State != FileAsInstalled {
			t.Errorf("%s is %s", f.Path, f.State)
		}
	}
	for _, c := range s.Certificates {
		if c.State != CertGood {
			t.Errorf("%s is %s: %s", c.Path, c.State, c.Problem)
		}
	}
}

// upgradeKeepsTunnel checks what "kubeadm upgrade" generates from the stored
// configuration: kube-apiserver's manifest has the flag and the mounts, and a new
// certificate would contain the name.
func (r *realNode) upgradeKeepsTunnel(t *testing.T) {
	t.Helper()
	text, err := r.node.api().KubeadmConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stored := manifeststest.ReadCluster(t, text)
	if len(stored.APIServer.CertSANs) == 0 || stored.APIServer.CertSANs[len(stored.APIServer.CertSANs)-1] != r.bundle.Konnectivity.ServerHost {
		t.Errorf("certSANs %v", stored.APIServer.CertSANs)
	}
	manifest := manifeststest.Kubeadm(t, func(c *kubeadmapi.InitConfiguration) {
		c.APIServer = stored.APIServer
		c.LocalAPIEndpoint = r.config.LocalAPIEndpoint
	})
	if _, add, err := manifests.Add(manifest, r.bundle); err != nil || !add.Empty() {
		t.Errorf("after an upgrade %+v would be missing, %v", add, err)
	}
}

// untilLogged lets a wait for kube-apiserver with the tunnel end only after that has said why it does not start, however slow the machine is.
type untilLogged struct {
	progress.Reporter
	node *realNode
}

func (u untilLogged) Detail(string, ...any) {
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(harnessPeriod) {
		manifest, err := u.node.node.Read(apiServerFile)
		if err != nil || !strings.Contains(string(manifest), "--egress-selector-config-file=") {
			return
		}
		logs, _ := filepath.Glob(u.node.node.Path(kubelet.PodLogs) + "/*_kube-apiserver-*/*/*.log")
		for _, name := range logs {
			if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), "unknown flag") {
				return
			}
		}
	}
}

// fails adds flags that keep kube-apiserver from starting, as an older
// kube-apiserver would reject them. Everything is rolled back, the old
// kube-apiserver runs again, and the error contains the last lines of the new one's
// log.
func (r *realNode) fails(t *testing.T) {
	testutil.Full(t, "waits for a kube-apiserver that does not start")
	before := r.files(t)
	spoil := func(argv []string) []string {
		for _, a := range argv {
			if strings.HasPrefix(a, "--egress-selector-config-file=") {
				return append(argv, "--no-such-flag=1")
			}
		}
		return argv
	}
	r.kubelet.change.Store(&spoil)
	defer r.kubelet.change.Store(nil)
	o := r.options()
	o.Timeout, o.rollback = 5*time.Second, bound
	o.Progress = untilLogged{progress.Silent, r}
	_, err := Install(t.Context(), o)
	if !errors.Is(err, ErrRolledBack) || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("%v, want ErrRolledBack with the log's last lines", err)
	}
	sameTrees(t, before, r.files(t))
	if err := r.node.healthy(context.WithoutCancel(t.Context()), "https://"+r.node.address+"/readyz"); err != nil {
		t.Errorf("kube-apiserver is not back: %v", err)
	}
}
