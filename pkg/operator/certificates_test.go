// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// replica is one replica's view of the shared Secret, at a time that the test sets.
func replica(client *fake.Clientset, now *time.Time) *certificates {
	return &certificates{client: client, namespace: "kube-system", names: []string{"a.kube-system.svc", "127.0.0.1"}, now: func() time.Time { return *now }}
}

// trusts verifies the certificate that is served with the CAs that were published.
func trusts(t *testing.T, c *certificates, cas []byte, now time.Time) {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cas) {
		t.Fatalf("no CA in %q", cas)
	}
	served, err := c.get(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range c.names {
		if _, err := served.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, CurrentTime: now}); err != nil {
			t.Errorf("at %v, %s: %v", now, name, err)
		}
	}
}

// TestCertificatesAreShared: a second replica serves the first one's certificate and
// changes nothing.
// It observes VER-68 of docs/requirements.md.
func TestCertificatesAreShared(t *testing.T) {
	client, now := fake.NewClientset(), time.Now()
	one, two := replica(client, &now), replica(client, &now)
	cas, err := one.ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client.ClearActions()
	again, err := two.ensure(t.Context())
	if err != nil || !bytes.Equal(cas, again) {
		t.Fatalf("%v\n%s\n%s", err, cas, again)
	}
	if n := len(client.Actions()); n != 1 {
		t.Errorf("%d requests, want one get", n)
	}
	trusts(t, two, cas, now)
}

// TestRotation: over three years, a client that learns new CAs an hour late trusts every
// certificate that is served, and the CAs change no more often than they must.
func TestRotation(t *testing.T) {
	client, now := fake.NewClientset(), time.Now()
	c := replica(client, &now)
	published, err := c.ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changes := 0
	for end := now.Add(3 * caValidity); now.Before(end); now = now.Add(12 * time.Hour) {
		cas, err := c.ensure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		trusts(t, c, published, now) // what clients knew at the last look
		if !bytes.Equal(cas, published) {
			changes++
			now = now.Add(overlap / 2)
			if _, err := c.ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			trusts(t, c, published, now)
		}
		published = cas
	}
	if changes < 3 || changes > 5 {
		t.Errorf("the CAs changed %d times in three years, want about one change in eight months", changes)
	}
}

// TestChangedNames: a certificate that lacks a name or an address by which the webhook is called now is replaced at once,
// and one that has them, in whatever order and form, is kept.
func TestChangedNames(t *testing.T) {
	client, now := fake.NewClientset(), time.Now()
	c := replica(client, &now)
	serving := func(names ...string) []byte {
		t.Helper()
		c.names = names
		cas, err := c.ensure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		trusts(t, c, cas, now)
		return c.serving.Load().Certificate[0]
	}
	before := serving("10.0.0.5", "fd00::5")
	for _, names := range [][]string{{"10.0.0.5", "fd00::5"}, {"fd00:0::5", "10.0.0.5"}, {"::ffff:10.0.0.5", "fd00::5"}} {
		if !bytes.Equal(serving(names...), before) {
			t.Errorf("another certificate for %v", names)
		}
	}
	for _, names := range [][]string{{"10.0.0.6", "fd00::5"}, {"10.0.0.6"}, {"10.0.0.6", "a.kube-system.svc"}, {"a.kube-system.svc", "b.kube-system.svc"}} {
		now := serving(names...)
		if bytes.Equal(now, before) {
			t.Errorf("the certificate was kept for %v", names)
		}
		before = now
	}
	if !bytes.Equal(serving("b.kube-system.svc", "a.kube-system.svc"), before) {
		t.Error("another certificate for the same names in another order")
	}
	for end := now.Add(caValidity); ; now = now.Add(24 * time.Hour) { // until a new CA is published
		ca := c.state.Load().ca
		if serving("10.0.0.5"); !c.state.Load().ca.Equal(ca) {
			break
		}
		if now.After(end) {
			t.Fatal("no new CA")
		}
	}
	serving("10.0.0.6")
}

