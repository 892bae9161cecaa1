// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// current is an object as a writer found it.
type current struct {
	obj runtime.Object // a copy, or a new object if there is none
	rv  uint64         // 0 if there is none
}

func (s *Store) current(key string, ignoreNotFound bool) (current, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.now.Get(entry{key: key})
	switch {
	case ok:
		return current{e.obj.DeepCopyObject(), e.rv}, nil
	case ignoreNotFound:
		return current{obj: s.newFunc()}, nil
	}
	return current{}, storage.NewKeyNotFoundError(key, 0)
}

// suggested is what a caller believes that the object is.
func suggested(obj runtime.Object) (current, error) {
	rv, err := versioner.ObjectResourceVersion(obj)
	if err != nil {
		return current{}, fmt.Errorf("read the resource version of the cached object: %w", err)
	}
	return current{obj.DeepCopyObject(), rv}, nil
}

// attempt runs try with the suggestion first, if there is one. If that fails, or the object has changed meanwhile, it
// runs try again with the object as it is. try returns false if the object has changed.
func (s *Store) attempt(key string, ignoreNotFound bool, suggestion runtime.Object, try func(current) (bool, error)) error {
	var c current
	var err error
	fresh := suggestion == nil
	if fresh {
		c, err = s.current(key, ignoreNotFound)
	} else {
		c, err = suggested(suggestion)
	}
	if err != nil {
		return err
	}
	for {
		done, err := try(c)
		if done || err != nil && fresh {
			return err
		}
		before := c.rv
		var gone error
		if c, gone = s.current(key, ignoreNotFound); gone != nil {
			return gone
		}
		if err != nil && c.rv == before {
			return err // the suggestion was right
		}
		fresh = true
	}
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, out runtime.Object, pre *storage.Preconditions,
	validate storage.ValidateObjectFunc, suggestion runtime.Object, _ storage.DeleteOptions) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	return s.attempt(key, false, suggestion, func(c current) (bool, error) {
		if err := pre.Check(key, c.obj); err != nil {
			return false, err
		}
		if err := validate(ctx, c.obj); err != nil {
			return false, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if e, ok := s.now.Get(entry{key: key}); !ok || e.rv != c.rv {
			return false, nil
		}
		last, err := s.removeLocked(key)
		if err != nil {
			return true, err
		}
		return true, set(out, last.DeepCopyObject())
	})
}

// GuaranteedUpdate implements storage.Interface.
func (s *Store) GuaranteedUpdate(_ context.Context, key string, out runtime.Object, ignoreNotFound bool,
	pre *storage.Preconditions, update storage.UpdateFunc, suggestion runtime.Object) error {
	key, err := storage.PrepareKey(s.prefix, key, false)
	if err != nil {
		return err
	}
	return s.attempt(key, ignoreNotFound, suggestion, func(c current) (bool, error) {
		if err := pre.Check(key, c.obj); err != nil {
			return false, err
		}
		obj, ttl, err := update(c.obj.DeepCopyObject(), storage.ResponseMeta{ResourceVersion: c.rv})
		if err != nil {
			return false, err
		}
		if err := versioner.PrepareObjectForStorage(obj); err != nil {
			return true, fmt.Errorf("prepare object for storage: %w", err)
		}
		return s.replace(key, c, obj, ttl, out)
	})
}

// replace puts an object in the place of c, unless that has changed. An equal object changes nothing.
func (s *Store) replace(key string, c current, obj runtime.Object, ttl *uint64, out runtime.Object) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.now.Get(entry{key: key})
	if ok != (c.rv != 0) || ok && e.rv != c.rv {
		return false, nil
	}
	if ok {
		same := e.obj.DeepCopyObject()
		if err := versioner.PrepareObjectForStorage(same); err != nil {
			return true, err
		}
		if apiequality.Semantic.DeepEqual(same, obj) {
			return true, set(out, e.obj.DeepCopyObject())
		}
	}
	kept := obj.DeepCopyObject()
	rv, err := s.putLocked(key, kept)
	if err != nil {
		return true, err
	}
	if ttl != nil {
		s.expireLater(key, rv, *ttl)
	}
	return true, set(out, kept.DeepCopyObject())
}
