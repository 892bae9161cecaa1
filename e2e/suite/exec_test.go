// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	utilexec "k8s.io/client-go/util/exec"

	"github.com/fairlead-dev/fairlead/e2e/harness"
)

const mebibyte = 1 << 20

func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never fails
	return data
}

func sumOf(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// exec carries data in both directions and reports the exit status of the
// command.
// It observes KON-10 of docs/requirements.md.
func TestExec(t *testing.T) {
	run(t, "exec", 2*time.Minute,
		step{"a mebibyte goes in and comes back whole", execBothWays},
		step{"a command that fails says so", execFails},
		step{"a terminal is one", execTerminal},
		step{"the end of standard input arrives", execEnds},
		step{"a command that is not there", execMissing},
	)
}

func execBothWays(ctx context.Context, t *testing.T) {
	sent := randomBytes(mebibyte)
	var got, said bytes.Buffer
	err := suite.Exec(ctx, harness.ServerName, suite.Tool("copy", fmt.Sprint(len(sent))),
		harness.Streams{Stdin: bytes.NewReader(sent), Stdout: &got, Stderr: &said})
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	if strings.TrimSpace(said.String()) != sumOf(sent) {
		t.Errorf("the command got other data: SHA-256 %s, sent %s", said.String(), sumOf(sent))
	}
	if !bytes.Equal(got.Bytes(), sent) {
		t.Errorf("other data came back: %d bytes", got.Len())
	}
}

// Simulated nodes (kwok v0.8.0) do not report the exit code: any failure is an
// internal error that quotes it.
func execFails(ctx context.Context, t *testing.T) {
	for _, code := range []int{1, 7, 255} {
		err := suite.Exec(ctx, harness.ServerName, suite.Tool("exit", fmt.Sprint(code)), harness.Streams{Stdout: io.Discard})
		var exit utilexec.ExitError
		switch {
		case suite.Simulated() && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("exit status %d", code))):
			t.Errorf("the error of exit %d does not quote it: %v", code, err)
		case !suite.Simulated() && (!errors.As(err, &exit) || exit.ExitStatus() != code):
			t.Errorf("exit %d arrives as %v", code, err)
		}
	}
	if err := suite.Exec(ctx, harness.ServerName, suite.Tool("exit", "0"), harness.Streams{Stdout: io.Discard}); err != nil {
		t.Errorf("exit 0 arrives as %v", err)
	}
}

func execTerminal(ctx context.Context, t *testing.T) {
	in, keyboard := io.Pipe()
	defer func() { _ = keyboard.Close() }()
	var screen lockedBuffer
	ended := make(chan error, 1)
	go func() {
		ended <- suite.Exec(ctx, harness.ServerName, suite.Tool("tty"), harness.Streams{Stdin: in, Stdout: &screen, TTY: true})
	}()
	_, _ = io.WriteString(keyboard, "hello\n")
	err := harness.Wait(ctx, 30*time.Second, "an answer on the screen", func(context.Context) error {
		for _, want := range []string{"terminal: true", "said: hello"} {
			if !bytes.Contains(screen.Bytes(), []byte(want)) {
				return fmt.Errorf("the screen lacks %q:\n%s", want, screen.Bytes())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(keyboard, "bye\n")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Simulated nodes (kwok v0.8.0) never pass the end of standard input on, so there
// the same command gets what it is sent and waits for more.
func execEnds(ctx context.Context, t *testing.T) {
	sent := randomBytes(4096)
	var mu lockedBuffer
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		done <- suite.Exec(ctx, harness.ServerName, suite.Tool("cat"), harness.Streams{Stdin: bytes.NewReader(sent), Stdout: &mu})
	}()
	if !suite.Simulated() {
		if err := <-done; err != nil || !bytes.Equal(mu.Bytes(), sent) {
			t.Errorf("%d of %d bytes came back: %v", len(mu.Bytes()), len(sent), err)
		}
		return
	}
	err := harness.Wait(ctx, 30*time.Second, "all bytes", func(context.Context) error {
		if got := mu.Bytes(); !bytes.Equal(got, sent) {
			return fmt.Errorf("%d of %d bytes came back", len(got), len(sent))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func execMissing(ctx context.Context, t *testing.T) {
	err := suite.Exec(ctx, harness.ServerName, []string{"/no/such/program"}, harness.Streams{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("want an error that says what is missing, got %v", err)
	}
}
