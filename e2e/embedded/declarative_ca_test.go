// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// generations are how often the spec of each definition was written.
func (d *declarative) generations(t *testing.T) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	definitions := d.dyn.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	for _, name := range []string{"bundles.fairlead.dev", "tunnelpools.fairlead.dev", "schedulerprofiles.fairlead.dev"} {
		live, err := definitions.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all[name] = live.GetGeneration()
	}
	return all
}

// apiServerSees is more than kube-apiserver takes on a busy machine to convert by a definition that has changed. The operator gives it an
// hour, which the test does not wait for.
const apiServerSees = 10 * time.Second

// caRotated: no conversion fails while the operator goes from one CA to another, also while the definitions get the new
// one, for which the API server opens new connections. The operator writes each definition that converts once.
func (d *declarative) caRotated(t *testing.T) {
	ctx := t.Context()
	secrets := d.client.CoreV1().Secrets(operator.DefaultNamespace)
	before := d.generations(t)
	stop := d.load(t)
	serving := d.dueCA(t)
	const publishedAt = "fairlead.dev/ca-published-at"
	err := harness.Wait(ctx, recovery, "a new CA in the definitions", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, operator.WebhookSecret, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if bytes.Count(secret.Data["ca.crt"], []byte("BEGIN CERTIFICATE")) != 2 || secret.Annotations[publishedAt] == "" {
			return fmt.Errorf("annotations %v, CAs\n%s", secret.Annotations, secret.Data["ca.crt"])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d.readable(t)
	time.Sleep(apiServerSees) // nothing shows that kube-apiserver has read it
	// As if the CA had been published two hours ago.
	ago := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, publishedAt, time.Now().Add(-2*time.Hour).UTC().Format(time.RFC3339))
	if _, err := secrets.Patch(ctx, operator.WebhookSecret, types.MergePatchType, []byte(ago), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	err = harness.Wait(ctx, recovery, "a certificate of the new CA", func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, operator.WebhookSecret, metav1.GetOptions{})
		if err == nil && bytes.Equal(secret.Data["tls.crt"], serving) {
			return errors.New("the certificate is the old one")
		}
		return err
	})
	time.Sleep(5 * time.Second) // until the operator serves it
	burst := d.burst(t, 200)
	reads := stop()
	if err != nil {
		t.Error(err)
	}
	failed := 0
	for _, r := range reads {
		if r.err != nil { // slow ones wait for those of burst
			failed++
		}
	}
	if failed > 0 || burst > 0 || len(reads) < 50 {
		t.Errorf("%d of %d reads failed, and %d of 200 at once", failed, len(reads), burst)
	}
	before["bundles.fairlead.dev"]++
	before["tunnelpools.fairlead.dev"]++
	if diff := cmp.Diff(before, d.generations(t)); diff != "" {
		t.Errorf("the definitions that convert were not written once each (-want +got):\n%s", diff)
	}
	d.signal(t, syscall.SIGTERM, operator.Name) // so that the API server opens new connections
	d.readable(t)
}

// burst reads many times at once, and returns how many reads failed. A connection of the API server has 16 requests at a
// time, so it opens others, to which the operator shows the certificate that it has now.
func (d *declarative) burst(t *testing.T, n int) (failed int) {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			if err := d.read(t.Context(), 20*time.Second); err != nil {
				mu.Lock()
				defer mu.Unlock()
				t.Logf("a read failed: %v", err)
				failed++
			}
		})
	}
	group.Wait()
	return failed
}

// dueCA replaces the certificate of the operator's CA by one of the same key of whose time less than a third is left, and returns the
// certificate that is served. The definitions still have the other certificate of the CA, by which it is valid, too.
func (d *declarative) dueCA(t *testing.T) []byte {
	t.Helper()
	secrets := d.client.CoreV1().Secrets(operator.DefaultNamespace)
	secret, err := secrets.Get(t.Context(), operator.WebhookSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseKeyPair(secret.Data["ca.crt"], secret.Data["ca.key"])
	if err != nil {
		t.Fatal(err)
	}
	due := *ca.Cert
	due.NotBefore, due.NotAfter = time.Now().Add(-300*24*time.Hour), time.Now().Add(65*24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &due, &due, ca.Key.Public(), ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["ca.crt"] = pki.EncodeCert(cert)
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return secret.Data["tls.crt"]
}
