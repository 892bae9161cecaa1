// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/internal/redact"
)

// Connect asks the API server for its version. Its error wraps ErrUnreachable, is one line, and has a hint.
func Connect(ctx context.Context, env *Env) error {
	if err := env.Complete(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := env.Client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err == nil {
		// Anonymous clients can read /version. Only /api shows whether the credentials are valid.
		_, err = env.Client.Discovery().RESTClient().Get().AbsPath("/api").DoRaw(ctx)
	}
	if err == nil {
		return nil
	}
	return Explain(err, env.Config, time.Now())
}

// Explain turns an error of talking to the API server into one line that says what is wrong, with a hint of what to do.
func Explain(err error, cfg *rest.Config, now time.Time) error {
	what, hint := diagnose(err, cfg, now)
	return WithHint(fmt.Errorf("%w at %s: %s", ErrUnreachable, redact.Text(cfg.Host), what), "%s", hint)
}

func diagnose(err error, cfg *rest.Config, now time.Time) (what, hint string) {
	const renew = "get a new kubeconfig of the cluster (fairlead kubeconfig, kind get kubeconfig, /etc/kubernetes/admin.conf)"
	if what, ok := diagnoseTLS(err); ok {
		return what, renew
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %q does not resolve", dns.Name), "check `server:` in the kubeconfig, and DNS or /etc/hosts"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: no program listens there", "check that the cluster runs: `fairlead status`, then `fairlead up`"
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		return "no answer within 10 s", "check firewalls, VPN and proxies (HTTPS_PROXY, NO_PROXY), and that the API server runs"
	case errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH):
		return "no route to it", "check `server:` in the kubeconfig, and the network or VPN"
	case apierrors.IsUnauthorized(err):
		return diagnoseCredentials(cfg, now), renew
	case apierrors.IsNotFound(err):
		return "the program that listens there is not a Kubernetes API server (404)", "check `server:` in the kubeconfig: another program may use the port"
	case apierrors.IsForbidden(err):
		return "this user lacks the right: " + err.Error(), "use the kubeconfig of a cluster administrator"
	}
	return redact.Text(err.Error()), "try `kubectl version` with the same --kubeconfig and --context"
}

func diagnoseTLS(err error) (string, bool) {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
		alert   tls.AlertError
	)
	switch {
	case errors.As(err, &unknown):
		return "its certificate is not signed by the CA in the kubeconfig", true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("its certificate was valid until %s (or this machine's clock is wrong)", invalid.Cert.NotAfter.UTC().Format(time.DateTime)), true
	case errors.As(err, &invalid):
		return "its certificate is not usable: " + invalid.Error(), true
	case errors.As(err, &host):
		return fmt.Sprintf("its certificate does not name %s", host.Host), true
	// net/http hides the tls.RecordHeaderError behind this text.
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the program that listens there does not speak TLS: check `server:` in the kubeconfig", true
	case errors.As(err, &alert):
		return "it refused the client certificate: " + alert.Error(), true
	}
	return "", false
}

// diagnoseCredentials looks for the usual cause of a 401: a client certificate that has expired. The server's answer does not say so.
func diagnoseCredentials(cfg *rest.Config, now time.Time) string {
	data := cfg.CertData
	if len(data) == 0 && cfg.CertFile != "" {
		data, _ = os.ReadFile(cfg.CertFile)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return "it does not accept the credentials in the kubeconfig (401)"
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "the client certificate in the kubeconfig does not parse: " + err.Error()
	}
	if now.After(cert.NotAfter) {
		return fmt.Sprintf("the client certificate of %q in the kubeconfig expired on %s", cert.Subject.CommonName, cert.NotAfter.UTC().Format(time.DateTime))
	}
	return fmt.Sprintf("it does not accept the client certificate of %q (401): the kubeconfig may belong to another cluster", cert.Subject.CommonName)
}
