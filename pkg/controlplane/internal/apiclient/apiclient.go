// SPDX-License-Identifier: Apache-2.0

// Package apiclient connects to the kube-apiserver of one node. Start at [New].
package apiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

// AdminConf is the kubeconfig of an administrator that kubeadm writes.
const AdminConf = "/etc/kubernetes/admin.conf"

// requestTimeout bounds one call of a health check.
const requestTimeout = 5 * time.Second

// Server is a node's kube-apiserver.
type Server struct {
	nodefs.Host
	// PKIDir has the cluster's CA.
	PKIDir string
	// Container is kube-apiserver's, from its manifest.
	Container corev1.Container
}

// Client connects to the kube-apiserver of one node.
type Client struct {
	// Interface connects as administrator. If it is nil, Err holds the reason.
	kubernetes.Interface
	Err error

	server Server
	trust  *x509.CertPool
	// config is the client's configuration, or nil if there is no client.
	config *rest.Config
}

// New returns a client without an identity: it can only call health checks.
func New(s Server) *Client {
	c := &Client{server: s, trust: x509.NewCertPool()}
	if ca, err := s.Read(path.Join(s.PKIDir, "ca.crt")); err == nil {
		c.trust.AppendCertsFromPEM(ca)
	}
	return c
}

// Login makes the client an administrator, whether or not the server runs. The kubeconfig is a file
// of this machine; "" means the node's admin.conf.
func (c *Client) Login(kubeconfig string) {
	data, file, err := c.server.ReadGiven(kubeconfig, AdminConf)
	if err != nil {
		c.Err = fmt.Errorf("%w: give an administrator's with --kubeconfig", err)
		return
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		c.Err = fmt.Errorf("%s: %w", file, err)
		return
	}
	// The kubeconfig may name a load balancer; use this node's own API server.
	config.Host, config.ServerName, config.Timeout = "https://"+Address(c.server.Container), c.server.name(), 10*time.Second
	config.QPS = -1
	c.config = config
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "fairlead"))
	if err != nil {
		c.Err = err
		return
	}
	c.Interface = client
}

// Address returns the address where a node's API server listens, according
// to its flags.
func Address(c corev1.Container) string {
	args := append(append([]string{}, c.Command...), c.Args...)
	host := kubelet.Flag(args, "bind-address")
	if ip, err := netip.ParseAddr(host); err != nil || ip.IsUnspecified() {
		host = kubelet.Flag(args, "advertise-address")
	}
	if host == "" {
		host = "127.0.0.1"
	}
	port := kubelet.Flag(args, "secure-port")
	if port == "" {
		port = "6443"
	}
	return net.JoinHostPort(host, port)
}

// name returns the name to verify in kube-apiserver's certificate: "" for
// the host of its address, or one of the certificate's names if that host is not
// among them.
func (s Server) name() string {
	host, _, err := net.SplitHostPort(Address(s.Container))
	if err != nil {
		return ""
	}
	file := kubelet.Flag(append(append([]string{}, s.Container.Command...), s.Container.Args...), "tls-cert-file")
	data, err := s.Read(file)
	if err != nil {
		return ""
	}
	cert, err := pki.ParseCert(data)
	if err != nil || cert.VerifyHostname(host) == nil || len(cert.DNSNames) == 0 {
		return ""
	}
	return cert.DNSNames[0]
}

// http returns a client for one request on a connection of its own. It
// authenticates to kube-apiserver as administrator, because with
// --anonymous-auth=false kube-apiserver refuses anonymous requests.
func (c *Client) http(url string) (*http.Client, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if !strings.HasPrefix(url, "https://") {
		return &http.Client{Transport: transport}, nil
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: c.trust, ServerName: c.server.name(), MinVersion: tls.VersionTLS12}
	if c.config == nil {
		return &http.Client{Transport: transport}, nil
	}
	identity, err := rest.TLSConfigFor(c.config)
	if err != nil {
		return nil, err
	}
	if identity != nil {
		transport.TLSClientConfig.Certificates = identity.Certificates
		transport.TLSClientConfig.GetClientCertificate = identity.GetClientCertificate
	}
	wrapped, err := rest.HTTPWrappersForConfig(c.config, transport)
	return &http.Client{Transport: wrapped}, err
}

// Healthy calls a health check. The client verifies kube-apiserver with the
// cluster's CA, and uses the administrator's identity if there is one.
func (c *Client) Healthy(ctx context.Context, url string) error {
	if url == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client, err := c.http(url)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
