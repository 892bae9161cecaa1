// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

// lockedBuffer may be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buf.Bytes())
}

// Logs arrive complete, and while they are written.
// It observes KON-10 of docs/requirements.md.
func TestLogs(t *testing.T) {
	run(t, "logs", 2*time.Minute,
		step{"a large log comes whole", largeLog},
		step{"a followed log comes as it is written", followedLog},
		step{"attach shows what is written", attachShows},
	)
}

// largeLog writes 4 MiB and reads them five times at once. A kubelet rotates a
// log at 10 MiB.
func largeLog(ctx context.Context, t *testing.T) {
	const lines, size = 4096, 1024
	if err := suite.Print(ctx, "large", lines, size); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			err := harness.Wait(ctx, time.Minute, "the whole log", func(ctx context.Context) error {
				log, err := suite.Logs(ctx, harness.ServerName, corev1.PodLogOptions{})
				if err != nil {
					return err
				}
				defer log.Close()
				return wantLines(log, "large", lines, size)
			})
			if err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// wantLines reads lines 1 to n of a word, each of the size, and stops there.
func wantLines(r io.Reader, word string, n, size int) error {
	scanner := bufio.NewScanner(r)
	next := 1
	for next <= n && scanner.Scan() {
		line := scanner.Text()
		if !strings.HasPrefix(line, word+" ") {
			continue
		}
		if !strings.HasPrefix(line, fmt.Sprintf("%s %d ", word, next)) || len(line) != size-1 {
			return fmt.Errorf("line %d is %.40q with %d bytes", next, line, len(line))
		}
		next++
	}
	if next <= n {
		return fmt.Errorf("the log ended before line %d: %w", next, scanner.Err())
	}
	return nil
}

func followedLog(ctx context.Context, t *testing.T) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	log, err := suite.Logs(ctx, harness.ServerName, corev1.PodLogOptions{Follow: true, TailLines: ptr.To[int64](0)})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	read := make(chan error, 1)
	go func() { read <- wantLines(log, "followed", 200, 100) }()
	for range 4 {
		select {
		case err := <-read:
			t.Fatalf("the log ended early: %v", err)
		case <-time.After(100 * time.Millisecond): // what is written must come while it is followed
		}
	}
	if err := suite.Print(ctx, "followed", 200, 100); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
}

func attachShows(ctx context.Context, t *testing.T) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var screen lockedBuffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = suite.Attach(ctx, harness.ServerName, harness.Streams{Stdout: &screen, Stderr: io.Discard}) // that it was cut off
	}()
	// A client that sees the ticks is attached.
	err := harness.Wait(ctx, 30*time.Second, "attach to show ticks", func(context.Context) error {
		if !bytes.Contains(screen.Bytes(), []byte("tick ")) {
			return fmt.Errorf("it shows %q", screen.Bytes())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Print(ctx, "attached", 50, 100); err != nil {
		t.Fatal(err)
	}
	err = harness.Wait(ctx, 30*time.Second, "attach to show what is written", func(context.Context) error {
		return wantLines(bytes.NewReader(screen.Bytes()), "attached", 50, 100)
	})
	if err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
}
