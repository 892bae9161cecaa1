// SPDX-License-Identifier: Apache-2.0

package sysdump

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// bundle is the configuration by which the checks judged, with its defaults: that of --filename, of the local cluster, or the default one.
func (d *dump) bundle(context.Context) error {
	v, err := pick("bundle", d.s.Bundle)
	if err != nil {
		return err
	}
	return d.addJSON("config/bundle.json", v)
}

// resources are Fairlead's custom resources. A cluster without the operator does not have them, and nothing is missing then.
func (d *dump) resources(ctx context.Context) error {
	for _, resource := range []string{"bundles", "schedulerprofiles", "tunnelpools"} {
		file := "objects/" + resource + ".json"
		if d.s.Reach.Err != nil {
			d.miss(file, d.s.Reach.Err)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, observe.ProbeLimit)
		data, err := d.client.Discovery().RESTClient().Get().AbsPath("/apis/"+v1beta1.GroupVersion.String(), resource).DoRaw(limited)
		cancel()
		if apierrors.IsNotFound(err) {
			continue
		}
		var list struct{ Items []any }
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil {
			d.miss(file, fmt.Errorf("list %s: %w", resource, err))
			continue
		}
		if err := addKind(d, resource, observe.Known(list.Items)); err != nil {
			return err
		}
	}
	return nil
}

// maxEvents is how many events of a namespace are collected.
const maxEvents = 2000

// events are those of the namespaces with programs, and those of nodes, which are in namespace default.
func (d *dump) events(ctx context.Context) error {
	spaces := []string{d.s.Names.Namespace, metav1.NamespaceSystem}
	for _, p := range d.s.Programs.Value {
		if p.Pod != nil {
			spaces = append(spaces, p.Pod.Namespace)
		}
	}
	slices.Sort(spaces)
	const file = "objects/events.json"
	if d.missed(file, d.s.Reach.Err) {
		return nil
	}
	events, read := observe.Known([]corev1.Event{}), false
	list := func(space, fields string) {
		limited, cancel := context.WithTimeout(ctx, observe.ProbeLimit)
		defer cancel()
		l, err := d.client.CoreV1().Events(space).List(limited, metav1.ListOptions{Limit: maxEvents, FieldSelector: fields})
		if d.missed(file+", those of namespace "+space, err) {
			return
		}
		if read = true; l.Continue != "" {
			d.miss(file+", some of namespace "+space, fmt.Errorf("it has more than %d events: \"kubectl -n %s get events\" shows all", maxEvents, space))
		}
		events.Value = append(events.Value, l.Items...)
	}
	for _, space := range slices.Compact(spaces) {
		list(space, "")
	}
	if !slices.Contains(spaces, metav1.NamespaceDefault) {
		list(metav1.NamespaceDefault, "involvedObject.kind=Node")
	}
	if !read {
		return nil
	}
	return addKind(d, "events", events)
}
