// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// LongStreams are one of each kind of long call to the test server: a log that
// is followed, an exec and a forwarded port that give back what they get, and an
// answer through the Service proxy that never ends. Each checks every byte.
func (c *Cluster) LongStreams() map[string]Stream {
	return map[string]Stream{"logs": c.followLog, "exec": c.echoExec, "port-forward": c.echoForward, "service proxy": c.readStream}
}

func (c *Cluster) followLog(ctx context.Context, alive func()) error {
	log, err := c.Logs(ctx, ServerName, corev1.PodLogOptions{Follow: true, TailLines: ptr.To[int64](1)})
	if err != nil {
		return err
	}
	defer log.Close()
	return numbers(log, "tick ", alive)
}

func (c *Cluster) readStream(ctx context.Context, alive func()) error {
	body, err := c.Client.CoreV1().Services(Namespace).ProxyGet("http", ServerName, "http", "stream", map[string]string{"every": tickEvery.String()}).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	return numbers(body, "", alive)
}

// numbers reads lines of which those that begin with prefix count up.
func numbers(r io.Reader, prefix string, alive func()) error {
	last := -1
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), prefix)
		if !ok {
			continue
		}
		var n int
		if _, err := fmt.Sscan(text, &n); err != nil || last >= 0 && n != last+1 {
			return fmt.Errorf("%q came after %d: %w", lines.Text(), last, errors.Join(err, ErrCorrupt))
		}
		last = n
		alive()
	}
	return lines.Err()
}

// ErrCorrupt says that the received data differ from the sent data.
var ErrCorrupt = errors.New("other data than was sent")

// echoExec talks to a command that gives back what it gets. It never receives
// the end of the output: simulated nodes do not pass that on.
func (c *Cluster) echoExec(ctx context.Context, alive func()) error {
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := c.Exec(ctx, ServerName, c.Tool("copy", fmt.Sprint(1<<40)), Streams{Stdin: in, Stdout: out})
		ended <- err
		_ = out.CloseWithError(errors.Join(err, io.EOF))
		_ = in.CloseWithError(io.EOF)
	}()
	err := pingPong(ctx, stdin, stdout, alive)
	_ = stdin.Close()
	_ = stdout.Close()
	select {
	case e := <-ended:
		return errors.Join(e, err)
	case <-time.After(time.Second): // the exec of a stream that stalls
		return err
	}
}

// echoForward talks to the echo behind a forwarded port.
func (c *Cluster) echoForward(ctx context.Context, alive func()) error {
	address, stop, err := c.Forward(ctx, ServerName, EchoPort)
	if err != nil {
		return err
	}
	defer stop()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return pingPong(ctx, conn, conn, alive)
}

// pingPong writes lines and wants each back before it writes the next.
func pingPong(ctx context.Context, w io.Writer, r io.Reader, alive func()) error {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	back := bufio.NewReader(r)
	for i := 0; ctx.Err() == nil; i++ {
		line := fmt.Sprintf("%d %s\n", i, strings.Repeat("y", 1000))
		if _, err := io.WriteString(w, line); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		got, err := back.ReadString('\n')
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if got != line {
			return fmt.Errorf("sent %.20q, %.20q came back: %w", line, got, ErrCorrupt)
		}
		alive()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return ctx.Err()
}
