// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestAPIServerOverTCP checks that a real kube-apiserver connects to the server with HTTP
// CONNECT over TCP, with certificates on both sides, as the bundle configures it. The
// server rejects a certificate of another CA.
func TestAPIServerOverTCP(t *testing.T) {
	tls, stranger := daemontest.Certificate(t), daemontest.Certificate(t)
	p, frontend := startOverTCP(t, options{mode: "http-connect"}, tls)
	for _, c := range []struct {
		name   string
		client daemontest.Files
		denied bool
	}{{"certificate of the CA", tls, true}, {"certificate of another CA", stranger, false}} {
		t.Run(c.name, func(t *testing.T) {
			config := egressOverTCP(t, &v1alpha1.TCPTransport{
				URL: "https://" + frontend, CABundle: tls.CA, ClientCert: c.client.Cert, ClientKey: c.client.Key,
			})
			cp := daemontest.StartControlPlane(t, "--"+apiserver.ConfigFlag+"="+write(t, config))
			asked := denyConfigMaps(t, cp)
			before, err := metric(p.serverHealth, dialed)
			if err != nil {
				t.Fatal(err)
			}
			err = refusal(t, cp)
			if got := strings.Contains(err.Error(), denial); got != c.denied {
				t.Errorf("the webhook answered: %v, want %v: %v", got, c.denied, err)
			}
			after, err := metric(p.serverHealth, dialed)
			if err != nil {
				t.Fatal(err)
			}
			if through := after > before; through != c.denied || (asked.Load() > 0) != c.denied {
				t.Errorf("%v connections through the tunnel, %d requests; want any: %v", after-before, asked.Load(), c.denied)
			}
		})
	}
}

const (
	denial = "denied behind the tunnel"
	dialed = "konnectivity_network_proxy_server_dial_duration_seconds_count"
)

// egressOverTCP returns the bundle's EgressSelectorConfiguration for HTTP CONNECT over TCP.
func egressOverTCP(t *testing.T, tcp *v1alpha1.TCPTransport) string {
	t.Helper()
	return egress(t, v1alpha1.Konnectivity{ProxyProtocol: v1alpha1.ProxyHTTPConnect, Transport: v1alpha1.Transport{TCP: tcp}})
}

// egress returns the bundle's EgressSelectorConfiguration for kube-apiserver,
// changed to apply to webhooks that are given by URL: these may be on loopback.
func egress(t *testing.T, k v1alpha1.Konnectivity) string {
	t.Helper()
	data, err := apiserver.EgressSelectorConfiguration(&v1alpha1.Bundle{Konnectivity: k})
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(data), "name: "+apiserver.Selection, "name: controlplane", 1)
	if config == string(data) {
		t.Fatalf("the configuration has no selection %s:\n%s", apiserver.Selection, data)
	}
	return config
}

// denyConfigMaps makes kube-apiserver call a webhook on loopback for ConfigMaps, and
// returns how often it was called.
func denyConfigMaps(t *testing.T, cp *daemontest.ControlPlane) *atomic.Int64 {
	t.Helper()
	asked := &atomic.Int64{}
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, fmt.Sprintf("no review: %v", err), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: denial}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(hook.Close)
	_, err := cp.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "deny.example.org", SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To(hook.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"ask": "webhook"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return asked
}

// refusal creates ConfigMaps until kube-apiserver uses the webhook, and returns the error
// of the ConfigMap that could not be created.
func refusal(t *testing.T, cp *daemontest.ControlPlane) (refused error) {
	t.Helper()
	daemontest.Eventually(t, startBound, func() error {
		_, err := cp.Client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	})
	daemontest.Eventually(t, startBound, func() error {
		_, refused = cp.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "made-", Labels: map[string]string{"ask": "webhook"}},
		}, metav1.CreateOptions{})
		if refused == nil {
			return errors.New("the webhook is not asked")
		}
		return nil
	})
	return refused
}
