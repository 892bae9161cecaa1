// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestMissingSchedulerRights: a real API server is asked for the rights of schedulers. It refuses none to a rendered bundle's, and to one with a
// hand-written role exactly those without which informers of the scheduler do not start.
func TestMissingSchedulerRights(t *testing.T) {
	cp := daemontest.SharedControlPlane(t)
	b := v1alpha1.New()
	b.Scheduler.Plugins.TunnelReach.Enabled = ptr.To(true)
	b = b.Defaulted()
	objects, err := scheduler.Objects(b)
	if err != nil {
		t.Fatal(err)
	}
	createRoles(t, cp.Client, objects)
	c := collectorOf(t, "")
	c.client, c.s.Bundle, c.s.Names = cp.Client, b, incluster.NamesOf(b)
	refused(t, c, "my-scheduler")

	byHand(t, cp, "by-hand")
	const storage, extension = "volumeattachments.storage.k8s.io", "customresourcedefinitions.apiextensions.k8s.io"
	refused(t, c, "by-hand", "list "+storage, "watch "+storage,
		"list mutatingwebhookconfigurations.admissionregistration.k8s.io", "watch mutatingwebhookconfigurations.admissionregistration.k8s.io",
		"list validatingwebhookconfigurations.admissionregistration.k8s.io", "watch validatingwebhookconfigurations.admissionregistration.k8s.io",
		"list "+extension, "watch "+extension, "list apiservices.apiregistration.k8s.io", "watch apiservices.apiregistration.k8s.io")
}

// byHand gives a ServiceAccount copies of the system roles, but no right to VolumeAttachments, and the right to all Leases.
func byHand(t *testing.T, cp *daemontest.ControlPlane, name string) {
	t.Helper()
	role := rbac.ClusterRole(name, rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}})
	for _, system := range []string{"system:kube-scheduler", "system:volume-scheduler"} {
		r, err := cp.Client.RbacV1().ClusterRoles().Get(t.Context(), system, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		role.Rules = append(role.Rules, slices.DeleteFunc(r.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "volumeattachments") })...)
	}
	createRoles(t, cp.Client, []component.Object{role, rbac.ClusterRoleBinding(name, name, rbac.ServiceAccount(metav1.NamespaceSystem, name))})
}

// refused asks for the rights of a scheduler with this ServiceAccount, until the API server knows of its roles.
func refused(t *testing.T, c *collector, account string, want ...string) {
	t.Helper()
	p := pod("kube-system", "x/fairlead-scheduler:v1", nil, "kube-scheduler", "--config=/x")
	p.Spec.ServiceAccountName = account
	c.s.Programs.Value = programsOf([]corev1.Pod{p}, c.s.Names)
	c.s.Programs.Value[0].Role = check.RoleScheduler
	daemontest.Eventually(t, time.Minute, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		reviews, err := c.reviews(ctx)
		var got []string
		for _, r := range reviews {
			if !r.Allowed {
				got = append(got, r.Right)
			}
		}
		if err != nil || len(reviews) == 0 || !slices.Equal(got, want) {
			return cmp.Or(err, fmt.Errorf("of %d rights of %s, %q are refused, want %q", len(reviews), account, got, want))
		}
		return nil
	})
}

// TestRightsOfConfiguration: the rights are those that the configuration in the cluster needs, with the feature gates of the command line, and
// those of the bundle's if there is none that a scheduler would load.
func TestRightsOfConfiguration(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	const noVolumes = head + "profiles: [{schedulerName: a, plugins: {multiPoint: {disabled: [{name: NodeVolumeLimits}, {name: ForeignNominations}]}}}]\n"
	for name, tc := range map[string]struct {
		text, image, flag string
		want, not         string
	}{
		"bundle":                {"", "x/fairlead-scheduler:v1", "", "watch volumeattachments.storage.k8s.io", "watch podgroups.scheduling.k8s.io"},
		"plugin is off":         {noVolumes, "x/fairlead-scheduler:v1", "", "watch csidrivers.storage.k8s.io", "watch volumeattachments.storage.k8s.io"},
		"cannot be loaded":      {head + "profiles: 7\n", "x/fairlead-scheduler:v1", "", "watch volumeattachments.storage.k8s.io", ""},
		"gate":                  {"", "x/fairlead-scheduler:v1", "--feature-gates=DRADeviceTaintRules=true,GenericWorkload=true", "watch podgroups.scheduling.k8s.io", ""},
		"status of claims":      {"", "x/fairlead-scheduler:v1", "", "update resourceclaims.resource.k8s.io/status", ""},
		"unknown gate":          {"", "x/fairlead-scheduler:v1", "--feature-gates=NoSuchGate=true", "watch resourceclaims.resource.k8s.io", "watch podgroups.scheduling.k8s.io"},
		"old kube-scheduler":    {head, "x/kube-scheduler:v1.33.1", "", "watch volumeattachments.storage.k8s.io", "watch resourceclaims.resource.k8s.io"},
		"older kube-scheduler":  {head, "x/kube-scheduler:v1.31.1", "", "watch csinodes.storage.k8s.io", "watch volumeattachments.storage.k8s.io"},
		"newer kube-scheduler":  {head, "x/kube-scheduler:v1.99.0", "", "watch resourceclaims.resource.k8s.io", ""},
		"kube-scheduler latest": {head, "x/kube-scheduler:latest", "", "watch resourceclaims.resource.k8s.io", ""},
	} {
		c := collectorOf(t, "")
		if tc.text != "" {
			c.s.Configurations.Value = configurationsIn(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.s.Bundle.Namespace, Name: scheduler.ConfigMapName(c.s.Bundle)}, Data: map[string]string{"config.yaml": tc.text},
			})
		}
		p := pod("kube-system", tc.image, nil, append([]string{"kube-scheduler", "--config=/x"}, strings.Fields(tc.flag)...)...)
		got, err := c.schedulerRights(programsOf([]corev1.Pod{p}, c.s.Names)[0])
		if err != nil || !slices.Contains(got, tc.want) || slices.Contains(got, tc.not) {
			t.Errorf("%s: %v; want %q, and not %q, in %q", name, err, tc.want, tc.not, got)
		}
		if slices.Sort(got); len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("%s: a right is asked for twice: %q", name, got)
		}
	}
}
