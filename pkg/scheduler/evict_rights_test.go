// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"net/http"
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestRightToEvict: the scheduler itself deletes the victim of a preemption, with the RBAC rules that a bundle
// renders.
func TestRightToEvict(t *testing.T) {
	c := crowd{newCluster(t)}
	makeNodes(t, c.Client, 1)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: high}, Value: 1000}
	if _, err := c.Client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := allProfiles()
	install(t, c.cluster, b)
	c.make(t, "victim", polite, "")
	waitBound(t, c.Client, "victim", 1)
	c.make(t, "urgent", polite, high)
	waitBound(t, c.Client, "urgent", 1)
	daemontest.Eventually(t, patience, func() error {
		for _, e := range c.requests(t, "system:serviceaccount:"+b.Namespace+":"+b.Scheduler.Name) {
			if o := e.ObjectRef; e.Verb == "delete" && o.Resource == "pods" && o.Name == "victim-000" && e.ResponseStatus.Code == http.StatusOK {
				return nil
			}
		}
		return errors.New("the scheduler has not deleted the victim")
	})
}