// TestBrokenSecret: a Secret that cannot be read is replaced, and an own one is valid again.
func TestBrokenSecret(t *testing.T) {
	client, now := fake.NewClientset(), time.Now()
	c := replica(client, &now)
	if _, err := c.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{keyCAKey, keyCABundle, keyCert, keyKey} {
		secret, err := client.CoreV1().Secrets("kube-system").Get(t.Context(), secretName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		secret.Data[key] = []byte("garbage")
		if _, err := client.CoreV1().Secrets("kube-system").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		cas, err := c.ensure(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		trusts(t, c, cas, now)
	}
}

// TestUnpublishedCA: a certificate of a new CA is not served before the definitions have had the CA
// for an hour, however old the CA is. An expired certificate is worse than one that few trust.
func TestUnpublishedCA(t *testing.T) {
	client, now := fake.NewClientset(), time.Now()
	c := replica(client, &now)
	published := false
	c.published = func(context.Context, []byte) (bool, error) { return published, nil }
	ensure := func() (cas []byte, old bool) {
		t.Helper()
		cas, err := c.ensure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		serving, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(firstPEM(cas))
		_, err = serving.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: c.names[0], CurrentTime: now})
		return cas, err != nil
	}
	untilNewCA := func() {
		t.Helper()
		before, _ := ensure()
		for end := now.Add(caValidity); ; now = now.Add(24 * time.Hour) {
			cas, old := ensure()
			if !bytes.Equal(before, cas) {
				if !old {
					t.Fatal("a certificate of a new CA at once")
				}
				return
			}
			if now.After(end) {
				t.Fatal("no new CA")
			}
		}
	}
	untilNewCA()
	for range 3 {
		now = now.Add(3 * overlap)
		if _, old := ensure(); !old {
			t.Fatal("a certificate of a CA that no definition has is served")
		}
	}
	published = true
	if _, old := ensure(); !old {
		t.Error("a certificate of a CA is served as soon as it is published")
	}
	now = now.Add(overlap / 2)
	if _, old := ensure(); !old {
		t.Error("a certificate of a CA is served half an hour after it was published")
	}
	now = now.Add(overlap)
	if _, old := ensure(); old {
		t.Error("no certificate of a CA that is published")
	}
	published = false
	untilNewCA()
	now = now.Add(certValidity)
	if _, old := ensure(); old {
		t.Error("an expired certificate is kept because the new CA is not published")
	}
}

// TestSecretWatched: a certificate that one replica has made is served by the others in seconds.
func TestSecretWatched(t *testing.T) {
	testutil.Full(t, "certificates of two replicas")
	daemontest.Beside(t)
	testutil.Limit(t, 5*time.Minute) // with eight busy loops
	cp := daemontest.TakeControlPlane(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDefinitions(cfg, Options{Namespace: "kube-system", WebhookService: "x"})
	if err != nil {
		t.Fatal(err)
	}
	var replicas []*certificates
	for range 2 {
		c := &certificates{client: cp.Client, namespace: "kube-system", names: []string{"a.kube-system.svc"}, now: time.Now}
		replicas = append(replicas, c)
		k := certificateKeeper(metadata.NewForConfigOrDie(cfg), c, d, nil, usual)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Start(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	served := func() (all [2][]byte) {
		for i, c := range replicas {
			if cert := c.serving.Load(); cert != nil {
				all[i] = cert.Certificate[0]
			}
		}
		return all
	}
	agree := func(before []byte) {
		t.Helper()
		testutil.Eventually(t, time.Minute, func() error {
			if now := served(); len(now[0]) == 0 || bytes.Equal(now[0], before) || !bytes.Equal(now[0], now[1]) {
				return errors.New("the replicas serve different certificates, or old ones")
			}
			return nil
		})
	}
	agree(nil)
	before := served()[0]
	patch := []byte(`{"data": {"tls.crt": "Z2FyYmFnZQ=="}}`)
	if _, err := cp.Client.CoreV1().Secrets("kube-system").Patch(t.Context(), secretName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	agree(before)
}
