// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestBounds: each field by which a Bundle would get more than the components' own rights is refused, with its name and the flag that allows it.
func TestBounds(t *testing.T) {
	gpu := func() *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Limits: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}}
	}
	arg := []v1alpha1.Argument{{Name: "kubeconfig", Value: "/x"}}
	for name, tc := range map[string]struct {
		set         func(*v1alpha1.Bundle)
		field, flag string
		allow       operator.Bounds
	}{
		"server as a DaemonSet": {func(b *v1alpha1.Bundle) { b.Konnectivity.Server.Form = v1alpha1.FormDaemonSet }, "spec.konnectivity.server.form", "--allow-host-access", operator.Bounds{HostAccess: true}},
		"hostNetwork":           {func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.HostNetwork = ptr.To(true) }, "spec.konnectivity.agent.hostNetwork", "--allow-host-access", operator.Bounds{HostAccess: true}},
		"static scheduler":      {func(b *v1alpha1.Bundle) { b.Scheduler.Form = v1alpha1.FormStaticPod }, "spec.scheduler.form", "--allow-host-access", operator.Bounds{HostAccess: true}},
		"static gateway":        {func(b *v1alpha1.Bundle) { b.Gateway.Form = v1alpha1.FormStaticPod }, "spec.gateway.form", "--allow-host-access", operator.Bounds{HostAccess: true}},
		"scheduler's image":     {func(b *v1alpha1.Bundle) { b.Scheduler.Image = "evil.example/x:1" }, "spec.scheduler.image", "--allowed-images", operator.Bounds{Images: []string{"evil.example/x"}}},
		"server's image":        {func(b *v1alpha1.Bundle) { b.Konnectivity.Server.Image = "evil.example/a/x:1" }, "spec.konnectivity.server.image", "--allowed-images", operator.Bounds{Images: []string{"evil.example/a/"}}},
		"agent's image":         {func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.Image = "h:5000/x@sha256:0" }, "spec.konnectivity.agent.image", "--allowed-images", operator.Bounds{Images: []string{"h:5000/x"}}},
		"gateway's image":       {func(b *v1alpha1.Bundle) { b.Gateway.Image = "h:5000/x" }, "spec.gateway.image", "--allowed-images", operator.Bounds{Images: []string{"h:5000/"}}},
		"API server's image":    {func(b *v1alpha1.Bundle) { b.TunnelAPI.Image = "h/x:1@sha256:0" }, "spec.tunnelAPI.image", "--allowed-images", operator.Bounds{Images: []string{"h/x"}}},
		"another tag":           {func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.Image = "fairlead-dev/konnectivity-agent:old" }, "spec.konnectivity.agent.image", "--allowed-images", operator.Bounds{Images: []string{"fairlead-dev/konnectivity-agent"}}},
		"scheduler's args":      {func(b *v1alpha1.Bundle) { b.Scheduler.ExtraArgs = arg }, "spec.scheduler.extraArgs[0].name", "--allowed-extra-args=kubeconfig", operator.Bounds{ExtraArgs: []string{"kubeconfig"}}},
		"server's args":         {func(b *v1alpha1.Bundle) { b.Konnectivity.Server.ExtraArgs = arg }, "spec.konnectivity.server.extraArgs[0].name", "--allowed-extra-args=kubeconfig", operator.Bounds{ExtraArgs: []string{"kubeconfig"}}},
		"agent's args":          {func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.ExtraArgs = arg }, "spec.konnectivity.agent.extraArgs[0].name", "--allowed-extra-args=kubeconfig", operator.Bounds{ExtraArgs: []string{"kubeconfig"}}},
		"gateway's args":        {func(b *v1alpha1.Bundle) { b.Gateway.ExtraArgs = arg }, "spec.gateway.extraArgs[0].name", "--allowed-extra-args=kubeconfig", operator.Bounds{ExtraArgs: []string{"kubeconfig"}}},
		"API server's args":     {func(b *v1alpha1.Bundle) { b.TunnelAPI.ExtraArgs = arg }, "spec.tunnelAPI.extraArgs[0].name", "--allowed-extra-args=kubeconfig", operator.Bounds{ExtraArgs: []string{"kubeconfig"}}},
		"resource":              {func(b *v1alpha1.Bundle) { b.Konnectivity.Agent.Resources = gpu() }, "spec.konnectivity.agent.resources.limits[example.com/gpu]", "--allowed-resources=example.com/gpu", operator.Bounds{Resources: []string{"example.com/gpu"}}},
		"gateway's Secret":      {func(b *v1alpha1.Bundle) { b.Gateway.CertificateSecret = "bootstrap-token-abcdef" }, "spec.gateway.certificateSecret", "--allowed-secrets=bootstrap-token-abcdef", operator.Bounds{Secrets: []string{"bootstrap-token-abcdef"}}},
		"API server's Secret":   {func(b *v1alpha1.Bundle) { b.TunnelAPI.CertificateSecret = "mine" }, "spec.tunnelAPI.certificateSecret", "--allowed-secrets=mine", operator.Bounds{Secrets: []string{"mine"}}},
		"ServiceAccount":        {func(b *v1alpha1.Bundle) { b.Konnectivity.AgentServiceAccount = "admin" }, "spec.konnectivity.agentServiceAccount", "--allowed-service-accounts=admin", operator.Bounds{ServiceAccounts: []string{"admin"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := v1alpha1.New()
			tc.set(b)
			errs := operator.Bounds{}.Check(b)
			if len(errs) != 1 || errs[0].Field != tc.field || !strings.Contains(errs[0].Detail, tc.flag) {
				t.Errorf("got %v, want one error at %s with %s", errs, tc.field, tc.flag)
			}
			if err := tc.allow.Validate(); err != nil {
				t.Error(err)
			}
			if errs := tc.allow.Check(b); len(errs) > 0 {
				t.Errorf("allowed: %v", errs)
			}
		})
	}
	usual := v1alpha1.New()
	usual.Gateway.Enabled, usual.TunnelAPI.Enabled = ptr.To(true), ptr.To(true)
	usual.Scheduler.ExtraArgs = []v1alpha1.Argument{{Name: "v", Value: "3"}}
	usual.Scheduler.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	if errs := (operator.Bounds{}).Check(usual); len(errs) > 0 {
		t.Errorf("a Bundle of defaults: %v", errs)
	}
	claims := v1alpha1.New()
	claims.Scheduler.Resources = &corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "c"}}}
	if errs := (operator.Bounds{HostAccess: true, Resources: []string{"c"}}).Check(claims); len(errs) != 1 {
		t.Errorf("a resource claim: %v", errs)
	}
}

