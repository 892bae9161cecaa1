// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/goals"
)

const (
	bodySize  = 64 << 20
	smallGets = 2000
	events    = 200
	// eventEvery is long enough that events do not overlap, so the measured delay is that
	// of one event.
	eventEvery = 5 * time.Millisecond
	upgrades   = 200
)

// measure is one row of the table.
type measure struct {
	name, unit string
	take       func(ctx context.Context, address string) (float64, error)
	goal       goals.Goal // of fairlead / kubectl
}

var proxyMeasures = []measure{
	{"small GET, median", "µs", smallGet, goals.Goal{AtMost: 1}},
	{"64 MiB body", "MB/s", largeBody, goals.Goal{AtLeast: 1}},
	{"watch event, median delay", "µs", watchDelay, goals.Goal{AtMost: 1.05}},
	{"upgrade (exec), median", "µs", upgradeTime, goals.Goal{AtMost: 1.05}},
}

// runProxy compares fairlead proxy with kubectl proxy, in front of one server with TLS. kubectl proxy writes no log: without
// its own, fairlead proxy has the floor of what its log costs.
func runProxy(ctx context.Context, o options) error {
	if o.kubectl == "" {
		var err error
		if o.kubectl, err = (&harness.Cluster{Home: &harness.Home{Dir: o.dir}}).BuildKubectl(ctx); err != nil {
			return err
		}
	}
	kubeconfig, stop, err := benchServer(o.dir)
	if err != nil {
		return err
	}
	defer stop()
	programs := []struct {
		name, path string
		args       []string
	}{{"kubectl proxy", o.kubectl, nil}, {"fairlead proxy", o.fairlead, nil}, {"fairlead proxy --access-log=false", o.fairlead, []string{"--access-log=false"}}}
	addresses := make([]string, len(programs))
	for i, p := range programs {
		address, end, err := startProxy(ctx, p.path, kubeconfig, p.args...)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer end()
		addresses[i] = address
	}
	fmt.Printf("| measure | unit | %s | %s | ratio | goal | | %s | ratio |\n|---|---|---|---|---|---|---|---|---|\n", programs[0].name, programs[1].name, programs[2].name)
	for _, m := range proxyMeasures {
		values := make([][]float64, len(programs))
		for rep := range o.reps + 1 {
			for i := range programs {
				v, err := m.take(ctx, addresses[i])
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.name, programs[i].name, err)
				}
				if rep > 0 { // the first warms up
					values[i] = append(values[i], v)
				}
			}
		}
		a, b, floor := goals.Quantile(values[0], 0.5), goals.Quantile(values[1], 0.5), goals.Quantile(values[2], 0.5)
		fmt.Printf("| %s | %s | %.0f | %.0f | %.2f | %s | %.0f | %.2f |\n", m.name, m.unit, a, b, b/a, o.missed.Cells(m.name, m.goal, b/a), floor, floor/a)
	}
	return nil
}

// benchServer answers what is measured, and writes a kubeconfig for itself.
func benchServer(dir string) (kubeconfig string, stop func(), err error) {
	large := make([]byte, 1<<20)
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kind":"Status"}`) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(bodySize))
		for range bodySize / len(large) {
			_, _ = w.Write(large)
		}
	})
	mux.HandleFunc("/watch", func(w http.ResponseWriter, req *http.Request) {
		for range events {
			_, _ = fmt.Fprintf(w, "%d\n", time.Now().UnixNano())
			_ = http.NewResponseController(w).Flush()
			select {
			case <-req.Context().Done():
				return
			case <-time.After(eventEvery):
			}
		}
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nx")
	})
	s := httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.StartTLS()
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: ca}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: "bench"} // without one, kubectl asks for a password
	config.CurrentContext = "bench"
	kubeconfig = filepath.Join(dir, "kubeconfig")
	return kubeconfig, func() { s.CloseClientConnections(); s.Close() }, clientcmd.WriteToFile(*config, kubeconfig)
}

// startProxy starts a program's "proxy" and reads its address from its first line.
func startProxy(ctx context.Context, program, kubeconfig string, args ...string) (address string, end func(), err error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"proxy", "--port=0", "--kubeconfig=" + kubeconfig}, args...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "Starting to serve on ")
	if !ok {
		end()
		return "", nil, fmt.Errorf("its first line is %q: %w", line, errors.Join(err))
	}
	return address, end, nil
}

func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: status %d", url, resp.StatusCode)
	}
	return resp, nil
}

func smallGet(ctx context.Context, address string) (float64, error) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	took := make([]float64, 0, smallGets)
	for range smallGets {
		start := time.Now()
		resp, err := get(ctx, client, "http://"+address+"/small")
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return 0, err
		}
		took = append(took, micros(start))
	}
	return goals.Quantile(took, 0.5), nil
}

func micros(start time.Time) float64 { return float64(time.Since(start).Nanoseconds()) / 1e3 }

func largeBody(ctx context.Context, address string) (float64, error) {
	start := time.Now()
	resp, err := get(ctx, http.DefaultClient, "http://"+address+"/large")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && n != bodySize {
		err = io.ErrUnexpectedEOF
	}
	return float64(n) / 1e6 / time.Since(start).Seconds(), err
}

func watchDelay(ctx context.Context, address string) (float64, error) {
	resp, err := get(ctx, http.DefaultClient, "http://"+address+"/watch?watch=true")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var delays []float64
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		sent, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			return 0, err
		}
		delays = append(delays, float64(time.Now().UnixNano()-sent)/1e3)
	}
	if len(delays) != events {
		return 0, fmt.Errorf("%d events instead of %d: %w", len(delays), events, errors.Join(lines.Err()))
	}
	return goals.Quantile(delays, 0.5), nil
}

// upgradeTime is from the connection to the first byte of the upgraded protocol.
func upgradeTime(ctx context.Context, address string) (float64, error) {
	took := make([]float64, 0, upgrades)
	for range upgrades {
		start := time.Now()
		if err := upgradeOnce(ctx, address); err != nil {
			return 0, err
		}
		took = append(took, micros(start))
	}
	return goals.Quantile(took, 0.5), nil
}

func upgradeOnce(ctx context.Context, address string) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "POST /upgrade HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"); err != nil {
		return err
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // an upgrade has none
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("upgrade: %s", resp.Status)
	}
	_, err = r.ReadByte()
	return err
}
