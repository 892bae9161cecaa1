// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// foreignBound is how long a scheduler may take to lead and bind a pod on a busy machine.
const foreignBound = time.Minute

// besides is a control plane with another scheduler and with the parts of the default bundle that the check reads.
type besides struct {
	*daemontest.ControlPlane
	kubeScheduler string
}

// TestForeignScheduler proves with a real scheduler, which no ConfigMap configures, that the check finds another scheduler that uses our scheduler
// name or takes our Lease. The check finds it by the Lease that it holds and by the pods that it binds under our name, and only while it is not one
// of our replicas.
func TestForeignScheduler(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	testutil.Full(t, "compiles and starts kube-scheduler")
	c := besides{kubeScheduler: daemontest.Components(t, "kube-scheduler")["kube-scheduler"], ControlPlane: daemontest.StartControlPlane(t)}
	c.want(t, "")

	sameLease := c.start(t, "other", secondName)
	daemontest.Eventually(t, foreignBound, func() error {
		lease, err := c.Client.CoordinationV1().Leases(spaceName).Get(t.Context(), secondName, metav1.GetOptions{})
		if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			err = errors.New("the Lease has no holder")
		}
		return err
	})
	c.want(t, "Lease "+spaceName+"/"+secondName+" is held by "+host+"_")
	sameLease.Terminate(t)
	if code := sameLease.ExitCode(t, foreignBound); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.want(t, "")

	c.start(t, secondName, "other")
	c.bindPod(t)
	c.want(t, fmt.Sprintf("a scheduler on host %q bound pod default/web as %q, which is our profile", host, secondName))

	// The same events are correct if a replica has that name.
	replica := asMade(schedulerPod(host))
	if _, err := c.Client.CoreV1().Pods(spaceName).Create(t.Context(), replica, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.want(t, "")
}

// want runs the check as fairlead verify does, and requires this error, or success.
func (c besides) want(t *testing.T, wantErr string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	env, err := NewEnv(config, b, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	report, err := check.Run(t.Context(), env, check.Options{Only: regexp.MustCompile("^scheduler-coexistence$")}, silent{})
	if err != nil || len(report.Checks) != 1 {
		t.Fatalf("%+v (%v)", report, err)
	}
	r := report.Checks[0]
	switch {
	case wantErr == "" && r.Status != check.OK:
		t.Errorf("%s: %s", r.Status, r.Error)
	case wantErr != "" && (r.Status != check.Failed || !strings.Contains(r.Error, wantErr) || r.Hint == ""):
		t.Errorf("got %s %q (hint %q), want %q", r.Status, r.Error, r.Hint, wantErr)
	}
}

// silent is a Reporter that reports nothing.
type silent struct{}

func (silent) Begin(string, []check.Check) {}
func (silent) Start(check.Check)           {}
func (silent) Finish(check.Result)         {}
func (silent) End(*check.Report) error     { return nil }

// start runs Kubernetes' own scheduler, configured by an administrator who does not know about our second scheduler.
func (c besides) start(t *testing.T, profile, lease string) *daemontest.Process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	config := fmt.Sprintf(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q}
leaderElection: {leaderElect: true, resourceNamespace: %s, resourceName: %s}
profiles: [{schedulerName: %s}]
`, c.Kubeconfig, spaceName, lease, profile)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return daemontest.Start(t, nil, c.kubeScheduler, "--config="+file, "--bind-address=127.0.0.1", "--secure-port="+daemontest.Ports(t, 1)[0])
}

// bindPod makes the other scheduler bind a pod that names ours, and waits for the Scheduled event.
func (c besides) bindPod(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{"default", spaceName} { // no controller makes them
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := c.Client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("10")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{Capacity: room, Allocatable: room}}
	if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	web := asMade(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	web.Spec.SchedulerName = secondName
	web.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // admission taints a node until it is ready
	if _, err := c.Client.CoreV1().Pods("default").Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, foreignBound, func() error {
		events, err := c.Client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Scheduled"})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("no scheduler has bound the pod")
		}
		return err
	})
}

// asMade adds the fields that the API server requires of every pod.
func asMade(p *corev1.Pod) *corev1.Pod {
	p.Spec.Containers = []corev1.Container{{Name: "pause", Image: "pause"}}
	p.Spec.AutomountServiceAccountToken = ptr.To(false)
	return p
}
