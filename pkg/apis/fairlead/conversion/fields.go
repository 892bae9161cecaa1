// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"math"
	"net/url"
	"strings"
	"time"
)

// kinds has the fields that differ between versions, by kind.
var kinds = map[string][]rule{
	"Bundle": {
		duration("spec.scheduler.leaderElection", "leaseDuration"),
		duration("spec.scheduler.leaderElection", "renewDeadline"),
		duration("spec.scheduler.leaderElection", "retryPeriod"),
		duration("spec.konnectivity.server", "drainTimeout"),
		duration("spec.pki", "validity"),
		duration("spec.pki", "caValidity"),
		addresses("spec.konnectivity"),
		hostNetwork("spec.konnectivity.agent"),
		identifiers("spec.konnectivity.agent"),
	},
	"TunnelPool": {
		addresses("spec"),
		hostNetwork("spec"),
		identifiers("spec"),
	},
}

// duration moves a duration such as 12s to a number of seconds.
func duration(parent, name string) rule {
	seconds := name + "Seconds"
	return rule{
		parent: parent, old: []string{name}, new: []string{seconds},
		oldType: func(_ string, v any) bool { return is[string](v) },
		newType: func(_ string, v any) bool { return isInt32(v) },
		up: func(f map[string]any) map[string]any {
			text, ok := f[name].(string)
			if !ok {
				return nil
			}
			d, err := time.ParseDuration(text)
			if err != nil {
				return nil
			}
			// Rounded away from zero: a short duration must not become none.
			n := int64(d / time.Second)
			if rest := d % time.Second; rest > 0 {
				n++
			} else if rest < 0 {
				n--
			}
			return map[string]any{seconds: min(max(n, math.MinInt32), math.MaxInt32)}
		},
		down: func(f map[string]any) map[string]any {
			n, ok := f[seconds].(int64)
			if !ok || n > math.MaxInt64/int64(time.Second) || n < math.MinInt64/int64(time.Second) {
				return nil
			}
			return map[string]any{name: (time.Duration(n) * time.Second).String()}
		},
	}
}

// hostNetwork moves a bool to an enum.
func hostNetwork(parent string) rule {
	const name = "hostNetwork"
	return rule{
		parent: parent, old: []string{name}, new: []string{name},
		oldType: func(_ string, v any) bool { return is[bool](v) },
		newType: func(_ string, v any) bool { return is[string](v) },
		up: func(f map[string]any) map[string]any {
			switch f[name] {
			case true:
				return map[string]any{name: "Enabled"}
			case false:
				return map[string]any{name: "Disabled"}
			}
			return nil
		},
		down: func(f map[string]any) map[string]any {
			switch f[name] {
			case "Enabled":
				return map[string]any{name: true}
			case "Disabled":
				return map[string]any{name: false}
			}
			return nil
		},
	}
}

// addresses moves serverHost and agentPort to a list of one address.
func addresses(parent string) rule {
	const host, port, list = "serverHost", "agentPort", "serverAddresses"
	return rule{
		parent: parent, old: []string{host, port}, new: []string{list},
		oldType: hostOrPort,
		newType: func(_ string, v any) bool { return isList(v, hostOrPort, "host", "port") },
		up: func(f map[string]any) map[string]any {
			address := map[string]any{}
			if v, ok := f[host].(string); ok && v != "" {
				address["host"] = v
			}
			if v, ok := f[port].(int64); ok && v != 0 && isInt32(v) {
				address["port"] = v
			}
			if len(address) > 0 {
				return map[string]any{list: []any{address}}
			}
			if f[host] == "" {
				return map[string]any{list: []any{}} // the default, in both versions
			}
			return nil
		},
		down: func(f map[string]any) map[string]any {
			all, ok := f[list].([]any)
			if !ok {
				return nil
			}
			if len(all) == 0 {
				return map[string]any{host: ""}
			}
			first, _ := all[0].(map[string]any)
			out := map[string]any{}
			if v, ok := first["host"].(string); ok && v != "" {
				out[host] = v
			}
			if v, ok := first["port"].(int64); ok && v != 0 && isInt32(v) {
				out[port] = v
			}
			return out
		},
	}
}

// identifierTypes are the kinds in the URL-encoded string and their types in the list.
var identifierTypes = [][2]string{
	{"host", "Host"}, {"ipv4", "IPv4"}, {"ipv6", "IPv6"}, {"cidr", "CIDR"}, {"default-route", "DefaultRoute"},
}

// identifierEscapes are the bytes that cannot stand for themselves in the string.
// Variables such as $(NODE_NAME) must, because the kubelet replaces them.
var identifierEscapes = strings.NewReplacer("%", "%25", "&", "%26", "=", "%3D", "+", "%2B", ";", "%3B", " ", "+", "#", "%23")

// identifiers moves a URL-encoded string to a list.
func identifiers(parent string) rule {
	const name = "identifiers"
	return rule{
		parent: parent, old: []string{name}, new: []string{name},
		oldType: func(_ string, v any) bool { return is[string](v) },
		newType: func(_ string, v any) bool {
			return isList(v, func(_ string, v any) bool { return is[string](v) }, "type", "value")
		},
		up: func(f map[string]any) map[string]any {
			text, ok := f[name].(string)
			if ok && text == "" {
				return map[string]any{name: []any{}} // none, in both versions
			}
			var list []any
			for part := range strings.SplitSeq(text, "&") {
				kind, value, _ := strings.Cut(part, "=")
				value, err := url.QueryUnescape(value)
				if t := lookup(identifierTypes, 0, kind, 1); t != "" && err == nil {
					list = append(list, map[string]any{"type": t, "value": value})
				}
			}
			if len(list) == 0 {
				return nil
			}
			return map[string]any{name: list}
		},
		down: func(f map[string]any) map[string]any {
			list, ok := f[name].([]any)
			if ok && len(list) == 0 {
				return map[string]any{name: ""}
			}
			var parts []string
			for _, item := range list {
				identifier, _ := item.(map[string]any)
				t, _ := identifier["type"].(string)
				value, _ := identifier["value"].(string)
				if kind := lookup(identifierTypes, 1, t, 0); kind != "" {
					parts = append(parts, kind+"="+identifierEscapes.Replace(value))
				}
			}
			if len(parts) == 0 {
				return nil
			}
			return map[string]any{name: strings.Join(parts, "&")}
		},
	}
}

func lookup(table [][2]string, by int, key string, column int) string {
	for _, row := range table {
		if row[by] == key {
			return row[column]
		}
	}
	return ""
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func isInt32(v any) bool {
	n, ok := v.(int64)
	return ok && n >= math.MinInt32 && n <= math.MaxInt32
}

// hostOrPort reports whether a value is a host's or a port's, by the field's name.
func hostOrPort(name string, v any) bool {
	if strings.HasSuffix(strings.ToLower(name), "port") {
		return isInt32(v)
	}
	return is[string](v)
}

// isList reports whether a value is a list of objects with no other fields than those named.
func isList(v any, typed func(name string, value any) bool, names ...string) bool {
	list, ok := v.([]any)
	for _, item := range list {
		fields, isObject := item.(map[string]any)
		ok = ok && isObject && fits(fields, names, typed)
	}
	return ok
}
