// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"errors"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/install"
)

// testLifecycle observes API-07 of docs/requirements.md.
func testLifecycle(e env) {
	old := objects(e.t, oldBundle)
	if r := e.apply(old, install.Options{}); r.Count(install.Created) != len(old) {
		e.t.Errorf("fresh: %+v", r.Objects)
	}
	e.wantExactly(old)
	before := e.versions()
	if r := e.apply(old, install.Options{}); r.Count(install.Unchanged) != len(old) {
		e.t.Errorf("again: %+v", r.Objects)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("the second run changed something:\n%s", diff)
	}
	now := objects(e.t, nil)
	r := e.apply(now, install.Options{})
	gone := 0
	for name := range wantNames(old) {
		if !wantNames(now)[name] {
			gone++
		}
	}
	if r.Count(install.Deleted) != gone || gone < 8 {
		e.t.Errorf("upgrade deleted %d, want %d: %+v", r.Count(install.Deleted), gone, r.Objects)
	}
	e.wantExactly(now)
}

// testDryRun observes API-40 and API-43 of docs/requirements.md.
func testDryRun(e env) {
	e.apply(objects(e.t, oldBundle), install.Options{})
	before := e.versions()
	now := objects(e.t, nil)
	r := e.apply(now, install.Options{DryRun: true})
	if !r.DryRun || r.Count(install.Created) == 0 || r.Count(install.Deleted) == 0 || r.Count(install.Unchanged) == 0 || r.Count(install.Configured) == 0 {
		e.t.Errorf("dry run says %+v", r.Objects)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("the dry run changed something:\n%s", diff)
	}
	if done := e.apply(now, install.Options{}); !cmp.Equal(actions(r), actions(done)) {
		e.t.Errorf("dry run and run differ:\n%s", cmp.Diff(actions(r), actions(done)))
	}
}

func actions(r *install.Result) map[install.Ref]install.Action {
	out := map[install.Ref]install.Action{}
	for _, o := range r.Objects {
		out[o.Ref] = o.Action
	}
	return out
}

func testRights(e env) {
	cfg := rest.CopyConfig(e.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
	before := e.versions()
	_, err := install.Apply(e.t.Context(), cfg, objects(e.t, nil), install.Options{}.Quick())
	if !errors.Is(err, install.ErrForbidden) || !strings.Contains(err.Error(), "create leases.coordination.k8s.io in kube-system") ||
		!strings.Contains(err.Error(), "patch clusterrolebindings.rbac.authorization.k8s.io in the whole cluster") {
		e.t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(before, e.versions()); diff != "" {
		e.t.Errorf("something was changed:\n%s", diff)
	}
	// A user who may edit the namespace may not grant permissions.
	e.bindEdit("editor")
	cfg.Impersonate.UserName = "editor"
	problems := e.blocked(cfg, objects(e.t, nil))
	kinds := map[string]int{}
	for _, p := range problems {
		if p.Reason != install.ReasonForbidden || p.Hint == "" {
			e.t.Errorf("%+v", p)
		}
		kinds[p.Object.Kind]++
	}
	if want := map[string]int{"ClusterRole": 1, "ClusterRoleBinding": 3, "Role": 1, "RoleBinding": 2}; !cmp.Equal(kinds, want) {
		e.t.Errorf("refused are %v, want %v", kinds, want)
	}
}

func testRefused(e env) {
	all := objects(e.t, nil)
	last := all[len(all)-1].(*appsv1.Deployment)
	last.Spec.Template.Spec.Containers[0].Image = ""
	if problems := e.blocked(e.cfg, all); len(problems) != 1 || problems[0].Reason != install.ReasonRefused || !strings.Contains(problems[0].Message, "image") {
		e.t.Errorf("%+v", problems)
	}
}

func testTimeout(e env) {
	err := e.limited("is not rolled out", func(limit time.Duration) error {
		_, err := install.Apply(e.t.Context(), e.cfg, objects(e.t, nil), install.Options{Wait: true, Timeout: limit}.Quick())
		return err
	})
	var rollout *install.RolloutError
	if !errors.As(err, &rollout) || !strings.Contains(err.Error(), "--timeout") || !strings.Contains(err.Error(), "controller") {
		e.t.Errorf("error %v", err)
	}
	e.wantExactly(objects(e.t, nil))
}
