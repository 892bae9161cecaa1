// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// caPatience is how long the server waits at its start for the front proxy's CA.
const caPatience = 30 * time.Second

// loadedCA is a provider of CAs of clients whose first load waits until the front proxy's CA is there. Upstream's provider
// reads the ConfigMap only after the server has begun to listen. A kube-apiserver that connects before that is not asked
// for a certificate of the front proxy, and all its requests on that connection are those of an anonymous user.
type loadedCA struct {
	dynamiccertificates.CAContentProvider
	controller dynamiccertificates.ControllerRunner
	// frontProxy is the part that must be loaded.
	frontProxy dynamiccertificates.CAContentProvider
	patience   time.Duration
}

// RunOnce implements dynamiccertificates.ControllerRunner: it starts to follow the CAs and waits.
func (l *loadedCA) RunOnce(ctx context.Context) error {
	go l.controller.Run(ctx, 1)
	limit, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	for len(l.frontProxy.CurrentCABundleContent()) == 0 {
		select {
		case <-limit.Done():
			return fmt.Errorf("load the CA of the front proxy: %w: check that the server may read ConfigMap kube-system/extension-apiserver-authentication",
				errors.Join(limit.Err(), context.Cause(ctx)))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Run implements dynamiccertificates.ControllerRunner. RunOnce has started what runs.
func (l *loadedCA) Run(ctx context.Context, _ int) { <-ctx.Done() }
