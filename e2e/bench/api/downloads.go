// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// downloads is how many there are next to the conversions.
const downloads = 4

// downloads starts downloads without an end from a Service of the cluster, which kube-apiserver reaches through the
// tunnel as it does the webhook. stop ends them and returns their rate together, in bytes per second.
func (b *bench) downloads(ctx context.Context) (stop func() (float64, error), err error) {
	path, closeServer, err := b.source(ctx)
	if err != nil {
		return nil, err
	}
	var got atomic.Int64
	ctx, cancel := context.WithCancel(ctx)
	errs := make([]error, downloads)
	var wg sync.WaitGroup
	for i := range downloads {
		wg.Go(func() {
			body, err := b.rest.Get().AbsPath(path).Stream(ctx)
			if err == nil {
				defer body.Close()
				_, err = io.Copy(io.Discard, &counted{body, &got})
			}
			if ctx.Err() == nil {
				errs[i] = fmt.Errorf("a download has ended: %w", errors.Join(err, io.ErrUnexpectedEOF))
			}
		})
	}
	start := time.Now()
	time.Sleep(time.Second) // all run
	return func() (float64, error) {
		rate := float64(got.Load()) / time.Since(start).Seconds()
		cancel()
		wg.Wait()
		closeServer()
		failed := errors.Join(errs...)
		if got.Load() == 0 {
			failed = errors.Join(failed, errors.New("the downloads got nothing"))
		}
		return rate, failed
	}, nil
}

type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// service is the Service of the downloads and of the webhook, in the benchmark's namespace.
const service = "through-tunnel"

// proxied is a path by which kube-apiserver proxies to a port of the Service, through the tunnel.
func proxied(scheme, port, path string) string {
	return "/api/v1/namespaces/" + namespace + "/services/" + scheme + ":" + service + ":" + port + "/proxy" + path
}

// source serves answers without an end at the address of the webhook, and returns the path by which kube-apiserver
// proxies to them. The Service has a port for the webhook, too.
func (b *bench) source(ctx context.Context) (path string, closeServer func(), err error) {
	slice, err := b.kube.DiscoveryV1().EndpointSlices(operator.DefaultNamespace).Get(ctx, operator.Name, metav1.GetOptions{})
	if err != nil {
		return "", nil, err
	}
	address := slice.Endpoints[0].Addresses[0]
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for piece := make([]byte, 256<<10); r.Context().Err() == nil; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})}
	go func() { _ = server.Serve(listener) }() // ends with Close
	closeServer = func() { _ = server.Close() }
	meta := metav1.ObjectMeta{Name: service, Namespace: namespace}
	ports := []corev1.EndpointPort{{Name: "downloads", Port: int32(listener.Addr().(*net.TCPAddr).Port)}, {Name: "webhook", Port: *slice.Ports[0].Port}}
	object := &corev1.Service{ObjectMeta: meta}
	for i, p := range ports {
		object.Spec.Ports = append(object.Spec.Ports, corev1.ServicePort{Name: p.Name, Port: int32(80 + i)})
	}
	if _, err = b.kube.CoreV1().Services(namespace).Create(ctx, object, metav1.CreateOptions{}); err == nil {
		err = b.pod(ctx, meta, address)
	}
	if err == nil {
		// kube-apiserver's proxy reads Endpoints, not EndpointSlices, and takes only addresses of Pods.
		_, err = b.kube.CoreV1().Endpoints(namespace).Create(ctx, &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{ //nolint:staticcheck // see above
			Addresses: []corev1.EndpointAddress{{IP: address, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: meta.Name, Namespace: namespace}}},
			Ports:     ports,
		}}}, metav1.CreateOptions{})
	}
	if err != nil {
		closeServer()
		return "", nil, err
	}
	return proxied("http", "downloads", "/"), closeServer, nil
}

// pod creates a Pod that no scheduler binds, with the address of the source.
func (b *bench) pod(ctx context.Context, meta metav1.ObjectMeta, address string) error {
	p, err := b.kube.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		SchedulerName: "none", Containers: []corev1.Container{{Name: "source", Image: "none"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	p.Status.PodIP, p.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	_, err = b.kube.CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}
