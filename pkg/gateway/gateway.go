// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Kind tells what a destination is in the cluster.
type Kind string

const (
	// KindService is a Service, reached through one of its ready endpoints.
	KindService Kind = "Service"
	// KindPod is a Pod.
	KindPod Kind = "Pod"
	// KindNode is a node.
	KindNode Kind = "Node"
	// KindExternal is an address that belongs to no object of the cluster.
	KindExternal Kind = "External"
)

// Destination is what a client asks for, after resolution.
type Destination struct {
	// Host and Port are what the client sent: a name or a literal address, and a port.
	Host string
	Port uint16

	// Kind, Namespace and Name identify the object that the host belongs to. Namespace is
	// empty for nodes, both are empty for external addresses.
	Kind      Kind
	Namespace string
	Name      string

	// Addr is the address and port to connect to. For a Service it is that of one ready
	// endpoint, with its target port.
	Addr netip.AddrPort

	// Service is the Service that led to the destination, where Kind says that its endpoint is
	// something else. What denies the Service denies the destination, too.
	Service types.NamespacedName
	// Through is the ExternalName Service by which the client came, if there is one. What denies that denies the
	// destination, too.
	Through types.NamespacedName

	// Pod and Node run what is behind Addr; they are empty where that is unknown.
	Pod  types.NamespacedName
	Node string
}

// String returns host:port as the client sent them.
func (d Destination) String() string {
	return net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
}

// Resolver turns a host and a port into a destination. Its errors are of type *Error.
type Resolver interface {
	Resolve(ctx context.Context, host string, port uint16) (Destination, error)
}

// Conn is a connection that can be closed in one direction.
type Conn interface {
	net.Conn
	// CloseWrite tells the other side that no more bytes follow.
	CloseWrite() error
}

// Dialer opens connections to destinations. Its errors are of type *Error.
type Dialer interface {
	Dial(ctx context.Context, d Destination) (Conn, error)
}

// Authorizer decides whether a client may connect to a destination. It returns nil, or an
// *Error with ReasonDenied that names the rule.
type Authorizer interface {
	Authorize(ctx context.Context, client user.Info, d Destination) error
}

// HostChecker is an Authorizer that refuses hosts as clients send them, before they are resolved: a
// name may lead to a destination that has another one.
type HostChecker interface {
	// CheckHost returns nil, or an *Error with ReasonDenied.
	CheckHost(host string, port uint16) error
}

// NameAuthorizer is an Authorizer that decides by a name, before anyone is asked what the name
// stands for: who may not connect to a host does not learn whether it exists.
type NameAuthorizer interface {
	// AuthorizeName judges a destination without an address. Name is empty for a Pod that is
	// known by its address only. It returns an *Error with ReasonDenied if rules deny the name,
	// wherever it leads. If it returns nil, sure tells whether the name alone is enough: if not,
	// the address decides. Kind is empty for an address whose owner is about to be looked for: then
	// sure reports whether the client may learn of any owner.
	AuthorizeName(ctx context.Context, client user.Info, d Destination) (sure bool, err error)
}

// Reason is why a connection was not opened. Each has one SOCKS5 reply code and one HTTP
// status, and is the value of a metric's label.
type Reason string

const (
	// ReasonDenied: rules do not allow this client to connect to this destination.
	ReasonDenied Reason = "denied"
	// ReasonNotFound: no Service, Pod or node has this name, or the name does not resolve.
	ReasonNotFound Reason = "not-found"
	// ReasonNoEndpoints: the Service exists but has no ready endpoint for this port.
	ReasonNoEndpoints Reason = "no-endpoints"
	// ReasonRefused: the destination refused the connection.
	ReasonRefused Reason = "refused"
	// ReasonHostUnreachable: there is no route to the destination.
	ReasonHostUnreachable Reason = "host-unreachable"
	// ReasonTimeout: the destination or the dial path did not answer in time.
	ReasonTimeout Reason = "timeout"
	// ReasonPathDown: the dial path itself does not work: the API server, the
	// konnectivity-server, its agents or the bastion cannot be reached.
	ReasonPathDown Reason = "path-down"
	// ReasonUnsupported: this dial path cannot reach this kind of destination, or the
	// client asked for something other than a TCP connection.
	ReasonUnsupported Reason = "unsupported"
	// ReasonBusy: a limit on connections is reached.
	ReasonBusy Reason = "busy"
	// ReasonInternal: anything else.
	ReasonInternal Reason = "internal"
)

