// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

const (
	barOne  = 50 * time.Millisecond
	barList = time.Second
	barOld  = time.Minute
	// writers create objects at once.
	writers = 8
	// page is that of kubectl.
	page = 500
	// lists is how often a list is read.
	lists = 20
	// namespace of the lists.
	namespace = "bench"
	// oldNamespace of objects that are stored in the old version.
	oldNamespace = "bench-old"
)

// conversion reads objects in the version that is not stored, and in the one that is.
func (b *bench) conversion(ctx context.Context) error {
	release, err := b.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := b.create(ctx, namespace, "v1beta1", b.list); err != nil {
		return err
	}
	if err := b.reads(ctx, ""); err != nil {
		return err
	}
	stop, err := b.downloads(ctx)
	if err != nil {
		return err
	}
	beside := fmt.Sprintf(", next to %d downloads through the tunnel", downloads)
	if err = b.reads(ctx, beside); err == nil {
		err = b.reviews(ctx, ", through the tunnel"+beside, b.throughTunnel)
	}
	rate, errStop := stop()
	if err = errors.Join(err, errStop); err != nil {
		return err
	}
	row("rate of these downloads together", "%.0f MB/s", rate/1e6)
	directly, err := b.webhook(ctx)
	if err != nil {
		return err
	}
	if err := b.reviews(ctx, ", without the tunnel", directly); err != nil {
		return err
	}
	rss, own, err := b.rss(ctx)
	if err != nil {
		return err
	}
	row("RSS of the operator after these lists", "%d MiB, %d MiB without the program's file", rss>>20, own>>20)
	return b.kube.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
}

// reads measures single objects and lists in both versions.
func (b *bench) reads(ctx context.Context, beside string) error {
	one, err := b.singles(ctx)
	if err != nil {
		return err
	}
	all, paged := map[string][]time.Duration{}, map[string][]time.Duration{}
	var refused error
	for range lists {
		for _, version := range versions {
			took, _, err := b.get(ctx, poolPath(version, namespace, "")+"?resourceVersion=0")
			if err != nil {
				refused = err
			} else {
				all[version] = append(all[version], took)
			}
			if took, err = b.pages(ctx, poolPath(version, namespace, "")); err != nil {
				return err
			}
			paged[version] = append(paged[version], took)
		}
	}
	figures := func(what string, of map[string][]time.Duration, bar time.Duration) {
		if what += beside; len(of["v1alpha1"]) == 0 {
			row(what, "refused: %v", refused)
			b.goal(what, false)
			return
		}
		row(what, "p50 %s, p99 %s (at most %s); without conversion p50 %s, p99 %s", quantile(of["v1alpha1"], 0.5), quantile(of["v1alpha1"], 0.99), bar,
			quantile(of["v1beta1"], 0.5), quantile(of["v1beta1"], 0.99))
		b.goal(what, quantile(of["v1alpha1"], 0.99) <= bar)
	}
	figures(fmt.Sprintf("one object of %d kB", b.size>>10), one, barOne)
	figures(fmt.Sprintf("list of %d x %d kB, from the watch cache of its version", b.list, b.size>>10), all, barList)
	figures(fmt.Sprintf("the same in pages of %d", page), paged, barList)
	return nil
}

// versions are the one that is not stored, and the one that is.
var versions = []string{"v1alpha1", "v1beta1"}

func poolPath(version, namespace, rest string) string {
	return "/apis/" + v1beta1.GroupVersion.Group + "/" + version + "/namespaces/" + namespace + "/tunnelpools" + rest
}

// singles reads single objects in both versions in turn, and makes sure that they are of them.
func (b *bench) singles(ctx context.Context) (map[string][]time.Duration, error) {
	const warm = 20 // connections
	out := map[string][]time.Duration{}
	for i := range b.gets + warm {
		for _, version := range versions {
			took, data, err := b.get(ctx, poolPath(version, namespace, "/"+poolName(i%b.list)))
			if err == nil && strings.Contains(string(data), `"hostNetwork":true`) != (version == "v1alpha1") {
				err = fmt.Errorf("not of version %s: %s", version, data)
			}
			if err != nil {
				return nil, err
			}
			if i >= warm {
				out[version] = append(out[version], took)
			}
		}
	}
	return out, nil
}

// post sends a review to the webhook and returns the body of the answer.
type post func(ctx context.Context, body []byte) ([]byte, error)

// reviews converts the list by the webhook itself, a page in a request: kube-apiserver keeps converted objects in a cache
// for each version, so a list seldom gets there.
func (b *bench) reviews(ctx context.Context, how string, send post) error {
	var pages [][]byte
	for i := 0; i < b.list; i += page {
		review := &apiextensionsv1.ConversionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "ConversionReview"},
			Request:  &apiextensionsv1.ConversionRequest{UID: "bench", DesiredAPIVersion: v1beta1.GroupVersion.Group + "/v1alpha1"},
		}
		for j := i; j < min(i+page, b.list); j++ {
			pool := object("v1beta1", "TunnelPool", poolName(j), b.padding(), map[string]any{"hostNetwork": "Enabled"})
			review.Request.Objects = append(review.Request.Objects, runtime.RawExtension{Object: pool})
		}
		body, err := json.Marshal(review)
		if err != nil {
			return err
		}
		pages = append(pages, body)
	}
	var took []time.Duration
	for range lists {
		start := time.Now()
		for i, body := range pages {
			answer, err := convert(ctx, send, body)
			if err != nil {
				return err
			}
			if want := min(page, b.list-i*page); answer.Result.Status != metav1.StatusSuccess || len(answer.ConvertedObjects) != want ||
				!strings.Contains(string(answer.ConvertedObjects[0].Raw), `"hostNetwork":true`) {
				return fmt.Errorf("webhook: %+v, %d objects", answer.Result, len(answer.ConvertedObjects))
			}
		}
		took = append(took, time.Since(start))
	}
	what := fmt.Sprintf("%d x %d kB converted by the webhook, %d in a request%s", b.list, b.size>>10, page, how)
	row(what, "p50 %s, p99 %s (at most %s)", quantile(took, 0.5), quantile(took, 0.99), barList)
	b.goal(what, quantile(took, 0.99) <= barList)
	return nil
}

