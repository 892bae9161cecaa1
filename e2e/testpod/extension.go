// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the tests know too; see package harness.
const (
	group       = "e2e.fairlead.dev"
	denyLabel   = "e2e.fairlead.dev/deny"
	denyMessage = "refused by the webhook of the end-to-end tests"
)

// frontProxy verifies the front proxy: only a client with a certificate of this
// CA and one of these common names may pass on other users in request headers.
type frontProxy struct {
	ca    *x509.CertPool
	names []string
}

func loadFrontProxy(o options) (frontProxy, error) {
	pem, err := os.ReadFile(o.frontProxyCAFile)
	if err != nil {
		return frontProxy{}, err
	}
	f := frontProxy{ca: x509.NewCertPool(), names: strings.Split(o.frontProxyNames, ",")}
	if !f.ca.AppendCertsFromPEM(pem) {
		return frontProxy{}, fmt.Errorf("%s holds no certificate", o.frontProxyCAFile)
	}
	return f, nil
}

// only rejects all clients except a front proxy.
func (f frontProxy) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 || !slices.Contains(f.names, r.TLS.PeerCertificates[0].Subject.CommonName) {
			http.Error(w, "only the front proxy may ask", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// apiHandler serves an API group that tells callers the headers they came with.
func apiHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/"+group+"/v1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"`+group+`/v1","resources":[]}`)
	})
	mux.HandleFunc("/apis/"+group+"/v1/whoami", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(r.Header)
	})
	return mux
}

// validate refuses what has the label and admits all else.
func validate(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	var object metav1.PartialObjectMetadata
	_ = json.Unmarshal(review.Request.Object.Raw, &object)
	_, deny := object.Labels[denyLabel]
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !deny}
	if deny {
		review.Response.Result = &metav1.Status{Message: denyMessage, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden}
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}
