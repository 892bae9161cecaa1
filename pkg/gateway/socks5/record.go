// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"net"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// Results of a record in addition to the reasons of a refusal.
const (
	// ResultOK: both directions ended in order.
	ResultOK = "ok"
	// ResultAborted: the connection was open and was reset, or closed by a shutdown.
	ResultAborted = "aborted"
)

// Record is one line of the audit log: a connection that has ended.
type Record struct {
	Time     time.Time `json:"time"`
	Client   string    `json:"client"`
	Protocol string    `json:"protocol,omitempty"` // socks5 or http
	User     string    `json:"user,omitempty"`
	Groups   []string  `json:"groups,omitempty"`

	// Destination is what the client asked for, the others are what the connection leads to or, without one, was to lead to.
	Destination string `json:"destination,omitempty"`
	Kind        string `json:"kind,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	Address     string `json:"address,omitempty"`

	// Result is ResultOK, ResultAborted or the reason of the refusal.
	Result        string  `json:"result"`
	Error         string  `json:"error,omitempty"`
	BytesSent     int64   `json:"bytesSent"`     // from the client to the destination
	BytesReceived int64   `json:"bytesReceived"` // from the destination to the client
	Seconds       float64 `json:"seconds"`

	// Repeated is how many connections like this one, of the same client without a user, had no line before it. Audit sets it.
	Repeated int `json:"repeated,omitempty"`
}

func (r *Record) setTarget(t target) {
	r.Destination = net.JoinHostPort(t.host, strconv.Itoa(int(t.port)))
}

func (r *Record) setDestination(d gateway.Destination) {
	r.Kind, r.Namespace, r.Name, r.Address = string(d.Kind), d.Namespace, d.Name, ""
	if d.Addr.IsValid() {
		r.Address = d.Addr.String()
	}
}
