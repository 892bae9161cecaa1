// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tlsreload"
)

// crowdVariable has this test binary run a crowd instead of tests.
const crowdVariable = "FAIRLEAD_TEST_CROWD"

// crowd is many agents in a process of their own, which has its own descriptors and does
// not share a scheduler with the server.
type crowd struct {
	N      int
	Server string
	Files  tlsreload.Files
}

// startCrowd starts n agents of the server at an address. end stops them in an orderly
// way and returns how many goroutines they had.
func (r *Rig) startCrowd(n int, address string) (end func() int) {
	r.t.Helper()
	crt, key := r.CA.Issue(r.t, "crowd", time.Now().Add(time.Hour))
	spec, err := json.Marshal(crowd{n, address, tlsreload.Files{Cert: crt, Key: key, CA: r.CA.File}})
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crowdVariable+"="+string(spec))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	return func() (goroutines int) {
		_ = in.Close()
		if _, err := fmt.Fscan(bufio.NewReader(out), &goroutines); err != nil {
			r.t.Errorf("the agents' process said nothing: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			r.t.Errorf("the agents' process: %v", err)
		}
		return goroutines
	}
}

// runCrowd is that process. It ends when its standard input does.
func runCrowd(spec string) error {
	var c crowd
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return err
	}
	loader, err := tlsreload.NewLoader(c.Files, logr.Logger{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	for i := range c.N {
		a := agent.New(agent.Config{
			AgentID: fmt.Sprint("agent-", i), Address: c.Server, SyncInterval: time.Second, SyncIntervalCap: 5 * time.Second,
			ConnectTimeout: Patience, DialTimeout: Patience, // they share one machine's processors
			TLS: func() (*tls.Config, error) {
				return loader.Client(&tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}), nil
			},
		}, agent.NewMetrics())
		all.Go(func() { a.Run(ctx) })
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println(runtime.NumGoroutine())
	cancel()
	all.Wait()
	return nil
}
