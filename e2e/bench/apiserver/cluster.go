// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/embedded"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/benchcluster"
)

const (
	// name keeps the benchmark's cluster apart from the user's.
	name = "bench-apiserver"
	// program is the name of the API server's process and of its files.
	program = "fairlead-apiserver"
	// namespace of its Service.
	namespace  = metav1.NamespaceSystem
	apiService = "v1alpha1.tunnel.fairlead.dev"

	goalOverhead  = time.Millisecond
	goalAvailable = 35 * time.Second
)

// embeddedCluster is a running cluster.
type embeddedCluster struct {
	config     *rest.Config
	kube       kubernetes.Interface
	aggregator aggregator.Interface
	supervisor *process.Client
	layout     embedded.Layout
	// slice lists the cluster's own API server.
	slice *discoveryv1.EndpointSlice
	// direct reaches the cluster's API server without kube-apiserver, with the same credentials.
	direct *rest.Config
}

// cluster measures what kube-apiserver is part of.
func (b *bench) cluster(ctx context.Context) (err error) {
	kubeconfig, down, err := benchcluster.Start(ctx, b.fairlead, b.dir, name, "{tunnelAPI: {enabled: true}}")
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return err
	}
	c, err := connect(ctx, kubeconfig)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context, *embeddedCluster) error{b.overhead, b.availability, b.failover} {
		if err := part(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func connect(ctx context.Context, kubeconfig string) (*embeddedCluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the benchmark must not wait for itself
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	agg, err := aggregator.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	layout, err := embedded.NewLayout(root, name)
	if err != nil {
		return nil, err
	}
	slice, err := kube.DiscoveryV1().EndpointSlices(namespace).Get(ctx, program, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	direct := rest.CopyConfig(config)
	direct.Host = "https://" + net.JoinHostPort(slice.Endpoints[0].Addresses[0], strconv.Itoa(int(*slice.Ports[0].Port)))
	return &embeddedCluster{config: config, kube: kube, aggregator: agg, supervisor: process.NewClient(layout.SupervisorSocket()), layout: layout, direct: direct, slice: slice}, nil
}

// overhead reads objects through kube-apiserver and directly, and one that kube-apiserver has itself, in turn.
func (b *bench) overhead(ctx context.Context, c *embeddedCluster) error {
	direct, err := kubernetes.NewForConfig(c.direct)
	if err != nil {
		return err
	}
	const warm = 50
	requests := []*rest.Request{
		c.kube.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelservers"),
		direct.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelservers"),
		c.kube.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes"),
	}
	took := make([][]time.Duration, len(requests))
	for i := range b.gets + warm {
		for j, request := range requests {
			start := time.Now()
			if err := request.Do(ctx).Error(); err != nil {
				return err
			}
			if i >= warm {
				took[j] = append(took[j], time.Since(start))
			}
		}
	}
	row("GET through kube-apiserver and the tunnel", "p50 %v, p99 %v", quantile(took[0], 0.5), quantile(took[0], 0.99))
	row("GET directly", "p50 %v, p99 %v", quantile(took[1], 0.5), quantile(took[1], 0.99))
	row("GET of the nodes, which kube-apiserver has itself", "p50 %v, p99 %v", quantile(took[2], 0.5), quantile(took[2], 0.99))
	goal(b, "aggregated beyond direct, p50", quantile(took[0], 0.5)-quantile(took[1], 0.5), goalOverhead)
	return nil
}

// availability stops the API server and starts it again, and waits until the APIService shows it.
func (b *bench) availability(ctx context.Context, c *embeddedCluster) error {
	if err := b.deletion(ctx, c, "namespace deleted while the server runs"); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context, string) error
		want apiregistrationv1.ConditionStatus
	}{
		{"Available is False after the loss", c.supervisor.Stop, apiregistrationv1.ConditionFalse},
		{"Available is True after the return", c.supervisor.Start, apiregistrationv1.ConditionTrue},
	} {
		start := time.Now()
		if err := step.do(ctx, program); err != nil {
			return err
		}
		if err := b.until(ctx, step.what, func(ctx context.Context) error { return c.available(ctx, step.want) }); err != nil {
			return err
		}
		goal(b, step.what, time.Since(start).Round(10*time.Millisecond), goalAvailable)
	}
	return b.blocked(ctx, c)
}

// available returns an error until the condition Available has a status.
func (c *embeddedCluster) available(ctx context.Context, want apiregistrationv1.ConditionStatus) error {
	s, err := c.aggregator.ApiregistrationV1().APIServices().Get(ctx, apiService, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, cond := range s.Status.Conditions {
		if cond.Type == apiregistrationv1.Available && cond.Status == want {
			return nil
		}
	}
	return fmt.Errorf("conditions: %v", s.Status.Conditions)
}

func sliceName(i int) string { return fmt.Sprintf("%s-bench-%d", program, i) }

// replica starts another API server of the cluster, which asks the given konnectivity-server, and lists it as an endpoint.
func (b *bench) replica(ctx context.Context, c *embeddedCluster, i int, url string) (*server, error) {
	config, err := clientTLS(c.config)
	if err != nil {
		return nil, err
	}
	s, err := b.start(ctx, c.slice.Endpoints[0].Addresses[0], config, "--konnectivity-server="+url, "--poll-interval="+poll.String(), "--keep-gone=1s", "--kubeconfig="+c.layout.Kubeconfig(program),
		"--tls-cert-file="+c.layout.PKI(program+".crt"), "--tls-private-key-file="+c.layout.PKI(program+".key"))
	if err != nil {
		return nil, err
	}
	port := s.port
	slice := c.slice.DeepCopy()
	slice.ObjectMeta = metav1.ObjectMeta{Name: sliceName(i), Namespace: namespace, Labels: c.slice.Labels}
	slice.Ports[0].Port = &port
	slices := c.kube.DiscoveryV1().EndpointSlices(namespace)
	if err = slices.Delete(ctx, slice.Name, metav1.DeleteOptions{}); err == nil || apierrors.IsNotFound(err) { // that of a killed one
		_, err = slices.Create(ctx, slice, metav1.CreateOptions{})
	}
	if err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

// clientTLS is what a kubeconfig has for TLS.
func clientTLS(c *rest.Config) (*tls.Config, error) {
	if err := rest.LoadTLSFiles(c); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(c.CertData, c.KeyData)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CAData)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}
