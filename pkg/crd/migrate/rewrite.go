// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
)

// fieldManager names the writer; an empty patch leaves no trace of it.
const fieldManager = "fairlead-crd-migrate"

// transient are the attempts after failures that may pass, and the pauses between them.
var transient = wait.Backoff{Steps: 5, Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2}

// retrying calls do again after failures that may pass, and returns the last one. retry.OnError
// of client-go is of no use here: it takes a request that timed out for the end of the caller's
// time, and then returns nil.
func retrying(ctx context.Context, do func() error) error {
	pauses := transient
	for {
		err := do()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause := pauses.Step()
		if !passing(err) || pauses.Steps == 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rewrite goes through all objects page by page.
func (m *Migrator) rewrite(ctx context.Context, p *plan, r *Result, onlyCleanUp bool) error {
	list := metav1.ListOptions{Limit: m.options.PageSize}
	for {
		page, err := m.page(ctx, p, &list)
		if err != nil {
			return err
		}
		if err := m.rewritePage(ctx, p, r, page.Items, onlyCleanUp); err != nil {
			return err
		}
		if m.options.Progress != nil {
			m.options.Progress(*r)
		}
		if list.Continue = page.Continue; list.Continue == "" {
			return nil
		}
	}
}

// page reads one page. A continue token that has expired is replaced by the API server's
// new one, which goes on at the same object: newer objects are in the storage version.
func (m *Migrator) page(ctx context.Context, p *plan, o *metav1.ListOptions) (page *metav1.PartialObjectMetadataList, err error) {
	err = retrying(ctx, func() error {
		page, err = m.metadata.Resource(p.resource).List(ctx, *o)
		var status apierrors.APIStatus
		if apierrors.IsResourceExpired(err) && o.Continue != "" && errors.As(err, &status) {
			o.Continue = status.Status().ListMeta.Continue
			page, err = m.metadata.Resource(p.resource).List(ctx, *o)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("list %s in version %s: %w: if a conversion fails, repair the webhook and run the command again", p.definition.Name, p.resource.Version, err)
	}
	return page, err
}

func (m *Migrator) rewritePage(ctx context.Context, p *plan, r *Result, items []metav1.PartialObjectMetadata, onlyCleanUp bool) error {
	var lock sync.Mutex
	var group sync.WaitGroup
	work := make(chan *metav1.PartialObjectMetadata)
	for range min(workers, len(items)) {
		group.Go(func() {
			for item := range work {
				o := m.object(ctx, p, item, onlyCleanUp)
				lock.Lock()
				if ctx.Err() == nil || o.err == nil { // otherwise it was not seen
					o.count(r, item)
				}
				lock.Unlock()
			}
		})
	}
	for i := range items {
		if ctx.Err() != nil {
			break
		}
		work <- &items[i]
	}
	close(work)
	group.Wait()
	return ctx.Err()
}

// outcome is what became of one object.
type outcome struct {
	rewritten, cleaned, gone bool
	err                      error
}

func (o outcome) count(r *Result, item *metav1.PartialObjectMetadata) {
	if o.err != nil {
		r.Failed = append(r.Failed, Failure{Namespace: item.Namespace, Name: item.Name, Reason: o.err.Error()})
	}
	r.Objects++
	for counter, yes := range map[*int]bool{&r.Rewritten: o.rewritten, &r.Cleaned: o.cleaned, &r.Gone: o.gone} {
		if yes {
			*counter++
		}
	}
}

// object rewrites one object by a patch that changes nothing but old managedFields: the API
// server stores the result in the storage version.
func (m *Migrator) object(ctx context.Context, p *plan, item *metav1.PartialObjectMetadata, onlyCleanUp bool) (o outcome) {
	client := m.metadata.Resource(p.resource).Namespace(item.Namespace)
	current := item
	o.err = retrying(ctx, func() error {
		body, cleans := patchOf(p, current)
		if onlyCleanUp && !cleans {
			return nil
		}
		after, err := m.patch(ctx, client, p, current.Name, body)
		if apierrors.IsConflict(err) {
			if fresh, getErr := client.Get(ctx, current.Name, metav1.GetOptions{}); getErr == nil {
				current = fresh
			}
		}
		if err != nil {
			return err
		}
		o.rewritten, o.cleaned = after.ResourceVersion != current.ResourceVersion, cleans
		return nil
	})
	if apierrors.IsNotFound(o.err) {
		return outcome{gone: true}
	}
	return o
}

// patch sends the patch. If admission or validation refuses the object, the status
// subresource is tried, which most admission webhooks let pass: it stores the whole object.
func (m *Migrator) patch(ctx context.Context, client metadata.ResourceInterface, p *plan, name string, body []byte) (*metav1.PartialObjectMetadata, error) {
	o := metav1.PatchOptions{FieldManager: fieldManager}
	if m.options.DryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	after, err := client.Patch(ctx, name, types.MergePatchType, body, o)
	if p.status && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)) {
		if byStatus, statusErr := client.Patch(ctx, name, types.MergePatchType, body, o, "status"); statusErr == nil {
			return byStatus, nil
		}
	}
	return after, err
}

// passing reports whether another attempt may succeed. A request without an answer in time is one
// of those.
func passing(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || utilnet.IsTimeout(err) || utilnet.IsHTTP2ConnectionLost(err) || apierrors.IsConflict(err) || apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}

// patchOf is the patch of an object, and whether it removes managedFields. With those the
// object must be the one that was read.
func patchOf(p *plan, item *metav1.PartialObjectMetadata) ([]byte, bool) {
	kept, cleans := keep(item.ManagedFields, p)
	if !cleans {
		return []byte("{}"), false
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": kept, "resourceVersion": item.ResourceVersion}})
	if err != nil {
		return []byte("{}"), false
	}
	return body, true
}
