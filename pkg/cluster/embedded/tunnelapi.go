// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// tunnelAPIPorts lists the names of the ports of the tunnel's API server; none without it.
func (p *plan) tunnelAPIPorts() []string {
	if !tunnelapi.Enabled(p.bundle) {
		return nil
	}
	return []string{portTunnelAPI}
}

// tunnelAPIAddress is where the tunnel's API server listens: at the machine's address,
// because an endpoint of a Service must not be loopback.
func (p *plan) tunnelAPIAddress() string {
	return net.JoinHostPort(p.state.HostIP, p.port(portTunnelAPI))
}

// tunnelAPI returns the tunnel's API server. It asks the Konnectivity server over its socket.
func (p *plan) tunnelAPI() process.Spec {
	proc := component.LocalProcess(tunnelapi.Component(p.bundle), component.LocalOptions{
		Path: p.localPath(progTunnelAPI),
		Port: p.mapPort(map[string]string{tunnelapi.PortAPI: portTunnelAPI}),
		Extra: []component.Flag{
			component.PlainFlag("bind-address", p.state.HostIP),
			component.PlainFlag("konnectivity-server", "unix://"+p.StateSocket()),
			component.PlainFlag("kubeconfig", p.Kubeconfig(progTunnelAPI)),
			component.PlainFlag("shutdown-delay-duration", "0s"), // its endpoint stays
			component.PlainFlag("tls-cert-file", p.PKI(progTunnelAPI+".crt")),
			component.PlainFlag("tls-private-key-file", p.PKI(progTunnelAPI+".key")),
		},
	})
	// It reads the front proxy's CA from the API server at its start.
	spec := p.bundlePart(progTunnelAPI, proc, &process.Probe{URL: "https://" + p.tunnelAPIAddress() + "/readyz"}, progAPIServer, progTunnelServer)
	spec.NeedsFiles = []string{p.Token(progTunnelAPI)}
	return spec
}

// localDestinations lets the Konnectivity server connect to the tunnel's API server itself.
func (p *plan) localDestinations() []component.Flag {
	if !tunnelapi.Enabled(p.bundle) {
		return nil
	}
	const name = "local-destinations"
	value := p.tunnelAPIAddress()
	for _, f := range konnectivity.ServerFlags(p.bundle) {
		if f.Name == name {
			value += "," + f.Value
		}
	}
	return []component.Flag{component.PlainFlag(name, value)}
}

// writeTunnelAPIFiles writes the certificate and the kubeconfig of the tunnel's API server.
func (p *plan) writeTunnelAPIFiles(a authorities, now time.Time) error {
	if !tunnelapi.Enabled(p.bundle) {
		return nil
	}
	request := tunnelapi.CertificateRequest(p.bundle)
	request.IPs = append(request.IPs, net.ParseIP(p.state.HostIP))
	pair, err := a.cluster.Issue(pki.FromBundle(p.bundle), request, now)
	if err != nil {
		return err
	}
	if err := p.writePair(progTunnelAPI, pair); err != nil {
		return err
	}
	kubeconfig, err := p.tokenKubeconfig(progTunnelAPI, p.Token(progTunnelAPI))
	if err != nil {
		return err
	}
	return writeFile(p.Kubeconfig(progTunnelAPI), kubeconfig, 0o600)
}

// startTunnelAPI registers the tunnel's API server when it is ready.
func (p *plan) startTunnelAPI(ctx context.Context, pr progress.Reporter) (string, error) {
	if err := p.waitReady(ctx, pr, progTunnelAPI); err != nil {
		return "", err
	}
	objects, err := p.tunnelAPIObjects()
	if err != nil || len(objects) == 0 {
		return "not registered: the machine has no network", err
	}
	_, err = p.installBundle(ctx, objects...)
	return "kubectl get tunnelagents", err
}

// tunnelAPIObjects are a Service with the process as its endpoint, and the APIService. There
// are none without the tunnel's API server, or without a network.
func (p *plan) tunnelAPIObjects() ([]component.Object, error) {
	if !tunnelapi.Enabled(p.bundle) || !p.state.hasNetwork() {
		return nil, nil
	}
	ca, err := os.ReadFile(p.PKI("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the CA of the tunnel's API server: %w", err)
	}
	r := tunnelapi.Request(p.bundle)
	service := p.processService(metav1.ObjectMeta{Name: r.Service, Namespace: r.Namespace, Labels: tunnelapi.Labels()},
		corev1.ServicePort{Name: tunnelapi.PortAPI, Protocol: corev1.ProtocolTCP, Port: r.Port}, portTunnelAPI)
	service[0].(*corev1.Service).Spec.ClusterIP = p.bundle.TunnelAPI.ClusterIP
	return append(service, tunnelapi.APIService(p.bundle, ca)), nil
}

// processService are a Service and, as there are no Pods that it could select, its endpoint: a
// process that listens at the machine's address.
func (p *plan) processService(meta metav1.ObjectMeta, port corev1.ServicePort, listens string) []component.Object {
	slice := meta.DeepCopy()
	slice.Labels[discoveryv1.LabelServiceName] = meta.Name
	family := discoveryv1.AddressTypeIPv4
	if net.ParseIP(p.state.HostIP).To4() == nil {
		family = discoveryv1.AddressTypeIPv6
	}
	return []component.Object{
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{port}},
		},
		&discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"}, ObjectMeta: *slice,
			AddressType: family,
			Ports:       []discoveryv1.EndpointPort{{Name: &port.Name, Protocol: &port.Protocol, Port: ptr.To(int32(p.state.Ports[listens]))}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{p.state.HostIP}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		},
	}
}
