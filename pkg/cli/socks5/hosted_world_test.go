// SPDX-License-Identifier: Apache-2.0

package socks5_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	bundlegateway "github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// hostedWorld is a cluster with Service shop/web, a Konnectivity server with an agent, and the files that the Secrets
// of deploy/gateway/hosted.yaml hold.
type hostedWorld struct {
	*daemontest.ControlPlane
	rig    *tunneltest.Rig
	server string // HOST:PORT for --server-address
	files  string // instead of /etc/fairlead
}

func newHostedWorld(t *testing.T) *hostedWorld {
	// There is no controller that makes service accounts.
	w := &hostedWorld{ControlPlane: daemontest.StartControlPlane(t, "--disable-admission-plugins=ServiceAccount"), rig: tunneltest.NewRig(t, server.Config{}), files: t.TempDir()}
	w.rig.StartAgent(agent.Config{}, "")
	_, w.server = w.rig.FrontendsTLS()
	kubeconfig := read(t, changed(t, w.Kubeconfig, func(c *clientcmdapi.Config) {
		c.AuthInfos["test"].Impersonate = bundlegateway.User
		for _, cluster := range c.Clusters {
			cluster.Server, cluster.TLSServerName = "https://"+loadBalancer(t, strings.TrimPrefix(cluster.Server, "https://")), "localhost"
		}
	}))
	for _, dir := range []string{"server", "tls"} {
		crt, key := w.rig.CA.Issue(t, dir, time.Now().Add(time.Hour))
		w.write(t, dir+"/tls.crt", read(t, crt))
		w.write(t, dir+"/tls.key", read(t, key))
	}
	w.write(t, "server/ca.crt", read(t, w.rig.CA.File))
	w.write(t, "kubeconfig/kubeconfig", kubeconfig)
	w.grant(t)
	w.serveWeb(t)
	return w
}

func (w *hostedWorld) write(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(w.files, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// grant gives the gateway's user the rights that "fairlead install" does, and no others.
func (w *hostedWorld) grant(t *testing.T) {
	t.Helper()
	b, err := bundle.Load([]byte(bundletest.File("gateway: {enabled: true, form: StaticPod}")))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := bundlegateway.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			_, err = w.Client.RbacV1().ClusterRoles().Create(t.Context(), o, metav1.CreateOptions{})
		case *rbacv1.ClusterRoleBinding:
			_, err = w.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), o, metav1.CreateOptions{})
		default:
			t.Fatalf("an object of type %T", o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// serveWeb makes Service shop/web, whose Pod is a server of this test at an address of this machine, and lets
// the ServiceAccount alice reach it.
func (w *hostedWorld) serveWeb(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(machineIP(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }), ReadHeaderTimeout: bound}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	at := l.Addr().(*net.TCPAddr)
	port, name := int32(at.Port), metav1.ObjectMeta{Namespace: "shop", Name: "web"} //nolint:gosec // a port
	core, rbac, yes := w.Client.CoreV1(), w.Client.RbacV1(), true
	pod := &corev1.Pod{ObjectMeta: name, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}))
	made, err := core.Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{})
	must(made, err)
	made.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: at.IP.String(), PodIPs: []corev1.PodIP{{IP: at.IP.String()}}}
	must(core.Pods("shop").UpdateStatus(t.Context(), made, metav1.UpdateOptions{}))
	must(core.Services("shop").Create(t.Context(), &corev1.Service{ObjectMeta: name, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}))
	slice := &discoveryv1.EndpointSlice{ObjectMeta: name, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{at.IP.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"}}}}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	must(w.Client.DiscoveryV1().EndpointSlices("shop").Create(t.Context(), slice, metav1.CreateOptions{}))
	for _, user := range []string{"alice", "bob"} {
		must(core.ServiceAccounts("shop").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: user}}, metav1.CreateOptions{}))
	}
	must(rbac.Roles("shop").Create(t.Context(), &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services/proxy"}, ResourceNames: []string{"web"}, Verbs: []string{"create"}}}}, metav1.CreateOptions{}))
	must(rbac.RoleBindings("shop").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "web"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "shop", Name: "alice"}}}, metav1.CreateOptions{}))
}

// machineIP is an address of this machine that is not loopback, which no gateway connects to.
func machineIP(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address but loopback: add one")
	return ""
}

// token is one of a ServiceAccount for the gateway.
func (w *hostedWorld) token(t *testing.T, user string) string {
	t.Helper()
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{v1alpha1.GatewayName}}}
	r, err := w.Client.CoreV1().ServiceAccounts("shop").CreateToken(t.Context(), user, r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// connect asks the gateway for a connection to Service shop/web, and gets a page over it if it has one.
func (w *hostedWorld) connect(t *testing.T, port, token string) (status int, page string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, w.rig.CA.File))
	nc, err := tls.DialWithDialer(&net.Dialer{Timeout: bound}, "tcp", "127.0.0.1:"+port, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close() //nolint:errcheck // the client has what it wants
	_ = nc.SetDeadline(time.Now().Add(bound))
	_, _ = fmt.Fprintf(nc, "CONNECT web.shop:80 HTTP/1.1\r\nHost: web.shop:80\r\nProxy-Authorization: Bearer %s\r\n\r\n", token)
	r := bufio.NewReader(nc)
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, ""
	}
	_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: web.shop\r\nConnection: close\r\n\r\n")
	inner, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Body.Close()
	body, err := io.ReadAll(inner.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// loadBalancer forwards connections to a host and port, from an address that no object of the cluster has.
func loadBalancer(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(machineIP(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
				_, _ = io.Copy(in, out)
			}()
		}
	}()
	return l.Addr().String()
}

// version asks the API server as Service kubernetes, through the gateway, as kubectl does.
func (w *hostedWorld) version(t *testing.T, port, token string) (page string, err error) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &url.URL{Scheme: "https", Host: "127.0.0.1:" + port, User: url.UserPassword("token", token)}
	client := http.Client{Timeout: bound, Transport: &http.Transport{
		Proxy: http.ProxyURL(proxy), DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // both servers are this test's
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://kubernetes.default.svc/version", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+config.AuthInfos["test"].Token)
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}
