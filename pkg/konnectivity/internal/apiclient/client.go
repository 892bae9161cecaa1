// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Client makes calls to an API server.
type Client struct {
	cfg  Config
	http *http.Client

	mu    sync.Mutex
	next  time.Time // when the rate allows the next request
	lines lines     // of requests that strangers cause, before that

	known     known         // hosts that do not wait for all others
	strangers chan struct{} // holds the request of the others that waits for the rate; Go serves senders in order
}

// NewClient returns a client.
func NewClient(cfg *Config) *Client {
	c := &Client{cfg: *cfg, http: cfg.transport(), strangers: make(chan struct{}, 1)}
	if c.cfg.QPS == 0 {
		c.cfg.QPS = 5
	}
	if c.cfg.Burst == 0 {
		c.cfg.Burst = 10
	}
	return c
}

// CloseIdle closes connections that are kept for later requests.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// StatusError is an answer other than success.
type StatusError struct {
	Code            int
	Reason, Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("API server answered %d %s: %s", e.Code, e.Reason, e.Message)
}

// CodeOf returns the HTTP status and reason of an error, 200 for none and false
// for one that did not come from the API server.
func CodeOf(err error) (int, string, bool) {
	if err == nil {
		return http.StatusOK, "", true
	}
	var se *StatusError
	if errors.As(err, &se) {
		return se.Code, se.Reason, true
	}
	return 0, "", false
}

// ErrBusy says that so many requests wait already that this one would not be made
// in time.
var ErrBusy error = publicError("too many requests wait for the API server; see --kubeconfig-qps")

// wait keeps the rate of requests.
func (c *Client) wait(ctx context.Context) error {
	if c.cfg.QPS < 0 {
		return nil
	}
	gap := time.Duration(float64(time.Second) / float64(c.cfg.QPS))
	c.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-gap * time.Duration(c.cfg.Burst-1)); c.next.Before(earliest) {
		c.next = earliest
	}
	d := c.next.Sub(now)
	if end, ok := ctx.Deadline(); ok && now.Add(d).After(end) {
		c.mu.Unlock()
		return ErrBusy // its turn must not be kept from others
	}
	c.next = c.next.Add(gap)
	c.mu.Unlock()
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// waitFor keeps the rate of requests, and the order of those that one host causes.
func (c *Client) waitFor(ctx context.Context, peer string) error {
	if peer == "" {
		return c.wait(ctx)
	}
	leave, err := c.lines.enter(ctx, peer)
	if err != nil {
		return err
	}
	defer leave()
	if !c.known.has(peer) {
		next, err := c.enterStrangers(ctx)
		if err != nil {
			return err
		}
		defer next()
	}
	return c.wait(ctx)
}

// request makes a call. peer is who causes it, if that is not this program itself.
func (c *Client) request(ctx context.Context, peer, method, path string, body any) (*http.Response, error) {
	if err := c.waitFor(ctx, peer); err != nil {
		return nil, err
	}
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.cfg.Host+path, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		if c.cfg.exec != nil {
			c.cfg.exec.forget() // the next call asks the plugin again
		}
		// The client certificate of a connection may have expired: the next one has
		// the renewed certificate.
		defer c.http.CloseIdleConnections()
	}
	se := &StatusError{Code: resp.StatusCode}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&struct {
		Reason  *string `json:"reason"`
		Message *string `json:"message"`
	}{&se.Reason, &se.Message})
	return nil, se
}

func (c *Client) authorize(req *http.Request) error {
	for k, vs := range c.cfg.Impersonate {
		req.Header[k] = vs
	}
	switch {
	case c.cfg.exec != nil:
		token, err := c.cfg.exec.token(req.Context())
		if err != nil {
			return err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	case c.cfg.TokenFile != "":
		b, err := os.ReadFile(c.cfg.TokenFile)
		if err != nil {
			return fmt.Errorf("reading token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(b)))
	case c.cfg.Token != "":
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	case c.cfg.Username != "":
		req.SetBasicAuth(c.cfg.Username, c.cfg.Password)
	}
	return nil
}

// maxBody bounds an answer in bytes.
const maxBody = 16 << 20

// do makes a call and decodes the answer into out, which may be nil.
func (c *Client) do(ctx context.Context, method, path string, body, out any) error {
	return c.doFor(ctx, "", method, path, body, out)
}

// doFor does so because of a peer.
func (c *Client) doFor(ctx context.Context, peer, method, path string, body, out any) error {
	resp, err := c.request(ctx, peer, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
		return err
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(out)
}
