// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// wholeIdentity sends requests to another API server of the cluster, which writes an audit log: it believes the front proxy's
// UID and extra values as well as the name, and not those of other clients.
func (w *apiWorld) wholeIdentity(proxy *pki.KeyPair) {
	w.t.Helper()
	address, log, stop := w.audited()
	send := func(pair *pki.KeyPair, auditID string) {
		w.t.Helper()
		header := http.Header{"X-Remote-User": {"alice"}, "X-Remote-Group": {"system:masters", "blue"}, "X-Remote-Uid": {"alice-uid"},
			"X-Remote-Extra-Example.org%2fteam": {"one", "two"}, "Audit-Id": {auditID}}
		w.request(address, tunnelAPIPath, pair, header)
	}
	send(proxy, "front-proxy")
	send(nil, "stranger")
	stop()
	want := map[string]authenticationv1.UserInfo{
		"front-proxy": {Username: "alice", UID: "alice-uid", Groups: []string{"system:masters", "blue", "system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{"example.org/team": {"one", "two"}}},
		"stranger": {Username: "system:anonymous", Groups: []string{"system:unauthenticated"}},
	}
	if diff := cmp.Diff(want, usersOf(w.t, log)); diff != "" {
		w.t.Errorf("users in the audit log (-want +got):\n%s", diff)
	}
}

// audited starts another API server, as the cluster does.
func (w *apiWorld) audited() (address, log string, stop func()) {
	t := w.t
	t.Helper()
	dir, state := t.TempDir(), w.StateDir("dev")
	log = filepath.Join(dir, "audit.log")
	policy := filepath.Join(dir, "policy.yaml")
	const text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, resources: [{group: tunnel.fairlead.dev}]}]\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	port := daemontest.Ports(t, 1)[0]
	address = net.JoinHostPort("127.0.0.1", port)
	name := v1alpha1.TunnelAPIName
	cmd, _, stderr := w.Program(t.Context(), filepath.Join(w.Bin, name), "--bind-address=127.0.0.1", "--secure-port="+port,
		"--konnectivity-server=unix://"+filepath.Join(state, "run/konnectivity-state.socket"), "--kubeconfig="+filepath.Join(state, "config", name+".kubeconfig"),
		"--tls-cert-file="+w.pki(name+".crt"), "--tls-private-key-file="+w.pki(name+".key"), "--audit-policy-file="+policy, "--audit-log-path="+log)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = cmd.Wait() // why it ended is in its log
	}()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-over:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
		}
	})
	t.Cleanup(stop)
	w.eventually("the audited API server is ready", func() bool {
		select {
		case <-over:
			t.Fatalf("the audited API server has ended:\n%s", stderr)
		default:
		}
		code, _, err := w.tryRequest(address, "/readyz", nil, http.Header{})
		return err == nil && code == http.StatusOK
	})
	return address, log, stop
}

// usersOf reads who sent the requests of an audit log, by the IDs of its events.
func usersOf(t *testing.T, log string) map[string]authenticationv1.UserInfo {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]authenticationv1.UserInfo{}
	for line := range bytes.Lines(data) {
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		users[string(event.AuditID)] = event.User
	}
	return users
}
