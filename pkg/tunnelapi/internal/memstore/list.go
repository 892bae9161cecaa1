// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// Messages of a list at a resource version that the store has forgotten. Clients of Kubernetes know them from etcd.
const (
	listExpired     = "The resourceVersion for the provided list is too old."
	continueExpired = "The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - " +
		"objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)

// GetList implements storage.Interface.
func (s *Store) GetList(_ context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	prefix, err := storage.PrepareKey(s.prefix, key, opts.Recursive)
	if err != nil {
		return err
	}
	itemsPtr, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(itemsPtr)
	if err != nil || items.Kind() != reflect.Slice {
		return fmt.Errorf("need a pointer to a slice: %w", err)
	}
	wanted, from, err := storage.ValidateListOptions(prefix, versioner, opts)
	if err != nil {
		return err
	}
	objects, rv, err := s.snapshot(uint64(max(wanted, 0)), opts, from, prefix)
	if err != nil {
		return err
	}
	p := page{prefix: prefix, opts: opts, items: items}
	p.fill(objects, from)
	if p.err != nil {
		return p.err
	}
	token, remaining, err := storage.PrepareContinueToken(p.last, prefix, int64(rv), p.count, p.more, opts)
	if err != nil {
		return err
	}
	return versioner.UpdateList(list, rv, token, remaining)
}

// snapshot returns the objects that a list is about, and their resource version.
func (s *Store) snapshot(wanted uint64, opts storage.ListOptions, from, prefix string) (*tree, uint64, error) {
	s.mu.Lock() // Clone changes the tree
	defer s.mu.Unlock()
	if err := atLeast(opts.ResourceVersion, s.rv); err != nil {
		return nil, 0, err
	}
	switch {
	case wanted == 0:
		return s.now.Clone(), s.rv, nil
	case wanted < s.compacted || wanted > s.rv && opts.Predicate.Continue != "":
		return nil, 0, expired(opts.Predicate.Continue != "", from, prefix)
	case wanted > s.rv:
		return nil, 0, storage.NewTooLargeResourceVersionError(wanted, s.rv, 0)
	}
	return s.atLocked(wanted), wanted, nil
}

// expired is the answer to a list at a resource version that the store has forgotten, and to a later page of a list of a
// store that was made later: it is never reached, and clients go on, or begin again, only if the list has expired. For a later page it has a token
// with which the client can go on at the latest resource version.
func expired(paging bool, from, prefix string) error {
	if !paging {
		return apierrors.NewResourceExpired(listExpired)
	}
	token, err := storage.EncodeContinue(from, prefix, -1)
	if err != nil {
		return apierrors.NewResourceExpired(listExpired)
	}
	status := apierrors.NewResourceExpired(continueExpired)
	status.ErrStatus.Continue = token
	return status
}

// page collects the objects of a page.
type page struct {
	prefix string
	opts   storage.ListOptions
	items  reflect.Value

	last  string // key of the last object that was looked at
	count int64  // of all objects from the start of the page
	more  bool
	err   error
}

func (p *page) fill(objects *tree, from string) {
	limit := p.opts.Predicate.Limit
	p.items.Set(reflect.MakeSlice(p.items.Type(), 0, 0))
	objects.AscendGreaterOrEqual(entry{key: max(from, p.prefix)}, func(e entry) bool {
		if !within(e.key, p.prefix, p.opts.Recursive) {
			return false
		}
		p.count++
		if limit > 0 && int64(p.items.Len()) >= limit {
			p.more = true
			return p.opts.Predicate.Empty() // only then the answer has the number of remaining objects
		}
		p.last = e.key
		matched, err := p.opts.Predicate.Matches(e.obj)
		if err == nil && matched {
			p.items.Set(reflect.Append(p.items, reflect.ValueOf(e.obj).Elem()))
		}
		return true
	})
}

func badVersion(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
}
