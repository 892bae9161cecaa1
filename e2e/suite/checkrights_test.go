// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// TestCheckRights proves that the command that FL-API-009 gives for a right that is missing asks for that right: an administrator gets yes, and a user
// who may get nodes and Pods, and not their subresources, gets no.
func TestCheckRights(t *testing.T) {
	testutil.Full(t, "runs the command of every right")
	const user = "fairlead-e2e-viewer"
	run(t, "commands that ask for rights", 5*time.Minute, step{"each right", func(ctx context.Context, t *testing.T) {
		roles := suite.Client.RbacV1()
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: []string{"get", "create"}}}}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}}
		t.Cleanup(func() {
			_ = roles.ClusterRoleBindings().Delete(context.WithoutCancel(ctx), user, metav1.DeleteOptions{})
			_ = roles.ClusterRoles().Delete(context.WithoutCancel(ctx), user, metav1.DeleteOptions{})
		})
		_, err := roles.ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
		_, err2 := roles.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		s, err := observe.Collect(ctx, observe.Target{Config: suite.Config})
		if err != nil {
			t.Fatal(err)
		}
		s.Denied = observe.Known(observe.ReadRights)
		findings := rules.Judge(s, rules.Options{Only: []string{"FL-API-009"}}).Checks[0].Findings
		if len(findings) != len(observe.ReadRights) {
			t.Fatalf("%d findings for %d rights", len(findings), len(observe.ReadRights))
		}
		reader := newReader(ctx, t)
		for i, right := range observe.ReadRights {
			if out, err := reader.run(ctx, findings[i].Fix); err != nil || strings.TrimSpace(out) != "yes" {
				t.Errorf("%s, an administrator: %v, %s", findings[i].Fix, err, out)
			}
			if !strings.Contains(right, "/") {
				continue
			}
			var exit *exec.ExitError
			if out, err := reader.run(ctx, findings[i].Fix+" --as="+user); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.HasPrefix(out, "no") {
				t.Errorf("%s, a user without it: %v, %s", findings[i].Fix, err, out)
			}
		}
	}})
}
