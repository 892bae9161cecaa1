// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// places bounds the watches of all resources: each holds a connection, its goroutines and the events that wait for it.
type places struct {
	most  int64
	taken atomic.Int64
}

// take takes a place, or says that none is free.
func (p *places) take() error {
	if p.taken.Add(1) <= p.most {
		return nil
	}
	p.give()
	return apierrors.NewTooManyRequests(fmt.Sprintf("%d watches are open: end some of them, or raise --max-watches of fairlead-apiserver", p.most), 5)
}

func (p *places) give() { p.taken.Add(-1) }
