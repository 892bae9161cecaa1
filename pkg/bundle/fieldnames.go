// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
)

// renamed are fields that v1beta1 names otherwise than package v1alpha1, whose rules
// speak of its own.
var renamed = strings.NewReplacer(
	"konnectivity.serverHost", "konnectivity.serverAddresses[0].host", "konnectivity.agentPort", "konnectivity.serverAddresses[0].port",
	"leaderElection.leaseDuration", "leaderElection.leaseDurationSeconds", "leaderElection.renewDeadline", "leaderElection.renewDeadlineSeconds",
	"leaderElection.retryPeriod", "leaderElection.retryPeriodSeconds", "server.drainTimeout", "server.drainTimeoutSeconds",
	"pki.validity", "pki.validitySeconds", "pki.caValidity", "pki.caValiditySeconds",
)

// inSeconds are examples and limits of durations, which v1beta1 has as numbers.
var inSeconds = strings.NewReplacer("such as 2s", "such as 2", "such as 9000h", "such as 32400000", "at least 1s", "at least 1", "whole seconds from 0s to 1h", "from 0 to 3600")

// identifierTypes are the kinds of identifiers of package v1alpha1, and their types in v1beta1.
var identifierTypes = map[string]string{"host": "Host", "ipv4": "IPv4", "ipv6": "IPv6", "cidr": "CIDR", "default-route": "DefaultRoute"}

// identified are identifiers in the rules' messages, and as v1beta1 has them.
var identified = func() *strings.Replacer {
	pairs := []string{
		"host=$(NODE_NAME)&ipv4=$(HOST_IP)", "{type: Host, value: $(NODE_NAME)} and {type: IPv4, value: $(HOST_IP)}",
		"default-route=true", `{type: DefaultRoute, value: "true"}`,
		" ipv4 or ipv6", " IPv4 or IPv6",
	}
	for kind, t := range identifierTypes {
		pairs = append(pairs, `"`+kind+`"`, `"`+t+`"`, kind+"=:", t+" without a value:", kind+"=", t+" ")
	}
	return strings.NewReplacer(pairs...)
}()

// inVersion names the fields and values in errors as the file's version does.
func inVersion(errs field.ErrorList, data []byte) field.ErrorList {
	if len(Warnings(data)) > 0 {
		return errs
	}
	for _, e := range errs {
		name := renamed.Replace(e.Field)
		if name != e.Field && strings.HasSuffix(name, "Seconds") {
			e.Detail, e.BadValue = inSeconds.Replace(e.Detail), seconds(e.BadValue)
		}
		if strings.HasSuffix(name, ".identifiers") {
			e.BadValue = listed(e.BadValue)
		}
		if strings.HasSuffix(name, ".identifiers") || strings.HasSuffix(name, ".proxyStrategies") {
			e.Detail = identified.Replace(e.Detail)
		}
		e.Field, e.Detail = name, renamed.Replace(e.Detail)
	}
	return errs
}

// seconds is a duration as a number, and any other value as it is.
func seconds(value any) any {
	text, _ := value.(string)
	if d, err := time.ParseDuration(text); err == nil && d%time.Second == 0 {
		return int64(d / time.Second)
	}
	return value
}

// listed is a string of identifiers as v1beta1's list, and a kind as its type. Any other value stays as it is.
func listed(value any) any {
	text, _ := value.(string)
	if t := identifierTypes[text]; t != "" {
		return t
	}
	pool := map[string]any{"apiVersion": DeprecatedVersion, "kind": "TunnelPool", "spec": map[string]any{"identifiers": text}}
	if err := conversion.Convert(pool, APIVersion); err != nil {
		return value
	}
	spec, _ := pool["spec"].(map[string]any)
	if list, ok := spec["identifiers"].([]any); ok {
		return list
	}
	return value
}
