// SPDX-License-Identifier: Apache-2.0

package sysdump

import (
	"encoding/json"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/internal/redact"
)

// tree is a set of field paths: a nil tree takes a whole value, which then has to be text, a number or a list of those.
type tree map[string]tree

// treeOf reads paths such as "spec.containers.image"; lists need no mark.
func treeOf(paths ...string) tree {
	root := tree{}
	for _, path := range paths {
		at := root
		parts := strings.Split(path, ".")
		for i, part := range parts {
			if i == len(parts)-1 {
				at[part] = nil
				break
			}
			if at[part] == nil {
				at[part] = tree{}
			}
			at = at[part]
		}
	}
	return root
}

// Fields are what the archive has of objects, by the name of its file. Annotations are never among them, because kubectl stores whole objects
// there, nor are environment variables, caBundles and data.
var Fields = map[string][]string{
	"nodes": {"status.conditions.type", "status.conditions.status", "status.conditions.reason", "status.conditions.message", "status.addresses.type", "status.addresses.address",
		"status.nodeInfo.kubeletVersion", "status.nodeInfo.architecture", "status.nodeInfo.operatingSystem", "status.nodeInfo.kernelVersion", "status.nodeInfo.containerRuntimeVersion",
		"spec.unschedulable", "spec.taints.key", "spec.taints.effect"},
	"pods": {"spec.nodeName", "spec.hostNetwork", "spec.schedulerName", "spec.serviceAccountName", "spec.priorityClassName", "spec.nodeSelector.*",
		"spec.containers.name", "spec.containers.image", "spec.containers.ports.containerPort",
		"status.phase", "status.reason", "status.message", "status.hostIP", "status.podIP", "status.qosClass", "status.startTime",
		"status.conditions.type", "status.conditions.status", "status.conditions.reason", "status.conditions.message",
		"status.containerStatuses.name", "status.containerStatuses.ready", "status.containerStatuses.restartCount", "status.containerStatuses.imageID",
		"status.containerStatuses.state.waiting.reason", "status.containerStatuses.state.waiting.message",
		"status.containerStatuses.state.terminated.reason", "status.containerStatuses.state.terminated.exitCode", "status.containerStatuses.state.terminated.message",
		"status.containerStatuses.lastState.terminated.reason", "status.containerStatuses.lastState.terminated.exitCode"},
	"deployments": {"spec.replicas", "spec.selector.matchLabels.*", "status.replicas", "status.readyReplicas", "status.updatedReplicas", "status.observedGeneration",
		"status.conditions.type", "status.conditions.status", "status.conditions.reason", "status.conditions.message", "spec.template.spec.containers.image"},
	"daemonsets": {"spec.selector.matchLabels.*", "spec.template.spec.containers.image", "status.desiredNumberScheduled", "status.currentNumberScheduled", "status.numberReady",
		"status.updatedNumberScheduled", "status.numberUnavailable", "status.observedGeneration"},
	"schedulerconfiguration": schedulerFields(),
	"bundle":                 bundleFields(""),
	"bundles": append(bundleFields("spec."), "spec.managementPolicy", "spec.deletionPolicy", "status.observedGeneration", "status.version", "status.components.kind", "status.components.name",
		"status.components.desired", "status.components.ready", "status.drift.object", "status.drift.field", "status.drift.owner", "status.drift.message",
		"status.conditions.type", "status.conditions.status", "status.conditions.reason", "status.conditions.message", "status.conditions.lastTransitionTime"),
	"schedulerprofiles": {"spec.schedulerName", "spec.strategy", "spec.binpack.*", "spec.spread.*", "spec.batch.*", "status.observedGeneration",
		"status.conditions.type", "status.conditions.status", "status.conditions.reason", "status.conditions.message", "status.conditions.lastTransitionTime"},
	"tunnelpools": {"spec.form", "spec.replicas", "spec.serverAddresses.host", "spec.serverAddresses.port", "spec.hostNetwork", "spec.identifiers.type", "spec.identifiers.value",
		"spec.image", "spec.nodeSelector.*", "status.replicas", "status.readyReplicas", "status.observedGeneration",
		"status.conditions.type", "status.conditions.status", "status.conditions.reason", "status.conditions.message", "status.conditions.lastTransitionTime"},
	"leases":               {"spec.holderIdentity", "spec.leaseDurationSeconds", "spec.renewTime", "spec.acquireTime", "spec.leaseTransitions"},
	"poddisruptionbudgets": {"spec.minAvailable", "spec.maxUnavailable", "spec.selector.matchLabels.*", "spec.selector.matchExpressions.key", "spec.selector.matchExpressions.operator", "status.currentHealthy", "status.desiredHealthy", "status.disruptionsAllowed"},
	"networkpolicies": {"spec.podSelector.matchLabels.*", "spec.policyTypes", "spec.ingress.ports.port", "spec.egress.ports.port", "spec.egress.to.ipBlock.cidr",
		"spec.ingress.from.ipBlock.cidr"},
	"flowschemas":                     {"spec.priorityLevelConfiguration.name", "spec.matchingPrecedence"},
	"mutatingwebhookconfigurations":   webhookFields,
	"validatingwebhookconfigurations": webhookFields,
	"certificatesigningrequests":      {"spec.signerName", "spec.username", "status.conditions.type", "status.conditions.status", "status.conditions.reason"},
	"events": {"reason", "message", "type", "count", "firstTimestamp", "lastTimestamp", "eventTime", "reportingComponent", "source.component", "source.host",
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name"},
}

var webhookFields = []string{"webhooks.name", "webhooks.failurePolicy", "webhooks.timeoutSeconds", "webhooks.clientConfig.service.namespace", "webhooks.clientConfig.service.name",
	"webhooks.clientConfig.service.port", "webhooks.rules.apiGroups", "webhooks.rules.resources", "webhooks.rules.operations"}

// schedulerFields are those of a KubeSchedulerConfiguration. Arguments of plugins may be anything, and clients of extenders have keys.
func schedulerFields() []string {
	out := []string{"parallelism", "leaderElection.*", "clientConnection.*", "enableProfiling", "enableContentionProfiling", "percentageOfNodesToScore", "podInitialBackoffSeconds",
		"podMaxBackoffSeconds", "delayCacheUntilActive", "profiles.schedulerName", "profiles.percentageOfNodesToScore", "profiles.pluginConfig.name",
		"extenders.urlPrefix", "extenders.filterVerb", "extenders.preemptVerb", "extenders.prioritizeVerb", "extenders.bindVerb", "extenders.weight", "extenders.enableHTTPS",
		"extenders.httpTimeout", "extenders.nodeCacheCapable", "extenders.managedResources.name", "extenders.managedResources.ignoredByScheduler", "extenders.ignorable"}
	for _, point := range []string{"preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "bind", "postBind", "multiPoint",
		"placementGenerate", "placementScore"} {
		out = append(out, "profiles.plugins."+point+".enabled.name", "profiles.plugins."+point+".enabled.weight", "profiles.plugins."+point+".disabled.name")
	}
	return out
}

// bundleFields are those of a Bundle in both of its forms. Of further arguments, only the names are on the list.
func bundleFields(prefix string) []string {
	var out []string
	for part, fields := range map[string][]string{
		"": {"namespace"},
		"scheduler.": {"enabled", "form", "name", "image", "replicas", "leaderElection.*", "clientConnection.*", "parallelism", "percentageOfNodesToScore",
			"partition.nodeLabels.*", "partition.taint.*", "featureGates.*", "securePort", "nodeSelector.*", "resources.requests.*", "resources.limits.*", "extraArgs.name",
			"profiles.schedulerName", "builtInProfiles.standard.*", "builtInProfiles.binpack.*", "builtInProfiles.spread.*", "builtInProfiles.batch.*", "delayCacheUntilActive"},
		"konnectivity.": {"enabled", "proxyProtocol", "transport.uds.path", "transport.tcp.url", "serverHost", "serverAddresses.host", "serverAddresses.port", "agentPort",
			"authenticationAudience", "agentServiceAccount", "leaseCounting", "leaseNamespace"},
		"konnectivity.server.": {"form", "image", "adminPort", "healthPort", "healthBindAddress", "count", "certFile", "kubeconfig", "drainTimeout", "drainTimeoutSeconds", "proxyStrategies",
			"nonNodeCIDRs", "resources.requests.*", "resources.limits.*", "extraArgs.name"},
		"konnectivity.agent.": {"form", "replicas", "image", "adminPort", "healthPort", "hostNetwork", "networkPolicy", "identifiers.type", "nodeSelector.*",
			"resources.requests.*", "resources.limits.*", "extraArgs.name"},
		"gateway.":      {"enabled", "form", "replicas", "image", "port", "healthPort", "serviceType", "hosts", "allow", "deny", "networkPolicy", "nodeSelector.*", "extraArgs.name"},
		"tunnelAPI.":    {"enabled", "image", "replicas", "port"},
		"aggregation.":  {"allowedNames", "enableAggregatorRouting"},
		"pki.":          {"algorithm", "validity", "caValidity", "validitySeconds", "caValiditySeconds"},
		"controlPlane.": {"pkiDir", "manifestsDir", "egressSelectorFile"},
	} {
		for _, f := range fields {
			out = append(out, prefix+part+f)
		}
	}
	return out
}

// every object has these.
var common = []string{"kind", "apiVersion", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.creationTimestamp", "metadata.deletionTimestamp", "metadata.generation",
	"metadata.ownerReferences.kind", "metadata.ownerReferences.name"}

// pick returns the part of any object that the fields of its kind allow.
func pick(kind string, object any) (any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	return keep(v, treeOf(append(append([]string{}, common...), Fields[kind]...)...)), nil
}

// keep returns nil where nothing is allowed.
func keep(v any, allowed tree) any {
	switch v := v.(type) {
	case map[string]any:
		return keepMap(v, allowed)
	case []any:
		var out []any
		for _, item := range v {
			if kept := keep(item, allowed); kept != nil {
				out = append(out, kept)
			}
		}
		if out == nil {
			return nil
		}
		return out
	case string:
		if allowed != nil {
			return nil
		}
		return redact.Text(v)
	}
	if allowed != nil {
		return nil
	}
	return v
}

func keepMap(v map[string]any, allowed tree) any {
	out := map[string]any{}
	wild, all := allowed["*"]
	for key, value := range v {
		below, ok := allowed[key]
		if !ok && all {
			below, ok = wild, true
		}
		if !ok {
			continue
		}
		if kept := keep(value, below); kept != nil {
			out[key] = kept
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
