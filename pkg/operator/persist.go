// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Pauses between two tries of a start: the first one, which doubles up to the last one.
const (
	persistFirst = 200 * time.Millisecond
	persistLast  = 5 * time.Second
	// insistPause is between two tries of what fails for long although the API server works.
	insistPause = 20 * time.Second
)

// persist does something that the operator needs to start. It goes on for as long as the API server
// does not answer: if the operator ended, the kubelet would start it again only minutes after the API server
// is back. Other failures end it if they last longer than definitionsBound; a new API server refuses what roles
// allow until it has read them.
func persist(ctx context.Context, what string, do func(context.Context) error) error {
	return try(ctx, what, do, true)
}

// insist is persist for what others may have to cure, while the operator is of use without it: no failure ends it.
func insist(ctx context.Context, what string, do func(context.Context) error) error {
	return try(ctx, what, do, false)
}

func try(ctx context.Context, what string, do func(context.Context) error, ends bool) error {
	var since time.Time // when the API server has begun to answer
	next := persistFirst
	for {
		pause := next
		next = min(2*pause, persistLast)
		bounded, cancel := context.WithTimeout(ctx, definitionsBound)
		err := do(bounded)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case unanswered(err):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) < definitionsBound:
		case ends:
			return err
		default:
			pause = insistPause
		}
		ctrl.LoggerFrom(ctx).Error(err, "Cannot start yet", "to", what, "again in", pause)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// unanswered reports whether the API server does not work, or cannot be reached. A try whose time has passed had no answer.
func unanswered(err error) bool {
	request := (*url.Error)(nil)
	return errors.As(err, &request) || errors.Is(err, context.DeadlineExceeded) || apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}
