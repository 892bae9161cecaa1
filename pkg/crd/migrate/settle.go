// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// skew is by how much the clocks of API servers may differ.
const skew = time.Minute

// settle waits until all API servers know the definition. How old that is says the clock of the API servers: that of this
// machine may be another one.
func (m *Migrator) settle(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) error {
	if m.options.Settle < 0 {
		return nil
	}
	changed := d.CreationTimestamp.Time
	for _, f := range d.ManagedFields {
		if f.Subresource == "" && f.Time != nil && f.Time.After(changed) {
			changed = f.Time.Time
		}
	}
	if now := m.clock.read.Load(); now != nil && now.Sub(changed) > m.options.Settle+skew {
		return nil
	}
	select {
	case <-time.After(m.options.Settle):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serverClock has the time of the API server's last answer.
type serverClock struct{ read atomic.Pointer[time.Time] }

// over reads the time from the answers that go through a transport.
func (c *serverClock) over(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil {
			if now, err := http.ParseTime(response.Header.Get("Date")); err == nil {
				c.read.Store(&now)
			}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
