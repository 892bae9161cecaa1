// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// server is a process of fairlead-apiserver.
type server struct {
	cmd  *exec.Cmd
	said bytes.Buffer
	base string
	port int32
	tls  *tls.Config
	http *http.Client
}

// alone starts an API server without a kube-apiserver. It knows one client, which may do all.
func (b *bench) alone(ctx context.Context, name string, args ...string) (*server, error) {
	cfg := pki.FromBundle(&v1alpha1.Bundle{})
	ca, err := pki.NewCA(cfg, "bench", time.Now())
	if err != nil {
		return nil, err
	}
	client, err := ca.Issue(cfg, pki.Request{CommonName: "bench", Organizations: []string{"system:masters"}, Usages: pki.ClientAuth}, time.Now())
	if err != nil {
		return nil, err
	}
	key, err := client.KeyPEM()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(client.CertPEM(), key)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := pki.Kubeconfig(pki.KubeconfigRequest{Cluster: "none", Server: "https://127.0.0.1:1", CA: ca.CertPEM(), User: "none", Client: client})
	if err != nil {
		return nil, err
	}
	caFile, configFile := filepath.Join(b.dir, name+"-ca.crt"), filepath.Join(b.dir, name+"-kubeconfig")
	if err := errors.Join(os.WriteFile(caFile, ca.CertPEM(), 0o600), os.WriteFile(configFile, kubeconfig, 0o600)); err != nil {
		return nil, err
	}
	return b.start(ctx, "127.0.0.1", &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, append(args, //nolint:gosec // it makes its own certificate
		"--client-ca-file="+caFile, "--authentication-skip-lookup", "--kubeconfig="+configFile, "--cert-dir="+filepath.Join(b.dir, name))...)
}

// start starts an API server and waits until it is ready.
func (b *bench) start(ctx context.Context, host string, config *tls.Config, args ...string) (*server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	s := &server{base: "https://" + address, port: int32(l.Addr().(*net.TCPAddr).Port), tls: config}
	s.http = s.client(0)
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), b.apiserver, append(args, "--bind-address="+host, "--secure-port="+port)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	err = b.until(ctx, "fairlead-apiserver to be ready", func(ctx context.Context) error {
		_, err := s.get(ctx, "/readyz")
		return err
	})
	if err != nil {
		s.kill()
		return nil, fmt.Errorf("%w\n%s", err, &s.said)
	}
	return s, nil
}

// client returns a client with connections of its own. window is how many bytes of a response may wait for a reader; 0 is
// the default.
func (s *server) client(window int) *http.Client {
	t := &http.Transport{TLSClientConfig: s.tls.Clone(), ForceAttemptHTTP2: true}
	if window > 0 {
		t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: window}
	}
	return &http.Client{Transport: t}
}

// kill ends the process at once.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it says that it was killed
	s.http.CloseIdleConnections()
}

func (s *server) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", resp.Status, body)
	}
	return body, err
}

// metric sums up the values of a metric, over the series that have a label with the value. An empty label takes all.
func (s *server) metric(ctx context.Context, name, label, value string) (sum float64, err error) {
	body, err := s.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for _, m := range families[name].GetMetric() {
		ok := label == ""
		for _, l := range m.GetLabel() {
			ok = ok || l.GetName() == label && l.GetValue() == value
		}
		if ok {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum, nil
}

// status reads a line of the process's status, in bytes.
func (s *server) status(key string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, key+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", s.cmd.Process.Pid, key)
}

// cpu is the CPU time that the process has used.
func (s *server) cpu() (time.Duration, error) { return cpu(s.cmd.Process.Pid) }

// cpu is the CPU time that a process has used.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %s", pid, text)
	}
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
