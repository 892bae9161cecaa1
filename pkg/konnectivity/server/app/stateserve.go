// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// serveOn serves a handler on a listener, within limits, until ctx ends.
func serveOn(ctx context.Context, name string, l net.Listener, h http.Handler, limits httplimits.Limits) {
	srv := limits.Server(h)
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	go func() {
		if err := srv.Serve(limits.Listener(l)); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Listener failed", "name", name)
		}
	}()
}

// serveTLSOn does the same with TLS.
func serveTLSOn(ctx context.Context, name string, l net.Listener, cfg *tls.Config, h http.Handler, limits httplimits.Limits) {
	serveOn(ctx, name, tls.NewListener(l, cfg), h, limits)
}
