// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestPersist: a start waits for an API server that cannot be reached or does not work, for hours. What an
// API server that works refuses ends the start, but not at once.
func TestPersist(t *testing.T) {
	gone := fmt.Errorf("read: %w", &url.Error{Op: "Get", URL: "https://x", Err: errors.New("connection refused")})
	broken := apierrors.NewInternalError(errors.New("etcd has no leader"))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("no"))
	const outage = 3 * time.Hour
	for name, tc := range map[string]struct {
		during, after error
		least, most   time.Duration
	}{
		"gone, back":           {gone, nil, outage, outage + persistLast},
		"broken, back":         {broken, nil, outage, outage + persistLast},
		"gone, then forbidden": {gone, forbidden, outage + definitionsBound, outage + definitionsBound + 2*persistLast},
		"forbidden":            {forbidden, forbidden, definitionsBound, definitionsBound + persistLast},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := persist(t.Context(), "try", func(context.Context) error {
					if time.Since(began) < outage {
						return tc.during
					}
					return tc.after
				})
				if took := time.Since(began); !errors.Is(err, tc.after) || took < tc.least || took > tc.most {
					t.Errorf("ended after %v: %v", took, err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		err := insist(t.Context(), "try", func(context.Context) error {
			if tries++; time.Since(began) < outage {
				return forbidden
			}
			return nil
		})
		if took := time.Since(began); err != nil || took < outage || took > outage+insistPause || tries > int(outage/insistPause)+20 {
			t.Errorf("what others have to cure ended after %v and %d tries: %v", took, tries, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the API server takes requests, and answers none
		began := time.Now()
		err := persist(t.Context(), "try", func(ctx context.Context) error {
			if time.Since(began) > outage {
				return nil
			}
			<-ctx.Done()
			return fmt.Errorf("it is not established: %w", ctx.Err())
		})
		if took := time.Since(began); err != nil || took < outage {
			t.Errorf("ended after %v: %v", took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := persist(ctx, "try", func(context.Context) error { return gone }); err == nil || time.Since(began) > time.Minute {
			t.Errorf("an operator that is stopped while it waits ends after %v: %v", time.Since(began), err)
		}
	})
}
