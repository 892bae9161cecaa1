// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

const (
	tunnelAPI   = "fairlead-apiserver"
	tunnelGroup = "/apis/tunnel.fairlead.dev/v1alpha1"
)

// fairlead-apiserver runs on this machine, behind a Service whose endpoint is the machine's address. kube-apiserver
// reaches it through the tunnel that it is about, and kubectl shows the agents of the cluster.
func TestTunnelAPI(t *testing.T) {
	if !suite.Simulated() {
		t.Skip("kind's servers do not show their state yet: the bundle has no fields for it")
	}
	kubectl, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	startTunnelAPI(ctx, t) // until the end of the test, not of a step
	run(t, "tunnel API", 3*time.Minute,
		step{"kubectl shows agents", func(ctx context.Context, t *testing.T) {
			out, err := suite.Kubectl(ctx, kubectl, "", "get", "tunnelagents", "-o", "wide")
			if err != nil || !strings.Contains(out, "konnectivity-agent-0   node-1   True") || !strings.Contains(out, "konnectivity-agent-1   node-2   True") {
				t.Errorf("%v\n%s", err, out)
			}
			for _, args := range [][]string{
				{"wait", "--for=condition=Connected", "tunnelagent/konnectivity-agent-0", "--timeout=30s"},
				{"explain", "tunnelagents.status.servers.rttMicroseconds"},
				{"get", "ts"}, {"get", "tc", "--chunk-size=1"},
			} {
				if out, err := suite.Kubectl(ctx, kubectl, "", args...); err != nil {
					t.Errorf("kubectl %v: %v\n%s", args, err, out)
				}
			}
		}},
		step{"a user without rights is refused", func(ctx context.Context, t *testing.T) {
			err := suite.Client.CoreV1().RESTClient().Get().AbsPath(tunnelGroup, "tunnelagents").SetHeader("Impersonate-User", "mallory").Do(ctx).Error()
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "mallory" cannot list resource "tunnelagents"`) {
				t.Errorf("want a refusal, got %v", err)
			}
		}},
	)
}

// startTunnelAPI runs the program until the test ends and registers it. It is removed in the opposite order, so that
// discovery never fails.
func startTunnelAPI(ctx context.Context, t *testing.T) {
	dir := t.TempDir()
	ca := issueTunnelAPI(t, dir)
	nodes, err := suite.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	host := nodes.Items[0].Status.Addresses[0].Address // a simulated node has the machine's
	port := runTunnelAPI(ctx, t, dir, host)
	exposeTunnelAPI(ctx, t, host, port)
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1alpha1.tunnel.fairlead.dev"},
		"spec": map[string]any{"group": "tunnel.fairlead.dev", "version": "v1alpha1", "groupPriorityMinimum": 1000, "versionPriority": 15, "caBundle": ca,
			"service": map[string]any{"namespace": metav1.NamespaceSystem, "name": tunnelAPI, "port": 443}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const path = "/apis/apiregistration.k8s.io/v1/apiservices"
	client := suite.Client.CoreV1().RESTClient()
	if err := client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) {
		if err := client.Delete().AbsPath(path, "v1alpha1.tunnel.fairlead.dev").Do(ctx).Error(); err != nil {
			t.Errorf("removing the APIService: %v", err)
		}
	})
	err = harness.Wait(ctx, time.Minute, "the tunnel API to show two connected agents", func(ctx context.Context) error {
		body, err := client.Get().AbsPath(tunnelGroup, "tunnelagents").Do(ctx).Raw()
		if n := strings.Count(string(body), `"reason":"LinkEstablished"`); err == nil && n != 2 {
			err = fmt.Errorf("%d agents are connected: %s", n, body)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// issueTunnelAPI writes a certificate for the Service and returns its CA.
func issueTunnelAPI(t *testing.T, dir string) []byte {
	t.Helper()
	cfg, now, name := pki.FromBundle(v1alpha1.New()), time.Now(), tunnelAPI+"."+metav1.NamespaceSystem+".svc"
	ca, err := pki.NewCA(cfg, tunnelAPI, now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(cfg, pki.Request{CommonName: name, DNSNames: []string{name}, Usages: pki.ServerAuth}, now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{corev1.TLSCertKey: pair.CertPEM(), corev1.TLSPrivateKeyKey: key} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca.CertPEM()
}

func runTunnelAPI(ctx context.Context, t *testing.T, dir, host string) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(suite.Bin, tunnelAPI),
		"--kubeconfig="+suite.Kubeconfig(), "--konnectivity-server=unix://"+filepath.Join(suite.StateDir(suite.Name), "run/konnectivity-state.socket"),
		"--bind-address="+host, "--secure-port="+strconv.Itoa(port),
		"--tls-cert-file="+filepath.Join(dir, corev1.TLSCertKey), "--tls-private-key-file="+filepath.Join(dir, corev1.TLSPrivateKeyKey))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%s", text)
		}
	})
	return port
}

func exposeTunnelAPI(ctx context.Context, t *testing.T, host string, port int) {
	t.Helper()
	services, slices := suite.Client.CoreV1().Services(metav1.NamespaceSystem), suite.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: tunnelAPI}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: tunnelAPI, Labels: map[string]string{discoveryv1.LabelServiceName: tunnelAPI}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(port))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) { _ = services.Delete(ctx, tunnelAPI, metav1.DeleteOptions{}) })
	if _, err := slices.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
