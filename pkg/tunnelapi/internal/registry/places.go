// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// places bounds the watches of all resources, and those of each user, so that one user cannot take all of them: each holds
// a connection, its goroutines and the events that wait for it.
type places struct {
	most, perUser int

	mu    sync.Mutex
	taken int
	users map[string]int
}

// take takes a place, or says that none is free. give returns it, and is to be called once.
func (p *places) take(ctx context.Context) (give func(), err error) {
	user := ""
	if u, ok := request.UserFrom(ctx); ok {
		user = u.GetName()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d watches are open: end some of them, or raise --max-watches of fairlead-apiserver", p.most), 5)
	}
	if p.users[user] >= p.perUser {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d watches of user %q are open: end some of them, or raise --max-watches-per-user of fairlead-apiserver", p.perUser, user), 5)
	}
	if p.users == nil {
		p.users = map[string]int{}
	}
	p.taken++
	p.users[user]++
	return func() { p.give(user) }, nil
}

func (p *places) give(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.users[user]--; p.users[user] == 0 {
		delete(p.users, user)
	}
}
