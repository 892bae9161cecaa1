// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/scheduler"
)

// files is the directory of what all tests of the package share: the program and the API server's audit log.
var files string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fairlead-scheduler")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	files = dir
	flag.Parse()
	if !testing.Short() {
		if err := daemontest.Build(context.Background(), dir, []string{"github.com/fairlead-dev/fairlead/cmd/fairlead-scheduler"}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return daemontest.RunShared(m)
}

// binary is the path of the program, which is not built with -short.
func binary(t *testing.T) string {
	t.Helper()
	testutil.Integration(t, "fairlead-scheduler, which takes seconds to link")
	return filepath.Join(files, scheduler.Name)
}

// cluster is the control plane that the tests of the package share. It has neither nodes nor Pods when a test begins.
type cluster struct {
	*daemontest.ControlPlane
	logged int64 // length of the audit log when the test began
}

// newCluster returns the shared control plane. At the end of the test, after its processes, all that it has made is removed.
func newCluster(t *testing.T) cluster {
	t.Helper()
	testutil.Limit(t, 3*time.Minute) // the first one starts etcd and kube-apiserver
	policy := filepath.Join(files, "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := cluster{ControlPlane: daemontest.SharedControlPlane(t, "--audit-log-path="+auditLog(), "--audit-policy-file="+policy,
		// It taints new nodes until a controller has seen them ready. There is none here.
		"--disable-admission-plugins=TaintNodesByCondition")}
	daemontest.Eventually(t, patience, func() error { // the API server makes them after it is ready
		_, err1 := c.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		_, err2 := c.Client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		return errors.Join(err1, err2)
	})
	info, err := os.Stat(auditLog())
	if err != nil {
		t.Fatal(err)
	}
	c.logged = info.Size()
	t.Cleanup(func() { c.clear(context.WithoutCancel(t.Context()), t) })
	return c
}

// clear removes what tests make, but for what [create] makes, which removes that itself.
func (c cluster) clear(ctx context.Context, t *testing.T) {
	t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	named := func(selector string) metav1.ListOptions { return metav1.ListOptions{FieldSelector: selector} }
	if err := errors.Join(
		c.Client.CoreV1().Pods("default").DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.Client.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.Client.EventsV1().Events("default").DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.Client.SchedulingV1().PriorityClasses().DeleteCollection(ctx, now, named("metadata.name!=system-cluster-critical,metadata.name!=system-node-critical")),
		// A scheduler that was killed has not released it.
		c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).DeleteCollection(ctx, now, named("metadata.name="+lease)),
	); err != nil {
		t.Errorf("remove what the test has made: %v", err)
	}
	services, err := c.Client.CoreV1().Services("default").List(ctx, named("metadata.name!=kubernetes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range services.Items {
		if err := c.Client.CoreV1().Services("default").Delete(ctx, s.Name, now); err != nil {
			t.Error(err)
		}
	}
}

func auditLog() string { return filepath.Join(files, "audit.log") }

// auditEvent is what is read of an audit log.
type auditEvent struct {
	Verb           string
	User           struct{ Username string }
	RequestURI     string
	ObjectRef      struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// requests returns a user's requests of this test that are answered. The last line may still be being written.
func (c cluster) requests(t *testing.T, user string) []auditEvent {
	t.Helper()
	data, err := os.ReadFile(auditLog())
	if err != nil {
		t.Fatal(err)
	}
	var events []auditEvent
	for line := range bytes.Lines(data[c.logged:]) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err == nil && e.User.Username == user {
			events = append(events, e)
		}
	}
	return events
}