// Error says why a connection was not opened and what to do about it.
type Error struct {
	Reason Reason
	// Err says what failed, and why. It may be sent to the client.
	Err error
	// Hint says what to do; it may be empty.
	Hint string
}

// Errorf returns an *Error whose Err is made by fmt.Errorf.
func Errorf(r Reason, hint, format string, args ...any) *Error {
	return &Error{Reason: r, Err: fmt.Errorf(format, args...), Hint: hint}
}

// Error returns what failed, followed by the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + ": " + e.Hint
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason of the first *Error in err's chain, ReasonTimeout for a
// deadline that has passed, and ReasonInternal for anything else.
func ReasonOf(err error) Reason {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Reason
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout
	}
	return ReasonInternal
}

// SameAddress reports whether a host and a port, as a client sends them, are an address "host:port".
func SameAddress(host string, port uint16, address string) bool {
	return strings.EqualFold(net.JoinHostPort(strings.TrimSuffix(host, "."), strconv.Itoa(int(port))), address)
}

// FailureDelay is the wait before the answer to wrong credentials, on all ways in.
const FailureDelay = time.Second

// APIServerService is the Service that Kubernetes makes for its API server.
var APIServerService = types.NamespacedName{Namespace: "default", Name: "kubernetes"}

// APIServerServicePort is the port of APIServerService.
const APIServerServicePort = 443

// IsLoopback reports whether a host, an address or a name, is this machine.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// NameCheck is what a Resolver asks before it looks for a destination: the method AuthorizeName
// of a NameAuthorizer, for one client.
type NameCheck func(ctx context.Context, d Destination) (sure bool, err error)

type nameCheckKey struct{}

// WithNameCheck returns a context for a Resolver that looks only for what check allows; nil allows everything.
func WithNameCheck(ctx context.Context, check NameCheck) context.Context {
	return context.WithValue(ctx, nameCheckKey{}, check)
}

// CheckName returns nil if the check of the context allows one of the destinations that a name
// may stand for, or if there is no check. Otherwise it returns what the check says about the first.
func CheckName(ctx context.Context, meanings ...Destination) error {
	check, ok := ctx.Value(nameCheckKey{}).(NameCheck)
	if !ok || check == nil {
		return nil
	}
	var first error
	for _, d := range meanings {
		_, err := check(ctx, d)
		if err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}

// CheckOwner asks the check of the context before the owner of an address is looked for. What the check is asked for after
// that has been found by its address.
func CheckOwner(ctx context.Context, host string, port uint16) error {
	return CheckName(ctx, Destination{Host: host, Port: port})
}

type checkKey struct{}

// WithCheck returns a context for a Dialer that may dial another endpoint than the one it was
// given: it dials only endpoints for which check returns nil.
func WithCheck(ctx context.Context, check func(Destination) error) context.Context {
	return context.WithValue(ctx, checkKey{}, check)
}

// Check returns what the check of the context says about a destination. It is nil without one.
func Check(ctx context.Context, d Destination) error {
	if check, ok := ctx.Value(checkKey{}).(func(Destination) error); ok {
		return check(d)
	}
	return nil
}

type lookupKey struct{}

// WithLookup returns a context for a Dialer that may look for other destinations than the one it was given. The Dialer passes the
// function that asks for them to [Lookup], and lookup calls it. lookup may wait first, or return an error and not call it. The context
// that it passes may end later than the dial's.
func WithLookup(ctx context.Context, lookup func(ctx context.Context, ask func(context.Context)) error) context.Context {
	return context.WithValue(ctx, lookupKey{}, lookup)
}

// Lookup calls ask as the context says, or at once if it says nothing.
func Lookup(ctx context.Context, ask func(context.Context)) error {
	if lookup, ok := ctx.Value(lookupKey{}).(func(context.Context, func(context.Context)) error); ok {
		return lookup(ctx, ask)
	}
	ask(ctx)
	return nil
}

type dialedKey struct{}

// WithDialed returns a context for a Dialer that may dial another destination than the one it was given: it calls dialed
// with the one that its connection leads to, or its error is about, before it returns.
func WithDialed(ctx context.Context, dialed func(Destination)) context.Context {
	return context.WithValue(ctx, dialedKey{}, dialed)
}

// Dialed tells the caller of a Dialer what was dialed instead of what it asked for.
func Dialed(ctx context.Context, d Destination) {
	if dialed, ok := ctx.Value(dialedKey{}).(func(Destination)); ok {
		dialed(d)
	}
}
