// SPDX-License-Identifier: Apache-2.0

package embedded_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// ha is a cluster with a leader and a standby of the second scheduler.
type ha struct {
	*home
	t      *testing.T
	client kubernetes.Interface
	n      int
	gaps   []gap
}

func (c *ha) kill(program string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	if err := c.supervisor("dev").Kill(ctx, program); err != nil {
		c.t.Fatal(err)
	}
}

func (c *ha) signal(pid int, sig syscall.Signal) {
	c.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		c.t.Fatal(err)
	}
}

// roles waits until one replica leads and the other is ready, and says which is which.
func (c *ha) roles(t *testing.T) (leader, standby string) {
	t.Helper()
	names := []string{"second-scheduler-0", "second-scheduler-1"}
	waitFor(t, "a leader and a standby", func() bool {
		leader, standby = "", ""
		for _, name := range names {
			code, metrics := c.get(name, "/metrics")
			switch {
			case code != http.StatusOK:
			case leads(metrics):
				leader = name
			default:
				if ready, _ := c.get(name, "/readyz"); ready == http.StatusOK {
					standby = name
				}
			}
		}
		return leader != "" && standby != ""
	})
	return leader, standby
}

// leads reads a replica's own metric of its leadership. Its label is kube-scheduler's name, whatever the Lease is called.
func leads(metrics string) bool {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "leader_election_master_status{") && strings.HasSuffix(strings.TrimSpace(line), " 1") {
			return true
		}
	}
	return false
}

// get sends a request to the HTTPS port of a program of the cluster, as the cluster's administrator. It returns 0 if
// the program does not answer.
func (c *ha) get(program, path string) (int, string) {
	port := ""
	for _, arg := range c.programArgs("dev", program) {
		if p, ok := strings.CutPrefix(arg, "--secure-port="); ok {
			port = p
		}
	}
	config := c.restConfig("dev")
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		c.t.Fatal(err)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}},
	}}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "https://127.0.0.1:"+port+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

func haPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ha": "true"}},
		Spec: corev1.PodSpec{
			SchedulerName: "fairlead-spread", AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "pause", Image: "pause", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")},
			}}},
		},
	}
}

// bind creates a pod as soon as possible, and returns when it is bound.
func (c *ha) bind(what string) {
	c.t.Helper()
	c.n++
	name := fmt.Sprintf("probe-%d", c.n)
	made := false
	waitFor(c.t, what+": a pod to be bound", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
		defer cancel()
		pods := c.client.CoreV1().Pods("default")
		if !made {
			_, err := pods.Create(ctx, haPod(name), metav1.CreateOptions{})
			made = err == nil || strings.Contains(err.Error(), "already exists")
			return false
		}
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName != ""
	})
}

// traffic makes five pods a second until it is stopped, so the leader is scheduling pods when the fault occurs.
func (c *ha) traffic() (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	c.n++
	prefix := fmt.Sprintf("traffic-%d", c.n)
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			// It may fail during a fault; not every pod is needed.
			_, _ = c.client.CoreV1().Pods("default").Create(ctx, haPod(fmt.Sprintf("%s-%d", prefix, i)), metav1.CreateOptions{})
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	time.Sleep(time.Second) // the traffic before anything happens
	return func() { cancel(); <-done }
}

// nothingTwice checks that all pods are bound, each with exactly one Scheduled event, and returns their number.
func (c *ha) nothingTwice() int {
	c.t.Helper()
	waitFor(c.t, "all pods to be bound", func() bool {
		pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{LabelSelector: "ha=true", FieldSelector: "spec.nodeName="})
		return err == nil && len(pods.Items) == 0
	})
	events, err := c.client.EventsV1().Events("default").List(c.t.Context(), metav1.ListOptions{FieldSelector: "reason=Scheduled"})
	if err != nil {
		c.t.Fatal(err)
	}
	seen := map[string]string{}
	for _, e := range events.Items {
		if before, again := seen[e.Regarding.Name]; again || e.Series != nil {
			c.t.Errorf("pod %s was bound twice: %q and %q", e.Regarding.Name, before, e.Note)
		}
		seen[e.Regarding.Name] = e.Note
	}
	if len(seen) < 20 {
		c.t.Errorf("only %d events of binding were seen", len(seen))
	}
	return len(seen)
}
