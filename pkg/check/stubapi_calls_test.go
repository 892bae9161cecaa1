// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// find returns the only stored object whose path contains part.
func (a *stubAPI) find(part string) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	for path, obj := range a.objects {
		if strings.Contains(path, part) {
			return obj
		}
	}
	return nil
}

// review asks the registered webhook, as the API server would: at the endpoint's address, by the Service's name, with the registered CA.
func (a *stubAPI) review(obj map[string]any) error {
	stored := a.find("/validatingwebhookconfigurations/")
	if stored == nil || a.skipWebhook {
		return nil
	}
	config := fromMap[admissionregistrationv1.ValidatingWebhookConfiguration](stored)
	var failed string
	rec := httptest.NewRecorder()
	a.call(rec, func() {})
	if rec.Code != http.StatusOK {
		failed = rec.Body.String()
	}
	a.mu.Lock()
	a.webhookCalls++
	if slices.Contains(a.lateNodes, a.webhookCalls) {
		failed = "x509: certificate is valid for gateway.example, not the check's webhook"
	}
	a.mu.Unlock()
	if failed != "" {
		return fmt.Errorf("failed calling webhook: %s", failed)
	}
	raw, _ := json.Marshal(obj)
	body, _ := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: types.UID("u"), Object: runtime.RawExtension{Raw: raw}}})
	svc := config.Webhooks[0].ClientConfig.Service
	resp, err := a.endpointClient(config.Webhooks[0].ClientConfig.CABundle).Post(
		fmt.Sprintf("https://%s.%s.svc%s", svc.Name, svc.Namespace, ptr.Deref(svc.Path, "")), "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(resp.Body).Decode(&review); err != nil {
		return err
	}
	if !review.Response.Allowed {
		return fmt.Errorf("admission webhook denied the request: %s", review.Response.Result.Message)
	}
	return nil
}

// endpointClient dials the address of the one EndpointSlice whatever the URL says.
func (a *stubAPI) endpointClient(ca []byte) *http.Client {
	slice := a.find("/endpointslices/")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	endpoint := slice["endpoints"].([]any)[0].(map[string]any)["addresses"].([]any)[0].(string)
	port := slice["ports"].([]any)[0].(map[string]any)["port"].(float64)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, InsecureSkipVerify: ca == nil}, //nolint:gosec // the real Service proxy does not verify either
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, fmt.Sprintf("%s:%d", endpoint, int(port)))
		},
	}}
}

// proxyEcho goes where the real Service proxy goes: to an address in Endpoints that belongs to a pod of the namespace.
func (a *stubAPI) proxyEcho(w http.ResponseWriter, r *http.Request) {
	endpoints := a.find("/endpoints/")
	pod := a.find("/pods/stand-in")
	if endpoints == nil || pod == nil || fromMap[corev1.Pod](pod).Status.PodIPs == nil {
		fail(w, http.StatusServiceUnavailable, "no endpoints available for service")
		return
	}
	resp, err := a.endpointClient(nil).Get("https://svc/echo?" + r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(w, resp.Body)
}

// exec copies stdin to stdout in the WebSocket protocol that kubectl speaks: the first byte of a frame is its channel.
func (a *stubAPI) exec(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	for got := 0; got < ExecBytes; {
		_, frame, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if len(frame) == 0 || frame[0] != 0 {
			continue
		}
		got += len(frame) - 1
		frame[0] = 1
		if a.corruptExec {
			frame[len(frame)-1] ^= 1
		}
		_ = conn.WriteMessage(websocket.BinaryMessage, frame)
	}
	_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{3}, `{"status":"Success"}`...))
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
}
