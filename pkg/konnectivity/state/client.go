// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// ErrOlder means that the server does not have the protocol: it is an older version, or upstream's program.
var ErrOlder = errors.New("the server does not show its state: it is older than this program, or not Fairlead's")

// Client asks one server.
type Client struct {
	// HTTP makes the connections, to a Unix socket or with TLS.
	HTTP *http.Client
	// Base is the URL of the server without a path.
	Base string
	// Dial connects to the server, for Connect.
	Dial func(ctx context.Context) (net.Conn, error)
	// Token returns the bearer token. It may be nil.
	Token func() (string, error)
}

// State asks for the server's state.
func (c *Client) State(ctx context.Context) (*State, error) {
	var out State
	if err := c.get(ctx, Path, nil, &out); err != nil {
		return nil, err
	}
	return &out, check(out.Version)
}

// Connections asks for connections with serial numbers greater than after.
func (c *Client) Connections(ctx context.Context, after int64, limit int) (*Connections, error) {
	var out Connections
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
	if err := c.get(ctx, ConnectionsPath, q, &out); err != nil {
		return nil, err
	}
	return &out, check(out.Version)
}

func check(version int) error {
	if version < 1 {
		return fmt.Errorf("%w: its answer has no version", ErrOlder)
	}
	return nil
}

func (c *Client) get(ctx context.Context, path string, q url.Values, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	if c.Token != nil {
		token, err := c.Token()
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusNotFound:
		return ErrOlder
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("the server answers %s: %.200s", resp.Status, strings.TrimSpace(string(body)))
	case len(body) > MaxAnswer:
		return fmt.Errorf("the answer has more than %d bytes", MaxAnswer)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the answer is not the protocol: %w", err)
	}
	return nil
}
