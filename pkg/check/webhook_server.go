// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// denyMessage is what the check's own webhook says when it refuses.
const denyMessage = "refused by the webhook of fairlead verify"

// labelDeny on an object makes the webhook refuse it.
const labelDeny = "fairlead.dev/deny"

// hookServer is the check's own HTTPS server: a validating webhook on /validate and an echo on /echo.
type hookServer struct {
	caPEM   []byte
	port    int32
	reviews atomic.Int64
	server  *http.Server
}

// startHookServer serves as dnsName on ip:port until closed; port 0 picks a free one. Its CA is created for it and
// discarded with it.
func startHookServer(ctx context.Context, dnsName, ip string, port int) (*hookServer, error) {
	ca, cert, err := throwAwayCert(dnsName)
	if err != nil {
		return nil, err
	}
	listener, err := listenOn(ctx, ip, port)
	if err != nil {
		return nil, WithHint(fmt.Errorf("listen for the check's own webhook: %w", err), "set --webhook-address to another HOST:PORT of this machine")
	}
	h := &hookServer{caPEM: ca, port: int32(listener.Addr().(*net.TCPAddr).Port)}
	mux := http.NewServeMux()
	mux.HandleFunc("/validate", h.validate)
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Query().Get("msg")) })
	h.server = httplimits.Short.Server(mux)
	h.server.ErrorLog = log.New(io.Discard, "", 0)
	h.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	// No HTTP/2 and no keep-alive: so every call needs a connection of its own, which the tunnel's counters show.
	h.server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	h.server.SetKeepAlivesEnabled(false)
	go func() { _ = h.server.ServeTLS(httplimits.Short.Listener(listener), "", "") }()
	return h, nil
}

func (h *hookServer) Close() error { return h.server.Close() }

// listenOn listens on exactly this address. If the address is not this machine's own (behind NAT), listenOn listens on all
// addresses.
func listenOn(ctx context.Context, ip string, port int) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", net.JoinHostPort(ip, fmt.Sprint(port)))
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return lc.Listen(ctx, "tcp", net.JoinHostPort("", fmt.Sprint(port)))
	}
	return listener, err
}

func (h *hookServer) validate(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	h.reviews.Add(1)
	var object metav1.PartialObjectMetadata
	_ = json.Unmarshal(review.Request.Object.Raw, &object)
	_, deny := object.Labels[labelDeny]
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !deny}
	if deny {
		review.Response.Result = &metav1.Status{Message: denyMessage, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden}
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// throwAwayCert makes a CA and a serving certificate of it for dnsName, both valid for an hour. The CA's key is dropped at once.
func throwAwayCert(dnsName string) (caPEM []byte, cert tls.Certificate, err error) {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, cert, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, cert, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fairlead verify"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, cert, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "fairlead-verify"}, DNSNames: []string{dnsName},
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, cert, err
	}
	caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	return caPEM, tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key}, nil
}
