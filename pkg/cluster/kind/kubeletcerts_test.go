// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

const worker = "fairlead-dev-worker"

// kubeletRequest returns a kubelet's request, changed by the tests' own functions.
func kubeletRequest(t *testing.T, node string, address string, template func(*x509.CertificateRequest), object func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	asked := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: []string{node}, IPAddresses: []net.IP{net.ParseIP(address)},
	}
	if template != nil {
		template(asked)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, asked, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-" + node},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: "kubernetes.io/kubelet-serving", Username: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
	if object != nil {
		object(csr)
	}
	return csr
}

// A request is approved only if a kubelet made it for itself, with the name and the addresses
// of its own container: a node must not get a certificate with which it can impersonate
// another.
func TestServingRequest(t *testing.T) {
	type (
		template = func(*x509.CertificateRequest)
		object   = func(*certificatesv1.CertificateSigningRequest)
	)
	addresses := map[string][]netip.Addr{
		worker:       {netip.MustParseAddr("172.18.0.3"), netip.MustParseAddr("fc00::3")},
		worker + "2": {netip.MustParseAddr("172.18.0.4")},
	}
	for name, tc := range map[string]struct {
		template template
		object   object
		want     string // a part of the reason; "" means that it is approved
	}{
		"what a kubelet asks": {nil, nil, ""},
		"with both addresses": {func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP("fc00::3")) }, nil, ""},
		"with an RSA usage": {nil, func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificatesv1.UsageKeyEncipherment)
		}, ""},
		"signer for clients": {nil, func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
		}, "its signer is"},
		"made by a user":        {nil, func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Username = "jane" }, "no node of this cluster"},
		"made by an unknown":    {nil, func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Username = "system:node:other" }, "no node of this cluster"},
		"made without a name":   {nil, func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Username = "" }, "no node of this cluster"},
		"name without a prefix": {nil, func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Username = worker }, "no node of this cluster"},
		"made by another node":  {nil, func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Username += "2" }, "and \"system:node:" + worker + "2\" made it"},
		"not of the group":      {nil, func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Groups = []string{"system:authenticated"} }, "group system:nodes"},
		"no request":            {nil, func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Request = []byte("x") }, "cannot be read"},
		"not signed by its key": {nil, func(c *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(c.Spec.Request)
			block.Bytes[len(block.Bytes)-1] ^= 1
			c.Spec.Request = pem.EncodeToMemory(block)
		}, "signature"},
		"usage of clients": {nil, func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificatesv1.UsageClientAuth)
		}, "usages"},
		"usage of a CA": {nil, func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificatesv1.UsageCertSign)
		}, "usages"},
		"no usage for servers": {nil, func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Usages = c.Spec.Usages[:1] }, "usages"},
		"another organization": {func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} }, nil, "organization"},
		"a second one": {func(r *x509.CertificateRequest) {
			r.Subject.Organization = append(r.Subject.Organization, "system:masters")
		}, nil, "organization"},
		"for another node":  {func(r *x509.CertificateRequest) { r.Subject.CommonName += "2" }, nil, "it is for"},
		"for no node":       {func(r *x509.CertificateRequest) { r.Subject.CommonName = "kube-apiserver" }, nil, "common name"},
		"another's name":    {func(r *x509.CertificateRequest) { r.DNSNames = []string{worker + "2"} }, nil, "its names"},
		"a further name":    {func(r *x509.CertificateRequest) { r.DNSNames = append(r.DNSNames, "kubernetes.default.svc") }, nil, "its names"},
		"a wildcard":        {func(r *x509.CertificateRequest) { r.DNSNames = []string{"*"} }, nil, "its names"},
		"no name":           {func(r *x509.CertificateRequest) { r.DNSNames = nil }, nil, "its names"},
		"another's address": {func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.ParseIP("172.18.0.4")} }, nil, "its address 172.18.0.4"},
		"a further address": {func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP("10.96.0.1")) }, nil, "its address 10.96.0.1"},
		"no address":        {func(r *x509.CertificateRequest) { r.IPAddresses = nil }, nil, "no address"},
		"an email address":  {func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }, nil, "Email"},
		"a URI":             {func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, nil, "URI"},
	} {
		err := servingRequest(kubeletRequest(t, worker, "172.18.0.3", tc.template, tc.object), addresses)
		if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	stopped := map[string][]netip.Addr{worker: nil}
	if err := servingRequest(kubeletRequest(t, worker, "172.18.0.3", nil, nil), stopped); err == nil {
		t.Error("approved, and the container has no address")
	}
}

