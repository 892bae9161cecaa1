// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSettle: a run waits for the whole time if the definition is young by the API server's clock, however far the clock of
// this machine is from that. It does not wait for one that is old.
// It observes VER-48 of docs/requirements.md.
func TestSettle(t *testing.T) {
	const settle = 10 * time.Second
	for name, tc := range map[string]struct {
		ahead time.Duration // of the API server's clock
		age   time.Duration
		want  time.Duration
	}{
		"just changed":                 {0, 0, settle},
		"just changed, clock behind":   {-time.Hour, 0, settle},
		"just changed, clock ahead":    {time.Hour, 0, settle},
		"not older than clocks differ": {0, 30 * time.Second, settle},
		"old":                          {0, 2 * time.Minute, 0},
		"old, clock behind":            {-time.Hour, 2 * time.Minute, 0},
		"old, clock ahead":             {time.Hour, 2 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := time.Now().Add(tc.ahead)
				m := &Migrator{options: Options{Settle: settle}}
				answer := roundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{Header: http.Header{"Date": {server.UTC().Format(http.TimeFormat)}}}, nil
				})
				response, err := m.clock.over(answer).RoundTrip(&http.Request{})
				if err != nil {
					t.Fatal(err)
				}
				if response.Body != nil {
					_ = response.Body.Close()
				}
				changed := metav1.NewTime(server.Add(-tc.age))
				d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
					CreationTimestamp: metav1.NewTime(changed.Add(-time.Hour)), ManagedFields: []metav1.ManagedFieldsEntry{{Time: &changed}},
				}}
				began := time.Now()
				if err := m.settle(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != tc.want {
					t.Errorf("waited for %v, want %v", took, tc.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // an answer without a time
		m, began := &Migrator{options: Options{Settle: settle}}, time.Now()
		if err := m.settle(t.Context(), &apiextensionsv1.CustomResourceDefinition{}); err != nil || time.Since(began) != settle {
			t.Errorf("waited for %v: %v", time.Since(began), err)
		}
	})
}
