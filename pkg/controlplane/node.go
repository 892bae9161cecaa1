// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/cluster"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/manifests"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/nodefs"
)

const (
	apiServer   = manifests.APIServer
	adminConf   = "/etc/kubernetes/admin.conf"
	kubeletConf = "/etc/kubernetes/kubelet.conf"
)

// node is a control plane node: what is known about it, and how to query it.
type node struct {
	nodefs.Host
	opts   Options
	bundle *v1alpha1.Bundle
	state  *State

	// manifest is kube-apiserver's manifest, read from manifestPath.
	manifestPath string
	manifest     []byte
	pod          *corev1.Pod
	container    corev1.Container

	// ownName is the node's name, as far as it could be determined.
	ownName string
	// address is that of this node's own API server.
	address string
	trust   *x509.CertPool
	// client connects to that API server as administrator. If there is no
	// kubeconfig, it is nil and clientErr holds the reason.
	client    kubernetes.Interface
	clientErr error
	// config is the client's configuration, or nil if there is no client.
	config *rest.Config
}

// newNode sets up a node from the options. It reads no file and needs no API
// server.
func newNode(o Options) *node {
	b := o.Bundle.Defaulted()
	n := &node{Host: nodefs.Host{Root: o.Root}, opts: o, bundle: b}
	n.manifestPath = manifests.APIServerFile(b)
	return n
}

// api returns the cluster's API as this node reaches it.
func (n *node) api() cluster.API {
	return cluster.API{Client: n.client, Err: n.clientErr, Node: n.ownName, Bundle: n.bundle}
}

// readManifest reads kube-apiserver's manifest and sets the fields derived from
// it.
func (n *node) readManifest() error {
	data, err := n.Read(n.manifestPath)
	if err != nil {
		return err
	}
	pod, err := manifests.Decode(data)
	if err != nil {
		return fmt.Errorf("%w %s: %w", ErrManifest, n.manifestPath, err)
	}
	i := manifests.APIServerIndex(pod)
	if i < 0 {
		var names []string
		for _, c := range pod.Spec.Containers {
			names = append(names, c.Name)
		}
		return fmt.Errorf("%w %s: none of its containers is named %s, only %s", ErrManifest, n.manifestPath, apiServer, strings.Join(names, ", "))
	}
	n.manifest, n.pod, n.container = data, pod, pod.Spec.Containers[i]
	n.address = localAddress(n.container)
	return nil
}

// localAddress returns the address where this node's API server listens, according
// to its flags.
func localAddress(c corev1.Container) string {
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

// connect prepares the client of this node's API server, whether or not the server
// runs.
func (n *node) connect() {
	n.ownName = n.nodeName()
	n.trust = x509.NewCertPool()
	if ca, err := n.Read(path.Join(n.bundle.ControlPlane.PKIDir, "ca.crt")); err == nil {
		n.trust.AppendCertsFromPEM(ca)
	}
	if n.client = n.opts.client; n.client != nil {
		return
	}
	data, file, err := n.ReadGiven(n.opts.Kubeconfig, adminConf)
	if err != nil {
		n.clientErr = fmt.Errorf("%w: give an administrator's with --kubeconfig", err)
		return
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		n.clientErr = fmt.Errorf("%s: %w", file, err)
		return
	}
	// The kubeconfig may name a load balancer; use this node's own API server.
	config.Host, config.ServerName, config.Timeout = "https://"+n.address, n.serverName(), 10*time.Second
	config.QPS = -1
	n.config = config
	n.client, n.clientErr = kubernetes.NewForConfig(rest.AddUserAgent(config, "fairlead"))
}

// serverName returns the name to verify in kube-apiserver's certificate: "" for
// the host of its address, or one of the certificate's names if that host is not
// among them.
func (n *node) serverName() string {
	host, _, err := net.SplitHostPort(n.address)
	if err != nil {
		return ""
	}
	file := kubelet.Flag(append(append([]string{}, n.container.Command...), n.container.Args...), "tls-cert-file")
	data, err := n.Read(file)
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
func (n *node) http(url string) (*http.Client, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if !strings.HasPrefix(url, "https://") {
		return &http.Client{Transport: transport}, nil
	}
	transport.TLSClientConfig = &tls.Config{RootCAs: n.trust, ServerName: n.serverName(), MinVersion: tls.VersionTLS12}
	if n.config == nil {
		return &http.Client{Transport: transport}, nil
	}
	identity, err := rest.TLSConfigFor(n.config)
	if err != nil {
		return nil, err
	}
	if identity != nil {
		transport.TLSClientConfig.Certificates = identity.Certificates
		transport.TLSClientConfig.GetClientCertificate = identity.GetClientCertificate
	}
	wrapped, err := rest.HTTPWrappersForConfig(n.config, transport)
	return &http.Client{Transport: wrapped}, err
}

// nodeName returns the name under which the kubelet has registered: the one in its
// certificate, or else the machine's host name.
func (n *node) nodeName() string {
	if name := n.kubeletIdentity(); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}

func (n *node) kubeletIdentity() string {
	data, err := n.Read(kubeletConf)
	if err != nil {
		return ""
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return ""
	}
	for _, user := range config.AuthInfos {
		cert := user.ClientCertificateData
		if len(cert) == 0 && user.ClientCertificate != "" {
			cert, _ = n.Read(user.ClientCertificate)
		}
		if parsed, err := pki.ParseCert(cert); err == nil {
			if name, ok := strings.CutPrefix(parsed.Subject.CommonName, "system:node:"); ok {
				return name
			}
		}
	}
	return ""
}

// mirror returns the mirror Pod of one of the two static Pods.
func (n *node) mirror(pod string) kubelet.Mirror {
	return kubelet.Mirror{Host: n.Host, Client: n.client, Err: n.clientErr, Dir: n.bundle.ControlPlane.ManifestsDir,
		Namespace: n.namespaceOf(pod), Pod: pod, Node: n.ownName}
}

func (n *node) namespaceOf(pod string) string {
	if pod == konnectivity.ServerName {
		return n.bundle.Namespace
	}
	return metav1.NamespaceSystem
}

func (n *node) proc() kubelet.Procfs { return kubelet.Procfs(n.opts.proc) }

// checkVisible fails if a program works but its process is not visible from here.
func (n *node) checkVisible(p *kubelet.Program) error {
	if n.opts.waits != nil {
		return nil
	}
	return n.proc().Visible(p)
}

// healthy calls a health check. The client verifies kube-apiserver with the
// cluster's CA, and uses the administrator's identity if there is one.
func (n *node) healthy(ctx context.Context, url string) error {
	if n.opts.health != nil {
		return n.opts.health(url)
	}
	if url == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client, err := n.http(url)
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
