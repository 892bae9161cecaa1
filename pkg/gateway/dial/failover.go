// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// first dials the destination that was chosen. While it does not answer, it has all of the time if there is no
// other to try, and its share if there are others: these are returned then.
func (d *dialer) first(ctx context.Context, p path, to gateway.Destination) (gateway.Conn, []gateway.Destination, error) {
	if !d.mayFailOver(to) {
		c, err := p.Dial(ctx, to)
		return c, nil, asError(ctx, err, to)
	}
	attempt, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	share, found := d.share(ctx), make(chan []gateway.Destination, 1)
	timer := time.AfterFunc(share, func() {
		others := d.others(attempt, to)
		if len(others) > 0 {
			giveUp(gateway.Errorf(gateway.ReasonTimeout, "check that the destination answers", "dial %s: no answer within %s", to, share.Round(time.Millisecond)))
		}
		found <- others
	})
	c, err := p.Dial(attempt, to)
	if err == nil || timer.Stop() {
		return c, nil, asError(ctx, err, to)
	}
	others := <-found
	if cause := context.Cause(attempt); cause != nil && ctx.Err() == nil {
		err = cause
	}
	return nil, others, asError(ctx, err, to)
}

// share is the time of the first attempt.
func (d *dialer) share(ctx context.Context) time.Duration {
	left := d.o.Timeout
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	return left / maxAttempts
}

// mayFailOver reports whether there may be others to try.
func (d *dialer) mayFailOver(to gateway.Destination) bool {
	return d.o.Alternatives != nil && oneOfSeveral(to)
}

// others returns what to try after the first, and not nil. If the search fails, these are none: the failure of the first
// says more than that.
func (d *dialer) others(ctx context.Context, to gateway.Destination) []gateway.Destination {
	others := []gateway.Destination{}
	_ = gateway.Lookup(ctx, func(lookup context.Context) {
		found, err := d.o.Alternatives(lookup, to)
		if err != nil {
			return
		}
		// Users write EndpointSlices, so each address is judged as the first one was.
		found = slices.DeleteFunc(slices.Clone(found), func(o gateway.Destination) bool { return gateway.Check(ctx, o) != nil })
		others = append(others, found[:min(len(found), maxAttempts-1)]...)
	})
	return others
}

// another dials others one after another, each in its share of the time that is left.
func (d *dialer) another(ctx context.Context, others []gateway.Destination, first error) (gateway.Conn, error) {
	for i, other := range others {
		c, err := dialShare(ctx, d.path, other, len(others)-i)
		if err = asError(ctx, err, other); err == nil || !oneEndpoint(err) {
			gateway.Dialed(ctx, other)
			return c, err
		}
	}
	return nil, first
}

// dialShare dials one of several destinations that are left, in its share of the time.
func dialShare(ctx context.Context, p path, to gateway.Destination, left int) (gateway.Conn, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer cancel()
	}
	return p.Dial(ctx, to)
}

// oneOfSeveral reports whether a destination may be one of several endpoints of a Service, or of several
// addresses of a host: nodes and Pods have the name that the client sent only then, or if it is their own.
func oneOfSeveral(to gateway.Destination) bool {
	_, err := netip.ParseAddr(to.Host)
	return to.Kind == gateway.KindService || err != nil
}

// oneEndpoint reports whether a failure may be that of one endpoint only.
func oneEndpoint(err error) bool {
	switch gateway.ReasonOf(err) {
	case gateway.ReasonRefused, gateway.ReasonHostUnreachable, gateway.ReasonNotFound, gateway.ReasonTimeout:
		return true
	}
	return false
}