// said records the notes of a Progress.
type said struct {
	progress.Reporter
	notes []string
}

func (s *said) Note(text string) { s.notes = append(s.notes, text) }

// Good requests are approved according to the addresses that the container runtime reports.
// The others stay pending and are noted, and those that are decided stay as they are.
func TestApproveKubelets(t *testing.T) {
	everyRuntime(t, func(t *testing.T, command string) {
		p := newTestPlan(t, "")
		p.state.Runtime = command
		fakeCommand(t, command, fmt.Sprintf(`case "$1" in
ps) echo %[1]s ;;
container) echo '[%[2]s]' ;;
*) exit 1 ;;
esac
`, worker, inspected(command, worker, true, p.Dir+"/nodes/x", "20000")))
		named := func(name string, decided certificatesv1.RequestConditionType, address string) *certificatesv1.CertificateSigningRequest {
			return kubeletRequest(t, worker, address, nil, func(c *certificatesv1.CertificateSigningRequest) {
				c.Name = name
				if decided != "" {
					c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: decided, Status: "True"}}
				}
			})
		}
		client := fake.NewClientset(named("good", "", "172.18.0.3"), named("stale", "", "172.18.0.9"), named("denied", certificatesv1.CertificateDenied, "172.18.0.3"))
		for range 2 { // the second time finds nothing to do
			if err := p.approveKubelets(t.Context(), client); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string][]certificatesv1.RequestConditionType{
			"good": {certificatesv1.CertificateApproved}, "stale": nil, "denied": {certificatesv1.CertificateDenied},
		} {
			csr, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []certificatesv1.RequestConditionType
			for _, c := range csr.Status.Conditions {
				got = append(got, c.Type)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: conditions %v, want %v", name, got, want)
			}
		}
		s := &said{Reporter: progress.Silent}
		p.notePending(s)
		if len(s.notes) != 1 || !strings.Contains(s.notes[0], "stale") || !strings.Contains(s.notes[0], "172.18.0.9") {
			t.Errorf("noted %q, want the one that is left pending and why", s.notes)
		}
	})
}

// The cluster is not up while kube-apiserver cannot verify a kubelet. Other failures between
// the two do not delay it.
func TestKubeletsVerified(t *testing.T) {
	const failed = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":%q}`
	for name, tc := range map[string]struct {
		answer string // "" means that the kubelet answers
		wait   bool
	}{
		"verified":           {"", false},
		"signed by itself":   {"error trying to reach service: tls: failed to verify certificate: x509: certificate signed by unknown authority", true},
		"no certificate yet": {"error trying to reach service: remote error: tls: internal error", true},
		"an old address":     {"error trying to reach service: x509: certificate is valid for 172.18.0.3, not 172.18.0.4", true},
		"no agent for it":    {"error trying to reach service: no agent for 172.18.0.3", false},
	} {
		p := newTestPlan(t, "")
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case strings.HasSuffix(r.URL.Path, "/certificatesigningrequests"):
				fmt.Fprint(w, `{"kind":"CertificateSigningRequestList","apiVersion":"certificates.k8s.io/v1","items":[]}`)
			case r.URL.Path != "/api/v1/nodes/"+worker+"/proxy/healthz" || tc.answer == "":
				fmt.Fprint(w, "ok")
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintf(w, failed, tc.answer)
			}
		}))
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.kubeletsVerified(t.Context(), client)
		server.Close()
		var wait waitError
		if got := errors.As(err, &wait); got != tc.wait || (err != nil && !got) || (got && !strings.Contains(err.Error(), worker)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
