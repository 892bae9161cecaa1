// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/internal/traceparent"
)

// AgentHeader is the header of an HTTP CONNECT request that chooses the agent. Its value is that of Agent.String. Without
// it, the server chooses.
const AgentHeader = "Fairlead-Agent"

// Agent names an agent, as Link does. Agents of several owners may have one ID.
type Agent struct{ ID, Owner string }

// Fields of the header's value.
const (
	fieldID    = "id"
	fieldOwner = "owner"
)

// String returns the agent as a URL query, because an ID may have any characters.
func (a Agent) String() string {
	v := url.Values{fieldID: {a.ID}}
	if a.Owner != "" {
		v.Set(fieldOwner, a.Owner)
	}
	return v.Encode()
}

// ParseAgent reads what String returns. Other fields are skipped.
func ParseAgent(text string) (Agent, error) {
	v, err := url.ParseQuery(text)
	if err != nil {
		return Agent{}, fmt.Errorf("header %s: %w", AgentHeader, err)
	}
	if len(v[fieldID]) != 1 || v.Get(fieldID) == "" || len(v[fieldOwner]) > 1 {
		return Agent{}, fmt.Errorf("header %s must have one id, and at most one owner", AgentHeader)
	}
	return Agent{ID: v.Get(fieldID), Owner: v.Get(fieldOwner)}, nil
}

// AgentOf returns the agent that the headers of a request choose, or nil.
func AgentOf(h http.Header) (*Agent, error) {
	values := h.Values(AgentHeader)
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > 1 {
		return nil, fmt.Errorf("there is more than one header %s", AgentHeader)
	}
	a, err := ParseAgent(values[0])
	if err != nil {
		return nil, err
	}
	return &a, nil
}

// Connector is a server that opens connections.
type Connector interface {
	// Connect opens a connection to an address, through the agent or, if that is nil, through any. It answers the client
	// as HTTP CONNECT does and returns when the connection has ended. ahead is what the client has sent after its request,
	// and parent its header traceparent.
	Connect(client net.Conn, ahead []byte, address string, agent *Agent, parent string)
}

// Connecting serves HTTP CONNECT by c, and other requests by next.
func Connecting(next http.Handler, c Connector) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			next.ServeHTTP(w, r)
			return
		}
		agent, err := AgentOf(r.Header)
		if err != nil {
			httpconnect.Refuse(w, r, http.StatusBadRequest, err.Error())
			return
		}
		if r.URL.Host == "" || r.URL.Host != r.RequestURI {
			httpconnect.Refuse(w, r, http.StatusBadRequest, "the target of CONNECT must be host:port, and nothing else")
			return
		}
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = client.SetDeadline(time.Time{}) // those of the request
		ahead := make([]byte, buffered.Reader.Buffered())
		_, _ = buffered.Read(ahead)
		c.Connect(client, ahead, r.URL.Host, agent, r.Header.Get(traceparent.Header))
	})
}

// ErrNoConnect means that the server opens no connections.
var ErrNoConnect = errors.New("the konnectivity-server opens no connections here: set tunnelAPI.connect in the bundle, or its flag --state-connect")

// Connect asks the server for a connection to an address through an agent, or through any if agent is nil. It sends the
// trace context of ctx on. A refusal is of
// type *httpconnect.RefusedError, or ErrNoConnect.
func (c *Client) Connect(ctx context.Context, address string, agent *Agent) (net.Conn, error) {
	header := http.Header{}
	traceparent.From(ctx).Set(header)
	if agent != nil {
		header.Set(AgentHeader, agent.String())
	}
	if c.Token != nil {
		token, err := c.Token()
		if err != nil {
			return nil, err
		}
		header.Set("Authorization", "Bearer "+token)
	}
	nc, err := c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := httpconnect.Ask(ctx, nc, address, header)
	if err != nil {
		_ = nc.Close()
		var refused *httpconnect.RefusedError
		if errors.As(err, &refused) && (refused.Code == http.StatusNotFound || refused.Code == http.StatusMethodNotAllowed) {
			return nil, ErrNoConnect
		}
		return nil, err
	}
	return conn, nil
}
