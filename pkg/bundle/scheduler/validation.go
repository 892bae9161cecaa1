// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/profilecheck"
)

// Validate checks what the types alone cannot: that kube-scheduler would load
// the rendered configuration, that it knows the feature gates, that no extra
// argument contradicts the bundle, and that settings of plugins reach a profile. v1alpha1.Validate must have passed.
func Validate(b *v1alpha1.Bundle) field.ErrorList {
	if !ptr.Deref(b.Scheduler.Enabled, true) {
		return nil
	}
	p := field.NewPath("spec", "scheduler")
	errs := component.ValidateExtraArgs(b.Scheduler.ExtraArgs, flagOwners(), p.Child("extraArgs"))
	errs = append(errs, validateFeatureGates(b, p.Child("featureGates"))...)
	errs = append(errs, validateImage(b, p.Child("image"))...)
	errs = append(errs, validateNewFields(b, p.Child("profiles"))...)
	errs = append(errs, validateReach(b, p)...)
	errs = append(errs, validateUnused(b, p.Child("plugins"))...)
	if conflicts := validatePartition(b, p); len(conflicts) > 0 {
		return append(errs, conflicts...)
	}
	return append(errs, validateConfiguration(b, p)...)
}

// flagOwners lists the flags that extraArgs must not set. Leader election flags
// would override the configuration file; kube-scheduler silently ignores client
// flags if there is a configuration file.
func flagOwners() map[string]string {
	owners := map[string]string{
		"config":                    "the file is rendered from the other fields",
		"feature-gates":             component.SetField("scheduler.featureGates"),
		"secure-port":               component.SetField("scheduler.securePort"),
		"leader-elect":              component.SetField("scheduler.leaderElection.leaderElect"),
		"write-config-to":           "it would make the scheduler exit at once",
		"kubeconfig":                "kube-scheduler ignores it if it has a configuration file; the Pod's ServiceAccount is used",
		"kube-api-qps":              component.SetField("scheduler.clientConnection.qps"),
		"kube-api-burst":            component.SetField("scheduler.clientConnection.burst"),
		"kube-api-content-type":     component.SetField("scheduler.clientConnection.contentType"),
		"profiling":                 "kube-scheduler ignores it if it has a configuration file",
		"contention-profiling":      "kube-scheduler ignores it if it has a configuration file",
		"leader-elect-retry-period": component.SetField("scheduler.leaderElection.retryPeriod"),
	}
	for flag, name := range map[string]string{
		"lease-duration": "leaseDuration", "renew-deadline": "renewDeadline",
		"resource-name": "leaseName", "resource-namespace": "leaseNamespace",
	} {
		owners["leader-elect-"+flag] = component.SetField("scheduler.leaderElection." + name)
	}
	owners["leader-elect-resource-lock"] = "only Leases are left"
	return owners
}

// validateConfiguration loads the rendered file as kube-scheduler does.
func validateConfiguration(b *v1alpha1.Bundle, p *field.Path) field.ErrorList {
	data, err := Configuration(b, "")
	if err != nil {
		return field.ErrorList{field.InternalError(p, err)}
	}
	config, err := Load(data)
	if err != nil {
		return unloadable(b, err, p.Child("profiles"))
	}
	var errs field.ErrorList
	for _, err := range flatten(validation.ValidateKubeSchedulerConfiguration(config)) {
		errs = append(errs, atField(err, p))
	}
	own := profilecheck.Options{AnyPlugin: pluginsUnknown(b.Scheduler.Image)}
	return append(errs, profilecheck.Check(Profiles(b), config.Profiles, p.Child("profiles"), own)...)
}

// unloadable says which arguments of which profile are the reason that a configuration cannot be loaded.
func unloadable(b *v1alpha1.Bundle, whole error, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, profile := range Profiles(b) {
		for j := range profile.PluginConfig {
			alone := schedulerv1.KubeSchedulerProfile{SchedulerName: profile.SchedulerName, PluginConfig: profile.PluginConfig[j : j+1]}
			data, err := yaml.Marshal(&schedulerv1.KubeSchedulerConfiguration{
				TypeMeta: configurationType, Profiles: []schedulerv1.KubeSchedulerProfile{alone}})
			if err == nil {
				_, err = Load(data)
			}
			if err != nil {
				errs = append(errs, field.Invalid(p.Index(i).Child("pluginConfig").Index(j).Child("args"), field.OmitValueType{}, fmt.Sprintf(
					"%v; correct or remove them: kubescheduler.config.k8s.io/v1 names the arguments of %s", err, profile.PluginConfig[j].Name)))
			}
		}
	}
	if len(errs) == 0 {
		errs = append(errs, field.Invalid(p, field.OmitValueType{}, fmt.Sprintf(
			"kube-scheduler would not load them: %v; compare them with kubescheduler.config.k8s.io/v1", whole)))
	}
	return errs
}

// Load decodes a scheduler's configuration as kube-scheduler does: strictly, and
// with its defaults.
func Load(data []byte) (*schedulerconfig.KubeSchedulerConfiguration, error) {
	return profilecheck.Load(data)
}

func flatten(err error) []error {
	if err == nil {
		return nil
	}
	var aggregate utilerrors.Aggregate
	if errors.As(err, &aggregate) {
		return utilerrors.Flatten(aggregate).Errors()
	}
	return []error{err}
}

// atField moves an error of the rendered file to the field it comes from: below
// profiles both are alike.
func atField(err error, p *field.Path) *field.Error {
	var fe *field.Error
	if !errors.As(err, &fe) {
		return field.Invalid(p, field.OmitValueType{}, err.Error())
	}
	out := *fe
	out.Field = p.String() + "." + strings.TrimPrefix(fe.Field, ".")
	out.Detail += remedy(out.Field)
	return &out
}

// remedy returns the advice that kube-scheduler's own errors lack.
func remedy(path string) string {
	switch {
	case strings.HasSuffix(path, ".queueSort"):
		return "; enable the same queueSort plugin in all profiles, which share one queue"
	case strings.Contains(path, ".plugins."):
		return "; remove the plugin or correct its name"
	case strings.Contains(path, ".args"):
		return "; correct the value or remove it, then kube-scheduler's default holds"
	default:
		return ""
	}
}
