// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// testRecompute: a run that has waited for another one does not replace the certificates that the other one has made.
func testRecompute(e env) {
	b, err := bundle.Load([]byte(bundletest.File("pki: {algorithm: ECDSA-P256}\ngateway: {enabled: true}")))
	if err != nil {
		e.t.Fatal(err)
	}
	compute := func(ctx context.Context) ([]component.Object, error) {
		objects, err := install.Objects(ctx, e.cfg, b, time.Now())
		return slices.DeleteFunc(objects, func(o component.Object) bool { _, is := o.(*appsv1.Deployment); return is }), err
	}
	early, err := compute(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	var once sync.Once
	cfg := rest.CopyConfig(e.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper{next: next, before: func(r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/leases/"+install.LockName) {
				once.Do(func() { e.apply(early, install.Options{}) })
			}
		}}
	})
	late, err := compute(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	result, err := install.Apply(e.t.Context(), cfg, late, install.Options{Recompute: compute}.Quick())
	if err != nil {
		e.t.Fatal(err)
	}
	if n := result.Count(install.Unchanged); n != len(early) {
		e.t.Errorf("the second run has changed what the first one had made: %+v", result.Objects)
	}
	if _, err := e.client.CoreV1().Secrets("kube-system").Get(e.t.Context(), v1alpha1.DefaultGatewaySecret, metav1.GetOptions{}); err != nil {
		e.t.Error(err)
	}
}
