// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/fsutil"
)

const (
	tunnelAPIPath = "/apis/tunnel.fairlead.dev/v1alpha1/tunnelservers"
	apiServices   = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.tunnel.fairlead.dev"
	authConfigMap = "extension-apiserver-authentication"
)

// apiWorld is a cluster with the tunnel's API server.
type apiWorld struct {
	*home
	client  kubernetes.Interface
	config  *rest.Config
	bundle  *v1alpha1.Bundle
	address string // of the API server itself
}

func newAPIWorld(t *testing.T) *apiWorld {
	t.Helper()
	return newAPIWorldOf(t, "tunnelAPI: {enabled: true}")
}

// newAPIWorldOf is newAPIWorld with a bundle.
func newAPIWorldOf(t *testing.T, bundle string) *apiWorld {
	t.Helper()
	h := newHome(t)
	file := filepath.Join(h.Dir, "bundle.yaml")
	if err := os.WriteFile(file, []byte(bundletest.File(bundle)), 0o600); err != nil {
		t.Fatal(err)
	}
	h.must("up", "-f", file, "-q", "--nodes", "1", "--agents", "1", "--no-verify")
	config, err := clientcmd.BuildConfigFromFlags("", h.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	slice, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Get(t.Context(), v1alpha1.TunnelAPIName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &apiWorld{home: h, client: client, config: config, bundle: (&v1alpha1.Bundle{}).Defaulted(),
		address: fmt.Sprintf("%s:%d", slice.Endpoints[0].Addresses[0], *slice.Ports[0].Port)}
}

func (w *apiWorld) pki(name string) string { return filepath.Join(w.StateDir("dev"), "pki", name) }

func (w *apiWorld) load(name string) pki.KeyPair {
	w.t.Helper()
	cert, err := os.ReadFile(w.pki(name + ".crt"))
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := os.ReadFile(w.pki(name + ".key"))
	if err != nil {
		w.t.Fatal(err)
	}
	pair, err := pki.ParseKeyPair(cert, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return pair
}

func (w *apiWorld) newCA(name string) pki.KeyPair {
	w.t.Helper()
	ca, err := pki.NewCA(pki.FromBundle(w.bundle), name, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return ca
}

func (w *apiWorld) issue(ca pki.KeyPair, r pki.Request, validity time.Duration) pki.KeyPair {
	w.t.Helper()
	cfg := pki.FromBundle(w.bundle)
	if validity != 0 {
		cfg.Validity = validity
	}
	pair, err := ca.Issue(cfg, r, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return pair
}

func (w *apiWorld) write(name string, data []byte) {
	w.t.Helper()
	if err := fsutil.WriteFile(w.pki(name), data, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *apiWorld) writePair(name string, pair pki.KeyPair) {
	w.t.Helper()
	key, err := pair.KeyPEM()
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(name+".key", key) // a server keeps the old pair until both files fit
	w.write(name+".crt", pair.CertPEM())
}

// eventually waits until a condition holds.
func (w *apiWorld) eventually(what string, holds func() bool) {
	w.t.Helper()
	testutil.Eventually(w.t, 3*time.Minute, func() error {
		if !holds() {
			return fmt.Errorf("waiting until %s", what)
		}
		return nil
	})
}

// handshake connects to the API server and returns what it shows: its certificate and the CAs of clients.
func (w *apiWorld) handshake() (served []byte, clientCAs [][]byte) {
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec // only to look at it
		GetClientCertificate: func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			clientCAs = r.AcceptableCAs
			return &tls.Certificate{}, nil
		}}
	conn, err := tls.Dial("tcp", w.address, config)
	if err != nil {
		return nil, nil
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].Raw, clientCAs
}

// requests sends requests all the time, over kept connections and over new ones, until stop, which returns what failed.
func (w *apiWorld) requests() (stop func() (sent int, failed []string)) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var mu sync.Mutex
	var sent int
	var failed []string
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				var err error
				if i == 0 {
					err = w.newClient(ctx)
				} else {
					err = w.client.CoreV1().RESTClient().Get().AbsPath(tunnelAPIPath).MaxRetries(0).Do(ctx).Error()
				}
				mu.Lock()
				sent++
				if err != nil && ctx.Err() == nil {
					failed = append(failed, fmt.Sprintf("%s: %v", time.Now().Format("15:04:05.000"), err))
				}
				mu.Unlock()
				time.Sleep(20 * time.Millisecond) // how often requests are sent
			}
		})
	}
	return func() (int, []string) { cancel(); all.Wait(); return sent, failed }
}

