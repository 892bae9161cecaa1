// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiservice"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// TestAPIServiceFaults proves that a real kube-apiserver gives the reasons that the check explains, for the faults that they are for. The
// two reasons that are missing come from kube-apiserver's own caches.
// It observes AGG-45 and EXT-01 of docs/requirements.md.
func TestAPIServiceFaults(t *testing.T) {
	cp := daemontest.StartControlPlane(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kube := kubernetes.NewForConfigOrDie(cfg)
	causes := map[string]string{
		"absent":    "(ServiceNotFound): its Service does not exist",
		"otherport": "(ServicePortError): its Service does not have port 443",
		"noslices":  "(EndpointsNotFound): no EndpointSlice belongs to its Service",
		"notready":  "(MissingEndpoints): no Pod behind its Service is ready",
	}
	client := dynamic.NewForConfigOrDie(cfg)
	ca := newCA(t)
	for name := range causes {
		backend(t, kube, name)
		register(t, client, name, apiservice.DefaultPort, ca)
	}
	for name, cause := range map[string]string{
		"foreignca": "spec.caBundle has not signed the server's certificate",
		"expired":   "the server's certificate has expired",
		"othername": "the server's certificate is not for othername.default.svc",
		"refuses":   "the server refuses kube-apiserver",
		"old":       "the server does not serve the group and version",
		"broken":    "the server answers with an error",
		"closed":    "nothing listens on the port of its Pods",
	} {
		causes[name] = "(FailedDiscoveryCheck): " + cause
		register(t, client, name, serve(t, kube, name, ca), ca)
	}
	var missing []string
	err = wait.PollUntilContextTimeout(t.Context(), time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
		s, err := observe.Collect(ctx, observe.Target{Config: cfg})
		if err != nil || s.Reach.Err != nil {
			return false, err
		}
		result := rules.Judge(s, rules.Options{Only: []string{"FL-EXT-002"}}).Checks[0]
		missing = nil
		for name, cause := range causes {
			if !found(result.Findings, "APIService v1."+name+".example", cause) {
				missing = append(missing, name+": no "+cause)
			}
		}
		if len(missing) > 0 {
			missing = append(missing, fmt.Sprintf("got %+v", result))
		}
		return len(missing) == 0, nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, strings.Join(missing, "\n"))
	}
}

func found(findings []rules.Finding, object, cause string) bool {
	for _, f := range findings {
		if f.Object == object && strings.Contains(f.Message, cause) && f.Fix != "" {
			return true
		}
	}
	return false
}

// backend makes a Service with the fault that its name says.
func backend(t *testing.T, kube kubernetes.Interface, name string) {
	t.Helper()
	if name == "absent" {
		return
	}
	port := corev1.ServicePort{Name: "https", Port: 443}
	if name == "otherport" {
		port.Port = 8443
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{port}}}
	if _, err := kube.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if name == "noslices" {
		return
	}
	_, err := kube.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(name != "notready")}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// newCA is one with the settings of a bundle.
func newCA(t *testing.T) pki.KeyPair {
	t.Helper()
	ca, err := pki.NewCA(pki.FromBundle(v1alpha1.New()), "test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// serve runs an API server with the fault that its name says, and makes a Service for it. It returns the port.
func serve(t *testing.T, kube kubernetes.Interface, name string, ca pki.KeyPair) int32 {
	t.Helper()
	host, cfg := name+".default.svc", pki.FromBundle(v1alpha1.New())
	switch name {
	case "foreignca":
		ca = newCA(t)
	case "expired":
		cfg.Validity = time.Millisecond
	case "othername":
		host = "elsewhere.default.svc"
	}
	pair, err := ca.Issue(cfg, pki.Request{CommonName: host, DNSNames: []string{host}, Usages: pki.ServerAuth}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.CertPEM(), key)
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]int{"refuses": http.StatusForbidden, "old": http.StatusNotFound, "broken": http.StatusInternalServerError}[name]
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(cmp.Or(status, http.StatusOK)) }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	if t.Cleanup(server.Close); name == "closed" {
		server.Close()
	}
	// Without kube-proxy kube-apiserver reaches no cluster IP.
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}
	if _, err := kube.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return int32(server.Listener.Addr().(*net.TCPAddr).Port)
}

// register makes an APIService for the Service of that name.
func register(t *testing.T, client dynamic.Interface, name string, port int32, ca pki.KeyPair) {
	t.Helper()
	r := apiservice.Request{Group: name + ".example", Version: "v1", Namespace: "default", Service: name, Port: port}.Defaulted()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r.APIService(ca.CertPEM()))
	if err != nil {
		t.Fatal(err)
	}
	services := client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	if _, err := services.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
