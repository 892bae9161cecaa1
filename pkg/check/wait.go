// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
)

// waitFor calls probe until it returns nil or ctx ends, and then returns the last error of probe, so that a timeout says what was missing.
func waitFor(ctx context.Context, interval time.Duration, probe func(ctx context.Context) error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last error
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		// An error that only says that time is up hides the one that says why.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-ticker.C:
		}
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// rawAnswer makes the request and returns the answer's body. Unlike DoRaw its error is what the server said, not only its code.
func rawAnswer(ctx context.Context, req rest.ResponseWrapper) ([]byte, error) {
	if r, ok := req.(*rest.Request); ok {
		result := r.Do(ctx)
		if err := result.Error(); err != nil {
			return nil, err
		}
		return result.Raw()
	}
	return req.DoRaw(ctx)
}