// newClient sends a request over a connection of its own.
func (w *apiWorld) newClient(ctx context.Context) error {
	config := rest.CopyConfig(w.config)
	config.Dial = new(net.Dialer).DialContext // a transport of its own
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	own, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return err
	}
	return own.CoreV1().RESTClient().Get().AbsPath(tunnelAPIPath).MaxRetries(0).Do(ctx).Error()
}

// setCA makes the APIService trust CAs.
func (w *apiWorld) setCA(bundle []byte) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": bundle}})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(apiServices).Body(patch).Do(w.t.Context()).Error(); err != nil {
		w.t.Fatal(err)
	}
}

// publish replaces the front proxy's CAs that extension API servers trust.
func (w *apiWorld) publish(bundle []byte) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]any{"requestheader-client-ca-file": string(bundle)}})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Patch(w.t.Context(), authConfigMap, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// settle is how long after a step requests go on before the next one: kube-apiserver gives its handlers a new
// configuration within a second.
const settle = 5 * time.Second

// TestTunnelAPIRotation: while the CA of the serving certificate and that of the front proxy are replaced, in the steps
// that docs/tunnel-api.md describes, no request fails, and at the end the old ones are worth nothing.
// It observes AGG-08, AGG-20 and EXT-08 of docs/requirements.md.
func TestTunnelAPIRotation(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	defer w.must("down", "-q")
	stop := w.requests()
	time.Sleep(settle)
	oldCA, newCA := w.load("ca").CertPEM(), w.newCA("new-serving-ca")
	w.setCA(bytes.Join([][]byte{oldCA, newCA.CertPEM()}, nil))
	time.Sleep(settle)
	pair := w.issue(newCA, tunnelapi.CertificateRequest(w.bundle), 0)
	w.writePair(v1alpha1.TunnelAPIName, pair)
	w.eventually("the server shows its new certificate", func() bool { served, _ := w.handshake(); return bytes.Equal(served, pair.Cert.Raw) })
	time.Sleep(settle)
	w.setCA(newCA.CertPEM())
	time.Sleep(settle)

	oldProxy, oldClient, proxyCA := w.load("front-proxy-ca"), w.load("front-proxy-client"), w.newCA("new-front-proxy-ca")
	w.write("front-proxy-ca.crt", bytes.Join([][]byte{oldProxy.CertPEM(), proxyCA.CertPEM()}, nil))
	w.trusts(proxyCA, true)
	client := w.issue(proxyCA, apiserver.FrontProxyRequest(w.bundle), 0)
	w.writePair("front-proxy-client", client)
	time.Sleep(2 * settle) // nothing shows that kube-apiserver has read it
	w.write("front-proxy-ca.crt", proxyCA.CertPEM())
	time.Sleep(2 * settle) // kube-apiserver adds its own CAs to those of the ConfigMap, and never removes any
	w.publish(proxyCA.CertPEM())
	w.trusts(oldProxy, false)
	time.Sleep(settle)
	sent, failed := stop()
	t.Logf("%d requests", sent)
	if sent < 100 || len(failed) > 0 {
		t.Errorf("of %d requests %d fail:\n%s", sent, len(failed), strings.Join(failed[:min(len(failed), 10)], "\n"))
	}
	if code, body := w.direct(&oldClient, "admin"); code != http.StatusUnauthorized {
		t.Errorf("with the front proxy's old certificate: %d %s", code, body)
	}
	if code, body := w.direct(&client, "admin"); code != http.StatusOK {
		t.Errorf("with the front proxy's new certificate: %d %s", code, body)
	}
}

// trusts waits until the API server asks clients for certificates of a CA, or does not any more.
func (w *apiWorld) trusts(ca pki.KeyPair, want bool) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("trust in %s is %v", ca.Cert.Subject, want), func() bool {
		_, cas := w.handshake()
		found := false
		for _, subject := range cas {
			found = found || bytes.Equal(subject, ca.Cert.RawSubject)
		}
		return len(cas) > 0 && found == want
	})
}

