// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
)

// TestClockAhead: a CA and a certificate that were made by a clock that was ahead are reported, and replaced at once when the clock
// is right. No call would succeed until then.
func TestClockAhead(t *testing.T) {
	client, right := fake.NewClientset(), time.Now()
	now := right.AddDate(1, 0, 0)
	c := replica(client, &now)
	c.published = func(context.Context, []byte) (bool, error) { return false, nil }
	c.started.Store(true)
	if _, err := c.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	now = right
	c.failed(errors.New("no rights"))
	if err := c.check(nil); err == nil || !strings.Contains(err.Error(), "not valid before") {
		t.Errorf("readiness: %v", err)
	}
	b := &v1beta1.Bundle{}
	reported := func() *metav1.Condition {
		(&BundleReconciler{certificates: c}).certificatesValid(b)
		return meta.FindStatusCondition(b.Status.Conditions, v1beta1.BundleCertificatesValid)
	}
	if r := reported(); r.Status != metav1.ConditionFalse || r.Reason != v1beta1.ReasonCertificatesNotYetValid || !strings.Contains(r.Message, "no rights") {
		t.Errorf("%+v", r)
	}
	cas, err := c.ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	trusts(t, c, cas, now)
	if err := c.check(nil); err != nil {
		t.Errorf("readiness: %v", err)
	}
	if r := reported(); r.Status != metav1.ConditionTrue {
		t.Errorf("%+v", r)
	}
}

// TestCertificateAhead: a certificate that was made by a clock that was ahead, of a CA that is valid, is replaced at once, and the CA
// stays.
func TestCertificateAhead(t *testing.T) {
	client, now := fake.NewClientset(), time.Now()
	c := replica(client, &now)
	cas, err := c.ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := c.serving.Load().Certificate[0]
	now = now.Add(certValidity - time.Hour)
	if _, err := c.ensure(t.Context()); err != nil || bytes.Equal(first, c.serving.Load().Certificate[0]) {
		t.Fatalf("the certificate was not renewed: %v", err)
	}
	now = now.Add(time.Hour - certValidity)
	again, err := c.ensure(t.Context())
	if err != nil || !bytes.Equal(cas, again) {
		t.Errorf("another CA, %v", err)
	}
	trusts(t, c, cas, now)
}

// TestCAAhead: a CA that was made by a clock that was ahead, while a certificate of the CA before is served, is replaced, and the
// certificate stays trusted. A note of that clock about when the definitions got a CA does not count.
func TestCAAhead(t *testing.T) {
	client, now := fake.NewClientset(), time.Now()
	c := replica(client, &now)
	published := false
	c.published = func(context.Context, []byte) (bool, error) { return published, nil }
	ensure := func() (cas, serving []byte) {
		t.Helper()
		cas, err := c.ensure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return cas, c.serving.Load().Certificate[0]
	}
	cas, serving := ensure()
	for ahead := cas; bytes.Equal(ahead, cas); now = now.Add(24 * time.Hour) {
		ahead, serving = ensure()
	}
	now = now.Add(-3 * 24 * time.Hour)
	renewed, after := ensure()
	if !bytes.Equal(serving, after) {
		t.Error("the certificate was replaced")
	}
	trusts(t, c, renewed, now)
	if state := c.state.Load(); state.ca.After(now.Add(caValidity)) {
		t.Errorf("the CA that is not valid yet was kept: valid until %v", state.ca)
	}

	published = true
	now = now.Add(3 * overlap)
	ensure() // notes the time
	now = now.Add(-2 * overlap)
	ensure()
	now = now.Add(overlap + time.Minute)
	if _, last := ensure(); bytes.Equal(serving, last) {
		t.Error("no certificate of a CA that the definitions have had for more than an hour")
	}
}