// webhook returns how to reach the webhook without the tunnel.
func (b *bench) webhook(ctx context.Context) (post, error) {
	slice, err := b.kube.DiscoveryV1().EndpointSlices(operator.DefaultNamespace).Get(ctx, operator.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	secret, err := b.kube.CoreV1().Secrets(operator.DefaultNamespace).Get(ctx, operator.WebhookSecret, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	trust := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: operator.Name + "." + operator.DefaultNamespace + ".svc"}
	url := "https://" + net.JoinHostPort(slice.Endpoints[0].Addresses[0], strconv.Itoa(int(*slice.Ports[0].Port))) + conversion.WebhookPath
	client := &http.Client{Timeout: b.bound, Transport: &http.Transport{TLSClientConfig: trust}}
	return func(ctx context.Context, body []byte) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		return io.ReadAll(response.Body)
	}, nil
}

// throughTunnel reaches the webhook by the proxy of kube-apiserver.
func (b *bench) throughTunnel(ctx context.Context, body []byte) ([]byte, error) {
	return b.rest.Post().AbsPath(proxied("https", "webhook", conversion.WebhookPath)).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
}

// convert sends a review to the webhook.
func convert(ctx context.Context, send post, body []byte) (*apiextensionsv1.ConversionResponse, error) {
	data, err := send(ctx, body)
	if err != nil {
		return nil, err
	}
	var answer apiextensionsv1.ConversionReview
	if err := json.Unmarshal(data, &answer); err != nil || answer.Response == nil {
		return nil, fmt.Errorf("webhook: %s", data)
	}
	return answer.Response, nil
}

// padding gives an object its size.
func (b *bench) padding() map[string]any {
	return map[string]any{"bench/padding": strings.Repeat("x", max(0, b.size-512))} // the rest is metadata
}

// get reads a path once.
func (b *bench) get(ctx context.Context, path string) (time.Duration, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, b.bound)
	defer cancel()
	start := time.Now()
	data, err := b.rest.Get().RequestURI(path).DoRaw(ctx)
	return time.Since(start), data, err
}

// pages reads a list in pages.
func (b *bench) pages(ctx context.Context, path string) (total time.Duration, err error) {
	next := ""
	for {
		took, data, err := b.get(ctx, fmt.Sprintf("%s?limit=%d&continue=%s", path, page, next))
		if err != nil {
			return 0, err
		}
		total += took
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(data, &list); err != nil {
			return 0, err
		}
		if next = list.Continue; next == "" {
			return total, nil
		}
	}
}

// hold keeps the operator from reconciling: the benchmark holds its Lease, so it serves the
// webhook alone and does not write the status of thousands of objects meanwhile.
func (b *bench) hold(ctx context.Context) (release func(), err error) {
	if err := b.supervisor.Stop(ctx, operator.Binary); err != nil {
		return nil, err
	}
	patch := func(ctx context.Context) error {
		now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		body := fmt.Appendf(nil, `{"spec": {"holderIdentity": %q, "leaseDurationSeconds": 60, "renewTime": %q}}`, name, now)
		_, err := b.kube.CoordinationV1().Leases(operator.DefaultNamespace).Patch(ctx, operator.Name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
	if err := patch(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(2 * time.Second):
				_ = patch(ctx) // kube-apiserver may be down for a moment
			}
		}
	}()
	release = func() { cancel(); <-done }
	if err := b.supervisor.Start(ctx, operator.Binary); err != nil {
		release()
		return nil, err
	}
	err = b.until(ctx, "the operator to be ready", func(ctx context.Context) error {
		report, err := b.supervisor.Status(ctx)
		if p, _ := report.Find(operator.Binary); err == nil && !p.Ready {
			err = fmt.Errorf("it is %s: %s", p.State, p.Reason)
		}
		return err
	})
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func poolName(i int) string { return fmt.Sprintf("pool-%05d", i) }

// create makes a namespace with pools.
func (b *bench) create(ctx context.Context, namespace, version string, n int) error {
	if _, err := b.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	spec := map[string]any{"hostNetwork": "Enabled"}
	if version == "v1alpha1" {
		spec["hostNetwork"] = true
	}
	annotations := b.padding()
	pools := b.kind(version, "tunnelpools").Namespace(namespace)
	next, errs := make(chan int), make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range next {
				if _, err := pools.Create(ctx, object(version, "TunnelPool", poolName(i), annotations, spec), metav1.CreateOptions{}); err != nil {
					errs[w] = err
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

func quantile(of []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	d := sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
	return d.Round(100 * time.Microsecond)
}
