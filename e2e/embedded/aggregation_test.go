package embedded_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

const extensionGroup = "e2e.fairlead.dev"

// frontProxy is what the API server tells extension servers to trust (AGG-08).
type frontProxy struct {
	ca           *x509.CertPool
	allowedNames []string
}

// An aggregated API served by a process of this machine is reached through the
// tunnel, and speaks to a front proxy that proves itself (AGG-02, AGG-06 to
// AGG-09, AGG-21, AGG-31, AGG-45, AGG-46).
func checkAggregation(t *testing.T, h *home) {
	client := h.client("dev")
	hostIP := h.status("dev").HostIP
	proxy := readFrontProxy(t, client)
	server, caBundle := startExtension(t, proxy, hostIP)
	registerExtension(t, client, server, caBundle, hostIP)

	whoami := "/apis/" + extensionGroup + "/v1/whoami"
	var body []byte
	waitFor(t, "the aggregated API", func() bool {
		var err error
		// The client's own headers must not be believed (AGG-07).
		body, err = client.CoreV1().RESTClient().Get().AbsPath(whoami).SetHeader("X-Remote-User", "mallory").Do(t.Context()).Raw()
		return err == nil
	})
	var got http.Header
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if user := got.Values("X-Remote-User"); len(user) != 1 || user[0] != "kubernetes-admin" {
		t.Errorf("X-Remote-User = %v, want kubernetes-admin alone", user)
	}
	if groups := strings.Join(got.Values("X-Remote-Group"), ","); !strings.Contains(groups, "system:masters") {
		t.Errorf("X-Remote-Group = %s", groups)
	}

	// Without agents the aggregated API is away, and comes back with them.
	agents := []string{"konnectivity-agent-0", "konnectivity-agent-1"}
	for _, agent := range agents {
		if err := h.supervisor("dev").Stop(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
	}
	server.CloseClientConnections()
	waitFor(t, "the aggregated API to go away", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return apierrors.IsServiceUnavailable(client.CoreV1().RESTClient().Get().AbsPath(whoami).Do(ctx).Error())
	})
	for _, agent := range agents {
		if err := h.supervisor("dev").Start(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the aggregated API to come back", func() bool {
		return client.CoreV1().RESTClient().Get().AbsPath(whoami).Do(t.Context()).Error() == nil
	})
}

func readFrontProxy(t *testing.T, client kubernetes.Interface) frontProxy {
	t.Helper()
	config, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ca, clientCA := config.Data["requestheader-client-ca-file"], config.Data["client-ca-file"]
	if ca == "" || clientCA == "" || ca == clientCA {
		t.Errorf("front proxy and clients must have CAs of their own:\n%s\n%s", ca, clientCA)
	}
	proxy := frontProxy{ca: x509.NewCertPool()}
	proxy.ca.AppendCertsFromPEM([]byte(ca))
	if err := json.Unmarshal([]byte(config.Data["requestheader-allowed-names"]), &proxy.allowedNames); err != nil || len(proxy.allowedNames) == 0 {
		t.Errorf("requestheader-allowed-names %q: %v", config.Data["requestheader-allowed-names"], err)
	}
	return proxy
}

// startExtension serves an API group that tells callers the headers they came with.
func startExtension(t *testing.T, proxy frontProxy, hostIP string) (*httptest.Server, []byte) {
	t.Helper()
	b, err := bundle.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := pki.FromBundle(b)
	ca, err := pki.NewCA(cfg, "extension", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(cfg, pki.Request{CommonName: "extension", DNSNames: []string{"extension.default.svc"}, Usages: pki.ServerAuth}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/"+extensionGroup+"/v1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+extensionGroup+`/v1","resources":[]}`)
	})
	mux.HandleFunc("/apis/"+extensionGroup+"/v1/whoami", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(r.Header)
	})
	server := httptest.NewUnstartedServer(mux)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(hostIP, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.TLS = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: proxy.ca,
		VerifyConnection: func(state tls.ConnectionState) error {
			if name := state.PeerCertificates[0].Subject.CommonName; name != proxy.allowedNames[0] {
				return fmt.Errorf("%q may not speak for others", name)
			}
			return nil
		},
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, ca.CertPEM()
}

// registerExtension makes Service, EndpointSlice and APIService.
func registerExtension(t *testing.T, client kubernetes.Interface, server *httptest.Server, caBundle []byte, hostIP string) {
	t.Helper()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	meta := metav1.ObjectMeta{Name: "extension", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "extension"}}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(int32(port))}}}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{hostIP}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(port)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	apiService, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1." + extensionGroup},
		"spec": map[string]any{
			"group": extensionGroup, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15, "caBundle": caBundle,
			"service": map[string]any{"namespace": "default", "name": "extension", "port": 443},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := "/apis/apiregistration.k8s.io/v1/apiservices"
	if err := client.CoreV1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(apiService).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.CoreV1().RESTClient().Delete().AbsPath(path, "v1."+extensionGroup).Do(ctx).Error(); err != nil {
			t.Errorf("removing the APIService: %v", err)
		}
		_ = client.CoreV1().Services("default").Delete(ctx, "extension", metav1.DeleteOptions{})
	})
}
