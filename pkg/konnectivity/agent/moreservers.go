// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// tryFurther opens further links to servers that want several and have fewer, one at a time
// unless that takes long: an address may lead to any of them.
func (s *search) tryFurther(ctx context.Context) {
	thin := s.a.thinServers()
	maps.DeleteFunc(s.further, func(id string, r *route) bool { return r.tries == 0 && thin[id] == "" })
	for _, r := range s.further {
		if r.tries > 0 && !s.reached(r.since.Add(slowAfter)) {
			return
		}
	}
	ids := slices.Sorted(maps.Keys(thin))
	for _, id := range ids {
		r := s.route(s.further, id)
		if r.tries > 0 || !s.reached(r.next) {
			continue
		}
		if r.alone { // a server that knows of one ID only refuses several
			ids = []string{id}
		}
		s.tryOneMore(ctx, thin[id], ids, r)
		return
	}
}

// tryOneMore connects to the address of a server, and takes any of these that it leads to.
func (s *search) tryOneMore(ctx context.Context, addr string, ids []string, r *route) {
	s.begin(r)
	s.reached(r.since.Add(slowAfter)) // from when on another may begin
	s.run(func() func() {
		err := s.open(ctx, addr, strings.Join(ids, ","))
		return func() {
			s.end(r, err == nil)
			if errors.Is(err, errDuplicate) {
				r.alone = len(ids) > 1
			}
			if err == nil {
				r.next = time.Time{}
			} else {
				s.a.cfg.Logger.V(2).Info("Cannot open a further link", "servers", ids, "err", err)
			}
		}
	})
}
