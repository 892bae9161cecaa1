// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// counted counts how often its state is asked for.
type counted struct{ links, asked int }

func (c *counted) State() State {
	c.asked++
	return State{Version: Version, Time: time.Now(), Links: make([]Link, c.links)}
}

func (c *counted) Connections(int64, int) Connections { return Connections{} }

// TestManyClients: beyond some links, clients that ask within a part of a second share an answer, which tells when it was
// written, so that their number costs the server nothing. The state of few links is new for each client.
func TestManyClients(t *testing.T) {
	for _, c := range []struct {
		links, want int // answers that are made in one second
		oldest      time.Duration
	}{{0, 20, 0}, {manyLinks - 1, 20, 0}, {2000, 10, 100 * time.Millisecond}, {5000, 4, 250 * time.Millisecond}, {20_000, 2, maxKeep}} {
		synctest.Test(t, func(t *testing.T) {
			source := &counted{links: c.links}
			h := Handler(source)
			for range 20 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path, nil))
				var got State
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Links) != c.links || w.Code != http.StatusOK || w.Header().Get("Content-Type") != contentType {
					t.Fatalf("status %d, %d links, %v", w.Code, len(got.Links), err)
				}
				if age := time.Since(got.Time); age > c.oldest {
					t.Fatalf("%d links: the answer is %v old, want %v at most", c.links, age, c.oldest)
				}
				time.Sleep(50 * time.Millisecond)
			}
			if source.asked != c.want {
				t.Errorf("%d links: 20 clients in a second cause %d answers, want %d", c.links, source.asked, c.want)
			}
		})
	}
}
