// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
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
