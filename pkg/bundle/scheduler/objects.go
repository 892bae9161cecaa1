// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Objects are the in-cluster objects of the second scheduler, in the order in
// which to apply them; none if it is not enabled. A static Pod needs only the
// RBAC objects of its user.
func Objects(b *v1alpha1.Bundle) ([]component.Object, error) {
	b = b.Defaulted()
	if !ptr.Deref(b.Scheduler.Enabled, true) {
		return nil, nil
	}
	if b.Scheduler.Form == v1alpha1.FormStaticPod {
		return append(append(rights(b, rbac.User(StaticUser(b))), tunnelConditionObjects(b)...), assignments(b)...), nil
	}
	config, err := Configuration(b, "")
	if err != nil {
		return nil, err
	}
	objects := []component.Object{serviceAccount(b)}
	objects = append(objects, rights(b, rbac.ServiceAccount(b.Namespace, b.Scheduler.Name))...)
	objects = append(objects, configMap(b, config), component.DisruptionBudget(metav1.ObjectMeta{Name: b.Scheduler.Name, Namespace: b.Namespace}, instanceLabels(b)), deployment(b, config))
	objects = append(objects, tunnelConditionObjects(b)...)
	// Last, so no Pod is assigned to a scheduler that does not exist yet.
	return append(objects, assignments(b)...), nil
}

func serviceAccount(b *v1alpha1.Bundle) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		// Without a field of its own, the object would not show which field manager
		// applied it.
		ObjectMeta: metav1.ObjectMeta{Name: b.Scheduler.Name, Namespace: b.Namespace, Labels: map[string]string{nameLabel: b.Scheduler.Name}},
	}
}

// ConfigMapName is the name of the ConfigMap that holds the configuration.
func ConfigMapName(b *v1alpha1.Bundle) string { return b.Defaulted().Scheduler.Name + "-config" }

func configMap(b *v1alpha1.Bundle, config []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName(b), Namespace: b.Namespace},
		Data:       map[string]string{configKey(b): string(config)},
	}
}

// ProfileNamesIn are the names of the profiles in the ConfigMap of a scheduler.
func ProfileNamesIn(b *v1alpha1.Bundle, cm *corev1.ConfigMap) ([]string, error) {
	var config struct {
		Profiles []struct {
			SchedulerName string `json:"schedulerName"`
		} `json:"profiles"`
	}
	if err := yaml.Unmarshal([]byte(cm.Data[configKey(b)]), &config); err != nil {
		return nil, fmt.Errorf("read the configuration in ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	var names []string
	for _, p := range config.Profiles {
		names = append(names, p.SchedulerName)
	}
	return names, nil
}

func deployment(b *v1alpha1.Bundle, config []byte) *appsv1.Deployment {
	c := Component(b)
	c.PodAnnotations = map[string]string{configHashAnnotation: hash(config)}
	return component.Deployment(c)
}
