// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
)

// testProfiles: profiles reach the second scheduler's configuration, and those that cannot say
// why and change nothing.
func testProfiles(e *env) {
	profiles := e.kind("schedulerprofiles")
	create := func(name string, spec map[string]any) {
		e.Helper()
		if _, err := profiles.Create(e.Context(), object("SchedulerProfile", "", name, spec), metav1.CreateOptions{}); err != nil {
			e.Fatal(err)
		}
	}
	create("batch", map[string]any{"schedulerName": "night-batch", "strategy": "Batch"})
	e.condition(profiles, "batch", v1beta1.ProfileAccepted, v1beta1.ReasonAccepted)
	// Nothing runs Pods here, so the rollout does not end.
	if c := e.condition(profiles, "batch", v1beta1.ProfileProgrammed, v1beta1.ReasonRollingOut); c.Status != metav1.ConditionFalse {
		e.Errorf("%+v", c)
	}
	config := func() string {
		e.Helper()
		cm, err := e.client.CoreV1().ConfigMaps("kube-system").Get(e.Context(), "my-scheduler-config", metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		return fmt.Sprint(cm.Data)
	}
	if !strings.Contains(config(), "schedulerName: night-batch") {
		e.Errorf("the configuration lacks the profile:\n%s", config())
	}
	create("taken", map[string]any{"schedulerName": "night-batch", "strategy": "Spread"})
	if c := e.condition(profiles, "taken", v1beta1.ProfileAccepted, v1beta1.ReasonNameConflict); !strings.Contains(c.Message, "SchedulerProfile batch") {
		e.Errorf("the condition does not name the other profile: %q", c.Message)
	}
	create("bundles", map[string]any{"schedulerName": "my-scheduler", "strategy": "Spread"})
	e.condition(profiles, "bundles", v1beta1.ProfileAccepted, v1beta1.ReasonNameConflict)
	create("raw", map[string]any{"schedulerName": "raw", "strategy": "Raw", "raw": map[string]any{"plugins": map[string]any{"score": map[string]any{"enabled": []any{map[string]any{"name": "NoSuchPlugin"}}}}}})
	if c := e.condition(profiles, "raw", v1beta1.ProfileAccepted, v1beta1.ReasonInvalid); !strings.Contains(c.Message, "NoSuchPlugin") {
		e.Errorf("the condition does not name the plugin: %q", c.Message)
	}
	e.event("SchedulerProfile", v1beta1.ReasonInvalid, "NoSuchPlugin")
	for name, raw := range map[string]map[string]any{
		"pluginConfigs":       {"pluginConfigs": []any{map[string]any{"name": "NodeResourcesFit"}}},
		"Plugins":             {"Plugins": map[string]any{}}, // field names are case-sensitive
		"plugins.score.added": {"plugins": map[string]any{"score": map[string]any{"added": []any{}}}},
		"strategy":            {"pluginConfig": []any{map[string]any{"name": "NodeResourcesFit", "args": map[string]any{"strategy": "MostAllocated"}}}},
	} {
		object := "misspelled-" + strings.ToLower(name)
		create(object, map[string]any{"schedulerName": object, "strategy": "Raw", "raw": raw})
		if c := e.condition(profiles, object, v1beta1.ProfileAccepted, v1beta1.ReasonInvalid); !strings.Contains(c.Message, `unknown field "`+name+`"`) {
			e.Errorf("the condition does not name the field %s: %q", name, c.Message)
		}
	}
	if text := config(); strings.Contains(text, "NoSuchPlugin") || strings.Count(text, "night-batch") == 0 {
		e.Errorf("a profile that was not accepted has changed the configuration:\n%s", text)
	}
	if err := profiles.Delete(e.Context(), "batch", metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	e.condition(profiles, "taken", v1beta1.ProfileAccepted, v1beta1.ReasonAccepted)
}

// testPools: a pool's agents differ from the Bundle's in what the pool sets, follow the scale
// subresource, are restored, and go with the pool.
func testPools(e *env) {
	pools := e.kind("tunnelpools")
	system := pools.Namespace("kube-system")
	spec := map[string]any{"replicas": int64(3), "nodeSelector": map[string]any{"pool": "edge"}}
	if _, err := system.Create(e.Context(), object("TunnelPool", "kube-system", "edge", spec), metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	if _, err := pools.Namespace("default").Create(e.Context(), object("TunnelPool", "default", "stray", map[string]any{}), metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	deployments := e.client.AppsV1().Deployments("kube-system")
	replicas := func(want int32) {
		e.Helper()
		testutil.Eventually(e.T, bound, func() error {
			d, err := deployments.Get(e.Context(), poolAgents, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if *d.Spec.Replicas != want || d.Spec.Template.Spec.NodeSelector["pool"] != "edge" {
				return fmt.Errorf("%d replicas on %v, want %d", *d.Spec.Replicas, d.Spec.Template.Spec.NodeSelector, want)
			}
			return nil
		})
	}
	replicas(3)
	e.condition(system, "edge", v1beta1.PoolAccepted, v1beta1.ReasonAccepted)
	e.condition(system, "edge", v1beta1.PoolAvailable, v1beta1.ReasonNotReady)
	if c := e.condition(pools.Namespace("default"), "stray", v1beta1.PoolAccepted, v1beta1.ReasonInvalid); !strings.Contains(c.Message, "namespace kube-system") {
		e.Errorf("the condition does not name the namespace: %q", c.Message)
	}
	if _, err := e.client.AppsV1().Deployments("default").Get(e.Context(), "konnectivity-agent-pool-stray", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		e.Errorf("agents of a pool that was not accepted: %v", err)
	}
	if _, err := system.Patch(e.Context(), "edge", types.MergePatchType, []byte(`{"spec": {"replicas": 5}}`), metav1.PatchOptions{}, "scale"); err != nil {
		e.Fatal(err)
	}
	replicas(5)
	if err := deployments.Delete(e.Context(), poolAgents, metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	replicas(5)
	testutil.Eventually(e.T, bound, func() error { // as the controller of Deployments does, which does not run here
		d, err := deployments.Get(e.Context(), poolAgents, metav1.GetOptions{})
		if err != nil {
			return err
		}
		d.Status.Replicas, d.Status.ObservedGeneration = 3, d.Generation
		_, err = deployments.UpdateStatus(e.Context(), d, metav1.UpdateOptions{})
		return err
	})
	testutil.Eventually(e.T, bound, func() error {
		pool, err := system.Get(e.Context(), "edge", metav1.GetOptions{})
		if err != nil {
			return err
		}
		n, _, err := unstructured.NestedInt64(pool.Object, "status", "replicas")
		selector, _, _ := unstructured.NestedString(pool.Object, "status", "selector")
		if err != nil || n != 3 || selector != "fairlead.dev/tunnel-pool=edge" {
			return fmt.Errorf("status.replicas %d, selector %q: %w", n, selector, err)
		}
		return nil
	})
	scaledDeployment(e, system, deployments)
	invalidPool(e, system, deployments)
	if err := system.Delete(e.Context(), "edge", metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	testutil.Eventually(e.T, bound, func() error {
		if _, err := deployments.Get(e.Context(), poolAgents, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the agents are not gone: %w", err)
		}
		return nil
	})
}

// poolAgents is the Deployment of pool edge.
const poolAgents = "konnectivity-agent-pool-edge"

// invalidPool checks that a pool that becomes invalid keeps the agents that it has.
func invalidPool(e *env, system dynamic.ResourceInterface, deployments appsclient.DeploymentInterface) {
	e.Helper()
	wrong := func(value string) {
		e.Helper()
		patch := fmt.Appendf(nil, `{"spec": {"nodeSelector": {"not a label!": %s}}}`, value)
		if _, err := system.Patch(e.Context(), "edge", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			e.Fatal(err)
		}
	}
	before, err := deployments.Get(e.Context(), poolAgents, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	wrong(`"x"`)
	e.condition(system, "edge", v1beta1.PoolAccepted, v1beta1.ReasonInvalid)
	if after, err := deployments.Get(e.Context(), poolAgents, metav1.GetOptions{}); err != nil || after.UID != before.UID || after.Generation != before.Generation {
		e.Errorf("the agents of a pool that became invalid were changed: %v, %v", after, err)
	}
	wrong("null")
	e.condition(system, "edge", v1beta1.PoolAccepted, v1beta1.ReasonAccepted)
}

// scaledDeployment checks that an autoscaler of a pool's Deployment, instead of the pool, is named in the pool's
// condition, that the operator does not take the number from it, and that the pool is accepted with the same number.
func scaledDeployment(e *env, system dynamic.ResourceInterface, deployments appsclient.DeploymentInterface) {
	e.Helper()
	scale, err := deployments.GetScale(e.Context(), poolAgents, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	scale.Spec.Replicas = 9
	// As the controller of HorizontalPodAutoscalers does.
	if _, err := deployments.UpdateScale(e.Context(), poolAgents, scale, metav1.UpdateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		e.Fatal(err)
	}
	c := e.condition(system, "edge", v1beta1.PoolAccepted, v1beta1.ReasonBlocked)
	for _, want := range []string{poolAgents, "replicas", "kube-controller-manager"} {
		if !strings.Contains(c.Message, want) {
			e.Errorf("the condition lacks %q: %s", want, c.Message)
		}
	}
	e.event("TunnelPool", v1beta1.ReasonBlocked, poolAgents)
	if d, err := deployments.Get(e.Context(), poolAgents, metav1.GetOptions{}); err != nil || *d.Spec.Replicas != 9 {
		e.Errorf("the operator took the number from the autoscaler: %v, %v", d.Spec.Replicas, err)
	}
	if _, err := system.Patch(e.Context(), "edge", types.MergePatchType, []byte(`{"spec": {"replicas": 9}}`), metav1.PatchOptions{}); err != nil {
		e.Fatal(err)
	}
	e.condition(system, "edge", v1beta1.PoolAccepted, v1beta1.ReasonAccepted)
}
