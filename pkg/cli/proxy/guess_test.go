// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// TestGuesses: guesses of the token of --token-file are bounded, in addition to the delay of each.
func TestGuesses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("summer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, slowAPIServer(t), "--port", "0", "--token-file", file)
	client := http.Client{Timeout: bound, Transport: &http.Transport{DisableKeepAlives: true}}
	var compared, busy atomic.Int32
	var wg sync.WaitGroup
	for range 4 * gateway.MaxFailures {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+p.address+"/api", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer winter")
			res, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_ = res.Body.Close()
			switch res.StatusCode {
			case http.StatusUnauthorized:
				compared.Add(1)
			case http.StatusTooManyRequests:
				busy.Add(1)
			default:
				t.Errorf("status %d", res.StatusCode)
			}
		})
	}
	wg.Wait()
	if busy.Load() == 0 || compared.Load() < gateway.MaxFailures {
		t.Errorf("%d guesses at a time: %d were compared, %d were not", 4*gateway.MaxFailures, compared.Load(), busy.Load())
	}
}