// TestBoundsOfImages: a prefix ends where a component of the name does.
func TestBoundsOfImages(t *testing.T) {
	bounds := operator.Bounds{Images: []string{"registry.example/fairlead", "mirror.example/team/"}}
	for image, want := range map[string]bool{
		"registry.example/fairlead": true, "registry.example/fairlead:1": true, "registry.example/fairlead@sha256:0": true,
		"registry.example/fairlead-evil:1": false, "registry.example/fairlead/x:1": false, "registry.example:5000/fairlead:1": false,
		"registry.example/fairlead.evil.example/x": false, "evil.example/registry.example/fairlead:1": false,
		"mirror.example/team/a/b:1": true, "mirror.example/team:1": false, "mirror.example/teams/a": false, "mirror.example/team/../other/a": false,
	} {
		b := v1alpha1.New()
		b.Konnectivity.Agent.Image = image
		if got := len(bounds.Check(b)) == 0; got != want {
			t.Errorf("%s: allowed %v, want %v", image, got, want)
		}
	}
	for _, bad := range []operator.Bounds{
		{Images: []string{""}}, {Images: []string{"/"}}, {Images: []string{"*"}}, {Secrets: []string{"a b"}}, {ExtraArgs: []string{"--v"}}, {Resources: []string{"a,b"}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

// TestBoundsAsFlags: the Deployment has the flags that the program reads.
func TestBoundsAsFlags(t *testing.T) {
	o := operator.Options{Bounds: operator.Bounds{HostAccess: true, Images: []string{"a/", "b"}, ExtraArgs: []string{"c"}, Resources: []string{"d"}, Secrets: []string{"e"}, ServiceAccounts: []string{"f"}}}
	var got []string
	for _, f := range operator.Flags(o) {
		if strings.HasPrefix(f.Name, "allow") {
			got = append(got, f.Name+"="+f.Value)
		}
	}
	if diff := cmp.Diff([]string{
		"allow-host-access=true", "allowed-extra-args=c", "allowed-images=a/,b", "allowed-resources=d", "allowed-secrets=e", "allowed-service-accounts=f",
	}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := operator.Objects(operator.Options{Bounds: operator.Bounds{Images: []string{"/"}}}); err == nil {
		t.Error("bounds that allow every image are rendered")
	}
}

// TestBoundedBundles: whatever a Bundle says, if the operator accepts it, its objects have no path of a node, no other image, ServiceAccount or Secret,
// and no right that a Bundle of defaults does not have.
func TestBoundedBundles(t *testing.T) {
	all := v1alpha1.New()
	all.Gateway.Enabled, all.TunnelAPI.Enabled, all.TunnelAPI.Connect, all.Konnectivity.LeaseCounting = ptr.To(true), ptr.To(true), ptr.To(true), ptr.To(true)
	rights, accounts := grants(rendered(t, all))
	secrets := sets.New(v1alpha1.DefaultGatewaySecret, v1alpha1.DefaultTunnelAPISecret)
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		b := anyBundle(rt)
		if len(bundle.Validate(b)) > 0 || len(operator.Bounds{}.Check(b)) > 0 {
			return
		}
		accepted++
		objects := rendered(rt, b)
		got, serviceAccounts := grants(objects)
		if more := got.Difference(rights); len(more) > 0 {
			rt.Errorf("rights that no default has: %v", sets.List(more))
		}
		if more := serviceAccounts.Difference(accounts); len(more) > 0 {
			rt.Errorf("ServiceAccounts that no default has: %v", sets.List(more))
		}
		for _, p := range pods(objects) {
			if p.HostNetwork || p.HostPID || p.HostIPC {
				rt.Errorf("a Pod in the namespaces of its node: %+v", p)
			}
			for _, v := range p.Volumes {
				if v.HostPath != nil || v.Secret != nil && !secrets.Has(v.Secret.SecretName) {
					rt.Errorf("volume %+v", v)
				}
			}
			for _, c := range slices.Concat(p.Containers, p.InitContainers) {
				if !slices.Contains(bundle.Images(all), c.Image) || c.SecurityContext == nil || ptr.Deref(c.SecurityContext.Privileged, false) {
					rt.Errorf("container %s of image %s, %+v", c.Name, c.Image, c.SecurityContext)
				}
			}
		}
	})
	if accepted == 0 {
		t.Error("no Bundle was accepted")
	}
}

// anyBundle sets fields to what is usual, or to what an attacker would write.
func anyBundle(rt *rapid.T) *v1alpha1.Bundle {
	b := &v1alpha1.Bundle{}
	or := func(name, usual string, others ...string) string {
		if rapid.IntRange(0, 19).Draw(rt, name+" is usual") > 0 {
			return usual
		}
		return rapid.SampledFrom(others).Draw(rt, name)
	}
	on := func(name string) *bool { return ptr.To(rapid.Bool().Draw(rt, name)) }
	b.Gateway.Enabled, b.TunnelAPI.Enabled, b.TunnelAPI.Connect, b.Konnectivity.LeaseCounting = on("gateway"), on("tunnelAPI"), on("connect"), on("leaseCounting")
	const evil = "evil.example/root:1"
	b.Scheduler.Image, b.Konnectivity.Server.Image, b.Konnectivity.Agent.Image = or("scheduler", "", evil), or("server", "", evil), or("agent", "", evil)
	b.Gateway.Image, b.TunnelAPI.Image = or("gatewayImage", "", evil), or("apiImage", "", evil)
	b.Konnectivity.Server.Form = v1alpha1.Form(or("serverForm", "", string(v1alpha1.FormDaemonSet), string(v1alpha1.FormStaticPod)))
	b.Konnectivity.Agent.Form = v1alpha1.Form(or("agentForm", "", string(v1alpha1.FormDaemonSet), string(v1alpha1.FormDeployment)))
	b.Scheduler.Form = v1alpha1.Form(or("schedulerForm", "", string(v1alpha1.FormStaticPod)))
	b.Gateway.Form = v1alpha1.Form(or("gatewayForm", "", string(v1alpha1.FormStaticPod)))
	b.Gateway.CertificateSecret, b.TunnelAPI.CertificateSecret = or("gatewaySecret", "", "bootstrap-token-abcdef"), or("apiSecret", "", "bootstrap-token-abcdef")
	b.Konnectivity.AgentServiceAccount = or("account", "", "default", "cluster-admin")
	if path := or("uds", "", "/etc/kubernetes/manifests/x.socket", "/root/.ssh/x.socket"); path != "" {
		b.Konnectivity.Transport.UDS = &v1alpha1.UDSTransport{Path: path}
	}
	b.Konnectivity.Server.Kubeconfig = or("kubeconfig", "", "/etc/kubernetes/admin.conf")
	b.ControlPlane.PKIDir, b.ControlPlane.ManifestsDir = or("pkiDir", "", "/root", "/"), or("manifestsDir", "", "/srv/x")
	if rapid.Bool().Draw(rt, "hostNetwork") && rapid.Bool().Draw(rt, "really") {
		b.Konnectivity.Agent.HostNetwork = ptr.To(true)
	}
	return b.Defaulted()
}

type failer interface {
	Helper()
	Fatal(...any)
}

func rendered(t failer, b *v1alpha1.Bundle) []component.Object {
	t.Helper()
	out, err := bundle.Render(b)
	if err != nil {
		t.Fatal(err)
	}
	return out.Objects
}

// pods are those of Deployments and DaemonSets.
func pods(objects []component.Object) []corev1.PodSpec {
	var out []corev1.PodSpec
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			out = append(out, o.Spec.Template.Spec)
		case *appsv1.DaemonSet:
			out = append(out, o.Spec.Template.Spec)
		}
	}
	return out
}

// grants are all rights and bound roles, and the accounts that get them.
func grants(objects []component.Object) (rights, accounts sets.Set[string]) {
	rights, accounts = sets.New[string](), sets.New[string]()
	rules := func(list []rbacv1.PolicyRule) {
		for _, r := range list {
			rights.Insert(r.String())
		}
	}
	bind := func(to rbacv1.RoleRef, subjects []rbacv1.Subject) {
		rights.Insert(to.Kind + " " + to.Name)
		for _, s := range subjects {
			accounts.Insert(s.Kind + " " + s.Namespace + "/" + s.Name)
		}
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			rules(o.Rules)
		case *rbacv1.Role:
			rules(o.Rules)
		case *rbacv1.ClusterRoleBinding:
			bind(o.RoleRef, o.Subjects)
		case *rbacv1.RoleBinding:
			bind(o.RoleRef, o.Subjects)
		}
	}
	return rights, accounts
}
