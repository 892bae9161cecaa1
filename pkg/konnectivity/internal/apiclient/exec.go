// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// execConfig is the configuration of a credential plugin in a kubeconfig
// (client.authentication.k8s.io).
type execConfig struct {
	APIVersion string   `json:"apiVersion"`
	Command    string   `json:"command"`
	Args       []string `json:"args"`
	Env        []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	InstallHint        string `json:"installHint"`
	ProvideClusterInfo bool   `json:"provideClusterInfo"`
	InteractiveMode    string `json:"interactiveMode"`
}

// execCredential is the object that a credential plugin gets and returns.
type execCredential struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Spec       execSpec    `json:"spec"`
	Status     *execStatus `json:"status,omitempty"`
}

type execSpec struct {
	Interactive bool         `json:"interactive"`
	Cluster     *execCluster `json:"cluster,omitempty"`
}

type execCluster struct {
	Server        string `json:"server"`
	TLSServerName string `json:"tls-server-name,omitempty"`
	Insecure      bool   `json:"insecure-skip-tls-verify,omitempty"`
	CAData        []byte `json:"certificate-authority-data,omitempty"`
	ProxyURL      string `json:"proxy-url,omitempty"`
}

type execStatus struct {
	Expires *time.Time `json:"expirationTimestamp,omitempty"`
	Token   string     `json:"token,omitempty"`
	Cert    string     `json:"clientCertificateData,omitempty"`
	Key     string     `json:"clientKeyData,omitempty"`

	pair *tls.Certificate
}

// plugin runs a command for credentials and caches them until they expire.
type plugin struct {
	cfg  execConfig
	path string
	info string // value of KUBERNETES_EXEC_INFO

	mu   sync.Mutex
	cred *execStatus
	run  *pluginRun // nil while the command does not run
}

// pluginRun is one run of the command. All callers that need credentials wait for it.
type pluginRun struct {
	done chan struct{}
	cred *execStatus
	err  error
}

var execVersions = []string{"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"}

func newPlugin(cfg *execConfig, cl *cluster, ca []byte, dir string) (*plugin, error) {
	switch {
	case cfg.Command == "":
		return nil, errors.New("exec has no command")
	case !slices.Contains(execVersions, cfg.APIVersion):
		return nil, fmt.Errorf("%w: exec.apiVersion %q; use %s", ErrUnsupported, cfg.APIVersion, strings.Join(execVersions, " or "))
	case cfg.InteractiveMode == "Always":
		return nil, fmt.Errorf("%w: exec.interactiveMode Always, but there is no terminal", ErrUnsupported)
	}
	c := execCredential{APIVersion: cfg.APIVersion, Kind: "ExecCredential"}
	if cfg.ProvideClusterInfo {
		c.Spec.Cluster = &execCluster{Server: cl.Server, TLSServerName: cl.TLSServerName, Insecure: cl.Insecure, CAData: ca, ProxyURL: cl.ProxyURL}
	}
	info, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := &plugin{cfg: *cfg, path: cfg.Command, info: string(info)}
	if strings.ContainsRune(p.path, filepath.Separator) {
		p.path = inDir(p.path, dir)
	}
	return p, nil
}

// get returns credentials that have not expired. The plugin continues to run when ctx is
// done, so that later calls find its credentials even if the plugin takes longer than
// one call may.
func (p *plugin) get(ctx context.Context) (*execStatus, error) {
	p.mu.Lock()
	if c := p.cred; c != nil && (c.Expires == nil || time.Now().Before(*c.Expires)) {
		p.mu.Unlock()
		return c, nil
	}
	r := p.run
	if r == nil {
		r = &pluginRun{done: make(chan struct{})}
		p.run = r
		go p.finish(context.WithoutCancel(ctx), r)
	}
	p.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("credentials by exec %s, which is still running: %w", p.cfg.Command, ctx.Err())
	}
	if r.err != nil {
		return nil, fmt.Errorf("credentials by exec %s: %w", p.cfg.Command, r.err)
	}
	return r.cred, nil
}

// finish runs the plugin for the callers that wait for r.
func (p *plugin) finish(ctx context.Context, r *pluginRun) {
	r.cred, r.err = p.exec(ctx)
	p.mu.Lock()
	if r.err == nil {
		p.cred = r.cred
	}
	p.run = nil
	p.mu.Unlock()
	close(r.done)
}

// execTimeout limits one run of the plugin.
const execTimeout = time.Minute

func (p *plugin) exec(ctx context.Context) (*execStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, execTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, p.cfg.Args...)
	cmd.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+p.info)
	for _, e := range p.cfg.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) && p.cfg.InstallHint != "" {
		return nil, fmt.Errorf("%w\n%s", err, p.cfg.InstallHint)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	var c execCredential
	if err := json.Unmarshal(out, &c); err != nil {
		return nil, fmt.Errorf("its answer: %w", err)
	}
	return c.check(p.cfg.APIVersion)
}

// check validates the answer of a plugin.
func (c *execCredential) check(version string) (*execStatus, error) {
	st := c.Status
	switch {
	case c.APIVersion != version || c.Kind != "ExecCredential":
		return nil, fmt.Errorf("it answered with %s %s, not %s ExecCredential", c.APIVersion, c.Kind, version)
	case st == nil || st.Token == "" && st.Cert == "":
		return nil, errors.New("its answer has neither token nor certificate")
	case (st.Cert == "") != (st.Key == ""):
		return nil, errors.New("its answer has only one of certificate and key")
	}
	if st.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(st.Cert), []byte(st.Key))
		if err != nil {
			return nil, fmt.Errorf("its certificate: %w", err)
		}
		st.pair = &pair
	}
	return st, nil
}

func (p *plugin) token(ctx context.Context) (string, error) {
	c, err := p.get(ctx)
	if err != nil {
		return "", err
	}
	return c.Token, nil
}

// certificate implements tls.Config.GetClientCertificate.
func (p *plugin) certificate(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c, err := p.get(r.Context())
	if err != nil {
		return nil, err
	}
	if c.pair == nil {
		return &tls.Certificate{}, nil
	}
	return c.pair, nil
}

// forget drops credentials that the API server did not accept.
func (p *plugin) forget() {
	p.mu.Lock()
	p.cred = nil
	p.mu.Unlock()
}
