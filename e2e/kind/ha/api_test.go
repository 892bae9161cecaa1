// SPDX-License-Identifier: Apache-2.0

package ha_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

// agents lists the agents that the tunnel's API shows through one API server, and counts those that are connected. It asks once.
func (s apiServer) agents(ctx context.Context) (all []tunnelv1alpha1.TunnelAgent, connected int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if all, err = s.TunnelAgents(ctx); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", s.node, err)
	}
	for _, a := range all {
		if meta.IsStatusConditionTrue(a.Status.Conditions, tunnelv1alpha1.ConditionConnected) {
			connected++
		}
	}
	return all, connected, nil
}

// waitForAgents waits until each API server shows each agent, connected to all three servers.
func waitForAgents(ctx context.Context, client kubernetes.Interface) error {
	return harness.Wait(ctx, 2*time.Minute, "the tunnel's API to show all agents at each API server", func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=konnectivity-agent"})
		if err != nil {
			return err
		}
		for _, s := range servers {
			all, connected, err := s.agents(ctx)
			if err != nil || connected != len(pods.Items) {
				return errors.Join(err, fmt.Errorf("%s shows %d of %d agents connected", s.node, connected, len(pods.Items)))
			}
			for _, a := range all {
				if n := len(a.Status.Servers); n != len(servers) && meta.IsStatusConditionTrue(a.Status.Conditions, tunnelv1alpha1.ConditionConnected) {
					return fmt.Errorf("%s shows agent %s at %d servers", s.node, a.Name, n)
				}
			}
		}
		return nil
	})
}

// Without a single agent, each API server answers from the tunnel's API: its Konnectivity server connects to the cluster IP itself.
func TestTunnelAPIWithoutAgents(t *testing.T) {
	check(t, "no agents", 6*time.Minute, func(ctx context.Context, t *testing.T) {
		if err := waitForAgents(ctx, suite.Client); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
			defer cancel()
			if err := errors.Join(suite.Agents().Start(ctx), waitForCount(ctx, suite.Client, 3), waitForAgents(ctx, suite.Client)); err != nil {
				t.Error(err)
			}
		})
		if err := suite.Agents().Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if err := servers[0].dial(ctx); err == nil {
			t.Error("a dial to a Pod succeeded without agents")
		}
		asked := 0
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			for _, s := range servers {
				_, connected, err := s.agents(ctx)
				if err != nil {
					t.Errorf("without agents: %v", err)
				}
				if asked > 30 && connected > 0 { // a replica asks the servers each second
					t.Errorf("%s shows %d connected agents, and none runs", s.node, connected)
				}
				asked++
			}
		}
		t.Logf("%d lists without agents", asked)
	})
}

// list asks the tunnel's API once.
func (s apiServer) list(ctx context.Context) error {
	all, _, err := s.agents(ctx)
	if err == nil && len(all) == 0 {
		err = errors.New("no agents")
	}
	return err
}
