// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
)

// controlPlaneBound is how long etcd and kube-apiserver may take to become ready on a busy machine; on an idle one they
// take some seconds.
const controlPlaneBound = 2 * time.Minute

// A test that starts a control plane, or the first one that needs the programs, may run for longer than others.
const (
	startLimit = 3 * time.Minute
	buildLimit = 15 * time.Minute
)

const adminToken = "daemontest-admin"

// ControlPlane is a real etcd and kube-apiserver, without controllers or nodes.
type ControlPlane struct {
	// Client has all permissions.
	Client kubernetes.Interface
	// Kubeconfig is the path of a file with the same rights.
	Kubeconfig string
	// TokenKey is the path of the key that signs the tokens of service accounts.
	TokenKey string
	// Etcd is the URL of etcd, for tests of what is stored.
	Etcd string
}

// Components are the paths of pinned programs, such as etcd. They come from the cache that the CLI uses as well, and are
// built into it if need be, which takes minutes: tests that call this are skipped with -short.
func Components(t *testing.T, names ...string) map[string]string {
	t.Helper()
	testutil.Integration(t, strings.Join(names, ", "))
	programs, err := binaries.Components(t.Context(), binaries.Options{}, names, progress{t})
	if err != nil {
		t.Fatal(err)
	}
	return programs
}

// StartControlPlane runs the pinned etcd and kube-apiserver for as long as the test. ApiServerArgs are further flags of
// kube-apiserver.
func StartControlPlane(t *testing.T, apiServerArgs ...string) *ControlPlane {
	t.Helper()
	testutil.Limit(t, startLimit)
	return startControlPlane(t, Components(t, "etcd", "kube-apiserver"), apiServerArgs)
}

func startControlPlane(t testing.TB, programs map[string]string, apiServerArgs []string) *ControlPlane {
	t.Helper()
	ports := Ports(t, 3)
	etcd := "http://127.0.0.1:" + ports[0]
	Start(t, nil, programs["etcd"], "--data-dir="+t.TempDir(), "--unsafe-no-fsync",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls=http://127.0.0.1:"+ports[1])
	key := startAPIServer(t, programs["kube-apiserver"], etcd, ports[2], apiServerArgs)
	cp := connect(t, "https://127.0.0.1:"+ports[2])
	cp.TokenKey, cp.Etcd = key, etcd
	return cp
}

// startAPIServer returns the path of the key that signs tokens.
func startAPIServer(t testing.TB, binary, etcd, port string, more []string) string {
	t.Helper()
	dir, tls := t.TempDir(), Certificate(t)
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(adminToken+",admin,admin,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	Start(t, nil, binary, append([]string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--tls-cert-file=" + tls.Cert, "--tls-private-key-file=" + tls.Key,
		"--service-account-issuer=https://127.0.0.1", "--service-account-key-file=" + tls.Key, "--service-account-signing-key-file=" + tls.Key,
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--authorization-mode=RBAC", "--token-auth-file=" + tokens,
	}, more...)...)
	return tls.Key
}

func connect(t testing.TB, url string) *ControlPlane {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: url, InsecureSkipTLSVerify: true}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: adminToken}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: url, BearerToken: adminToken, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		QPS: -1, // tests make hundreds of objects
	})
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, controlPlaneBound, func() error {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		if err != nil {
			return fmt.Errorf("kube-apiserver is not ready: %w: %s", err, strings.TrimSpace(string(body)))
		}
		return nil
	})
	return &ControlPlane{Client: client, Kubeconfig: path}
}

// progress shows in the test's log what is being built.
type progress struct{ t *testing.T }

// Begin is called before a build.
func (p progress) Begin(step string) {
	testutil.Limit(p.t, buildLimit)
	p.t.Log(step)
}
func (p progress) Detail(f string, a ...any) { p.t.Logf(f, a...) }
func (p progress) End(result string, _ error) {
	if result != "" {
		p.t.Log(result)
	}
}
