// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded"
	clusterprocess "github.com/fairlead-dev/fairlead/pkg/cluster/process"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	servicesNamespace = metav1.NamespaceDefault
	servicePort       = 7
	serviceWait       = time.Minute
)

func service(name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Name: "tcp", Port: servicePort}}}}
}

// servePod makes a Service of a simulated Pod. Connections to the Pod's ports lead to a target on this machine: a simulated node, which is
// kwok, connects to it, as a real one would connect to the Pod.
func servePod(ctx context.Context, client kubernetes.Interface, c *closers, name string) error {
	target, stop, err := process("socks5-target") //nolint:contextcheck // the program ends with the benchmark
	if err != nil {
		return err
	}
	*c = append(*c, stop)
	if err := forwardTo(ctx, target); err != nil {
		return err
	}
	labels := map[string]string{"app": name}
	if _, err := client.CoreV1().Services(servicesNamespace).Create(ctx, service(name, labels), metav1.CreateOptions{}); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "target", Image: "target"}}}}
	if _, err := client.CoreV1().Pods(servicesNamespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	return awaitEndpoint(ctx, client, name)
}

// forwardTo lets port-forwarding of the simulated nodes, which answer with what they get, lead to an address.
func forwardTo(ctx context.Context, address string) error {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	layout, err := embedded.NewLayout(root, clusterName)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	file := filepath.Join(layout.ConfigDir(), "kwok.yaml")
	config, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const echo = "- command:\n    - cat\n"
	if !strings.Contains(string(config), echo) {
		return fmt.Errorf("%s does not let port-forward echo: bring forwardTo in step with pkg/cluster/embedded", file)
	}
	changed := strings.Replace(string(config), echo, fmt.Sprintf("- target:\n      address: %s\n      port: %s\n", host, port), 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		return err
	}
	const kwok = "kwok"
	supervisor := clusterprocess.NewClient(layout.SupervisorSocket())
	if err := supervisor.Stop(ctx, kwok); err != nil {
		return err
	}
	return supervisor.Start(ctx, kwok)
}

// serveHost makes a Service that leads to a target at this machine's address, which it returns: agents connect to no loopback address for
// users of the API.
func serveHost(ctx context.Context, client kubernetes.Interface, c *closers, name string) (host string, err error) {
	if host, err = nodeAddress(ctx, client); err != nil {
		return "", err
	}
	target, stop, err := process("socks5-target", host) //nolint:contextcheck // the program ends with the benchmark
	if err != nil {
		return "", err
	}
	*c = append(*c, stop)
	_, text, err := net.SplitHostPort(target)
	if err != nil {
		return "", err
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return "", err
	}
	if _, err := client.CoreV1().Services(servicesNamespace).Create(ctx, service(name, nil), metav1.CreateOptions{}); err != nil {
		return "", err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("tcp"), Port: ptr.To(int32(port)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if _, err := client.DiscoveryV1().EndpointSlices(servicesNamespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	return host, awaitEndpoint(ctx, client, name)
}

// nodeAddress is that of simulated nodes, which is one of this machine.
func nodeAddress(ctx context.Context, client kubernetes.Interface) (string, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				return a.Address, nil
			}
		}
	}
	return "", fmt.Errorf("none of %d nodes has an address", len(nodes.Items))
}

// awaitEndpoint waits until a Service has a ready endpoint.
func awaitEndpoint(ctx context.Context, client kubernetes.Interface, name string) error {
	for end := time.Now().Add(serviceWait); ; time.Sleep(50 * time.Millisecond) {
		slices, err := client.DiscoveryV1().EndpointSlices(servicesNamespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
		if err != nil {
			return err
		}
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if ptr.Deref(e.Conditions.Ready, false) {
					return nil
				}
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("service %s has no endpoint after %v", name, serviceWait)
		}
	}
}
