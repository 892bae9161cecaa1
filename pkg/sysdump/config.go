// SPDX-License-Identifier: Apache-2.0

package sysdump

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/fairlead-dev/fairlead/pkg/internal/redact"
)

// configurations are schedulers' and, on a control plane node, the egress selector's.
func (d *dump) configurations(context.Context) error {
	d.miss("config", d.s.Configurations.Err)
	for _, c := range d.s.Configurations.Value {
		config, err := schedulerConfiguration(c.Config.DeepCopy())
		if c.Err != nil || err != nil {
			d.miss(c.Where(), errors.Join(c.Err, err))
			continue
		}
		if err := d.addJSON(fmt.Sprintf("config/%s_%s.json", c.ConfigMap.Namespace, c.ConfigMap.Name), config); err != nil {
			return err
		}
	}
	host := d.s.Node.Value
	if d.missed("config/egress.json", d.s.Node.Err) || d.missed("config/egress.json", host.Egress.Err) {
		return nil
	}
	return d.addJSON("config/egress.json", map[string]any{"file": host.EgressFile, "egress": host.Egress.Value, "socket": host.Socket.Value})
}

// schedulerConfiguration is the part of a configuration on the list of fields. It changes config.
func schedulerConfiguration(config *schedulerv1.KubeSchedulerConfiguration) (any, error) {
	for i := range config.Extenders {
		e := &config.Extenders[i]
		e.URLPrefix = location(e.URLPrefix)
		for _, verb := range []*string{&e.FilterVerb, &e.PreemptVerb, &e.PrioritizeVerb, &e.BindVerb} {
			*verb, _, _ = strings.Cut(*verb, "?")
		}
	}
	return pick("schedulerconfiguration", config)
}

// location is where a URL leads to: its user, path and parameters may be credentials.
func location(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return redact.Mark
	}
	out := u.Scheme + "://" + u.Host
	if u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		out += "/" + redact.Mark
	}
	return out
}
