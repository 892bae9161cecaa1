// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// Serve serves the supervisor's API on a listener until ctx ends. Requests are
// GET /status, and POST /stop/NAME, /start/NAME, /kill/NAME, and /shutdown,
// which calls shutdown. Any process that can open the socket can control the
// programs, so only the owner may have access to the socket.
func Serve(ctx context.Context, l net.Listener, s *Supervisor, shutdown func()) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Report{PID: os.Getpid(), RSSBytes: rssBytes(os.Getpid()), Processes: s.Status()})
	})
	act := func(f func(r *http.Request, name string) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			err := f(r, r.PathValue("name"))
			switch {
			case errors.Is(err, ErrUnknown):
				http.Error(w, err.Error(), http.StatusNotFound)
			case err != nil:
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	}
	mux.HandleFunc("POST /stop/{name}", act(func(r *http.Request, name string) error { return s.Stop(r.Context(), name) }))
	mux.HandleFunc("POST /start/{name}", act(func(_ *http.Request, name string) error { return s.Start(name) }))
	mux.HandleFunc("POST /kill/{name}", act(func(_ *http.Request, name string) error { return s.Kill(name) }))
	mux.HandleFunc("POST /shutdown", act(func(*http.Request, string) error { shutdown(); return nil }))

	server := httplimits.Long.Server(mux)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { closeAnswered(context.WithoutCancel(ctx), server); close(closed) })
	defer stop()
	if err := server.Serve(httplimits.Long.Listener(l)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the supervisor's socket: %w", err)
	}
	<-closed // the server closes for no other reason
	return nil
}

// lastAnswers bounds how long a server that is shutting down goes on answering
// requests that it has accepted.
const lastAnswers = time.Second

// closeAnswered closes a server after it has answered the pending requests:
// otherwise the client that requested the shutdown would get EOF instead of a
// response.
func closeAnswered(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// Report is the state of a supervisor and its programs.
type Report struct {
	// PID and RSSBytes are the supervisor's own.
	PID       int      `json:"pid"`
	RSSBytes  int64    `json:"rssBytes"`
	Processes []Status `json:"processes"`
}

// Find returns the status of one program.
func (r Report) Find(name string) (Status, bool) {
	for _, p := range r.Processes {
		if p.Name == name {
			return p, true
		}
	}
	return Status{}, false
}

// TotalRSSBytes is the resident memory of the supervisor and all its programs;
// it counts pages that several of them share more than once.
func (r Report) TotalRSSBytes() int64 {
	total := r.RSSBytes
	for _, p := range r.Processes {
		total += p.RSSBytes
	}
	return total
}

// ErrNotRunning is returned if no supervisor listens on the socket.
var ErrNotRunning = errors.New("the supervisor is not running")

// ErrHangs is returned if a supervisor accepts requests and does not answer.
var ErrHangs = errors.New("the supervisor does not answer")

// Client talks to a supervisor.
type Client struct {
	http *http.Client
}

// NewClient returns a client for the supervisor that serves on a Unix socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status returns the state of the supervisor and its programs, or ErrNotRunning
// if no supervisor listens on the socket.
func (c *Client) Status(ctx context.Context) (Report, error) {
	var report Report
	body, err := c.do(ctx, http.MethodGet, "status")
	// A supervisor that ends resets its connections. When it has ended, it listens no more.
	for tries := 0; tries < 20 && errors.Is(err, errCutOff); tries++ {
		time.Sleep(50 * time.Millisecond)
		body, err = c.do(ctx, http.MethodGet, "status")
	}
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(body, &report); err != nil {
		return report, fmt.Errorf("reading the supervisor's answer: %w", err)
	}
	return report, nil
}

// errCutOff says that a connection ended without a whole answer. net/http has no exported error for one that is closed before the request is sent.
var errCutOff = errors.New("the connection ended")

// Stop stops a program and returns once it has exited.
func (c *Client) Stop(ctx context.Context, name string) error { return c.post(ctx, "stop/"+name) }

// Start starts a stopped program again.
func (c *Client) Start(ctx context.Context, name string) error { return c.post(ctx, "start/"+name) }

// Kill sends SIGKILL to a program.
func (c *Client) Kill(ctx context.Context, name string) error { return c.post(ctx, "kill/"+name) }

// Shutdown requests that the supervisor stops all programs and exits. It does
// not wait for that.
func (c *Client) Shutdown(ctx context.Context) error { return c.post(ctx, "shutdown") }

func (c *Client) post(ctx context.Context, path string) error {
	_, err := c.do(ctx, http.MethodPost, path)
	return err
}

// answerTime bounds a request to a supervisor that hangs. It is longer than the
// longest request to a healthy supervisor: stopping a program that ignores
// SIGTERM.
const answerTime = DefaultStopTimeout + 5*time.Second

func (c *Client) do(ctx context.Context, method, path string) ([]byte, error) {
	limit := answerTime
	if method == http.MethodGet || path == "shutdown" {
		limit = 5 * time.Second // answered at once
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrHangs)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://supervisor/"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, fmt.Errorf("%w: %w", ErrNotRunning, op.Err)
		}
		return nil, fmt.Errorf("asking the supervisor: %w", ended(ctx, err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the supervisor's answer: %w", ended(ctx, err))
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the supervisor refused: %s", strings.TrimSpace(string(body)))
	}
	return body, nil
}

// ended is why a request ended that was sent on an open connection: its context, or else that connection.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: %w", errCutOff, err)
}