// direct sends a request as kube-apiserver would for a user of group system:masters, with a certificate.
func (w *apiWorld) direct(pair *pki.KeyPair, user string) (int, string) {
	w.t.Helper()
	return w.directTo(tunnelAPIPath, pair, user)
}

func (w *apiWorld) directTo(path string, pair *pki.KeyPair, user string) (int, string) {
	w.t.Helper()
	header := http.Header{}
	if user != "" {
		header.Set("X-Remote-User", user)
		header.Set("X-Remote-Group", "system:masters")
	}
	if user == "guest" {
		header.Del("X-Remote-Group")
	}
	return w.request(w.address, path, pair, header)
}

// request sends a request to an API server, with a certificate and headers.
func (w *apiWorld) request(address, path string, pair *pki.KeyPair, header http.Header) (int, string) {
	w.t.Helper()
	code, body, err := w.tryRequest(address, path, pair, header)
	if err != nil {
		w.t.Fatal(err)
	}
	return code, body
}

// tryRequest is request for a server that may not answer yet.
func (w *apiWorld) tryRequest(address, path string, pair *pki.KeyPair, header http.Header) (int, string, error) {
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // the test is about the other side
	if pair != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // whatever CAs the server asks for
			return &tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}, nil
		}
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Header = header
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// TestTunnelAPIStrangers: the API server believes the headers of the front proxy alone, and who is authenticated still
// needs rights.
// It observes AGG-02, AGG-05, AGG-21, AGG-23, AGG-24 and AGG-30 of docs/requirements.md.
func TestTunnelAPIStrangers(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t)
	defer w.must("down", "-q")
	proxy, clients, request := w.load("front-proxy-ca"), w.load("ca"), apiserver.FrontProxyRequest(w.bundle)
	wrongName := request
	wrongName.CommonName = "not-the-front-proxy"
	made := func(ca pki.KeyPair, r pki.Request, validity time.Duration) *pki.KeyPair {
		pair := w.issue(ca, r, validity)
		return &pair
	}
	good := made(proxy, request, 0)
	cases := []struct {
		name string
		pair *pki.KeyPair
		user string
		code int
		text string
	}{
		{"the front proxy, for an administrator", good, "admin", http.StatusOK, "TunnelServerList"},
		{"the front proxy, for a user without rights", good, "guest", http.StatusForbidden, `User \"guest\"`},
		{"the front proxy, for no user", good, "", http.StatusUnauthorized, "Unauthorized"},
		{"no certificate", nil, "admin", http.StatusForbidden, `User \"system:anonymous\"`},
		{"the wrong common name", made(proxy, wrongName, 0), "admin", http.StatusUnauthorized, "Unauthorized"},
		{"an expired certificate", made(proxy, request, time.Second), "admin", http.StatusUnauthorized, "Unauthorized"},
		{"a foreign CA of the same name", made(w.newCA(proxy.Cert.Subject.CommonName), request, 0), "admin", http.StatusUnauthorized, "Unauthorized"},
		{"a client certificate with the front proxy's name", made(clients, request, 0), "admin", http.StatusForbidden, fmt.Sprintf(`User \"%s\"`, request.CommonName)},
	}
	w.wholeIdentity(good)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if code, body := w.directTo(path, nil, ""); code != http.StatusOK {
			t.Errorf("%s without a certificate: %d %s", path, code, body)
		}
	}
	time.Sleep(2 * time.Second) // until one has expired
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if code, body := w.direct(c.pair, c.user); code != c.code || !strings.Contains(body, c.text) {
				t.Errorf("%d %s, want %d and %s", code, body, c.code, c.text)
			}
		})
	}
}
