// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"bytes"
	"encoding/base64"
	"testing"

	certutil "k8s.io/client-go/util/cert"

	"github.com/fairlead-dev/fairlead/pkg/crd/internal/crdtest"
	"github.com/fairlead-dev/fairlead/pkg/crd/lint"
)

// TestPrivateKeyInBundle proves that a private key next to the CA is an error that does not
// show the key, and that the CA alone is none.
func TestPrivateKeyInBundle(t *testing.T) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("hook.example.com", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		bundle []byte
		want   string
	}{
		"CA":         {cert, ""},
		"CA and key": {bytes.Join([][]byte{cert, key}, nil), "conversion-key"},
		"key and CA": {bytes.Join([][]byte{key, cert}, nil), "conversion-key"},
	} {
		d := (&crdtest.Case{Index: 701, Set: map[string]any{"spec.conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"},
			"clientConfig":             map[string]any{"url": "https://hook.example.com", "caBundle": base64.StdEncoding.EncodeToString(test.bundle)},
		}}}}).Definition(t, nil)
		findings, err := lint.Definition(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range findings {
			got += f.Rule
		}
		if got != test.want {
			t.Errorf("%s: findings %q, want %q", name, got, test.want)
		}
	}
}
