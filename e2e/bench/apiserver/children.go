// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// childPrograms are what this program runs as in processes of their own, so that their work does not disturb the one that
// measures. Each prints a line when it runs, and ends with its standard input.
var childPrograms = map[string]func(args []string) error{"target": runTarget, "agents": runAgents, "askers": runAskers}

// child is a process of this benchmark.
type child struct {
	cmd    *exec.Cmd
	in     io.Closer
	out    *bufio.Reader
	said   string // its first line
	errors bytes.Buffer
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // it says that it was killed
}

// end lets the process end, and returns the line that it prints then.
func (c *child) end() (string, error) {
	if err := c.in.Close(); err != nil {
		return "", err
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", c.explain(err)
	}
	return strings.TrimSpace(line), nil
}

// explain adds to an error what the process wrote.
func (c *child) explain(err error) error {
	c.kill()
	return fmt.Errorf("%w\n%s", err, &c.errors)
}

// startChild starts one of childPrograms and waits until it runs.
func startChild(ctx context.Context, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(context.WithoutCancel(ctx), self, args...)}
	c.cmd.Stderr = &c.errors
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	line, err := c.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s does not start: %w", args[0], c.explain(err))
	}
	c.said = strings.TrimSpace(line)
	return c, nil
}

// children are those that end with a part.
type children []*child

func (all *children) start(ctx context.Context, args ...string) (*child, error) {
	c, err := startChild(ctx, args...)
	if err == nil {
		*all = append(*all, c)
	}
	return c, err
}

// startProgram starts another program.
func (all *children) startProgram(ctx context.Context, program string, args ...string) (*child, error) {
	c := &child{cmd: exec.CommandContext(context.WithoutCancel(ctx), program, args...)}
	c.cmd.Stdout, c.cmd.Stderr = &c.errors, &c.errors
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	*all = append(*all, c)
	return c, nil
}

func (all *children) stop() {
	for _, c := range slices.Backward(*all) {
		c.kill()
	}
}

// running prints a line and waits for the end of standard input.
func running(line string) error {
	fmt.Println(line)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// runTarget is "target": it accepts connections, on which nothing comes, and closes them when the client does.
func runTarget([]string) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				_, _ = nc.Read(make([]byte, 1))
			}()
		}
	}()
	return running(l.Addr().String())
}

// runAgents is "agents ADDRESS DIR N": so many agents, with the certificates of a directory.
func runAgents(args []string) error {
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(args[1], "crt"), filepath.Join(args[1], "key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(args[1], "ca"))
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13}
	config.RootCAs.AppendCertsFromPEM(ca)
	metrics := agent.NewMetrics()
	for i := range n {
		a := agent.New(agent.Config{
			Address: args[0], TLS: func() (*tls.Config, error) { return config.Clone(), nil },
			AgentID: fmt.Sprintf("konnectivity-agent-%05d", i), Identifiers: fmt.Sprintf("host=node-%05d.example.com&ipv4=10.%d.%d.%d", i, i>>16, i>>8&255, i&255),
		}, metrics)
		go a.Run(context.Background())
	}
	return running("running")
}

func stateClient(socket string) *state.Client {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	return &state.Client{HTTP: &http.Client{Transport: t}, Base: "http://konnectivity-server"}
}

// runAskers is "askers SOCKET N CONNECTIONS": N askers, which begin at different times of a second and list so many connections
// as well. They read the answers and do not decode them, because other machines would do that. At the end it prints the median time of the requests of
// one asker in one second, in nanoseconds, and the size of their answers.
func runAskers(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	connections, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	paths := []string{state.Path}
	for after := 0; after < connections; after += state.MaxLimit { // serial numbers begin with 1
		paths = append(paths, fmt.Sprintf("%s?after=%d&limit=%d", state.ConnectionsPath, after, state.MaxLimit))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	var took []time.Duration
	var size int64
	var errs []error
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			client := stateClient(args[0])
			_ = wait(ctx, time.Duration(i)*time.Second/time.Duration(n))
			for ctx.Err() == nil {
				start := time.Now()
				read, err := ask(ctx, client, paths)
				mu.Lock()
				if err == nil {
					took, size = append(took, time.Since(start)), read
				} else if ctx.Err() == nil {
					errs = append(errs, err)
				}
				mu.Unlock()
				_ = wait(ctx, time.Second-time.Since(start))
			}
		})
	}
	err = running("running")
	cancel()
	all.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	fmt.Println(int64(quantile(took, 0.5)), size)
	return nil
}

// ask makes the requests of one asker, and returns the size of the answers.
func ask(ctx context.Context, client *state.Client, paths []string) (size int64, err error) {
	for _, path := range paths {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, client.Base+path, nil)
		if err != nil {
			return 0, err
		}
		resp, err := client.HTTP.Do(req)
		if err != nil {
			return 0, err
		}
		n, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", path, resp.Status)
		}
		if err != nil {
			return 0, err
		}
		size += n
	}
	return size, nil
}
